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
NO_PYTHON := Python 3.11 or newer with the venv module is needed: make PYTHON=/path/to/python
# The demonstrations use the environment of development if it exists, and otherwise a smaller one.
DEMO := .venv-demo
DEMO_BIN := $(if $(wildcard $(STAMP)),$(BIN),$(DEMO)/bin)
DEMO_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO)/.installed)
DEMO_SPARK_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO)/.installed-spark)
JOBS ?= 2
ARGS ?=

# Tests start hundreds of interpreters, and Spark starts more: each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

# benchmarks/ and examples/ once they hold code; pyright follows a link only when it is named (see `types`).
TYPED := glidemq_async pyspark_glidemq tests $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py))))

.PHONY: help install demo demo-spark test test-main test-spark test-spark-versions crash bench bench-lean bench-memory bench-pythons bench-peers bench-operations bench-dashboard bench-spark bench-workflows instructions nightly lint format types release-functions wheel python check clean

help:
	@echo "make demo     run the demonstration (ARGS='...' passes options to it)"
	@echo "make demo-spark  run the demonstration with Spark: jobs in bulk, their events and a report (needs Java 17)"
	@echo "make test     run the fast tests (ARGS='tests/unit -k name' selects some of them)"
	@echo "make test-spark  run only the tests of Spark; make test runs them too if Java is installed"
	@echo "make test-spark-versions  run the tests of Spark with older versions of it (VERSIONS='4.0 4.1 4.2')"
	@echo "make check    run lint, types and test"
	@echo "make crash    run the crash tests: 1,000 kills and 20,000 jobs"
	@echo "make nightly  run every test, including the slow ones, and write a crash report of 20 times the size"
	@echo "make bench    run the benchmarks; a missed target fails only with ARGS=--check"
	@echo "make bench-lean  run only the benchmarks of plain jobs and of a bare redis-py loop (needs redis-server)"
	@echo "make bench-memory  measure the server's memory for a job of each kind (ARGS='--count 1000' takes less time)"
	@echo "make bench-pythons  build environments with other versions of Python for make bench-lean"
	@echo "make bench-peers  run other queues on the same server, each in a separate environment (needs redis-server)"
	@echo "make instructions  count the server's instructions per job (needs valgrind and Redis 7.0.15)"
	@echo "make bench-workflows  run the benchmarks of workflows and flows (ARGS='--scale 0.1' takes less time, ARGS='--only steps' measures one part)"
	@echo "make bench-operations  run a bulk operation under load, and kill its runner (ARGS='--count 5000' takes less time)"
	@echo "make bench-dashboard  measure the dashboard with 1,000 queues, 50 browsers and 1,000,000 jobs (ARGS='--jobs 10000' takes less time)"
	@echo "make bench-spark  run the benchmarks of Spark (needs Java 17; ARGS='--rows 20000' takes less time)"
	@echo "make install  create the environment of development in .venv; every other target does so when needed"
	@echo "make lint | format | types | wheel | clean"
	@echo "make release-functions  record the fingerprint of the function library, as part of a release"

$(STAMP): pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
# Python compiles each module when it is first imported. To compile all modules here would take longer.
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[cli,dev,spark,spark-connect]'
	@touch $@

install: $(STAMP)

demo: $(DEMO_STAMP)
	@echo "Running the demonstration: one job for each file of Python's standard library (make demo ARGS=--help)"
	@$(DEMO_BIN)/glidemq demo $(ARGS)

demo-spark: $(DEMO_SPARK_STAMP)
	@echo "Running the demonstration with Spark: jobs in bulk, and the pipeline over their events"
	@$(DEMO_BIN)/glidemq pipeline demo $(ARGS)

$(DEMO)/.installed: pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@echo "Installing the library and its command line into $(DEMO)/ (85 MB, only the first time)"
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli]'
	@touch $@

$(DEMO)/.installed-spark: $(DEMO)/.installed
	@echo "Installing PySpark into $(DEMO)/ (0.8 GB, only the first time)"
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,spark]'
	@touch $@

# BESIDE_SPARK is a command that runs at the same time as the tests of Spark, which leave a processor idle. It runs the
# tests of the folders in APART.
test: $(STAMP)
	@status=0; \
	$(MAKE) test-main || status=$$?; \
	$(if $(BESIDE_SPARK),$(BESIDE_SPARK) & beside=$$!;) \
	$(if $(ARGS),,$(MAKE) test-spark || status=$$?;) \
	$(if $(BESIDE_SPARK),wait $$beside || status=$$?;) \
	exit $$status

test-main: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(addprefix --ignore=,tests/spark $(APART)) -m "not slow and not crash and not spark" $(ARGS)

# One session of Spark for all of them, so in one process.
test-spark: $(STAMP)
	@if java -version >/dev/null 2>&1; then \
		$(BIN)/python -m pytest -p no:xdist -m "spark and not slow" $(or $(ARGS),tests/spark); \
	else \
		echo "!!! no Java here: the tests of Spark did NOT run (install a JRE, version 17 or newer)" >&2; \
	fi

# Older versions of Spark leave some of their sockets to the garbage collector.
test-spark-versions:
	for version in $(or $(VERSIONS),4.0 4.1 4.2); do \
		$(PYTHON) -m venv build/spark-$$version && \
		build/spark-$$version/bin/python -m pip install --quiet --editable '.[cli,dev,spark,spark-connect]' "pyspark==$$version.*" && \
		build/spark-$$version/bin/python -m pytest -p no:xdist -m "spark and not slow" tests/spark $(ARGS) \
			-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning || exit 1; \
	done

# Alone on the machine: several of its rules are time limits.
crash: $(STAMP)
	$(BIN)/python -m pytest -m "crash and not slow" -p no:xdist tests/crash $(ARGS)

nightly: export GLIDEMQ_MODEL_STEPS ?= 100000
nightly: export GLIDEMQ_WORKFLOW_RUNS ?= 40000
nightly: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m "not crash and not spark" $(ARGS)
	$(BIN)/python -m pytest -p no:xdist -m spark tests/spark
	$(BIN)/python -m pytest -p no:xdist -m "crash and slow" tests/crash
	GLIDEMQ_CRASH_SCALE=$(or $(SCALE),20) $(BIN)/python -m tests.crash report docs/reports/crash.md

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

bench-lean: $(STAMP)
	$(BIN)/python -m benchmarks --only lean $(ARGS)

# One environment for each of Python 3.11, 3.12 and 3.13 that is installed and is not the version of $(VENV).
bench-pythons: $(STAMP)
	$(BIN)/python -m benchmarks.venvs

# One environment for each peer, from the package index. ARGS='--only saq' measures one of them.
bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.peers $(ARGS)

# A figure more than 3 % above benchmarks/instructions.json fails. ARGS=--store stores new figures.
instructions: $(STAMP)
	$(BIN)/python -m benchmarks.instructions $(ARGS)

bench-memory: $(STAMP)
	$(BIN)/python -m benchmarks.memory $(ARGS)

bench-workflows: $(STAMP)
	$(BIN)/python -m benchmarks.workflows $(ARGS)

bench-operations: $(STAMP)
	$(BIN)/python -m benchmarks.bulk_operations $(ARGS)

bench-dashboard: $(STAMP)
	$(BIN)/python -m benchmarks.dashboard $(ARGS)

bench-spark: $(STAMP)
	$(BIN)/python -m benchmarks --only spark $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy $(TYPED)
	$(BIN)/basedpyright $(TYPED) glidemq_async/functions glidemq_async/executors glidemq_async/demo

# Part of a release, before the wheel: from then on a test refuses another text of this version.
release-functions: $(STAMP)
	$(BIN)/python -m glidemq_async.functions

wheel: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m build

# For scripts: the interpreter of new environments.
python:
	@echo $(PYTHON)

check: lint types test

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
