# heronpy: `make demo` runs the main job, `make test` passes the tests. Everything else is a convenience.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help demo test check bench proto clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

test: $(VENV)/.dev check  ## check the source and run every test
	@$(BIN)/python -m pytest

check: $(VENV)/.dev  ## style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev  ## microbenchmarks of the hot path against their recorded floors
	@$(PIP) install -e '.[bench]'
	@$(BIN)/python -m pytest tests/bench -o python_files='bench_*.py' -m bench

proto:  ## generate the protobuf code again (needs protoc 3.21: its code runs on every runtime from 4.25 on)
	@protoc -I. --python_out=. --pyi_out=. heronpy/proto/*.proto

clean:  ## remove the virtual environment and all caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
