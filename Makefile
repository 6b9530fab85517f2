.DEFAULT_GOAL := help
# Compiled once: tests start some hundred commands, and each of the workers would prepare all asserts again.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
AIRFLOW_BIN := .venv-airflow/bin
# On two cores all tests took 19:36 with three workers, 22:46 with four, 24:27 with six: what waits for a core loses its
# caches.
WORKERS ?= 3
LICENCES = 'MIT;Apache;BSD;PSF;Python Software;ISC;MPL;Mozilla;LGPL'
JAVA = $(BIN)/python -m jobs.adapters.java.home
TOO_OLD = 'Surveyor needs Python 3.11 or newer; $(PYTHON) is not. Install it, or: make PYTHON=/path/to/python3.11'
NO_BROWSER = 'Without it the tests that look at pages in a browser are skipped; everything else works.'

NO_NPM = 'Without npm diagrams are shown as text, and the search needs a web server.'

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup setup-dev
setup: STEPS = 2
setup: .venv/.runtime ## Make .venv with the command surveyor
	@echo 'ready: $(BIN)/surveyor --help'
setup-dev: .venv/.setup ## Make what developers need: also Java, jars, the tools of all tests, Airflow and chromium

# Steps count as far as the target of the command line goes; what is there already is left out.
STEPS = 8
STEP = @printf 'setup %s/$(STEPS): %s ...\n' >&2

.PHONY: python
python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo $(TOO_OLD) >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' || sh .ci/need python3-venv

.venv/.runtime: pyproject.toml constraints.txt | python
	$(STEP) 1 'Python environment in .venv (10 seconds)'
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(STEP) 2 'Python packages, PySpark is the largest (1-3 minutes)'
	@$(BIN)/python -m pip install -q -c constraints.txt --editable .
	@touch $@

.venv/.java: .venv/.runtime
	$(STEP) 3 'Java 17 to 21, for the brokers of demo and tests (a minute, if there is none)'
	@$(JAVA) || { sh .ci/need openjdk-17-jdk-headless openjdk-21-jdk-headless && $(JAVA); }
	$(STEP) 4 "Kafka's jars (5-90 seconds)"
	@$(BIN)/python -m jobs.adapters.java.jars kafka > /dev/null
	@touch $@

.venv/.test: pyproject.toml constraints.txt .venv/.runtime
	$(STEP) 5 'Python packages of the tests (1-2 minutes)'
	@$(BIN)/python -m pip install -q -c constraints.txt --group dev
	@touch $@

# gssapi has no wheel for Linux; pip builds it.
.PHONY: kerberos
kerberos:
	@command -v krb5-config > /dev/null || sh .ci/need libkrb5-dev
	@command -v cc > /dev/null || sh .ci/need gcc
	@"$(PYTHON)" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2> /dev/null || sh .ci/need python3-dev

.venv/.setup: .venv/.java .venv/.test .venv-airflow/.setup
	$(STEP) 7 'Kerberos (a minute)'
	@$(MAKE) --no-print-directory kerberos
	@$(BIN)/python -m pip install -q -c constraints.txt gssapi
	$(STEP) 8 'chromium, for the tests of pages (a minute, if there is none)'
	@command -v chromium || command -v chromium-browser || sh .ci/need chromium || echo $(NO_BROWSER) >&2
	@touch $@

# Airflow's Spark provider brings a pyspark of its own, so Airflow has an environment of its own.
.venv-airflow/.setup: airflow/requirements.txt airflow/constraints.txt | .venv/.runtime
	$(STEP) 6 'Airflow in .venv-airflow (2-4 minutes)'
	@test -x $(AIRFLOW_BIN)/pip || "$(PYTHON)" -m venv .venv-airflow
	@$(AIRFLOW_BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@$(AIRFLOW_BIN)/python -m pip install -q -c airflow/constraints.txt -r airflow/requirements.txt
	@touch $@

.PHONY: check
check: .venv/.test ## Lint, format, types, and the borders between the packages; two at a time, as types take longest
	@$(MAKE) --no-print-directory --output-sync=target -j2 check-types check-style check-borders check-words

.PHONY: check-types check-style check-airflow-types check-borders check-words
check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-airflow-types:
	MYPYPATH=airflow/plugins $(BIN)/mypy --cache-dir .mypy_cache/airflow \
	    --python-executable $(AIRFLOW_BIN)/python airflow/plugins

check-borders:
	$(BIN)/lint-imports
	$(BIN)/pip-licenses --summary --from=mixed --partial-match --allow-only=$(LICENCES)

check-words:
	$(BIN)/python -m tests.docs.wording

.PHONY: lock
lock: ## Find the newest versions that pyproject.toml and airflow/ allow, and write them down; then test them
	rm -rf build/lock && "$(PYTHON)" -m venv build/lock && build/lock/bin/python -m pip install -q --upgrade 'pip>=25.1'
	build/lock/bin/python -m pip install -q '.[kerberos]' --group dev --group docs
	build/lock/bin/python -m pip freeze --exclude kafka-surveyor > constraints.txt
	rm -rf build/lock && "$(PYTHON)" -m venv build/lock && build/lock/bin/python -m pip install -q --upgrade 'pip>=25.1'
	build/lock/bin/python -m pip install -q -r airflow/requirements.txt
	build/lock/bin/python -m pip freeze > airflow/constraints.txt

.PHONY: audit
audit: ## Ask for known vulnerabilities of the versions that were tested; wants the internet
	rm -rf build/audit && "$(PYTHON)" -m venv build/audit && build/audit/bin/python -m pip install -q pip-audit
	build/audit/bin/pip-audit --disable-pip --no-deps --strict -r constraints.txt
	build/audit/bin/pip-audit --disable-pip --no-deps --strict -r airflow/constraints.txt

# A test that fails along with others runs once more, alone: a busy machine may stop a broker for longer than it may lag.
# The output has both runs. The first test that fails again ends it.
run_tests = $(2) $(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m $(1) \
    || $(2) $(BIN)/pytest --last-failed --last-failed-no-failures none --maxfail 1 -m $(1)

.PHONY: test test-rest test-all quick
test: STEPS = 5
test: .venv/.java check ## What to run first: checks, the tests without servers, and a story of each capability on real ones
	$(call run_tests,first)
	$(call run_tests,first,SURVEYOR_ENGINE=spark)

test-rest: setup-dev check-airflow-types ## The tests that `make test` leaves out
	$(call run_tests,'not first')
	$(call run_tests,'not first',SURVEYOR_ENGINE=spark)

test-all: ## All checks and tests, as CI runs them
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

quick: .venv/.test ## The tests that start nothing, neither a server nor Spark
	$(BIN)/pytest -n $(WORKERS) -m unit

.PHONY: torture
torture: setup-dev ## What is killed, cut off and raced, as often as can be, for hours; options, a seed, go into TORTURE_ARGS
	KILL_POINTS=all RACES=300 HISTORIES=2000 ROUNDS=40 WAREHOUSE_ROUNDS=20 REPEATS=all HADOOP=1 $(BIN)/pytest -m torture $(TORTURE_ARGS)

.PHONY: demo
demo: STEPS = 4
demo: .venv/.java ## Embedded ZooKeeper and real brokers: the whole story; --kraft goes into DEMO_ARGS
	$(BIN)/surveyor demo $(DEMO_ARGS)

.PHONY: airflow
airflow: setup-dev ## Airflow with Surveyor's DAGs on an embedded cluster, to look at, until Ctrl-C
	@$(BIN)/python -m tests.airflow.standalone

.PHONY: docs
docs: setup-dev ## Write the parts of docs/ that are generated from the command line and the tables
	$(BIN)/python -m tests.docs

# The theme is of 11; newer ones draw other pictures.
build/scripts/mermaid.min.js: tests/docs/site.sha256
	rm -rf build/scripts && mkdir -p build/scripts
	cd build/scripts && npm pack --silent mermaid@11.16.0 iframe-worker@1.0.4 > /dev/null
	cd build/scripts && tar -xzf mermaid-*.tgz package/dist/mermaid.min.js && tar -xzf iframe-worker-*.tgz package/shim/index.js
	cd build/scripts && mv package/shim/index.js iframe-worker.js && mv package/dist/mermaid.min.js . && rm -rf package *.tgz
	cd build/scripts && sha256sum --check --quiet ../../$< && touch mermaid.min.js || { rm mermaid.min.js; exit 1; }

.PHONY: site
site: | python ## Build docs/ as a website in build/site, which needs no network to be read
	test -x build/docs/bin/pip || "$(PYTHON)" -m venv build/docs
	build/docs/bin/python -m pip install -q --upgrade 'pip>=25.1'
	build/docs/bin/python -m pip install -q -c constraints.txt --group docs
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory build/scripts/mermaid.min.js; else echo $(NO_NPM) >&2; fi
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict --quiet
	@test ! -e build/scripts || cp -r build/scripts build/site/javascripts

.PHONY: bench
bench: setup-dev ## Measure; options go into BENCH_ARGS
	$(BIN)/python -m bench $(BENCH_ARGS)

.PHONY: bench-large
bench-large: setup-dev ## Measure a year of snapshots and millions of partitions, for hours; options go into BENCH_ARGS
	$(BIN)/python -m bench.large $(BENCH_ARGS)

DIST_EXTRAS ?=

.PHONY: dist
dist: | python ## The wheel, its copy for spark-submit --py-files, which takes no .whl, and packages for a cluster
	rm -rf dist build/tools build/environment
	"$(PYTHON)" -m venv build/tools
	build/tools/bin/python -m pip install -q -c constraints.txt build venv-pack
	build/tools/bin/python -m build --wheel
	for wheel in dist/*.whl; do cp "$$wheel" "$${wheel%.whl}.zip"; done
	"$(PYTHON)" -m venv build/environment
	for wheel in dist/*.whl; do build/environment/bin/python -m pip install -q -c constraints.txt "$$wheel$(DIST_EXTRAS:%=[%])"; done
	build/tools/bin/venv-pack -q --prefix build/environment --exclude '*/pyspark/jars/*' --exclude '*/pysail*' --output dist/surveyor-environment.tar.gz
	chmod a+r dist/surveyor-environment.tar.gz

.PHONY: clean
clean: ## Remove what was built and cached here; .venv and the jars stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
