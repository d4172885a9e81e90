"""``python -m tools.docs [--check]``: man pages and generated blocks, written or compared with what is there."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.blocks import fill
from tools.commands import all_commands
from tools.manpage import page

ROOT = Path(__file__).resolve().parent.parent


def expected(root: Path) -> dict[Path, str]:
    """Every generated or partly generated file with the text it should have."""
    commands = all_commands()
    files = {root / "man" / f"{entry.page_name}.1": page(entry, commands) for entry in commands}
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        files[path] = fill(path.read_text(encoding="utf-8"), commands, root=root)
    return files


def stale(files: dict[Path, str], root: Path) -> list[Path]:
    """Files that differ from what the code says, and pages of commands that are gone."""
    wrong = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return wrong + [path for path in sorted((root / "man").glob("*.1")) if path not in files]


def main(argv: list[str]) -> int:
    """Rewrite what is stale; with ``--check`` only name it and return 1. A block that cannot be made: 2."""
    try:
        files = expected(ROOT)
    except ValueError as error:
        print(f"a block cannot be made: {error}", file=sys.stderr)
        return 2
    wrong = stale(files, ROOT)
    if argv == ["--check"]:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} differs from the code: run 'make docs' and commit the result")
        return 1 if wrong else 0
    for path in wrong:
        if path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{path.relative_to(ROOT)} {'written' if path in files else 'removed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
