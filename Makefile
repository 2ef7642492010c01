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

.PHONY: demo test check browser bench bench-credit install sandbox clean

demo: install
	$(BIN)/agentrl train benchmarks/recipes/alfworld-cpu.toml --resume

test: check
	$(PYTEST) -n 2 -m "not gpu and not slow and not browser"

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The pages in a real browser, Debian's Chromium.
browser: install
	@command -v chromium >/dev/null || apt-get install -y -qq chromium >/dev/null 2>&1 || \
	  (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null
	$(PIP) playwright
	$(PYTEST) -m browser

bench-credit: install
	$(BIN)/python benchmarks/credit_gradient.py

bench: install
	$(BIN)/python benchmarks/alfworld.py
	$(BIN)/python benchmarks/credit.py
	$(BIN)/python benchmarks/muon.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/trees.py
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/webshop.py

install: .venv/installed sandbox

# Model-written code runs in bubblewrap. Where it cannot be installed its tests skip, and say so.
sandbox:
	@command -v bwrap >/dev/null || \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    apt-get install -y -qq bubblewrap >/dev/null 2>&1 || \
	      (apt-get update -qq && apt-get install -y -qq bubblewrap) >/dev/null 2>&1 || \
	      echo "bubblewrap could not be installed: the sandbox falls back to unshare or Landlock, or refuses"; \
	  else echo "no bubblewrap: sudo apt-get install bubblewrap (dnf, pacman, apk: the same name)"; fi

.venv/installed: pyproject.toml setup.py requirements-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --upgrade pip setuptools wheel
	$(if $(GPU),,$(PIP) $(INDEX) -r requirements-cpu.txt)
	$(PIP) --no-build-isolation -e ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
