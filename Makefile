# make demo      sets up everything in .venv and runs the first experiment
# make test      sets up everything in .venv; linter, type checker, import rules and the fast tests
# make test-all  the same with the slow tests: kills, servers, clusters, browser, LaTeX, figures
# make test-gpu  the tests for GPUs, on a simulated one where there is none; part of make test-all
# make figures   the papers' figures, drawn again, in figures/
# make gpu       measures the GPU of this machine, at most ten minutes: runs/gpu/gpu.md and gpu.json
# make minimum   the fast tests with the oldest versions that setup.cfg allows; needs Python 3.10
# make docs      the documentation as a site, in site/
# make release   builds what would be uploaded, into dist/, and checks it; uploads nothing
#
# TORCH names the torch to install, for example: make demo TORCH=torch==2.13.0
# PROCESSES is how many processes test: if it is not given, as many as there are cores, and two more
# for all tests, since many of the slow ones wait.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS ?= $(CORES)
MINIMUM ?= .venv-minimum
RELEASE ?= .venv-release
PYTHON310 ?= python3.10
BIN := $(VENV)/bin
PROCESSES = $(CORES)
PYTEST = -m pytest -n $(PROCESSES) --dist loadgroup

# Python compiles what is imported when it is; all of torch and its friends take a minute.
QUICKLY := --quiet --no-compile

# Where this is set, each of the many processes that tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-gpu figures gpu minimum lint style types docs release clean

demo: $(VENV)/.installed
	$(BIN)/reality-check run quickstart --out runs/quickstart --workers $(WORKERS)

test: SELECTED := -m "not slow"
test: BESIDE := types
test-all: SELECTED := -m "not gpu" --hypothesis-profile=thorough tests examples
test-all: BESIDE := types test-gpu
test-all: PROCESSES = $(shell expr $(CORES) + 2)
test test-all: style
	@begin=$$(date +%s); output=$$(mktemp); \
	$(MAKE) --no-print-directory --keep-going $(BESIDE) >$$output 2>&1 & beside=$$!; \
	$(BIN)/python $(PYTEST) $(SELECTED); failed=$$?; \
	wait $$beside || failed=1; cat $$output; rm -f $$output; \
	echo "make $@: $$(($$(date +%s) - begin)) s of wall time"; exit $$failed

# A process of its own: the simulated device replaces parts of torch.
test-gpu: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -p simulated_cuda.plugin -m gpu

figures: $(VENV)/.installed-dev
	$(BIN)/python -m examples.paper_figures

gpu: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/gpu.py

# Everything is taken as old as it may be (tests/minimum.txt); the newest is what `make test` has.
minimum: $(MINIMUM)/.installed
	$(MINIMUM)/bin/python $(PYTEST) -m "not slow"

lint: style types

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/function_length.py pml_extensions reality_check

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/lint-imports

# Material announces MkDocs 2, which setup.cfg excludes.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel is made from the source archive, and installed where nothing else is. QUICKSTART= leaves
# out the first experiment, which takes minutes.
QUICKSTART ?= --quickstart
release: $(VENV)/.installed-dev
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build
	$(BIN)/python -m pip install $(QUICKLY) "twine>=6"
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m pytest tests/test_packaging.py tests/test_root_files.py
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install $(QUICKLY) "$(TORCH)" dist/*.whl "pytest>=9,<9.2"
	$(RELEASE)/bin/python tests/check_release.py dist/*.whl $(QUICKSTART) --workers $(WORKERS)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python setup.cfg pyproject.toml
	$(BIN)/python -m pip install $(QUICKLY) "$(TORCH)" -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install $(QUICKLY) "$(TORCH)" -e ".[dev]"
	touch $@

$(MINIMUM)/.installed: tests/minimum.txt setup.cfg
	$(PYTHON310) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install $(QUICKLY) -r tests/minimum.txt -e . \
		"pytest>=9,<9.2" "pytest-xdist>=3.5" "hypothesis>=6.100" "jsonschema>=4.18" "tensorboard>=2.15"
	touch $@

clean:
	rm -rf $(VENV) $(MINIMUM) $(RELEASE) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
