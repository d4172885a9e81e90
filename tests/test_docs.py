"""The manual is made from the code: pages and blocks are compared byte for byte, links and names are followed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.source_imports import ROOT, modules
from tools import docs
from tools.blocks import fill
from tools.commands import Entry, all_commands
from tools.manpage import page, roff
from tools.manual import ENVIRONMENT, EVERYWHERE, FILES

COMMANDS = all_commands()
PAGES = sorted((ROOT / "man").glob("*.1"))
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RENEW = "run 'make docs' and commit the result"


def named(item: Entry | Path) -> str:
    return item.page_name if isinstance(item, Entry) else item.name


@pytest.mark.parametrize("entry", COMMANDS, ids=named)
def test_the_man_page_says_what_the_command_says(entry: Entry) -> None:
    path = ROOT / "man" / f"{entry.page_name}.1"
    assert path.exists(), RENEW
    assert path.read_text(encoding="utf-8") == page(entry, COMMANDS), RENEW


@pytest.mark.parametrize("entry", COMMANDS, ids=named)
def test_every_help_page_shows_examples_that_call_that_command(entry: Entry) -> None:
    examples = entry.help_text().partition("Examples:\n")[2].partition("\n\n")[0]
    assert f"{entry.name} " in examples


def test_there_is_no_page_of_a_command_that_is_gone() -> None:
    assert {path.stem for path in PAGES} == {entry.page_name for entry in COMMANDS}, RENEW


@pytest.mark.parametrize("path", MARKDOWN, ids=named)
def test_generated_blocks_say_what_the_commands_print(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == fill(text, COMMANDS, root=ROOT), RENEW


def test_the_readme_holds_the_help_of_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [entry.name for entry in COMMANDS if f"```text\n{entry.help_text()}\n```" not in text], RENEW


def test_the_readme_begins_with_two_commands_that_make_knows() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```sh\n(.+?)```", text, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first.group(1).splitlines()] == ["make run", "make test"]
    assert first.start() < 200, "the two commands come first"


@pytest.mark.parametrize("path", MARKDOWN, ids=named)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("path", MARKDOWN[1:], ids=named)
def test_the_readme_leads_to_every_page(path: Path) -> None:
    assert f"({path.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MARKDOWN, ids=named)
def test_every_command_line_shown_uses_options_that_exist(path: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
    by_name = {entry.name: entry for entry in COMMANDS}
    wrong = []
    for line in re.findall(r"^(?:\$ )?(eactl [^|>`\n]*)", text, re.MULTILINE):
        words = line.split(" -- ")[0].split()
        name = max((n for n in by_name if words[: len(n.split())] == n.split()), key=len)
        known = {option for parameter in by_name[name].ctx.command.params for option in parameter.opts}
        known |= {"--help", "-h"}
        used = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z0-9-]*(=.*)?", word)}
        wrong += [f"{line}: {option}" for option in sorted(used - known)]
    assert not wrong


def test_every_variable_the_code_reads_is_in_the_manual() -> None:
    read = {name for module in modules() if module.startswith("eactl") for name in environment_names(module)}
    in_options = {name for entry in COMMANDS for name in option_variables(entry)}
    documented = in_options | set(EVERYWHERE) | {name for names in ENVIRONMENT.values() for name in names}
    assert {name for name in read if name.startswith(("EACTL_", "_EACTL_"))} <= documented


def test_the_manual_speaks_of_existing_commands_only() -> None:
    assert set(ENVIRONMENT) | set(FILES) <= {entry.name for entry in COMMANDS}


def environment_names(module: str) -> set[str]:
    """Names in ``os.environ[...]``, ``os.environ.get(...)`` and ``os.getenv(...)``."""
    found = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            found.add(node.slice)
        elif isinstance(node, ast.Call) and node.args and re.search(r"environ\.\w+$|getenv$", ast.unparse(node.func)):
            found.add(node.args[0])
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def option_variables(entry: Entry) -> list[str]:
    names = [parameter.envvar for parameter in entry.ctx.command.params if parameter.envvar]
    return [one for name in names for one in ([name] if isinstance(name, str) else name)]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_page_is_ascii_and_troff_accepts_it(path: Path) -> None:
    text = path.read_bytes()
    assert text.isascii()
    if (groff := shutil.which("groff")) is None:
        pytest.skip("groff is not installed")
    done = subprocess.run([groff, "-man", "-ww", "-Tutf8", "-z"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_text_that_looks_like_a_request_or_an_escape_is_printed_as_it_stands() -> None:
    assert roff(".gz and \\n") == "\\&.gz and \\en"
    assert roff("β-rank") == "\\[u03B2]\\-rank"


def test_a_stale_page_is_named_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("<!-- help: eactl probe footprint -->\nold\n<!-- end -->\n")
    (tmp_path / "man").mkdir()
    (tmp_path / "man" / "eactl-gone.1").write_text("")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    assert docs.main(["--check"]) == 1
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    assert "Usage: eactl probe footprint" in (tmp_path / "README.md").read_text()
    assert not (tmp_path / "man" / "eactl-gone.1").exists()


@pytest.mark.parametrize("line", ["eactl nothing", "rm -rf /"])
def test_a_block_of_an_unknown_command_is_refused(line: str) -> None:
    for kind in ("help", "run"):
        with pytest.raises(ValueError, match=re.escape(line)):
            fill(f"<!-- {kind}: {line} -->\n<!-- end -->\n", COMMANDS, root=ROOT)
