# On a machine that has only git, make and Python, every target sets itself up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export PYTHONUNBUFFERED = 1

.PHONY: help install demo test test-all bench lint clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       the main job, start to end"
	@echo "make test       the tests (fast tier)"
	@echo "make test-all   the tests with the slow tier"
	@echo "make bench      speed: ratios to peers and to the limits of this machine"
	@echo "make lint       ruff and mypy"
	@echo "make install    the environment in $(VENV), made by the other targets as they need it"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp per set of extras; made anew when what it was made from changes.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]' --constraint constraints.txt
	@touch $@

install: $(VENV)/.installed-test

demo: $(VENV)/.installed-jpeg
	$(BIN)/shasam mine --scene all --out demo/scenes
	$(BIN)/shasam train --out demo --resume

# Two test processes of one thread each: with more threads than cores they stand in each other's way.
test test-all: export OMP_NUM_THREADS = 1

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow"

bench: $(VENV)/.installed-bench
	$(BIN)/python -m bench.submodular
	$(BIN)/python -m bench.training
	$(BIN)/python -m bench.data

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .ruff_cache .mypy_cache
