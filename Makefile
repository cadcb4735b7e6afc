# make demo   sets up everything in .venv and runs the first experiment
# make test   sets up everything in .venv and runs the tests, the linter and the type checker
# make fast   the fast part of the tests only
# make docs   the documentation as a site, in site/
#
# TORCH names the torch to install, for example: make demo TORCH=torch==2.13.0

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
BIN := $(VENV)/bin

.PHONY: demo test fast lint docs clean

demo: $(VENV)/.installed
	$(BIN)/reality-check run quickstart --out runs/quickstart --workers $(WORKERS)

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

fast: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

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

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
