"""Imports read from the source, so that the architecture's rules can be tested without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREES = {"eactl": ROOT, "eactl_probes": ROOT / "probes", "eactl_plugins": ROOT / "plugins"}


@dataclass(frozen=True)
class Import:
    """One imported name: its target, the line, and whether merely importing the module runs it."""

    target: str
    line: int
    at_import: bool


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, for the three packages; a package stands for its ``__init__``."""
    found = {}
    for package, base in TREES.items():
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> list[Import]:
    """Every import of the module, those in function bodies included, those for type checkers only left out."""
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    return [found for node in tree.body for found in _visit(node, at_import=True)]


def _visit(node: ast.AST, *, at_import: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield Import(name.name, node.lineno, at_import)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import in line {node.lineno}: write the full name"
        for name in node.names:
            full = f"{node.module}.{name.name}"
            yield Import(full if full in modules() else str(node.module), node.lineno, at_import)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for statement in node.orelse:
            yield from _visit(statement, at_import=at_import)
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, at_import=at_import and not inside)
