# make demo   sets up everything in .venv and runs the first experiment
# make test   sets up everything in .venv and runs the tests, the linter and the type checker
# make fast   the fast part of the tests only
# make minimum  the same with the oldest versions that setup.cfg allows; needs Python 3.10
# make docs   the documentation as a site, in site/
#
# TORCH names the torch to install, for example: make demo TORCH=torch==2.13.0

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
MINIMUM ?= .venv-minimum
PYTHON310 ?= python3.10
BIN := $(VENV)/bin

.PHONY: demo test fast minimum lint docs clean

demo: $(VENV)/.installed
	$(BIN)/reality-check run quickstart --out runs/quickstart --workers $(WORKERS)

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

fast: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

# Everything is taken as old as it may be (tests/minimum.txt); the newest is what `make test` has.
minimum: $(MINIMUM)/.installed
	$(MINIMUM)/bin/python -m pytest -n 2 --dist loadgroup -m "not slow"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Material announces MkDocs 2, which setup.cfg excludes.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet "$(TORCH)" -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet "$(TORCH)" -e ".[dev]"
	touch $@

$(MINIMUM)/.installed: tests/minimum.txt setup.cfg
	$(PYTHON310) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet -r tests/minimum.txt -e . \
		"pytest>=9,<9.2" "pytest-xdist>=3.5" "hypothesis>=6.100" "jsonschema>=4.18"
	touch $@

clean:
	rm -rf $(VENV) $(MINIMUM) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
