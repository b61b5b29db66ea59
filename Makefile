# Two targets set up a new machine: `make demo` and `make test`. The rest are for working here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help check lint types unit
help: ## Print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

check: lint types unit ## What every commit must pass

lint: ## ruff and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: ## mypy, strict
	$(BIN)/mypy

unit: ## Tests that need no oracle, under a minute
	$(BIN)/pytest tests -m "not oracle and not slow and not shared"
