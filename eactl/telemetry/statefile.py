"""The state file: one record, replaced whole every second, so that a reader never sees half of one."""

from __future__ import annotations

import glob
import json
import os
import re
from pathlib import Path

from eactl.telemetry.record import TierRecord

_MAX_BYTES = 1 << 20


def state_dir() -> Path:
    """Where engines of this user publish unless told otherwise: ``$EACTL_STATE_DIR``, else a private folder."""
    if given := os.environ.get("EACTL_STATE_DIR"):
        return Path(given)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "eactl"
    return Path("/tmp") / f"eactl-{os.getuid()}"  # noqa: S108 - checked for its owner before anything is written


def engine_file(path: Path, dp_rank: int | None) -> Path:
    """Where one engine publishes: ``path``, to which data-parallel engines each add their number."""
    return path if dp_rank is None else path.with_stem(f"{path.stem}-dp{dp_rank}")


def engine_files(path: Path) -> list[Path]:
    """The files there are of all engines that were given ``path``."""
    own = re.compile(rf"{re.escape(path.stem)}(-dp\d+)?")
    return [file for file in path.parent.glob(f"{glob.escape(path.stem)}*.json") if own.fullmatch(file.stem)]


def write_state(path: Path, record: TierRecord) -> None:
    """Replace ``path`` by the record. Raises OSError when that cannot be done."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid() and path.parent == state_dir():
        raise PermissionError(f"{path.parent} belongs to another user")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(record.to_json())
    temporary.replace(path)


def read_state(path: Path) -> TierRecord:
    """The record in ``path``. Raises OSError, or ValueError for a file that is no record."""
    with path.open("rb") as stream:
        text = stream.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"{path} is larger than a state file can be")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no JSON object")
    return TierRecord.from_dict(values)
