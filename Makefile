# Everything a user or a developer runs. Needs make and Python 3.11 or newer, nothing else:
# each target makes .venv from requirements.txt when it is missing or out of date.
#
#   make run PYTHON=python3.12          another interpreter
#   make test PYTEST_ARGS="-k theory"   some of the tests

PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# One BLAS thread: the last bits of a result must not depend on the number of cores.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export VECLIB_MAXIMUM_THREADS ?= 1

.PHONY: help run test check equations calibrate verify documents figures bench clean
.DELETE_ON_ERROR:

help:
	@echo "make run        equation checks, then the measurement of the shipped networks"
	@echo "make test       the whole test suite"
	@echo "make check      lint, format and types"
	@echo "make equations  the table of formulas against independent computations"
	@echo "make calibrate  the sampler on networks with a known answer, at the frozen settings"
	@echo "make verify     the order of rule, grid, freeze and results, from the git history"
	@echo "make documents  README.md, data/README.md, EQUATIONS.md and CLAIMS.md, from the files in data/"
	@echo "make figures    every plot, from the files in data/"
	@echo "make bench      timings, into data/bench.json"
	@echo "make clean      remove .venv and caches (not data/, not runs/)"

run: $(VENV)/installed
	$(BIN)/python equations.py
	$(BIN)/python run_llc.py

test: $(VENV)/installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/installed-extras
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

equations: $(VENV)/installed
	$(BIN)/python equations.py

calibrate: $(VENV)/installed
	$(BIN)/python calibrate.py --workers 2

verify: $(VENV)/installed
	$(BIN)/python verify.py --order

documents: $(VENV)/installed
	$(BIN)/python equations.py --markdown > EQUATIONS.md
	$(BIN)/python claims.py
	$(BIN)/python documents.py

figures: $(VENV)/installed-extras
	$(BIN)/python figures.py

bench: $(VENV)/installed-extras
	$(BIN)/python bench.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last, so an installation that was interrupted is done again.
$(VENV)/installed: requirements.txt | $(BIN)/python
	$(INSTALL) -r requirements.txt
	@touch $@

$(VENV)/installed-extras: requirements-extras.txt $(VENV)/installed
	$(INSTALL) -r requirements-extras.txt
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.11 or newer ($$($(PYTHON) --version 2>&1 | tail -n 1))." >&2; \
	  echo "Name one that is, for example: make $(or $(MAKECMDGOALS),run) PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment in $(VENV)." >&2; \
	  echo "On Debian and Ubuntu: apt install python3-venv. Then run make again." >&2; \
	  exit 1; }
