# Every target sets up what it needs; the second run is quick.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

help: ## print this list
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Rollcall needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY) ## virtual environment, locked dependencies, Consul
	@$(BIN)/rollcall setup

demo: $(READY) ## start everything, call the roll of a simulated fleet, count from outside, stop
	@$(BIN)/rollcall demo

check: $(READY) ## ruff, formatting, mypy --strict, import layers, handler shapes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m rollcall.shapes

test: check ## the checks, then every test on real servers
	$(BIN)/pytest

bench: $(READY) ## how fast it is, against the design's bars
	$(BIN)/python bench/bench_fsm.py
	$(BIN)/python bench/bench_runtime.py

chaos: $(READY) ## servers killed and restarted under load: the tests that take longer
	$(BIN)/pytest tests/chaos

compose: ## secrets at random, then the whole of it in containers (needs Docker)
	@deploy/make-secrets.sh
	docker compose up --build

UV_COMPILE := $(BIN)/uv pip compile --generate-hashes --universal --python-version 3.11 \
	--no-header --no-emit-index-url --no-annotate --quiet

lock: ## pin every dependency again, with hashes: for development, and for the image
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(UV_COMPILE) pyproject.toml --all-extras --output-file requirements.lock
	echo setuptools | $(UV_COMPILE) pyproject.toml - --output-file requirements-image.lock

clean: ## remove the virtual environment and the caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

.PHONY: help setup demo check test bench chaos compose lock clean
