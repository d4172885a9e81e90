# Two commands do all set-up on a machine that has Python 3.10 or newer, pip and make:
#   make run     size a bundled agent trace and print the answer
#   make test    every test, those against a real vLLM and LMCache included
# `make help` lists the rest. Variables: PYTHON, VENV, EACTL_TORCH_INDEX (see tools/engine_env.sh).

.SHELLFLAGS := -eu -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
ENGINE_VENV ?= .engine-venv
PAPER_VENV ?= .paper-venv
export ENGINE_VENV PAPER_VENV

py := $(VENV)/bin/python
pip := $(py) -m pip --disable-pip-version-check --quiet
engine_py := $(ENGINE_VENV)/bin/python

# The first interpreter that really runs and is new enough: a name on PATH may be an old or a dead one.
find_python = for p in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	  if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then python=$$p; break; fi; done; \
	[ -n "$${python-}" ] || { echo "make: no Python 3.10 or newer on PATH; install one or give PYTHON=/path/to/python" >&2; exit 2; }

demo := eactl/data/demo.jsonl.zst
size_demo := size --trace $(demo) --model Qwen3-Coder-30B-A3B --tp 8

.PHONY: help run test test-fast test-engine engine-env test-paper-stack lint format types docs docs-check bench probe-gpu clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.stamp-run  ## Size the bundled trace: a table and one sentence
	$(VENV)/bin/eactl $(size_demo)

test: test-fast test-engine  ## All tests

test-fast: $(VENV)/.stamp-dev  ## Tests that need neither torch nor an engine, about a minute
	$(py) -m pytest -n 2 --ignore=tests/engine

# Tests that want torch skip in the small environment; here they run, beside those that start servers.
test-engine: engine-env  ## Tests against torch and the real vLLM and LMCache on the CPU
	$(engine_py) -m pytest $(wildcard tests/engine tests/probes)

engine-env:  ## Make .engine-venv: vLLM's CPU build and LMCache, 2.8 GB
	@$(find_python); PYTHON=$$python tools/engine_env.sh current

test-paper-stack:  ## In-process mode with vLLM 0.13.0 and LMCache 0.3.12; sets them up, up to 8 GB
	@$(find_python); PYTHON=$$python tools/engine_env.sh paper
	$(PAPER_VENV)/bin/python -m pytest tests/engine/test_inprocess_admission.py

lint: $(VENV)/.stamp-dev  ## Style and common mistakes
	$(py) -m ruff check .
	$(py) -m ruff format --check .

format: $(VENV)/.stamp-dev  ## Rewrite the sources in the project's style
	$(py) -m ruff check --fix .
	$(py) -m ruff format .

types: $(VENV)/.stamp-dev  ## Static types, strict
	$(py) -m mypy
	$(py) -m mypy -p tools

docs: $(VENV)/.stamp-dev  ## Rewrite the man pages and the generated blocks of README.md and docs/
	$(py) -m tools.docs

docs-check: $(VENV)/.stamp-dev  ## Compare them with the code, byte for byte
	$(py) -m tools.docs --check

bench: $(VENV)/.stamp-dev  ## Measure speed and memory: ratios, each within one run
	@for script in tests/benchmarks/bench_*.py; do echo "== $$script"; $(py) "$$script"; echo; done

probe-gpu: $(VENV)/.stamp-dev  ## On a machine with a GPU: all probes once, into gpu-measurements/, then its tests
	$(pip) install -e '.[dev,probes]'
	$(py) -m tests.gpu.measure gpu-measurements
	$(py) -m pytest tests/gpu

clean:  ## Remove what make and the tools wrote
	rm -rf $(VENV) $(ENGINE_VENV) $(PAPER_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted installation is simply repeated.
$(VENV)/.stamp-run: pyproject.toml tools/pins.txt tools/make_venv.sh
	@$(find_python); tools/make_venv.sh "$$python" $(VENV)
	$(pip) install -c tools/pins.txt -e .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml tools/pins.txt tools/make_venv.sh
	@$(find_python); tools/make_venv.sh "$$python" $(VENV)
	$(pip) install -c tools/pins.txt -e '.[dev]'
	@touch $@ $(VENV)/.stamp-run
