"""TRL's side of `benchmarks/trl.py`, run by the Python of an environment that has trl; agentrl is not imported.

It trains with `GRPOTrainer`, its own tool loop, and one environment per rollout (`environment_factory`). One thing is
replaced: every answer that does not stop is read as a call of the one tool, because a model with random weights writes
no calls. Prints one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:] = [str(HERE), *(path for path in sys.path if Path(path or ".").resolve() not in (HERE, HERE.parent))]
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import pages  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl.trainer import grpo_trainer  # noqa: E402


class Reader:
    """The pages of one rollout."""

    def reset(self, task: int, words: int, **_: Any) -> None:
        """Begin with the question, which is the prompt."""
        self.task, self.words, self.number = task, words, 0

    def read(self, answer: str) -> str:
        """The next page.

        Args:
            answer: any text.

        Returns:
            The page.
        """
        self.number += 1
        return pages.page(self.task, self.number, self.words)


def as_a_call(tokenizer: Any, ids: Sequence[int], **_: Any) -> dict[str, Any]:
    """An answer as a message that calls the tool, unless it stops."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    call = {"type": "function", "function": {"name": "read", "arguments": {"answer": text}}}
    return {"role": "assistant", "content": text, **({} if pages.stops(text) else {"tool_calls": [call]})}


def paid(completions: Sequence[Any], task: Sequence[int], **_: Any) -> list[float]:
    """The reward of each rollout."""
    answers = ([one["content"] for one in messages if one["role"] == "assistant"] for messages in completions)
    return [pages.reward(number, said) for number, said in zip(task, answers, strict=True)]


class Counted(trl.GRPOTrainer):
    """Counts tokens and CPU seconds of each step."""

    steps: list[dict[str, float]]
    shown: list[list[int]]

    def _generate(self, prompts: list[Any]) -> Any:
        begin = time.process_time()
        found = super()._generate(prompts)
        self.steps[-1]["rollout_s"] += time.process_time() - begin
        self.steps[-1]["trained"] += sum(map(sum, found[2]))
        self.shown = self.shown or [[*map(int, ids)] for ids in found[0]]
        return found


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """CPU seconds of whole steps, and the tokens that go through the model in them."""

    def __init__(self, model: Any) -> None:
        self.steps: list[dict[str, float]] = []
        model.get_input_embeddings().register_forward_pre_hook(self.count)

    def count(self, module: Any, inputs: Any) -> None:
        if self.steps:
            name = "updated" if torch.is_grad_enabled() else "played"
            self.steps[-1][name] += inputs[0].numel()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        now = -time.process_time()
        self.steps.append({"s": now, "rollout_s": 0.0, "trained": 0, "played": 0, "updated": 0})

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps[-1]["s"] += time.process_time()


def main() -> None:
    """Train, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", help="a JSON object of sizes, as benchmarks/trl.py writes it")
    load = json.loads(parser.parse_args().load)
    torch.set_num_threads(1)
    grpo_trainer.parse_response = as_a_call
    model = transformers.AutoModelForCausalLM.from_pretrained(load["model"], dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(load["model"])
    tokenizer.response_template = {}  # `as_a_call` takes its place
    rows = [
        {"prompt": [{"role": "user", "content": pages.page(n, 0, load["words"])}], "task": n, "words": load["words"]}
        for n in range(load["tasks"])
    ]
    clock = Clock(model)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Counted(
            model=model,
            args=options(load, folder),
            reward_funcs=paid,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            environment_factory=Reader,
            callbacks=[clock],
        )
        trainer.steps, trainer.shown = clock.steps, []
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    prompts = {json.dumps(ids) for ids in trainer.shown}
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"steps": clock.steps, "prompts": sorted(map(json.loads, prompts)), "versions": versions}))


def options(load: dict[str, Any], folder: str) -> Any:
    """What both sides share, as TRL's options: GRPO without a reference model, one optimiser step per batch."""
    return trl.GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        seed=load["seed"],
        max_steps=load["steps"],
        per_device_train_batch_size=load["tasks"] * load["copies"],
        num_generations=load["copies"],
        max_completion_length=load["context"],
        generation_kwargs={"max_new_tokens": load["answer"]},
        max_tool_calling_iterations=pages.ANSWERS - 1,
        temperature=1.0,
        beta=0.0,
        epsilon=0.2,
        learning_rate=load["lr"],
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


if __name__ == "__main__":
    main()
