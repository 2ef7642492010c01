"""A run's checkpoint, and what `agentrl model export` writes, under a real vLLM on the CPU: `make vllm`.

VLLM_PYTHON names the interpreter of the environment that has it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentrl.cli import main
from tests.toys.language_model import model_folder
from tests.toys.runs import TOY, recipe

PYTHON = os.environ.get("VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason="VLLM_PYTHON names no interpreter: make vllm"),
]
PROMPTS = [[5, 9, 30, 77, 12, 40], [8, 8, 41], [60, 7, 22, 19]]
TOKENS = 12
SERVED = """
import json, sys
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

model, adapter, prompts, count = json.loads(sys.argv[1])
lora = {"enable_lora": True, "max_lora_rank": 8} if adapter else {}
llm = LLM(model, dtype="float32", max_model_len=128, max_num_seqs=4, enforce_eager=True, seed=0, **lora)
request = LoRARequest("adapter", 1, adapter) if adapter else None
asked = [{"prompt_token_ids": ids} for ids in prompts]
sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
told = llm.generate(asked, sampling, lora_request=request, use_tqdm=False)
print("ANSWERS" + json.dumps([list(one.outputs[0].token_ids) for one in told]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that trained adapters on a stored base model; a head is 64 wide, because vLLM's attention wants that."""
    folder = tmp_path_factory.mktemp("exported")
    shape = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
    base = model_folder(folder / "base", **shape)
    sections = {
        "env": {"name": "tests.toys.walk"},
        "eval": {"tasks": 2, "env": {"first": 10}},
        "batch": {"tasks": 4, "copies": 4},
        "limits": {"turns": 4},
        "log": {"report": False},
        "run": {"iterations": 1, "folder": str(folder / "runs"), "checkpoint_every": 1, "name": "lora"},
        "model": {"path": str(base), "dtype": "float32", "lora": {"r": 2, "alpha": 64.0}},
        "optim": {"lr": 0.05},
    }
    (folder / "lora.toml").write_text(recipe({"engine": TOY["engine"]}, **sections))
    assert main(["train", str(folder / "lora.toml")]) == 0
    return folder / "runs" / "lora"


def of_transformers(model: Path) -> list[list[int]]:
    """Greedy answers."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    found = []
    for ids in PROMPTS:
        seen = list(ids)
        for _ in range(TOKENS):
            with torch.no_grad():
                seen.append(int(loaded(torch.tensor([seen])).logits[0, -1].argmax()))
        found.append(seen[len(ids) :])
    return found


def of_vllm(model: Path, adapter: Path | None = None) -> list[list[int]]:
    words = json.dumps([str(model), str(adapter) if adapter else "", PROMPTS, TOKENS])
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run([PYTHON, "-c", SERVED, words], env=env, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert lines, done.stderr[-3000:]
    answers: list[list[int]] = json.loads(lines[0].removeprefix("ANSWERS"))
    return answers


def test_vllm_answers_as_transformers_from_a_checkpoint_and_from_both_exports(run, tmp_path):
    assert main(["model", "export", str(run), str(tmp_path / "merged")]) == 0
    assert main(["model", "export", str(run), str(tmp_path / "adapter"), "--adapter"]) == 0
    base, wanted = run.parents[1] / "base", of_transformers(tmp_path / "merged")
    assert wanted != of_transformers(base)  # the adapters change what is said
    assert of_vllm(tmp_path / "merged") == wanted
    assert of_vllm(run / "checkpoints" / "000001" / "policy") == wanted
    assert of_vllm(base, tmp_path / "adapter") == wanted
