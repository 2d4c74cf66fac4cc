# heronpy: `make demo` runs the main job, `make test` passes the tests. Everything else is a convenience.
PYTHON ?= python3
VENV ?= .venv
# Tests mostly wait for processes, so more of them run at once than there are cores in a small machine.
JOBS ?= 3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help demo test test-heavy docs engines check fuzz fault fault-report bench bench-ui sim audit sbom proto clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "heronpy needs Python 3.11 or newer; set PYTHON=python3.11")'
	@echo "creating the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	@echo "installing heronpy with Spark and the demo's data; the first time this takes about a minute"
	@$(PIP) install -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo pyproject.toml
	@echo "installing the test tools"
	@$(PIP) install -e '.[demo,dev]'
	@touch $@

demo: $(VENV)/.demo  ## the main job: 336,776 real flights through a topology into a Spark table
	@$(BIN)/python scripts/demo.py

# What fails beside others, on more processes than cores, has to pass alone, and is counted.
test: $(VENV)/.dev check  ## check the source and run the tests, JOBS at a time; `test-heavy` has the rest
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not heavy and not engines" || $(BIN)/python scripts/second_try.py $(SECOND_TRIES)

test-heavy: $(VENV)/.dev  ## the tests that take minutes each, nearly two hours on 2 cores: faults, Spark killed in the middle, planted bugs
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "heavy and not engines"

$(VENV)/.docs: $(BIN)/python pyproject.toml
	@echo "installing MkDocs"
	@$(PIP) install -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## the documentation as a site in out/site, with the reference of the Python API
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "out/site/index.html; with search: $(BIN)/python -m http.server --directory out/site"

# Alone: nodes that say nothing for a few seconds are lost.
engines: $(VENV)/.dev  ## the tests of Kubernetes on its real control plane, which is built at first: five minutes, as root on Debian 12
	@programs=$$($(BIN)/python scripts/kubernetes_server.py) && HERON_ENGINES=$$programs $(BIN)/python -m pytest -m engines tests/engines

check: $(VENV)/.dev  ## style, types, layers, pure modules and lines by room
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted; run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/check_pure.py
	@$(BIN)/python scripts/rooms.py

fuzz: $(VENV)/.dev  ## a hundred times the fuzzing of `make test`, another seed each time (HERON_FUZZ_SEED repeats one)
	@HERON_FUZZ_CASES=$${HERON_FUZZ_CASES:-100000} HERON_FUZZ_SEED=$${HERON_FUZZ_SEED:-$$(date +%s)} sh -c \
		'echo "HERON_FUZZ_SEED=$$HERON_FUZZ_SEED"; $(BIN)/python -m pytest tests/security -k fuzz -o timeout=7200'

bench: $(VENV)/.dev  ## microbenchmarks of the hot path against their recorded floors
	@$(PIP) install -e '.[bench]'
	@$(BIN)/python -m pytest tests/bench -o python_files='bench_*.py' -m bench

bench-ui: $(VENV)/.dev  ## the tracker, its pages and live streams, in Chromium: about ten minutes
	@$(BIN)/python scripts/ui_figures.py

FAULTS ?= all
fault: $(VENV)/.dev  ## every fault in full length and number, for hours; FAULTS="F01 F02" does some
ifneq ($(filter-out F07,$(FAULTS)),)
	@$(BIN)/heron verify report --full --runs 1 --out out/fault-report.md $(addprefix --fault ,$(filter-out F07,$(FAULTS)))
endif
ifneq ($(filter all F07,$(FAULTS)),)
	@HERON_FAULT_RUNS=20 $(BIN)/python -m pytest -o timeout=7200 \
		tests/connectors/test_file_sink.py tests/spark/test_exactly_once.py tests/connectors/test_spark_table_under_fire.py
endif

fault-report: $(VENV)/.dev  ## out/fault-report.md: three short runs of every fault, with losses and recovery times
	@$(BIN)/heron verify report --runs 3 --duration 4 --out out/fault-report.md

sim: $(VENV)/.dev  ## N seeds of the deterministic simulation of a whole cluster; SEED=n replays one; WHAT=flow: with slow and frozen tasks; WHAT=placement: of schedulers and hosts; WHAT=units: of work units; WHAT=batch: of batch runs
	@$(BIN)/python -m tests.sim $(if $(WHAT),--what $(WHAT)) $(if $(SEED),--seed $(SEED),--seeds $(or $(N),1000))

# In an environment of their own, so that what they need themselves is not part of what they look at.
TOOLS := $(VENV)/audit
$(TOOLS)/.done: $(BIN)/python pyproject.toml
	@echo "installing pip-audit and cyclonedx-bom"
	@$(BIN)/python -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check install -e '.[audit]'
	@touch $@

audit: $(VENV)/.demo $(TOOLS)/.done  ## look up every installed package in the database of known weaknesses (needs the network)
	@$(BIN)/python -m pip --disable-pip-version-check list --format=freeze --exclude-editable > $(TOOLS)/installed.txt
	@# Strict: a package that could not be looked up is a failure, not a clean bill.
	@$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement $(TOOLS)/installed.txt

sbom: $(VENV)/.demo $(TOOLS)/.done  ## out/sbom.json: every installed package with its release and licence (CycloneDX)
	@mkdir -p out
	@$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --of JSON -o out/sbom.json
	@echo "out/sbom.json"

proto:  ## generate the protobuf code again (needs protoc 3.21: its code runs on every runtime from 4.25 on)
	@protoc -I. --python_out=. --pyi_out=. heronpy/proto/*.proto

clean:  ## remove the virtual environment and all caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
