# make demo: train and evaluate on ALFWorld games.   make test: lint, types, import rules, tests.
# Both make .venv first. Without an NVIDIA GPU the pinned CPU set of requirements-cpu.txt is installed;
# TORCH_INDEX=https://download.pytorch.org/whl/cpu spares a laptop the CUDA build of torch.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
GPU := $(shell command -v nvidia-smi 2>/dev/null)
EXTRAS := dev,alfworld,textworld,lora,openai,tensorboard,report,webshop,search,faiss,data,mcp,e2b
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test check bench bench-credit install clean

demo: install
	$(BIN)/agentrl train benchmarks/recipes/alfworld-cpu.toml --resume

test: check
	$(PYTEST) -n 2 -m "not gpu and not slow"

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench-credit: install
	$(BIN)/python benchmarks/credit_gradient.py

bench: install
	$(BIN)/python benchmarks/alfworld.py
	$(BIN)/python benchmarks/credit.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/webshop.py

install: .venv/installed

.venv/installed: pyproject.toml setup.py requirements-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --upgrade pip setuptools wheel
	$(if $(GPU),,$(PIP) $(INDEX) -r requirements-cpu.txt)
	$(PIP) --no-build-isolation -e ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
