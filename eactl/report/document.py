"""The one JSON document a command prints (contract: first key ``schema``, units in the names)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from eactl.report.files import atomic_writer

_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def encode(name: str, fields: Mapping[str, Any], *, version: int = 1) -> bytes:
    """The document ``{"schema": "eactl.<name>/<version>", ...fields}`` as indented UTF-8."""
    return orjson.dumps({"schema": f"eactl.{name}/{version}", **fields}, option=_OPTIONS)


def emit(name: str, fields: Mapping[str, Any], *, as_json: bool, output: Path | None, text: str) -> None:
    """Write the document to ``output`` if given, and show it as JSON or as ``text`` on standard output.

    With ``output`` the table still goes to standard output unless ``as_json`` asked for the document alone.
    Callers check ``output`` with refuse_overwrite before they start working.
    """
    if output is not None:
        with atomic_writer(output) as stream:
            stream.write(encode(name, fields))
    if as_json and output is None:
        sys.stdout.buffer.write(encode(name, fields))
        sys.stdout.buffer.flush()
    elif not as_json:
        print(text)  # noqa: T201 - this is the command's answer
