"""``eactl probe compare``: two saved results side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eactl.cli.options import output_options
from eactl.errors import UsageError

_EPILOG = """\b
Examples:
  eactl probe compare old-node.json new-node.json
  eactl probe compare h20.json h800.json --json
"""


@click.command(epilog=_EPILOG)
@click.argument("a", type=click.Path(path_type=Path), metavar="A.json")
@click.argument("b", type=click.Path(path_type=Path), metavar="B.json")
@output_options
def compare(a: Path, b: Path, as_json: bool, output: Path | None, force: bool) -> None:
    """Two machines, or one before and after: every figure of two results of the same probe, and which is better."""
    from dataclasses import asdict

    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite
    from eactl.report.probe_compare import compare_rows, compare_text

    if output is not None:
        refuse_overwrite(output, force=force)
    one, other = _load(a), _load(b)
    rows = compare_rows(one, other)
    names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
    fields = {"a": str(a), "b": str(b), "kind": one["schema"], "rows": [asdict(row) for row in rows], "warnings": []}
    emit("compare-probes", fields, as_json=as_json, output=output, text=compare_text(rows, names, one, other))


def _load(path: Path) -> dict[str, Any]:
    import orjson

    from eactl.report.probe_compare import SCHEMAS

    hint = "save one with eactl probe obr, h2d, prefill or host and -o FILE"
    if not path.is_file():
        raise UsageError(f"no such file: {path}", where="probe compare", hint=hint)
    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error}", where=str(path), hint=hint) from error
    if not isinstance(document, dict) or document.get("schema") not in SCHEMAS:
        raise UsageError("not a saved probe result", where=str(path), hint=hint)
    return document
