"""The direction of imports: who may know whom, and what may be loaded when. DESIGN's rule, read from the source."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.source_imports import imports, modules

VALUES = {"eactl", "eactl.errors", "eactl.units"}

# Modules that hold results as plain values, for `report` to show.
RESULTS = {
    "eactl.sizing.result",
    "eactl.condense.result",
    "eactl.serving.prepare",
    "eactl.telemetry.record",
    "eactl.telemetry.explain",
    "eactl.telemetry.follow",
}

# part -> parts, or single modules, that it may import besides itself and plain values.
# `cli` may import everything, nobody imports `cli`. `report` sees result values, never what computes them.
MAY_IMPORT: dict[str, set[str]] = {
    "eactl.model": set(),
    "eactl.policy": set(),
    "eactl.configs": {"eactl.model"},
    "eactl.hostinfo": set(),
    "eactl.trace": {"eactl.model"},
    "eactl.condense": {"eactl.model", "eactl.trace"},
    "eactl.serving": {"eactl.model", "eactl.configs", "eactl.hostinfo", "eactl.policy", "eactl.telemetry.statefile"},
    "eactl.telemetry": {"eactl.model"},
    "eactl.report": {"eactl.model"} | RESULTS,
    "eactl.sizing": {"eactl.trace", "eactl.model", "eactl.configs", "eactl.hostinfo"},
    "eactl_probes": {"eactl.model", "eactl.hostinfo", "eactl.telemetry.prometheus"},
    "eactl_plugins": {"eactl.policy", "eactl.telemetry"},
}

# What is installed with eactl itself. Loading a module may load these and no other foreign package.
BASE = {"numpy", "orjson", "tabulate", "psutil", "zstandard"}
AT_IMPORT: dict[str, set[str]] = {
    "eactl.cli": {"click"},
    "eactl.model": {"numpy"},
    "eactl.policy": set(),
    "eactl_plugins": {"vllm", "lmcache", "torch", "prometheus_client"},
    "eactl.trace.template_worker": {"jinja2"},  # a process of its own, never imported
}

# Foreign packages that one part alone may use, even inside a function.
ONLY_IN: dict[str, set[str]] = {
    "torch": {"eactl_probes", "eactl_plugins"},
    "vllm": {"eactl_plugins"},
    "lmcache": {"eactl_plugins"},
    "pynvml": {"eactl_probes"},
    "matplotlib": {"eactl.report"},
    "click": {"eactl.cli"},
}

MODULES = sorted(modules())


def part_of(module: str) -> str:
    """``eactl.trace.readers.mooncake`` -> ``eactl.trace``; the probes and plugins are one part each."""
    return ".".join(module.split(".")[:2]) if module.startswith("eactl.") else module.split(".")[0]


def ours(target: str) -> bool:
    return target.split(".")[0] in {"eactl", "eactl_probes", "eactl_plugins"}


def foreign(target: str) -> bool:
    return not ours(target) and target.split(".")[0] not in sys.stdlib_module_names


@pytest.mark.parametrize("module", MODULES)
def test_a_part_imports_only_what_lies_below_it(module: str) -> None:
    part = part_of(module)
    if part in {"eactl.cli", "eactl.__main__"}:
        return  # the command line ties everything together
    known = part in VALUES or part in MAY_IMPORT
    assert known, f"{part} is new: give it a row in MAY_IMPORT"
    allowed = {part} | VALUES | MAY_IMPORT.get(part, set())
    wrong = [
        f"line {i.line}: {i.target}"
        for i in imports(module)
        if ours(i.target) and not allowed & {i.target, part_of(i.target)}
    ]
    assert not wrong, f"{module} may import {sorted(allowed)} only"


@pytest.mark.parametrize("module", MODULES)
def test_loading_a_module_loads_no_foreign_package_but_the_installed_ones(module: str) -> None:
    allowed = AT_IMPORT.get(module, AT_IMPORT.get(part_of(module), BASE))
    wrong = [
        f"line {i.line}: {i.target}"
        for i in imports(module)
        if i.at_import and foreign(i.target) and i.target.split(".")[0] not in allowed
    ]
    assert not wrong, f"{module} may load {sorted(allowed)} only; import the others where they are used"


@pytest.mark.parametrize("module", MODULES)
def test_a_large_package_is_used_by_its_one_owner(module: str) -> None:
    wrong = [
        f"line {i.line}: {i.target}"
        for i in imports(module)
        if part_of(module) not in ONLY_IN.get(i.target.split(".")[0], {part_of(module)})
    ]
    assert not wrong


def test_nobody_imports_what_is_run_as_a_process_of_its_own() -> None:
    importers = [module for module in MODULES for i in imports(module) if i.target == "eactl.trace.template_worker"]
    assert importers == []


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {module: {i.target for i in imports(module) if i.at_import and i.target in modules()} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_part_imports_itself_by_a_detour_even_in_function_bodies() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        below = {part_of(i.target) for i in imports(module) if ours(i.target)}
        graph.setdefault(part_of(module), set()).update(below - {part_of(module)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
