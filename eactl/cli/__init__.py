"""The command line: one module per command, one table of commands, one error boundary."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

import eactl
from eactl.cli.lazy import ReaderLeftError, RootGroup
from eactl.errors import EactlError

# name -> (module:attribute, one line of help). Modules are imported only when their command runs.
COMMANDS = {
    "size": ("eactl.cli.size:size", "How many GiB of host KV tier do my agents need?"),
    "probe": ("eactl.cli.probe:probe", "Does restoring beat recomputing on this machine?"),
    "condenser-check": ("eactl.cli.condenser_check:condenser_check", "Which edit breaks the prefix?"),
    "serve": ("eactl.cli.serve:serve", "Start vLLM with a host tier that write admission protects."),
    "tail": ("eactl.cli.tail:tail", "What is the tier doing now?"),
    "trace": ("eactl.cli.trace:trace", "Convert, profile and synthesise agent traces."),
}

_EPILOG = """\b
Examples:
  eactl size --trace sessions.jsonl --model Qwen3-Coder-30B-A3B --tp 8
  eactl probe obr --model Qwen3-Coder-30B-A3B --tp 8
  eactl condenser-check ~/.claude/projects/my-project
  eactl serve --model ./my-model --policy conditioned --host-gib 20

\b
Shell completion (bash; zsh and fish likewise):
  eval "$(_EACTL_COMPLETE=bash_source eactl)"
"""


@click.group(
    cls=RootGroup,
    table=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(eactl.__version__, prog_name="eactl")
def cli() -> None:
    """Size, check and serve host-memory KV cache tiers for concurrent LLM agents."""


def main() -> NoReturn:
    """Run the command line and leave with the contract's exit status; never with a traceback."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit status (0 done, 1 no, 2 bad use or input, 3 not here, 130 stopped)."""
    try:
        status = cli.main(args=argv, prog_name="eactl", standalone_mode=False)
        sys.stdout.flush()  # a full disk or a closed pipe must show here, not at interpreter exit
    except EactlError as error:
        if _debugging():
            raise
        return _fail(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "eactl"
        return _fail(f"{error.format_message().rstrip('.')}, try '{where} --help'", 2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("eactl: interrupted", err=True)
        return 130
    except (ReaderLeftError, BrokenPipeError):  # head or less has enough: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if _debugging():
            raise
        where = error.filename or "the operating system"
        return _fail(f"{error.strerror or error}, {where}, check the path and the free space", 2)
    except MemoryError:
        return _fail("out of memory, reading the input, try a smaller trace or a machine with more memory", 3)
    except Exception as error:  # the boundary: a fault of ours must still be readable
        if _debugging():
            raise
        return _fail(
            f"a fault in eactl itself ({type(error).__name__}: {error}), please report it, "
            "EACTL_DEBUG=1 shows where it happened",
            2,
        )
    return status if isinstance(status, int) else 0


def _fail(text: str, status: int) -> int:
    click.echo(f"eactl: error: {text}", err=True)
    return status


def _debugging() -> bool:
    return os.environ.get("EACTL_DEBUG", "") not in ("", "0")
