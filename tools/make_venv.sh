#!/bin/sh
# make_venv.sh PYTHON DIR: a virtual environment with a working pip. Leaves one alone that is already there.
set -eu

python=$1
venv=$2

works() {
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null &&
        "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

works && exit 0
rm -rf "$venv" # half made, or its interpreter is gone
if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    # Distributions may split ensurepip off (Debian: python3-venv). The interpreter's own pip can step in.
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv"
    "$python" -m pip --python "$venv/bin/python" install --quiet pip
fi
works || { echo "make_venv: no usable pip in $venv; install your distribution's python3-venv" >&2; exit 2; }
printf '*\n' >"$venv/.gitignore"
