"""What the probe commands share: progress on a terminal, keeping partial results, options with one meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from eactl.errors import EactlError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


class StepProgress:
    """One line on standard error that says what is being measured; silent unless a person watches."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[Kmeasuring: {text}", err=True, nl=False)

    def clear(self) -> None:
        """Take the line off the screen."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def carry_out(
    name: str,
    measure: Callable[[StepProgress], None],
    document: Callable[[str], dict[str, Any]],
    text: Callable[[Mapping[str, Any]], str],
    *,
    is_empty: Callable[[], bool],
    as_json: bool,
    output: Path | None,
    force: bool,
) -> dict[str, Any]:
    """Measure and show. Whatever ends the measurement, what was found is shown and saved, with a status that says so.

    Ctrl-C gives status ``interrupted``, an error ``failed``; both are raised again after the result is out.
    """
    from eactl.cli.progress import show_warnings
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite

    if output is not None:
        refuse_overwrite(output, force=force)
    progress = StepProgress()
    ending: BaseException | None = None
    status = "complete"
    try:
        measure(progress)
    except KeyboardInterrupt as error:
        ending, status = error, "interrupted"
    except EactlError as error:
        ending, status = error, "failed"
    finally:
        progress.clear()
    if ending is not None and is_empty():
        raise ending
    fields = document(status)
    show_warnings(fields["warnings"])
    emit(name, fields, as_json=as_json, output=output, text="" if as_json else text(fields))
    if ending is not None:
        raise ending
    return fields


def model_options(command: F) -> F:
    """``--model``, ``--tp``, ``--kv-dtype`` and ``--kv-bytes-per-token``: what one token's KV weighs on one rank."""
    command = click.option(
        "--kv-bytes-per-token",
        type=click.IntRange(min=1),
        metavar="N",
        help="KV bytes per token and rank, instead of --model.",
    )(command)
    command = click.option("--kv-dtype", default="auto", show_default=True, help="Data type of the KV cache.")(command)
    command = click.option(
        "--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel ranks of the engine."
    )(command)
    return click.option("--model", metavar="M", help="Model directory, config.json, cached or bundled model name.")(
        command
    )


def weigh(
    model: str | None, tp: int, kv_dtype: str, given: int | None
) -> tuple[str | None, dict[str, object] | None, int | None]:
    """(model name, configuration, KV bytes per token in one rank's tier) from the model options; None where not given.

    Raises UsageError when both are given, or the model cannot be found or shared by ``tp`` ranks.
    """
    if model is None:
        return None, None, given
    from eactl.configs import resolve_model
    from eactl.configs.feedforward import complete_config
    from eactl.model.footprint import footprint

    resolved = resolve_model(model)
    config = complete_config(resolved)
    if given is not None:
        return resolved.name, config, given
    return (
        resolved.name,
        config,
        footprint(config, tp=tp, kv_dtype=kv_dtype, model=resolved.name).tier_bytes_per_token_rank,
    )


def number(value: float | None, option: str, *, low: float = 0.0) -> float | None:
    """The value, if it is a finite number above ``low`` or equal to it. Raises UsageError."""
    if value is not None and not (low <= value < float("inf")):
        raise UsageError(f"{value} is out of range", where=option, hint=f"give a number from {low:g}")
    return value
