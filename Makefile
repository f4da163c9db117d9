# The two commands of a newcomer are `make run` and `make test`; both need Python 3.11 or newer and nothing else.
PORT ?= 9876
VENV := .venv
BIN := $(VENV)/bin
# With it, each process that a test starts compiles all of rmq, and each that runs tests all of them: most of their time.
unexport PYTHONDONTWRITEBYTECODE
# PYTHON=... chooses an interpreter; otherwise .ci/find-python does: the fastest that is new enough.
PYTHON ?=

.PHONY: run test test-peers pipeline java spark-matrix torture mutants lint types layers bench docs site public-types mirror clean help
.DEFAULT_GOAL := help

help:
	@echo "make run [PORT=9876]  a nameserver and a broker on this machine, ten messages through them, until Ctrl-C"
	@echo "make test             every test that needs Python alone"
	@echo "make test-peers       the tests with real Java, Go and Node software and with Spark (needs these)"
	@echo "make pipeline         orders through a broker and Spark into a topic, an archive and a chart (needs Java 17)"
	@echo "make spark-matrix     the tests of reading and writing in Spark with every release from 4.0 on (needs Java 17)"
	@echo "make torture          hundreds of kills and power cuts, with the points that were hit (docs/durability.md)"
	@echo "make mutants          a hundred random faults in changed files: what no unit test sees (MUTANTS_ARGS=--help)"
	@echo "make lint types layers  ruff, mypy and pyright, the layers of the packages"
	@echo "make bench            the benchmarks against Java (benchmark/README.md)"
	@echo "make site             the documentation as a site, in build/site"
	@echo "make docs             write docs/settings.md again from the settings tables"
	@echo "make public-types     what of the SDK's public names has no known type, by pyright (needs node; two minutes)"
	@echo "make mirror           write the plain methods of the blocking clients again from the asyncio ones"
	@echo "make clean            remove .venv, run/ and caches"

run: $(VENV)/.run
	@$(BIN)/rmq dev --port $(PORT) --demo

# How many processes share the tests; auto is said by tests/conftest.py, 0 is this one alone (for --pdb and -s).
# A file stays in one of them, and files go in order: what waits (tests/fault, tests/integration) comes first.
WORKERS ?= auto
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.test
	@echo "== running the test suite"
	@$(BIN)/python -m pytest -m "not peers" $(SIDE_BY_SIDE) $(PYTEST_ARGS)

# A group of tests/conftest.py stays in one process: its Java clusters, clients and Spark session are started once.
# Two processes, what is longest first: three JVMs at work on two processors miss the time limits of Spark.
test-peers: $(VENV)/.peers
	@echo "== running the tests with Java, Go, Node and Spark"
	@$(BIN)/python -m pytest -m peers -n $(WORKERS:auto=2) --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

pipeline: | java $(VENV)/.pipeline
	@$(BIN)/rmq pipeline demo $(PIPELINE_ARGS)

# Said before anything is downloaded; `rmq pipeline` looks at the version.
java:
	@[ -x "$${JAVA_HOME:-/none}/bin/java" ] || command -v java >/dev/null || { \
		echo "Spark needs Java 17 or newer, and there is no java: install one, or set JAVA_HOME" >&2; exit 1; }

# Each release of Spark in an environment of its own; 4.3 is what `make test` runs. Older ones leave sockets open.
SPARK_VERSIONS ?= 4.0 4.1 4.2
spark-matrix: $(foreach version,$(SPARK_VERSIONS),$(VENV)/spark-$(version)/.test)
	@for version in $(SPARK_VERSIONS); do \
		echo "== Spark $$version"; \
		$(VENV)/spark-$$version/bin/python -m pytest tests/unit/spark tests/spark/test_spark_[!s]*.py \
			tests/spark/test_pipeline_jobs.py -W ignore::ResourceWarning \
			-W ignore::pytest.PytestUnraisableExceptionWarning $(PYTEST_ARGS) || exit 1; \
	done

torture: $(VENV)/.test
	@RMQ_TORTURE=1 $(BIN)/python -m pytest tests/fault tests/unit/spark/source/test_spark_histories.py \
		tests/spark/test_spark_histories.py tests/spark/test_spark_two_drivers.py tests/interop/test_ha_stream.py \
		tests/interop/test_group_histories.py tests/interop/test_pop_histories.py tests/interop/test_failover_clients.py \
		tests/unit/raft -s --timeout=0 $(PYTEST_ARGS)

mutants: $(VENV)/.test
	@$(BIN)/python -m tests.support.mutants $(MUTANTS_ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy
	@if command -v node >/dev/null; then PYTHONPATH=. $(BIN)/pyright --pythonpath $(BIN)/python; \
	else echo "pyright is left out: it needs node"; fi

layers: $(VENV)/.dev
	@$(BIN)/lint-imports

bench: $(VENV)/.test
	@$(BIN)/python -m benchmark

docs: $(VENV)/.run
	@$(BIN)/python -m rmq.cli.reference docs/settings.md

site: $(VENV)/.dev
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

public-types: $(VENV)/.test
	@PYTHONPATH=. $(BIN)/python -m tests.support.public_types

mirror: $(VENV)/.test
	@$(BIN)/python -m tests.support.mirror

clean:
	rm -rf $(VENV) run build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the virtual environment --------------------------------------------------------------------------------------

$(BIN)/python:
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$(sh .ci/find-python); \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed; $$python is $$(v=$$($$python -V 2>&1) && echo $$v || echo missing): give one with PYTHON=..." >&2; exit 1; }; \
	$$python -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "the venv module of $$python is incomplete: install it (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }; \
	echo "== making the virtual environment $(VENV) with $$($$python -V), $$python"; \
	$$python -m venv $(VENV)

# What is installed: the project alone, with what its tests need, with what its developers need.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "== installing rmq into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[server]'
	@touch $@

$(VENV)/.pipeline: pyproject.toml | $(BIN)/python
	@echo "== installing rmq, Spark and matplotlib into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[server,spark,charts]'
	@touch $@ $(VENV)/.run

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "== installing rmq and its test tools into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.run

$(VENV)/.peers: pyproject.toml | $(BIN)/python
	@echo "== installing rmq, its test tools, Spark and web frameworks into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test,spark,charts,frameworks]'
	@touch $@ $(VENV)/.test $(VENV)/.pipeline $(VENV)/.run

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "== installing rmq and its development tools into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.peers $(VENV)/.pipeline $(VENV)/.test $(VENV)/.run

$(VENV)/spark-%/.test: pyproject.toml | java $(BIN)/python
	@echo "== installing rmq and Spark $* into $(VENV)/spark-$*"
	@$(BIN)/python -m venv $(VENV)/spark-$*
	@$(VENV)/spark-$*/bin/python -m pip install -q --disable-pip-version-check -e '.[test,spark,charts]' 'pyspark==$*.*'
	@touch $@
