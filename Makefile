# Every target sets up what it needs; a second run starts in seconds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup model demo test check fmt clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'
	@echo
	@echo "  make demo SIMULATED=1           without torch and without a model"
	@echo "  make demo ARGS='--seconds 60'   any flag of 'kvpulse demo'"
	@echo "  make test ARGS='-k journal'     any flag of pytest"
	@echo "  TORCH_INDEX=URL                 where pip finds a CPU build of torch"

setup: ## install everything, test tools included
	@$(PYTHON) scripts/bootstrap.py all

model: ## put SmolLM2-135M into the cache folder, checked by its sha256
	@$(PYTHON) scripts/bootstrap.py model

demo: ## show a real language model's KV cache, block by block, in a browser
	@$(PYTHON) scripts/bootstrap.py $(if $(SIMULATED),simulated,demo)
	@exec $(BIN)/kvpulse demo $(if $(SIMULATED),--simulated) $(ARGS)

test: ## run every test that this machine can run, and name those it cannot
	@$(PYTHON) scripts/bootstrap.py all
	@exec $(BIN)/python -m pytest -q -rs $(ARGS)

check: ## lint, types, import contracts, file lengths, generated files
	@$(PYTHON) scripts/bootstrap.py all
	@exec $(BIN)/python scripts/check.py

fmt: ## format the code
	@$(PYTHON) scripts/bootstrap.py all
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info kvpulse/*.egg-info kvpulse/build kvpulse/*.so
