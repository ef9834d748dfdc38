# On a machine that has only git, make and Python, every target sets itself up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export PYTHONUNBUFFERED = 1

.PHONY: help install demo test test-all test-learns test-ray test-reliability fuzz test-pythons test-newest test-oldest test-cpus bench lint docs notebooks dist audit-dependencies clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       cross-entropy and SHaSaM on the same drawn faces: the gap before and after"
	@echo "make test       the tests (fast tier)"
	@echo "make test-all   the tests with the slow tier"
	@echo "make test-learns   every method learns with its defaults, through every entrance"
	@echo "make test-ray   the tests of sweeps and selection on Ray, which the others leave out"
	@echo "make test-pythons  wheel and sdist in clean environments, on every Python found (TORCH=1: torch everywhere)"
	@echo "make test-newest   the wheel with the newest versions that the declared ranges allow"
	@echo "make test-oldest   the plain install with the oldest versions that they allow"
	@echo "make test-cpus  what computes in the fast tier, as on processors with AVX2 and with SSE4 alone, and on two threads"
	@echo "make audit-dependencies   known vulnerabilities of what the tests run with, and sbom.cdx.json"
	@echo "make dist       wheel and sdist, checked, in dist/"
	@echo "make test-reliability   the tests of experiments/reliability, at their full figures"
	@echo "make fuzz       mutated images, specifications, runs, tables and arrays for MINUTES=10"
	@echo "make bench      speed: ratios to peers and to the limits of this machine"
	@echo "make lint       ruff and mypy"
	@echo "make docs       the documentation site in site/, with every dead link an error"
	@echo "make notebooks  run the notebooks of docs/notebooks again and store their outputs"
	@echo "make install    the environment in $(VENV), made by the other targets as they need it"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# With TORCH_CPU=1 torch is installed first, from the index of its CPU builds and without what it
# needs, so that every package comes from one index: a second one could answer for any name.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
TORCH_INSTALL = $(if $(TORCH_CPU),$(BIN)/python -m pip install --quiet --no-deps --index-url $(TORCH_INDEX) \
	"$$(grep ^torch== constraints.txt)")

# One stamp per set of extras; made anew when what it was made from changes.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(if $(findstring torch,$*),$(TORCH_INSTALL))
	$(BIN)/python -m pip install --quiet --editable '.[$*]' --constraint constraints.txt
	@touch $@

install: $(VENV)/.installed-torch,jpeg,test,test-torch

demo: $(VENV)/.installed-torch,jpeg
	$(BIN)/shasam mine --scene all --out demo/scenes
	$(BIN)/shasam compare --methods ce,shasam-random,shasam --seeds 1 --jobs 2 --out demo/runs --page demo/comparison.html

# Two test processes of one thread each: with more threads than cores they stand in each other's way.
test test-all test-learns test-ray test-reliability test-cpus: export OMP_NUM_THREADS = 1

test: $(VENV)/.installed-torch,jpeg,test,test-torch
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15

test-all: $(VENV)/.installed-torch,jpeg,test,test-torch
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "(slow or not slow) and not learns"

test-learns: $(VENV)/.installed-torch,jpeg,test,test-torch
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "learns or not learns" tests/learns

# Ray is large, so only this target installs it; one process, as each test starts a Ray of its own.
test-ray: $(VENV)/.installed-torch,jpeg,test,test-torch,ray
	$(BIN)/python -m pytest -m "slow or not slow" tests/cluster

# Other machines, as far as the libraries let us act as one: a processor with AVX2, one with SSE4 alone,
# and two threads (`make test` has one). tests/runs/test_other_cpus.py holds each library back alone.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
        OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=generic
SSE4 := ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
        OPENBLAS_CORETYPE=Nehalem NUMBA_CPU_NAME=generic
THREADS2 := OMP_NUM_THREADS=2

# What computes with torch, numba or BLAS: only such results can follow from the processor or from
# threads. Text, pages, the browser, hostile files and processes are the same everywhere.
# tests/test_structure.py names the tests that import torch or numba and are left out.
COMPUTING := $(addprefix tests/,submodular losses mining methods models training metrics \
	test_sampling.py test_sklearn.py integrations/test_pml.py export/test_vectors_from_images.py \
	data/test_augment.py data/test_keyed.py data/test_vector_views.py \
	runs/test_embedding.py runs/test_results.py runs/test_sensitive_number.py \
	runs/test_several_attributes.py runs/test_train_on_vectors.py runs/test_kill_and_resume.py)

test-cpus: $(VENV)/.installed-torch,jpeg,test,test-torch
	@failed=; \
	for machine in "$(AVX2)" "$(SSE4)" "$(THREADS2)"; do \
	  echo "== $$machine"; \
	  env $$machine $(BIN)/python -m pytest -n 2 --dist worksteal $(COMPUTING) || failed="$$failed; $$machine"; \
	done; \
	test -z "$$failed" || { echo "failed under$$failed"; exit 1; }

test-pythons: $(VENV)/.installed-release
	$(BIN)/python tools/test_installed.py $(if $(TORCH),--torch)

test-newest: $(VENV)/.installed-release
	$(BIN)/python tools/test_installed.py --newest --wheel-only $(if $(TORCH),--torch)

test-oldest: $(VENV)/.installed-release
	$(BIN)/python tools/test_installed.py --oldest

dist: $(VENV)/.installed-release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

# What the tests ran with: known vulnerabilities, and packages that were not looked up, end the command.
audit-dependencies: $(VENV)/.installed-torch,jpeg,test,test-torch $(VENV)/.installed-release
	$(BIN)/python tools/audit_dependencies.py

test-reliability: $(VENV)/.installed-torch,jpeg,test,test-torch
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow or not slow" tests/reliability

MINUTES ?= 10

fuzz: $(VENV)/.installed-torch,jpeg,test,test-torch
	$(BIN)/python -m tests.fuzz.loop --minutes $(MINUTES) --seed $$(date +%s)

bench: $(VENV)/.installed-bench
	$(BIN)/python -m bench.submodular
	$(BIN)/python -m bench.million
	$(BIN)/python -m bench.shards
	$(BIN)/python -m bench.training
	$(BIN)/python -m bench.mining
	$(BIN)/python -m bench.data
	$(BIN)/python -m bench.predicting

CODE := src tests bench experiments tools

# mypy reads the types of torch
lint: $(VENV)/.installed-torch,lint
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

# runs every notebook and stores what it shows
notebooks: $(VENV)/.installed-torch,jpeg,test,notebooks
	$(BIN)/python tools/notebooks.py

docs: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) demo site build dist .pytest_cache .ruff_cache .mypy_cache
