"""Shell completion: the scripts are valid, and a prefix is completed in each shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli_runner import COMMAND, eactl, environment
from tools.commands import all_commands

SHELLS = ["bash", "zsh", "fish"]
TOP_LEVEL = [name for name, _ in all_commands()[0].children]


def script(shell: str) -> str:
    done = eactl(env={"_EACTL_COMPLETE": f"{shell}_source"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def complete(shell: str, *words: str) -> list[str]:
    """What completion offers for the last of the words, asked as that shell's script asks."""
    current = {"fish": words[-1]}.get(shell, str(len(words) - 1))
    environment = {"_EACTL_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": current}
    lines = eactl(env=environment).stdout.splitlines()
    if shell == "zsh":  # three lines an item: kind, value, help
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_the_shell_defines_the_completion_of_eactl(shell: str) -> None:
    assert "eactl" in script(shell)
    assert f"_EACTL_COMPLETE={shell}_complete" in script(shell)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_accepts_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completion"
    file.write_text(script(shell))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_complete(shell: str) -> None:
    assert complete(shell, "eactl", "") == TOP_LEVEL
    assert complete(shell, "eactl", "pro") == ["probe"]
    assert "convert" in complete(shell, "eactl", "trace", "con")


@pytest.mark.parametrize("shell", SHELLS)
def test_options_complete(shell: str) -> None:
    assert complete(shell, "eactl", "probe", "footprint", "--kv") == ["--kv-dtype"]


def test_bash_fills_its_reply_from_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    program = tmp_path / "eactl"
    program.write_text('#!/bin/sh\nexec "$PYTHON" -m eactl "$@"\n')
    program.chmod(0o755)
    typed = 'COMP_WORDS=(eactl trace con); COMP_CWORD=2; _eactl_completion eactl; echo "${COMPREPLY[@]}"'
    env = environment(PYTHON=COMMAND[0])
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = subprocess.run([bash, "-c", script("bash") + typed], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("convert\n", "")
