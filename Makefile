# `make demo` and `make test` need Python 3.11 or newer and make: no root, no running Redis.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# The first interpreter that really starts (a version manager's shim may not), is new enough and can make venvs.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
ARGS ?=

# benchmarks/ and examples/ once they hold code; pyright follows a link only when it is named (see `types`).
TYPED := glidemq_async tests $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py))))

.PHONY: help install demo test crash bench nightly lint format types wheel check clean

help:
	@echo "make demo     run the demonstration (ARGS='...' are passed on)"
	@echo "make test     run the fast tests (ARGS='tests/unit -k name' narrows them)"
	@echo "make check    lint, types and test"
	@echo "make crash    the crash tests: 1,000 kills and 20,000 jobs"
	@echo "make nightly  every test, the slow ones too, and a crash report of 20 times the size"
	@echo "make bench    run the benchmarks"
	@echo "make lint | format | types | wheel | clean"

$(STAMP): pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with the venv module is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[cli,dev]'
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/glidemq demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not crash" $(ARGS)

# Alone on the machine: several of its rules are time limits.
crash: $(STAMP)
	$(BIN)/python -m pytest -m crash -p no:xdist tests/crash $(ARGS)

nightly: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m "not crash" $(ARGS)
	GLIDEMQ_CRASH_SCALE=$(or $(SCALE),20) $(BIN)/python -m tests.crash report docs/reports/crash.md

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy $(TYPED)
	$(BIN)/basedpyright $(TYPED) glidemq_async/functions glidemq_async/executors

wheel: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m build

check: lint types test

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
