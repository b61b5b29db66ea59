# Two targets set up a new machine and need nothing before them but make and Python 3.11:
#   make demo    convert, measure, quantize and run the bundled model
#   make test    everything that continuous integration checks
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)-demo
PIP_FLAGS := --quiet --disable-pip-version-check

# llama.cpp's own detection builds code for AMX that gcc 12 miscompiles; AVX2 is in every x86 of the
# last ten years. Other processors keep its defaults.
ifeq ($(shell uname -m),x86_64)
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
endif

# Tests that run kernels need Vulkan: Debian's own driver, then a newer one, which multiplies
# cooperative matrices. There is none for macOS.
ifeq ($(shell uname -s),Linux)
DEVICES := --devices-must-run
NEWER_LAVAPIPE = .ci/newer-lavapipe $(BIN)/python -m pytest tests/parity -m "device and not metal" $(DEVICES)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test setup check lint types unit parity device mutants format shaders bench golden wheel clean

help: ## Print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /	/' | expand -t 10

demo: $(DEMO)/.installed ## Set up, then run the whole pipeline on the bundled model
	$(DEMO)/bin/python tests/demo.py

test: setup lint types ## Set up with the oracles, then lint, types, contracts and all tests
	$(BIN)/python tests/parity/fetch_vocabs.py
	$(BIN)/pytest tests --oracles-must-run $(DEVICES) --every-error
	$(NEWER_LAVAPIPE)

setup: $(VENV)/.installed ## The venv for working here: editable, tools and oracles

check: lint types unit ## What every commit must pass

lint: ## ruff, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: ## mypy, strict
	$(BIN)/mypy

unit: ## The tests that need no oracle and no GPU; under a minute
	$(BIN)/pytest tests -n auto -m "not oracle and not device and not slow and not shared"

parity: ## The tests against llama.cpp, gguf-py, transformers and tokenizers
	$(BIN)/pytest tests -m oracle

device: ## The tests of kernels and of the host, on this machine's GPUs
	$(BIN)/pytest tests/parity -m device

mutants: ## How many changes of Metal's kernels the parity tests see; a quarter of an hour
	$(BIN)/python tests/metal_on_cpu/mutate.py

format: ## Let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

shaders: $(VENV)/.installed ## Compile the shaders that changed, and print the structs they share
	$(BIN)/python shaders/build.py

bench: ## Speed and memory of this machine, side by side with llama.cpp
	$(BIN)/python tests/bench/bench_formats.py
	$(BIN)/python tests/bench/quantize_speed.py

wheel: $(VENV)/.installed ## Build the wheel into dist/
	$(BIN)/pip wheel $(PIP_FLAGS) --no-deps --wheel-dir dist .

clean: ## Remove the venvs and what was built
	rm -rf $(VENV) $(DEMO) dist build demo

# Debian splits venv out of Python; say what to do rather than fail with a traceback.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "edgequant needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Hint: install one and run: make $@ PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq python3-venv; \
	  else echo "Python's venv is missing. Hint: sudo apt-get install python3-venv" >&2; exit 1; fi; }
	$(PYTHON) -m venv $(1)
	$(1)/bin/pip install $(PIP_FLAGS) --upgrade pip
endef

$(DEMO)/.installed: pyproject.toml
	$(call make_venv,$(DEMO))
	$(DEMO)/bin/pip install $(PIP_FLAGS) --editable .
	@touch $@

$(VENV)/.installed: pyproject.toml
	$(call make_venv,$(VENV))
	@command -v c++ >/dev/null || { echo "llama.cpp is compiled here. Hint: install a C++ compiler (Debian: apt-get install g++; macOS: xcode-select --install)" >&2; exit 1; }
	@echo "Installing; llama.cpp is compiled, which takes some minutes."
	$(BIN)/pip install $(PIP_FLAGS) --editable ".[llama]" --group dev --group oracle
	@touch $@
