"""The dashboard and the alert rules that ``eactl tail --dashboard`` prints: do they load, and do the rules fire?

PromQL is read by a parser of it; where Prometheus' own promtool is installed it has the last word.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eactl.telemetry.dashboards import dashboard_text
from eactl.telemetry.exported import exported_names

promql_parser = pytest.importorskip("promql_parser", reason="needs promql-parser (pip install -e '.[dev]')")
yaml = pytest.importorskip("yaml", reason="needs PyYAML (pip install -e '.[dev]')")

_GRAFANA = {"$__rate_interval": "1m", "$job": ".*"}


def board_queries() -> list[str]:
    """Every query of the dashboard, with a value for each of Grafana's variables."""
    queries = []
    for panel in json.loads(dashboard_text("grafana"))["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in _GRAFANA.items():
                query = query.replace(name, value)
            assert "$" not in query
            queries.append(query)
    return queries


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(dashboard_text("alerts"))
    assert set(document) == {"groups"}
    return [rule for group in document["groups"] for rule in group["rules"]]


def parts(expression: Any) -> Iterator[Any]:
    """A parsed expression and everything inside it."""
    yield expression
    inner = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for part in (*inner, *(getattr(expression, "args", None) or ())):
        if part is not None:
            yield from parts(part)


def metrics_of(query: str) -> set[str]:
    return {part.name for part in parts(promql_parser.parse(query)) if type(part).__name__ == "VectorSelector"}


@pytest.mark.parametrize("query", [*board_queries(), *(rule["expr"] for rule in rules())])
def test_every_query_is_promql_over_exported_metrics(query: str) -> None:
    used = metrics_of(query)
    assert used
    assert used <= set(exported_names())
    # a counter's own height says nothing: it is read through rate or increase, but for the panel that counts faults
    for part in parts(promql_parser.parse(query)):
        if type(part).__name__ == "VectorSelector" and part.name.endswith("_total"):
            assert part.name == "eactl:faults_total" or re.search(rf"(rate|increase)\({part.name}", query)


def test_a_query_that_is_none_and_a_metric_that_nobody_exports_would_be_found() -> None:
    with pytest.raises(ValueError):
        promql_parser.parse("rate(eactl:x_total[5m]) >")
    assert metrics_of("sum(rate(a[5m])) / on (i) max by (i) (b) and (c > 1)") == {"a", "b", "c"}


def test_the_rules_have_the_form_that_prometheus_loads() -> None:
    groups = yaml.safe_load(dashboard_text("alerts"))["groups"]
    assert all(set(group) == {"name", "rules"} and group["rules"] for group in groups)
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert {"alert", "expr", "labels", "annotations"} <= set(rule) <= {
            "alert", "expr", "for", "labels", "annotations",
        }  # fmt: skip
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", rule["alert"])
        assert re.fullmatch(r"(\d+[smhd])+", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        templates = re.findall(r"{{.*?}}", " ".join(rule["annotations"].values()))
        assert set(templates) <= {"{{ $labels.instance }}", "{{ $value }}"}


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    board = json.loads(dashboard_text("grafana"))
    assert board["uid"] and board["title"] and board["schemaVersion"] >= 36
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    used = {name for name in re.findall(r"\$\{?([a-z]\w*)", dashboard_text("grafana")) if not name.startswith("__")}
    assert used <= set(variables)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    for panel in panels:
        assert panel["title"] and panel["targets"]
        assert 0 < panel["gridPos"]["w"] <= 24 - panel["gridPos"]["x"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


# Two engines for an hour, a sample a minute: what one does wrong the other does right.
_SCENARIO = """
rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'eactl:stored_tokens_total{instance="bad"}', values: '0+600x60'}
      - {series: 'eactl:restored_tokens_total{instance="bad"}', values: '0+0x60'}
      - {series: 'eactl:computed_tokens_total{instance="bad"}', values: '0+900x60'}
      - {series: 'eactl:stored_tokens_total{instance="good"}', values: '0+600x60'}
      - {series: 'eactl:restored_tokens_total{instance="good"}', values: '0+60x60'}
      - {series: 'eactl:computed_tokens_total{instance="good"}', values: '0+900x60'}
      - {series: 'eactl:faults_total{instance="bad"}', values: '0x50 1x10'}
      - {series: 'eactl:faults_total{instance="good"}', values: '7x60'}
      - {series: 'eactl:report_age_seconds{instance="bad"}', values: '31x60'}
      - {series: 'eactl:report_age_seconds{instance="good"}', values: '1x60'}
      - {series: 'eactl:pressure{instance="bad"}', values: '1x75'}
      - {series: 'eactl:pressure{instance="good"}', values: '0 1 0x58'}
      - {series: 'eactl:failed_allocation_chunks_total{instance="bad"}', values: '0+1x60'}
      - {series: 'eactl:failed_allocation_chunks_total{instance="good"}', values: '9x60'}
      - {series: 'eactl:preemptions_total{instance="bad"}', values: '0+30x60'}
      - {series: 'eactl:requests_total{instance="bad"}', values: '0+20x60'}
      - {series: 'eactl:preemptions_total{instance="good"}', values: '0+30x60'}
      - {series: 'eactl:requests_total{instance="good"}', values: '0+40x60'}
    promql_expr_test:
"""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus' promtool on PATH")
def test_promtool_loads_the_rules_and_each_one_fires_for_the_engine_that_does_wrong(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(dashboard_text("alerts"))
    firing = "".join(
        f"""
      - expr: 'ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}}'
        eval_time: 60m
        exp_samples:
          - labels: 'ALERTS{{alertname="{rule["alert"]}", alertstate="firing", instance="bad", """
        f"""severity="{rule["labels"]["severity"]}"}}'
            value: 1"""
        for rule in rules()
    )
    (tmp_path / "scenario.yaml").write_text(_SCENARIO + firing)
    for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "scenario.yaml"]):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
