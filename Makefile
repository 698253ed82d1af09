# PYTHON is only used to create environments; everything else runs inside them.
PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
LOCK := .ci/requirements.lock
PIP := -I -m pip install -qq --no-input --disable-pip-version-check
DACE := dace==2.0.0b1

# Nothing installed for the user, and no inherited setting, may leak into a result.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX

.PHONY: help setup tables check test test-torch lint bench bench-peers pdf soak mutants lock clean python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile

setup: .venv/.project ## create .venv from the lock file; does nothing when it is up to date

.venv/.locked: $(LOCK)
	@$(MAKE) --no-print-directory python
	@echo "Installing $(LOCK) into .venv" >&2
	@$(PYTHON) -I -m venv --clear .venv
	@$(BIN)/python $(PIP) --require-hashes --no-deps -r $(LOCK)
	@touch $@

# No build isolation: the lock pins the build backend as well.
.venv/.project: .venv/.locked pyproject.toml
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

python:
	@$(PYTHON) -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed: install it, or name it with make PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -I -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }

tables: setup ## derive every table and write tables/out
	@$(BIN)/derive tables

check: setup ## compare every cell with its recorded verdict
	@$(BIN)/derive check

test: setup ## run the tests; ARGS="-k depth" passes options to pytest
	@$(BIN)/python -m pytest -n 2 $(ARGS)

test-torch: .venv/.torch ## compare with PyTorch and transformers (installs them into .venv first, about 1 GB)
	@$(BIN)/python -m pytest -n 2 -p tests.no_skips tests/torch tests/hf $(ARGS)

.venv/.torch: .venv/.project
	@timeout 900 $(BIN)/python $(PIP) --no-build-isolation --editable '.[hf]'
	@touch $@

lint: setup ## style, types, and who may import whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: setup ## time the derivations
	@$(BIN)/python benchmarks/bench.py $(ARGS)

bench-peers: setup .venv-peers/.installed ## run the same programs through DaCe, in an environment of its own
	@$(BIN)/python benchmarks/peers.py $(ARGS)

.venv-peers/.installed: Makefile
	@$(MAKE) --no-print-directory python
	@echo "Installing $(DACE) into .venv-peers" >&2
	@$(PYTHON) -I -m venv --clear .venv-peers
	@.venv-peers/bin/python $(PIP) $(DACE)
	@touch $@

pdf: ## compile tables/out/tables.tex to build/tables.pdf
	@mkdir -p build
	@cd tables/out; \
	if command -v latexmk >/dev/null && command -v pdflatex >/dev/null; then \
	  latexmk -pdf -silent -norc -interaction=nonstopmode -halt-on-error -outdir=../../build tables.tex; \
	elif command -v pdflatex >/dev/null; then \
	  for pass in 1 2; do pdflatex -interaction=nonstopmode -halt-on-error -output-directory=../../build tables.tex; done; \
	else \
	  echo "No LaTeX engine found: install one (Debian, Ubuntu: apt install texlive-latex-recommended lmodern latexmk)." >&2; exit 1; \
	fi
	@echo "build/tables.pdf"

soak: setup ## long randomised tests
	@$(BIN)/python -m pytest -m soak --hypothesis-profile=default $(ARGS)

mutants: setup ## break the code on purpose and see whether the tests notice
	@$(BIN)/python benchmarks/mutants.py $(ARGS)

lock: ## pin the newest dependencies again (needs the network)
	@$(PYTHON) -I -m venv --clear build/lock
	@build/lock/bin/python $(PIP) pip-tools
	@CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet --upgrade --no-config --generate-hashes --allow-unsafe \
	  --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra dev -o $(LOCK) pyproject.toml

clean: ## remove the environments, caches and builds
	@rm -rf .venv .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .dacecache
	@find derive graphs tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
