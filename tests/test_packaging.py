"""What users install: the wheel's content, the source archive, and a plain installation without any GPU stack."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli_runner import ROOT
from tests.source_imports import TREES

pytest.importorskip("hatchling", reason="hatchling, which builds the archives, is not installed")

PACKAGES = set(TREES)


def build(source: Path, target: str, folder: Path) -> Path:
    """Build a wheel or sdist as pip does it, without the network, and return the one archive."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=source, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (archive,) = folder.iterdir()
    return archive


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def test_the_wheel_holds_every_source_file_of_the_three_packages_and_their_data(wheel: Path) -> None:
    sources = {
        str(path.relative_to(base))
        for package, base in TREES.items()
        for path in (base / package).rglob("*")
        if path.is_file() and not {"__pycache__", ".mypy_cache"} & set(path.parts)
    }
    assert {"eactl/py.typed", "eactl/cli/__init__.py", "eactl_plugins/__init__.py"} <= sources
    assert {name for name in names_in(wheel) if name.split("/")[0] in PACKAGES} == sources


def test_the_wheel_holds_nothing_else_but_metadata_and_man_pages(wheel: Path) -> None:
    others = {name for name in names_in(wheel) if name.split("/")[0] not in PACKAGES}
    pages = {path.name for path in (ROOT / "man").glob("*.1")}
    assert {name.rsplit("/", 1)[-1] for name in others if "/share/man/man1/" in name} == pages
    rest = {name for name in others if "/share/man/man1/" not in name}
    assert all(re.match(r"eactl-[^/]+\.dist-info/", name) for name in rest)
    assert any(name.endswith("/licenses/LICENSE") for name in rest)


def test_a_wheel_built_from_the_source_archive_is_the_same(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (unpacked,) = (tmp_path / "source").iterdir()
    assert (unpacked / "tests" / "test_packaging.py").exists()
    assert names_in(build(unpacked, "wheel", tmp_path / "wheel")) == names_in(wheel)


def installed(requirement: str, extra: str = "") -> dict[str, list[Path]]:
    """The distribution and what it needs here, each with the files or folders its import names stand for."""
    wanted = Requirement(requirement)
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
        return {}
    found = distribution(wanted.name)
    tops = {file.parts[0] for file in found.files or [] if not file.parts[0].startswith(("..", "__pycache__"))}
    result = {wanted.name: [Path(str(found.locate_file(top))) for top in sorted(tops)]}
    for deeper in found.requires or []:
        result |= installed(deeper)
    return result


def test_a_plain_installation_sizes_a_trace_without_torch_or_any_extra(wheel: Path, tmp_path: Path) -> None:
    venv, packages = tmp_path / "venv", tmp_path / "packages"
    packages.mkdir()
    shutil.unpack_archive(wheel, packages, "zip")
    metadata = next(packages.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    needed: dict[str, list[Path]] = {}
    for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE):
        needed |= installed(line)
    assert not {"torch", "vllm", "lmcache", "matplotlib"} & set(needed)
    for paths in needed.values():
        for path in paths:
            (packages / path.name).symlink_to(path)

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # -I: neither this checkout nor this environment's packages are in reach.
        start = f"import sys; sys.path.insert(0, {str(packages)!r}); from eactl.cli import main; main()"
        command = [str(python), "-I", "-c", start, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, encoding="utf-8")

    assert run("--help").returncode == 0
    footprint = run("probe", "footprint", "--model", "Qwen3-Coder-30B-A3B", "--tp", "8", "--json")
    assert (footprint.returncode, footprint.stderr) == (0, "")
    assert json.loads(footprint.stdout)["bytes_per_token_rank"] == 24 * 1024
