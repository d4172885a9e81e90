"""``eactl condenser-check`` as a person meets it: every cause from a small log, condensers, the paper's example.

A test of a cause reads the plain text only: would it tell what to change?
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from eactl.cli import run
from tests.condense.chats import SYSTEM, Message, assistant, exchange, growing, system, tool, user

Lines = list[dict[str, Any]]
K = 1000


def check(*arguments: object) -> int:
    return run(["condenser-check", *map(str, arguments)])


def write(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def lines(*prompts: list[Message], **extra: Any) -> Lines:
    return [{"session": "s1", "turn": n, "messages": messages, **extra} for n, messages in enumerate(prompts)]


def headed(*heads: str) -> Lines:
    """Turns that only grow behind a system text that differs."""
    return lines(*([system(head), *prompt[1:]] for head, prompt in zip(heads, growing(len(heads)), strict=True)))


def with_tools(*lists: list[str]) -> Lines:
    def tools(names: list[str]) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": name, "description": f"does {name} " * 20}} for name in names]

    prompts = growing(len(lists))
    return [{**line, "tools": tools(names)} for line, names in zip(lines(*prompts), lists, strict=True)]


def sent_back(answer: Message, *, generated: Message | None = None) -> Lines:
    """A turn whose answer the next request sends back as ``answer``."""
    first = [system(), user("go")]
    second = [*first, answer, tool("result " * 80), user("on")]
    return [{**line, "response": generated} if generated and not n else line
            for n, line in enumerate(lines(first, second))]  # fmt: skip


def call(arguments: str) -> Message:
    made = {"id": "c", "type": "function", "function": {"name": "edit", "arguments": arguments}}
    return assistant("", tool_calls=[made])


def changed(place: int, message: Message) -> Lines:
    """The third turn of a growing session has another message at ``place``."""
    prompts = growing(3)
    return lines(*prompts[:2], [message if n == place else m for n, m in enumerate(prompts[2])])


def dropped(first: int, last: int, *instead: Message) -> Lines:
    prompts = growing(5)
    return lines(*prompts[:4], [*prompts[4][:first], *instead, *prompts[4][last:]])


def picture(data: str) -> Message:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": data}}]
    return {"role": "user", "content": parts}


def sliding() -> Lines:
    """From the third turn on each request leaves out one exchange more."""
    head, *_ = growing(1)
    body = [exchange(turn) for turn in range(1, 8)]
    prompts = [[*head, *(m for part in body[max(0, n - 2) : n] for m in part)] for n in range(7)]
    return lines(*prompts)


def switched(field: str, *values: str | None) -> Lines:
    made = lines(*growing(len(values)))
    return [{**line, field: value} for line, value in zip(made, values, strict=True)]


def raw(*prompts: str) -> Lines:
    return [{"session": "s1", "turn": n, "prompt": prompt} for n, prompt in enumerate(prompts)]


RULES = "\n".join(f"Rule {n}: keep answer number {n} short." for n in range(40))
REASON = assistant("", reasoning_content="because " * 60, tool_calls=call("{}")["tool_calls"])
LAST = assistant("answer 2")
CAUSES: dict[str, tuple[Callable[[], Lines], str, str]] = {
    "clock of seconds": (
        lambda: headed(*(f"Time: 2026-09-30T12:00:{n:02}Z\n{SYSTEM}" for n in (1, 2, 3))),
        "changing-value: clock with second granularity", "write it into the newest message"),
    "clock of days": (
        lambda: headed(*(f"Today is 2026-09-{n}.\n{SYSTEM}" for n in (28, 29, 30))),
        "changing-value: clock with day granularity", "Write the date into the first user message"),
    "id": (
        lambda: headed(*(f"Request id: {n}a7c2f1e-5b1d-4c9e-9d7a-0e1f2a3b4c5{n}\n{SYSTEM}" for n in (1, 2, 3))),
        "changing-value: ", "Take the value out of the prompt's head"),
    "counter": (
        lambda: headed(*(f"Step {n} of 50\n{SYSTEM}" for n in (1, 2, 3))),
        "changing-value: counter", "Take the value out of the prompt's head"),
    "billing header": (
        lambda: headed(*(f"x-anthropic-billing-header: cc_version=2.1; cch=0a{n}c7;\n{SYSTEM}" for n in (1, 2, 3))),
        "changing-value: billing header", "CLAUDE_CODE_ATTRIBUTION_HEADER=0"),
    "memory block": (
        lambda: headed(f"{SYSTEM}\n<memory>\nlikes tests\n</memory>\n{RULES}",
                       f"{SYSTEM}\n<memory>\nlikes tests and short names, dislikes long ones\n</memory>\n{RULES}"),
        "memory-block: <memory> rewritten in the system message", "into the newest user message"),
    "tools reordered": (
        lambda: with_tools(["ls", "cat", "rm"], ["rm", "ls", "cat"]),
        "tools-reordered: the same 3 tools", "Sort the tools by name"),
    "tool added": (
        lambda: with_tools(["ls", "cat"], ["ls", "cat", "rm"]),
        "tools-changed: ", "Send the full set of tools from the first request on"),
    "messages moved": (
        lambda: lines([system(), user("a " * 90), user("b " * 90), user("c")],
                      [system(), user("b " * 90), user("a " * 90), user("c"), user("d")]),
        "render-order: ", "Send the same messages in the same order"),
    "JSON written anew": (
        lambda: lines([system(), user("go"), call('{"path": "a", "new": "x"}'), tool("ok " * 90)],
                      [system(), user("go"), call('{"new":"x","path":"a"}'), tool("ok " * 90), user("on")]),
        "same-json: arguments of edit", "Keep the raw string"),
    "arguments sorted at once": (
        lambda: sent_back(call('{"a": 2, "b": 1}'), generated=call('{"b": 1, "a": 2}')),
        "same-json: arguments of edit sent back", "still differs from the generated text"),
    "reasoning stripped": (
        lambda: lines([system(), user("go")], [system(), user("go"), REASON, tool("x")],
                      [system(), user("go"), {**REASON, "reasoning_content": None}, tool("x"), LAST, user("next")]),
        "reasoning-stripped: dropped at a new user message", "pass reasoning_content back"),
    "empty think block": (
        lambda: raw("<u>Hi<a><think></think>", "<u>Hi<a>Hello<u>Next<a><think></think>"),
        "generation-prompt: ", "preserve_thinking"),
    "trailing space trimmed": (
        lambda: sent_back(assistant("Done."), generated=assistant("Done.\n\n")),
        "boundary-merge: trailing white space trimmed", "exactly as it was generated"),
    "sliding window": (sliding, "sliding-window: ", "Cut in steps"),
    "one cut": (lambda: dropped(2, 8), "truncated: 6 messages dropped", "Cut rarely and deeply"),
    "tool result masked": (
        lambda: changed(3, tool("[old tool result cleared]")),
        "masked: the tool message was replaced by a placeholder", "Mask many results at once"),
    "summary": (
        lambda: dropped(2, 11, user("Summary of the conversation so far: four files were read.")),
        "summary: 9 messages replaced by 1", "Summarise late and rarely"),
    "image encoded anew": (
        lambda: lines(*([system(), picture(f"data:image/png;base64,{data}"), user("ok")]
                        for data in ("QUJD" * 30, "QUJE" * 30))),
        "attachment: the bytes of the image changed", "encode it once and keep the result"),
    "salt": (lambda: switched("salt", "a", "b"), "salt: the cache salt changed", "Salt per tenant"),
    "model": (lambda: switched("model", "big", "small", "big"), "model-switch: from ", "Stay on one model"),
    "adapter": (lambda: switched("adapter", None, "x"), "adapter-switch: from none to x", "route by adapter"),
    "message rewritten": (
        lambda: changed(1, user("quite another task than the one before")),
        "edited: the user message was rewritten", "Append instead of editing"),
    "nothing in common": (
        lambda: raw("Hi! How can I help you today?", "I just received an order and would like to change it."),
        "unknown: the prompts have too little in common", "an id of its own"),
    "usage only": (
        lambda: [{"session": "s1", "turn": n, "prompt_tokens": 50_160 + 7_000 * n, "cached_tokens": 28_160}
                 for n in range(4)],
        "changing-value: prefix cut at token 28,160 every turn", "compare two requests there"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_is_named_with_its_place_its_loss_and_what_to_do(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, cause, remedy = CAUSES[name]
    assert check(write(tmp_path / "log.jsonl", make())) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    found = re.search(
        rf"1\. {re.escape(cause)}.*? tokens lost \([\d.]+% of all\).*?To do: (.*?\.)(?: 2\. | Session )", out
    )
    assert found, out
    assert remedy in found.group(1)
    assert re.search(r"at session s1, turn \d", out)


def test_what_the_server_renders_first_decides_what_a_change_of_tools_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "log.jsonl", with_tools(["ls", "cat", "rm"], ["rm", "ls", "cat"]))
    lost = {}
    for head in ("tools-first", "system-first"):
        assert check(log, "--json", "--head", head) == 0
        lost[head] = json.loads(capsys.readouterr().out)["summary"]["lost_tokens"]
    assert lost["tools-first"] > lost["system-first"] > 0


def words_model(folder: Path) -> Path:
    """A model whose tokens are the words, and whose template writes messages one after the other: countable by hand."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    names = [f"{part}{n}" for part, count in (("s", 2), ("m", 48), ("f", 3), ("n", 1)) for n in range(count * K)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: n for n, name in enumerate(names)}, "s0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps({"chat_template": template}))
    return folder


def test_figure_8_from_a_log_with_the_models_own_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50K processed. Appending 1K: 51K submitted, 50K stable, 1K fresh. Folding 34K into 3K: 20K, 2K and 18K."""

    def words(part: str, start: int, count: int) -> str:
        return " ".join(f"{part}{n}" for n in range(start, start + count))

    head, body = system(words("s", 0, 2 * K)), [user(words("m", n * K, K)) for n in range(48)]
    appended = user(words("n", 0, K))
    processed = [head, *body]
    model = words_model(tmp_path / "model")
    for name, second, expected in (
        ("append", [*processed, appended], (51 * K, 50 * K, 1 * K, 0, 0)),
        ("fold", [head, user(words("f", 0, 3 * K)), *body[34:], appended], (20 * K, 2 * K, 18 * K, 31 * K, 17 * K)),
    ):
        log = write(tmp_path / f"{name}.jsonl", lines(processed, second))
        assert check(log, "--json", "--tokenizer", model) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["tokens"]["exact"] is True
        _, turn = made["sessions"][0]["turns"]
        names = ("prompt", "stable", "fresh", "removed", "lost")
        assert tuple(turn[f"{name}_tokens"] for name in names) == expected
    # Both at once: the fold against the log that only appends, and as a model run over the latter.
    append, fold = tmp_path / "append.jsonl", tmp_path / "fold.jsonl"
    spec = "summary:at=50K,keep-first=0,keep-last-tokens=15K,tokens=3K,instruction=0"
    assert check(append, "--json", "--tokenizer", model, "--against", fold, "--condense", spec) == 0
    made = json.loads(capsys.readouterr().out)
    here, there = made["against"]["rows"]
    plain, modelled = made["condensers"]
    assert (here["prompt_tokens"], there["prompt_tokens"]) == (101 * K, 70 * K)
    for row, folded in ((here, False), (plain, False), (there, True), (modelled, True)):
        assert row["prompt_tokens"] == (70 if folded else 101) * K
        assert row["stable_tokens"] == (2 if folded else 50) * K
    # The model also counts the condenser's own call, which a log without it cannot show.
    assert (modelled["own_calls"], modelled["own_prompt_tokens"], modelled["own_output_tokens"]) == (1, 34 * K, 3 * K)
    assert there["own_calls"] == 0


CONDENSERS = ("recent-events:max=6", "observation-masking:window=4", "summary:max=9,tokens=60",
              "stepwise-cut:budget=2K", "sliding-window:budget=2K",
              "microcompact:at=2K,keep=1,min-saved=200")  # fmt: skip


def test_all_condensers_are_compared_in_seconds_by_a_saved_obr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "obr.json"
    given = ["--bandwidth", "26.6", "--us-per-token", "5.6", "--overhead-us", "0", "--kv-bytes-per-token", "24576"]
    assert run(["probe", "obr", *given, "-o", str(saved)]) == 0
    capsys.readouterr()
    log = write(tmp_path / "log.jsonl", lines(*growing(12)))
    options = [part for name in CONDENSERS for part in ("--condense", name)]
    assert check(log, "--json", "--obr", saved, *options) == 0
    rows = json.loads(capsys.readouterr().out)["condensers"]
    assert [row["name"] for row in rows] == ["append-only", *CONDENSERS]
    append = rows[0]
    for row in rows[1:]:
        assert row["edits"] > 0 and row["mean_prompt_tokens"] < append["mean_prompt_tokens"]
        assert row["stable_share"] < append["stable_share"]
        assert row["seconds"] > 0 and row["amortised_s_per_turn"] > 0
        # N_inv * t_pf / L_cache, from the table's own figures
        assert row["amortised_s_per_turn"] == pytest.approx(row["amortised_tokens_per_turn"] * 5.6e-6, rel=0.01)
    assert check(log, "--obr", saved, *options) == 0
    out = capsys.readouterr().out
    for header in ("mean prompt", "hit rate", "own calls", "again/turn", "pays after", "seconds"):
        assert header in out
    assert "what an agent forgets is not in it" in re.sub(r"\s+", " ", out)


HOSTILE = {
    "attributes": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "reaches for what it must not see"),
    "imports": ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "reaches for what it must not see"),
    "a file": ("{% include '/etc/passwd' %}", "took none of 3 requests, the first: the template fails"),
    "memory": ("{{ 'a' * 10**10 }}", "uses too much memory"),
    "itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
    "no jinja": ("{% for %}", "is not valid jinja2"),
    "a template that refuses all": ("{{ raise_exception('no tools here') }}", "refuses these messages (no tools here)"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_reaches_for_what_is_not_its_own_is_refused_with_its_reason(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    template, reason = HOSTILE[name]
    (tmp_path / "t.jinja").write_text(template)
    log = write(tmp_path / "log.jsonl", lines(*growing(3)))
    assert check(log, "--chat-template", tmp_path / "t.jinja") == 2
    captured = capsys.readouterr()
    assert captured.out == "" and reason in captured.err and "root:" not in captured.err


def test_a_bomb_in_place_of_a_log_is_refused_unopened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"version": 2, "eval": {"task": "t", "model": "m"}}')
        archive.writestr("samples/1_epoch_1.json", b"a" * (1 << 20))
        archive.filelist[-1].file_size = 3 << 30  # what the archive's directory says of a real one
    assert check(tmp_path / "bomb.eval") == 2
    assert "the archive would unpack to 3072 MiB" in capsys.readouterr().err


def test_every_exit_status_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.jsonl", headed(*(f"Time: 2026-09-30T12:00:{n:02}Z\n{SYSTEM}" for n in (1, 2, 3))))
    assert check(log) == 0
    target = tmp_path / "out.json"
    assert check(log, "--fail-under", "0.5", "-o", target, "--annotate", "github") == 1
    # Below the threshold the document and the annotations are there all the same.
    assert json.loads(target.read_text())["summary"]["breaks"] == 2
    assert capsys.readouterr().out.count("::warning ") == 2
    assert check(log, "-o", target) == 2
    assert f"{target} exists" in capsys.readouterr().err
    assert check(log, "-o", target, "--force", "--fail-under", "0.01") == 0
    assert check(tmp_path / "none.jsonl") == 2 and check(log, "--chunk-tokens", "0") == 2
    assert check(log, "--format", "mooncake-and-a-half") == 2
    assert capsys.readouterr().err.count("eactl: error: ") == 3


def test_the_verdict_of_several_causes_names_the_largest_with_its_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = headed(*(f"Time: 2026-09-30T12:00:{n:02}Z\n{SYSTEM}" for n in (1, 2, 3)))
    rewritten = changed(1, user("quite another task than the one before"))
    made = [*clock, *({**line, "session": "s2"} for line in rewritten)]
    assert check(write(tmp_path / "log.jsonl", made)) == 0
    verdict = re.sub(r"\s+", " ", capsys.readouterr().out.partition("\n\n")[0])
    shape = (
        r"3 of 6 requests break the prefix: [\d.]+K tokens \([\d.]+% of all\) are computed again because of it\. "
        r"Largest cause: changing-value \(\d\d% of that\)\. Now [\d.]+% of the prompt tokens are unchanged since "
        r"the previous turn \([\d.]+% if generated text does not become the same tokens again\); "
        r"without these breaks [\d.]+%\."
    )
    assert re.fullmatch(shape, verdict), verdict
