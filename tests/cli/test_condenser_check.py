"""``eactl condenser-check`` from the command line: verdict, causes, documents, pages, annotations, bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eactl.cli import run
from eactl.condense.result import Turn
from eactl.report.condense_chart import turn_chart
from tests.condense.chats import SYSTEM, Message, exchange, growing, system, user

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "inputs"


def check(*arguments: object) -> int:
    return run(["condenser-check", *map(str, arguments)])


def write(path: Path, prompts: list[list[Message]], session: str = "s1", **extra: Any) -> Path:
    lines = [{"session": session, "turn": n, "messages": m, **extra} for n, m in enumerate(prompts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """Four requests whose system prompt begins with a clock."""
    prompts = [
        [system(f"Time: 2026-09-30T12:00:{10 * n:02}Z\n{SYSTEM}"), user("go"),
         *(m for t in range(1, n + 1) for m in exchange(t))]
        for n in range(4)
    ]  # fmt: skip
    return write(tmp_path / "clock.jsonl", prompts)


@pytest.fixture
def steady(tmp_path: Path) -> Path:
    """Six requests that only append."""
    return write(tmp_path / "steady.jsonl", growing(6))


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_text_begins_with_the_verdict_and_says_where_what_and_what_to_do(
    clock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(clock) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 of 4 requests break the prefix: ")
    assert "1. changing-value: clock with second granularity\n" in out
    flat = re.sub(r"\s+", " ", out)
    assert re.search(r"worst at session s1, turn 3, message 0 \(system\), character 23, prompt token \d+, \S+:4", flat)
    assert re.search(r"was 2026-09-30T12:00:20Z\n +is  2026-09-30T12:00:30Z", out)
    assert "To do: Take the value out of the prompt's head" in out
    assert max(len(line) for line in out.splitlines() if str(clock) not in line) <= 100


def test_json_is_one_document_with_the_fields_of_the_contract(clock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(clock, "--json") == 0
    made = document(capsys)
    assert next(iter(made.items())) == ("schema", "eactl.condenser-check/1")
    [found] = made["sessions"]
    assert found["session"] == "s1" and [turn["turn"] for turn in found["turns"]] == [0, 1, 2, 3]
    turn = found["turns"][1]
    assert turn["cause"] == "changing-value"
    assert {"message", "role", "offset", "before", "after"} <= turn["where"].keys()
    # "Time: 2026-09-30T12:00:" has 23 characters; the first digit of the seconds differs.
    assert (turn["where"]["message"], turn["where"]["role"], turn["where"]["offset"]) == (0, "system", 23)
    assert (turn["where"]["before"], turn["where"]["after"]) == ("2026-09-30T12:00:00Z", "2026-09-30T12:00:10Z")
    for turn in found["turns"]:
        assert turn["prompt_tokens"] == turn["stable_tokens"] + turn["fresh_tokens"]
    summary = made["summary"]
    assert summary["prompt_tokens"] == sum(turn["prompt_tokens"] for turn in found["turns"])
    assert summary["stable_tokens"] == sum(turn["stable_tokens"] for turn in found["turns"])
    assert summary["stable_share"] == round(summary["stable_tokens"] / summary["prompt_tokens"], 6)
    assert (summary["breaks"], summary["breaks_by_cause"]) == (3, {"changing-value": 3})
    # No prefill rate was given: seconds are null, and a warning says so.
    assert summary["amortised_s_per_turn"] is None
    assert "no-prefill-rate" in [warning["code"] for warning in made["warnings"]]


def test_seconds_come_from_a_given_rate_or_a_saved_obr(
    clock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(clock, "--json", "--prefill-us-per-token", "100") == 0
    made = document(capsys)
    summary = made["summary"]
    assert summary["amortised_s_per_turn"] == pytest.approx(summary["lost_tokens"] / 3 * 100e-6, rel=1e-3)
    assert "no-prefill-rate" not in [warning["code"] for warning in made["warnings"]]
    saved = tmp_path / "obr.json"
    saved.write_text(json.dumps({
        "schema": "eactl.obr/1", "bytes_per_token_rank": 24576, "bandwidth_gib_s": 26.6, "us_per_token": 5.6,
        "overhead_us": 0, "quadratic_us_per_token2": 0,
    }))  # fmt: skip
    assert check(clock, "--json", "--obr", saved) == 0
    made = document(capsys)
    assert made["summary"]["amortised_s_per_turn"] == pytest.approx(summary["lost_tokens"] / 3 * 5.6e-6, rel=1e-3)
    assert made["reused_cost"] == round(24576 / (26.6 * 2**30) / 5.6e-6, 4)
    assert check(clock, "--obr", saved, "--prefill-us-per-token", "1") == 2
    assert "two prefill rates, --obr, --prefill-us-per-token, give one of them" in capsys.readouterr().err


@pytest.mark.parametrize(("share", "status"), [("0.5", 0), ("0.99", 1)])
def test_fail_under_answers_with_the_exit_status(
    steady: Path, share: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(steady, "--fail-under", share) == status
    captured = capsys.readouterr()
    assert captured.out.startswith("The prefix holds at every turn")
    assert (f"is below --fail-under {share}" in captured.err) == bool(status)


def test_annotations_point_at_the_line_of_the_log_and_cannot_be_broken_out_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [[system(f"id {n}a%\n::error::x {SYSTEM}"), user("go"), *(exchange(1) if n else [])] for n in range(2)]
    log = write(tmp_path / "a,b.jsonl", prompts, session="s\n::error::stolen")
    assert check(log, "--annotate", "github", "--json") == 0
    captured = capsys.readouterr()
    json.loads(captured.out)  # annotations go to standard error beside a document
    commands = [line for line in captured.err.splitlines() if line.startswith("::")]
    assert len(commands) == 2
    name = str(log).replace(",", "%2C")
    assert commands[0].startswith(f"::warning file={name},line=2,title=prefix broken%3A changing-value::session s%0A")
    assert commands[1].startswith("::notice title=eactl condenser-check::1 of 2 requests breaks the prefix")


class Page(HTMLParser):
    """Collects what a page loads and checks that its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "rect", "line"):
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "data")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_charts_every_turn(
    clock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert check(clock, "--html", target, "--condense", "recent-events:max=3") == 0
    text = target.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == [] and page.loaded == []
    assert "script" not in text and "http" not in text and "@import" not in text and "url(" not in text
    assert "3 of 4 requests break the prefix" in page.text and "recent-events:max=3" in page.text
    [svg] = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    bars = ET.fromstring(svg).findall("g")  # noqa: S314 - our own page
    assert len(bars) == 4
    # Stable, fresh and lost heights of a bar stand in the ratio of its tokens.
    made = json_of(clock, capsys)["sessions"][0]["turns"][3]
    heights = {rect.get("class"): float(rect.get("height", 0)) for rect in bars[3].findall("rect")}
    assert heights["lost"] / heights["stable"] == pytest.approx(made["lost_tokens"] / made["stable_tokens"], rel=0.05)
    assert check(clock, "--html", target) == 2
    assert "report.html exists, --html, choose another name or add --force" in capsys.readouterr().err


def json_of(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert check(path, "--json", *options) == 0
    return document(capsys)


def test_hostile_text_stays_text_in_the_page_and_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    prompts = [[system(f"{evil} id {n}a7f\n{SYSTEM}"), user("go"), *(exchange(1) if n else [])] for n in range(2)]
    log = write(tmp_path / "log.jsonl", prompts, session=f"<img src=x>{evil}")
    target = tmp_path / "r.html"
    assert check(log, "--html", target) == 0
    assert "<script>" not in target.read_text() and "<img" not in target.read_text()
    assert "\x1b" not in capsys.readouterr().out


def test_no_quotes_keeps_all_text_out_of_every_output(
    clock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "r.html"
    made = json_of(clock, capsys, "--no-quotes", "--html", str(target))
    assert "12:00" not in json.dumps(made) and "12:00" not in target.read_text()
    assert made["sessions"][0]["turns"][1]["where"]["offset"] == 23


def test_two_logs_of_the_same_tasks_are_compared_task_by_task(
    steady: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = growing(6)
    cut = write(tmp_path / "cut.jsonl", [p if n < 2 else [p[0], *p[1 + 3 * (n - 1) :]] for n, p in enumerate(full)])
    made = json_of(steady, capsys, "--against", str(cut))["against"]
    assert (made["tasks"], made["only_here"], made["only_there"]) == (1, 0, 0)
    here, there = made["rows"]
    assert (here["name"], there["name"]) == ("steady.jsonl", "cut.jsonl")
    assert here["stable_share"] > there["stable_share"] and here["mean_prompt_tokens"] > there["mean_prompt_tokens"]
    cheaper = min(made["rows"], key=lambda row: row["cost_tokens"])
    assert made["verdict"].startswith(f"{cheaper['name']} costs")
    assert check(steady, "--against", cut) == 0
    assert "Against, over 1 task\n" in capsys.readouterr().out


def test_condensers_are_compared_in_a_table(steady: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(steady, "--condense", "recent-events:max=4", "--condense", "summary:max=8,tokens=50") == 0
    out = capsys.readouterr().out
    assert re.search(r"^append-only .* 1\.00x$", out, flags=re.MULTILINE)
    assert re.search(r"^recent-events:max=4 ", out, flags=re.MULTILINE)
    assert re.search(r"^summary:max=8,tokens=50 ", out, flags=re.MULTILINE)


def test_isolation_is_shown_in_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"session": f"t{n}", "turn": 0, "cache_salt": f"t{n}", "messages": [system(), user("hi")]} for n in range(3)
    ]
    log = tmp_path / "salt.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json_of(log, capsys, "--kv-bytes-per-token", "1000")["summary"]
    assert summary["breaks_by_cause"] == {"salt": 2}
    assert summary["isolation_bytes_rank"] == 1000 * summary["isolation_tokens"] > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02", "format is not known"),
        (b"[]\n", "format is not known"),
        (b'{"session":"s","turn":0,"messages":[{"role":"user","content":"a"}]}\nnot json\n{"session":"s"}\n', ":2"),
    ],
)
def test_input_that_cannot_be_read_is_refused_with_its_place(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "bad.jsonl"
    log.write_bytes(content)
    assert check(log) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("eactl: error: ") and message in captured.err


def test_a_missing_log_wrong_condensers_and_wrong_obr_stop_before_reading(
    clock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path / "nothing.jsonl") == 2
    assert check(clock, "--condense", "recent") == 2
    assert check(clock, "--fail-under", "1.5") == 2
    obr = tmp_path / "obr.json"
    obr.write_text("{}")
    assert check(clock, "--obr", obr) == 2
    err = capsys.readouterr().err
    assert "no condenser 'recent'" in err and "not a result of eactl probe obr" in err
    assert err.count("eactl: error: ") == 4


def test_odd_messages_are_survived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd: list[Any] = [
        {"role": "system", "content": None},
        {"role": "user"},
        {"content": 7},
        {"role": "user", "content": [None, 3, "text", {"type": "strange", "x": [1]}, {"type": "text"}]},
        {"role": "assistant", "tool_calls": [None, {}, {"function": {"arguments": {"b": 1, "a": [2]}}}]},
        {"role": "tool", "content": {"deep": [[[[1]]]]}},
    ]
    log = write(tmp_path / "odd.jsonl", [odd, [*odd, user("more")]])
    assert check(log, "--json") == 0
    causes = [turn["cause"] for turn in document(capsys)["sessions"][0]["turns"]]
    assert causes == ["first-call", "append"]


def test_head_leaves_early_without_a_complaint(clock: Path) -> None:
    command = f"{sys.executable} -m eactl condenser-check {clock} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("3 of 4 requests") and "Traceback" not in done.stderr and "rror" not in done.stderr


# The public fault reports: each input names its cause and the kind behind it.
REPORTS = [
    ("a01_billing_header.jsonl", "changing-value", "CLAUDE_CODE_ATTRIBUTION_HEADER=0"),
    ("a04_usage_plateau.jsonl", "changing-value", "prefix cut at token 28,160 every turn"),
    ("a05_tool_order.jsonl", "tools-reordered", "Sort the tools by name"),
    ("a06_empty_think.json", "generation-prompt", "preserve_thinking"),
    ("a07_reasoning_drop.jsonl", "reasoning-stripped", "dropped at a new user message"),
    ("a11_json_keys.jsonl", "same-json", "Keep the raw string"),
    ("a13_trim.json", "boundary-merge", "hybrid (state-space) models"),
    ("a16_prune_cost.jsonl", "edited", "pays after 44 turns"),
    ("a17_condense_every_n.jsonl", "summary", "4 messages replaced by 1"),
    ("a19_salt.jsonl", "salt", "Isolation"),
    ("a20_lora.jsonl", "adapter-switch", "44250"),
    ("a21_images.jsonl", "attachment", "the bytes of the image changed"),
]


@pytest.mark.parametrize(("name", "cause", "said"), REPORTS, ids=[name[:3] for name, _, _ in REPORTS])
def test_a_public_report_is_named_with_its_kind(
    name: str, cause: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = CASES / name
    if not path.is_file():
        pytest.skip("no ../shared/cases beside this checkout")
    assert cause in json_of(path, capsys)["summary"]["breaks_by_cause"]
    assert check(path) == 0
    assert said in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_reports_that_ask_for_numbers_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    if not CASES.is_dir():
        pytest.skip("no ../shared/cases beside this checkout")
    summary = json_of(CASES / "a09_retokenise.json", capsys)["summary"]
    # Whole blocks of 64: 4,992 of 5,000 without the generated 700, 5,696 of 5,700 with them.
    assert (summary["reusable_tokens_lower"], summary["reusable_tokens_upper"]) == (4_992, 5_696)
    steps = json_of(CASES / "a15_hysteresis.json", capsys)["hysteresis"]
    assert (steps["every_turn_tokens_per_turn"], steps["turns_between_steps"]) == (119_000, 11)
    summary = json_of(CASES / "a22_analyser.jsonl", capsys, "--chunk-tokens", "16")["summary"]
    assert summary["stable_share"] > 0.7 and "upper bound" in summary["verdict"]


def test_the_text_says_whose_token_counts_these_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    lines = [{"session": "s", "turn": n, "messages": growing(3)[n]} for n in range(3)]
    for counted, said in ((0, "approximate tokens"), (2, "as counted in the log for 2 requests"),
                          (3, "as counted in the log)")):  # fmt: skip
        usage = {"usage": {"prompt_tokens": 900, "completion_tokens": 3}}
        log.write_text("".join(json.dumps({**line, **usage} if n < counted else line) + "\n"
                               for n, line in enumerate(lines)))  # fmt: skip
        assert check(log) == 0
        out = capsys.readouterr().out
        assert said in " ".join(out.split())  # wherever the line was broken
        assert all(len(line) <= 100 for line in out.splitlines())
        assert json_of(log, capsys)["tokens"]["counted_requests"] == counted


def test_requests_with_an_empty_prompt_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"session": "s", "prompt": text}) + "\n" for text in ("one", "", "one two")))
    assert check(log, "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["summary"]["requests"] == 2
    assert "1 request holds neither text nor a count of cached tokens and was left out" in captured.err


def test_the_page_explains_itself_to_those_who_know_nothing_of_it(clock: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    assert check(clock, "--html", target) == 0
    page = Page()
    page.feed(target.read_text())
    text = re.sub(r"\s+", " ", page.text)
    assert text.index("3 of 4 requests break the prefix") < text.index("An inference server keeps what it computed")
    for said in ("clock.jsonl", "Reusable", "stable: unchanged since the previous turn", "prompt tokens",
                 "Breaks at turns 1, 2, 3: changing-value: clock with second granularity", "All turns as a table",
                 "To do:"):  # fmt: skip
        assert said in text
    style = target.read_text().partition("<style>")[2].partition("</style>")[0]
    # Dark mode: every colour of the light palette has its counterpart; a chart on a phone is scrolled, not shrunk.
    light, dark = re.findall(r":root\{(.*?)\}", style, flags=re.DOTALL)
    assert set(re.findall(r"--\w+", light)) == set(re.findall(r"--\w+", dark))
    assert "min-width:40rem" in style and "overflow-x:auto" in style


@pytest.mark.parametrize("highest", [1, 2, 7, 59, 61, 360, 5_906, 99_999, 100_001, 1_234_567])
def test_the_axis_of_a_chart_has_round_numbers_and_room_for_every_bar(highest: int) -> None:
    turn = Turn("s", 0, highest, 0, 0, "first-call")
    svg = ET.fromstring(re.findall(r"<svg.*?</svg>", turn_chart([turn]), flags=re.DOTALL)[0])  # noqa: S314 - our own page
    ticks = svg.findall("line")
    assert 3 <= len(ticks) <= 7 or highest == 1
    top, base = float(ticks[-1].get("y1", 0)), float(ticks[0].get("y1", 0))
    [bar] = svg.findall("g/rect")
    assert top <= float(bar.get("y", 0)) < base
    assert float(bar.get("height", 0)) > 0.4 * (base - top)


def test_annotations_name_files_as_the_checkout_does(
    clock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clock.parent)
    assert check(clock, "--annotate", "github") == 0
    assert "::warning file=clock.jsonl,line=4," in capsys.readouterr().out
