"""Where a model's configuration comes from: a directory, a file, the local Hugging Face cache or the bundled table."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eactl.configs.bundled import BundledModel, bundled, find_bundled, is_quantised_name, near_names
from eactl.errors import UsageError

MAX_SPEC_CHARACTERS = 1024
MAX_CONFIG_BYTES = 16 << 20  # published files are a few KiB; a longer one is something else
_WHERE = "--model"
_HUB_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


@dataclass(frozen=True)
class ResolvedModel:
    """A model's configuration and where it was found.

    ``origin`` is directory, file, huggingface-cache or bundled; ``source`` is the path or, for a bundled shape, what
    its numbers were compared with. ``notes`` say what to be careful about.
    """

    name: str
    config: dict[str, object]
    origin: str
    source: str
    notes: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """Where it was found, for a sentence."""
        return f"the bundled table ({self.source})" if self.origin == "bundled" else self.source

    def loads_from(self, spec: str) -> str:
        """What an engine can load for the ``spec`` that named it; a bundled shape stands for no files."""
        if self.origin == "file":
            return str(Path(spec).parent)
        return f"PATH/TO/{self.name}" if self.origin == "bundled" and "/" not in spec else spec


def resolve_model(spec: str) -> ResolvedModel:
    """The configuration that ``spec`` names: a path if one exists, else a locally cached model, else a bundled name.

    Nothing is fetched. Raises UsageError when nothing is found or what is found cannot be read as a configuration.
    """
    if not spec.strip() or "\0" in spec or len(spec) > MAX_SPEC_CHARACTERS:
        what = (
            "an empty model name" if not spec.strip() else f"a model name of {len(spec)} characters, {spec[:40]!r}..."
        )
        raise UsageError(what, where=_WHERE, hint="give a directory, a config.json or a name")
    if (path := _existing(spec)) is not None:
        if path.is_dir():
            return _from_directory(path)
        return ResolvedModel(_file_name(path), read_config(path), "file", str(path))
    if (cached := _cached_config(spec)) is not None:
        return ResolvedModel(spec, read_config(cached), "huggingface-cache", str(cached))
    if (found := find_bundled(spec)) is not None:
        name, entry = found
        return ResolvedModel(name, dict(entry.config), "bundled", entry.source, tuple(_cautions(spec, entry)))
    raise _not_found(spec)


def bundled_shapes() -> list[dict[str, object]]:
    """The bundled table as plain values: name, other names, bytes per token at TP 1 (None where refused), checked."""
    from eactl.model.footprint import footprint

    shapes: list[dict[str, object]] = []
    for entry in bundled():
        try:
            weight = footprint(entry.config).bytes_per_token_rank
        except UsageError:
            weight = None
        shapes.append(
            {
                "name": entry.name,
                "names": list(entry.names),
                "bytes_per_token": weight,
                "checked": entry.is_checked,
            }
        )
    return shapes


def read_config(path: Path) -> dict[str, object]:
    """The JSON object in ``path``. Raises UsageError for a file that is too large, not JSON or not an object."""
    hint = "give the model's config.json"
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file", where=_WHERE, hint=hint)
    size = path.stat().st_size
    if path.suffix in (".gguf", ".safetensors", ".bin", ".pt"):
        raise UsageError(f"{path} holds weights", where=_WHERE, hint=f"{hint} or its directory")
    if size > MAX_CONFIG_BYTES:
        raise UsageError(f"{path} has {size:,} bytes, which no configuration has", where=_WHERE, hint=hint)
    try:
        # The standard library's parser, because published configurations hold Infinity.
        value = json.loads(path.read_bytes())
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply", where=_WHERE, hint=hint) from None
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON ({error.msg})", where=f"{path}:{error.lineno}", hint=hint) from None
    except ValueError as error:  # wrong encoding, a number of thousands of digits
        raise UsageError(f"not JSON ({str(error).split(':')[0]})", where=str(path), hint=hint) from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds {_kind(value)}, not an object", where=_WHERE, hint=hint)
    if not value:
        raise UsageError(f"{path} is empty", where=_WHERE, hint=hint)
    return value


def _existing(spec: str) -> Path | None:
    """``spec`` as the path of something that exists, or None; one that may not be looked at raises OSError."""
    try:
        path = Path(spec).expanduser()
        return path if path.exists() else None
    except RuntimeError:  # ~nobody-of-that-name
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def _from_directory(path: Path) -> ResolvedModel:
    name = path.resolve().name
    for file in ("config.json", "params.json"):  # the second is what Mistral publishes
        if (path / file).exists():
            return ResolvedModel(name, read_config(path / file), "directory", str(path / file))
    if (path / "adapter_config.json").exists():
        base = read_config(path / "adapter_config.json").get("base_model_name_or_path")
        hint = f"give its base model, {base}" if isinstance(base, str) else "give its base model"
        raise UsageError(f"{path} holds a LoRA adapter", where=_WHERE, hint=hint)
    if (path / "model_index.json").exists():
        raise UsageError(
            f"{path} holds a diffusion pipeline, which has no KV cache", where=_WHERE, hint="give a language model"
        )
    raise UsageError(f"no config.json in {path}", where=_WHERE, hint="give a directory or a file that has one")


def _file_name(path: Path) -> str:
    stem = path.name.removesuffix(".json")
    return path.resolve().parent.name if stem in ("config", "params") else stem


def _cached_config(spec: str) -> Path | None:
    """The config.json of a model in the local Hugging Face cache: what ``main`` points to, else the newest one."""
    if not _HUB_NAME.fullmatch(spec):
        return None
    folder = hub_cache() / f"models--{spec.replace('/', '--')}"
    reference = folder / "refs" / "main"
    if reference.is_file():
        file = folder / "snapshots" / reference.read_text(errors="replace").strip()[:64] / "config.json"
        if file.is_file():
            return file
    found = [file for file in folder.glob("snapshots/*/config.json") if file.is_file()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def hub_cache() -> Path:
    """Where huggingface_hub keeps models: its environment variables in its own order, else the default folder."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    return Path(home).expanduser() / "hub"


def _cautions(spec: str, entry: BundledModel) -> Iterator[str]:
    if not entry.is_checked:
        yield f"The bundled table has {entry.source}; check it against yours."
    if is_quantised_name(spec):
        yield (
            "The bundled table has the shape only: a quantised checkpoint may ask for 8-bit KV in its own config.json; "
            "--kv-dtype fp8 counts that."
        )


def _not_found(spec: str) -> UsageError:
    if spec.startswith((".", "/", "~")) or spec.endswith(".json"):
        return UsageError(f"no file or directory {spec}", where=_WHERE, hint="check the path")
    near = near_names(spec)
    if near:
        hint = f"did you mean {' or '.join(near)}? Otherwise give its directory or config.json"
    else:
        hint = (
            f"give its directory or config.json, or one of the {len(bundled())} names of 'eactl probe footprint --list'"
        )
    return UsageError(
        f"no model {spec!r} here, in the Hugging Face cache or in the bundled table", where=_WHERE, hint=hint
    )


def _kind(value: object) -> str:
    names: dict[type, str] = {
        list: "a list",
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null")
