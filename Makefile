# Every target sets itself up: a virtual environment in .venv, then pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-seeds test-minimum test-torch test-browser test-slow fuzz lint types format bench reproduce docs clean

help:
	@echo "make demo        a robot learns a building from its camera, then finds itself (a table, a picture, a film)"
	@echo "make test        lint, type-check and test (no torch needed)"
	@echo "make test-seeds  the quick tests again with five other seeds for everything"
	@echo "make test-minimum  the tests with the oldest versions of what the library needs"
	@echo "make test-torch  the tests that need torch (CPU build)"
	@echo "make test-browser  the report pages in Chromium (chromium and chromedriver must be installed)"
	@echo "make test-slow   statistical checks at full size"
	@echo "make fuzz        10 000 good, hard and hostile calls of every public function, with counts"
	@echo "make bench       timings, printed as ratios"
	@echo "make reproduce   all experiments in their quick mode, two at a time, into build/experiments"
	@echo "make docs        build the documentation into docs/_build"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml
	$(PIP) --editable '.[plot]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.torch: $(VENV)/.dev
	$(PIP) torch==2.13.0
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(PIP) 'selenium>=4.20'
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(PIP) --editable '.[docs]'
	@touch $@

# An environment of its own, with the oldest versions that pyproject.toml allows.
MINIMUM := .venv-minimum
$(MINIMUM)/.dev: pyproject.toml .ci/minimum.txt
	$(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint .ci/minimum.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.run
	$(BIN)/kernelbayes demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

test: lint types
	$(ONE_THREAD) $(BIN)/pytest -n auto -m "not torch and not slow and not browser" --cov --cov-report=term

# Base seeds, added to every seed (tests/conftest.py); make test has 0.
SEEDS ?= 1000 2000 3000 4000 5000
test-seeds: $(addprefix test-seed-,$(SEEDS))

test-seed-%: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/pytest -n auto -m "not torch and not slow and not browser" --randomly-seed=$* --hypothesis-seed=$* tests

test-minimum: $(MINIMUM)/.dev
	$(ONE_THREAD) $(MINIMUM)/bin/pytest -n auto -m "not torch and not slow and not browser" tests

test-torch: $(VENV)/.torch
	$(ONE_THREAD) $(BIN)/pytest -n auto -m "torch and not slow" tests

test-browser: $(VENV)/.browser
	$(ONE_THREAD) $(BIN)/pytest -m browser tests/test_browser.py

test-slow: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/pytest -n auto -m "slow and not torch" tests

CALLS ?= 10000
fuzz: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python tests/fuzz.py --calls $(CALLS)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# Quick runs show that all works: they end with 0 unless something breaks. Three need torch.
EXPERIMENTS ?= $(patsubst experiments/%/run.py,%,$(wildcard experiments/*/run.py))
reproduce: $(VENV)/.dev
	@mkdir -p build/experiments
	@for name in $(EXPERIMENTS); do case $$name in iw22_fig5|iw22_fig6|pendulum) \
	  $(BIN)/python -c "import torch" 2>/dev/null || continue;; esac; echo $$name; done \
	  | $(ONE_THREAD) xargs -P 2 -I{} sh -c 'log=build/experiments/{}.log; \
	  $(BIN)/kernelbayes reproduce {} --quick --out build/experiments >$$log 2>&1; code=$$?; \
	  cat $$log; echo "== {} ended with $$code"; [ $$code = 0 ] || exit 255'

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build

clean:
	rm -rf $(VENV) $(MINIMUM) build dist docs/_build docs/gallery docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
