"""How often a pretrained model succeeds without training: environments x prompts x free or admissible answers.

    agentrl model fetch smollm2
    python benchmarks/zero_shot.py models/smollm2 --tasks 40 --out benchmarks/results/zero_shot.json

Each cell plays the first N tasks of an environment's held-out split once, with the whole chat as context (the prompts
of verl-agent: the last two turns, as published). A cell whose result is in the output file is not played again.
`--table` prints the output file as a Markdown table.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.engines import HfEngine, Sampling, stopping
from agentrl.env import EnvironmentFile, Limits, make_pool, tasks_of
from agentrl.evaluate import evaluate
from agentrl.files import write_atomically
from agentrl.model import Loaded, ModelConfig, load_model
from agentrl.rollout import Actor, ContextPolicy, PlayerFactory, PolicyActor, Random
from agentrl.run import Loop
from agentrl.settings import resolve_agents

THOUGHT, LINE = 96, 32  # limits in tokens: of an answer with thoughts or tool calls, of an answer of one line
CONTEXT = 4096
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "webshop": {"observation": "brief", "levels": ["easy"], "split": "test", "max_steps": 8},
    "search_qa": {"world": "tiny", "split": "test", "hops": [1]},
    "calculator": {"events": 1, "split": "test"},
    "code_math": {"level": 1, "split": "test"},
    "alfworld": {"split": "valid_unseen", "level": "small", "max_steps": 12},
}
PUBLISHED = {"alfworld": "verl_agent", "webshop": "verl_agent", "search_qa": "search_r1"}  # other environments: chat
LISTED = ("alfworld", "webshop")  # environments with a prompt that lists the actions


class Cell(NamedTuple):
    """One measurement; `answers` is free, admissible, or random for the baseline without a model."""

    world: str
    prompt: str
    answers: str
    temperature: float

    @property
    def key(self) -> str:
        """The name of the cell in the output file."""
        return f"{self.world} {self.prompt} {self.answers} T={self.temperature:g}"


def cells() -> Iterator[Cell]:
    """Every measurement, the most expensive last."""
    short = [(world, "instruct") for world in WORLDS]
    yield from (Cell(world, "compact", "random", 1.0) for world in WORLDS)
    for one in short:
        yield Cell(*one, "admissible", 0.0)
        yield Cell(*one, "free", 0.0)
    yield from (Cell(world, "instruct_listed", "free", 0.0) for world in LISTED)
    yield from (Cell(*one, "admissible", 1.0) for one in short)
    yield from (Cell(world, "compact", "admissible", 0.0) for world in WORLDS)
    yield from (Cell(world, PUBLISHED.get(world, "chat"), "free", 0.0) for world in WORLDS)


def play(cell: Cell, loaded: Loaded, tasks: int) -> dict[str, Any]:
    """The summary of one cell."""
    entry = resolve(EnvironmentFile, {"name": cell.world, **WORLDS[cell.world], "prompt": cell.prompt}, "env")
    rebuilt = cell.prompt == "verl_agent"
    context = resolve(ContextPolicy, {"name": "last_k", "k": 2} if rebuilt else {"name": "full"})
    long = cell.prompt in (*PUBLISHED.values(), "chat")
    limits = Limits(turns=12, turn_tokens=THOUGHT if long else LINE)
    agents = resolve_agents(entry, context, limits, "random", {})
    pool = make_pool(entry, timeout_s=limits.call_seconds)
    try:
        crew = PlayerFactory(agents, dict.fromkeys(agents, pool), admissible=cell.answers == "admissible", seed=0)
        (agent,) = agents.values()
        actor: Actor
        if cell.answers == "random":
            actor, described = PolicyActor(Random(agent.prompt), None, None), dict[str, object](policy="random")
        else:
            engine = HfEngine(
                loaded.model,
                loaded.tokenizer,
                stopping(Sampling(temperature=cell.temperature), agent.prompt),
                max_slots=tasks,
                max_context=CONTEXT,
                actions="admissible" if cell.answers == "admissible" else "free",
                deterministic=True,
            )
            actor, described = PolicyActor(engine, Chat(loaded.tokenizer), CONTEXT), engine.describe()
        player = crew.player(dict.fromkeys(agents, actor))
        with Loop() as loop:
            panel = tasks_of(entry)
            report = loop.run(evaluate(player, entry, [panel[i] for i in range(tasks)], described))
        return {**cell._asdict(), **report.summary(), "options": dict(WORLDS[cell.world])}
    finally:
        pool.close()


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| environment | prompt | answers | temperature | success | 95% interval | n | reward | invalid | tokens |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for world in WORLDS:
        for r in (r for r in results.values() if r["world"] == world):
            low, high = r["interval"]
            n = r["episodes"]
            shown = (
                f"`{world}`",
                "" if r["answers"] == "random" else f"`{r['prompt']}`",
                r["answers"],
                "" if r["answers"] == "random" else f"{r['temperature']:g}",
                f"{r['success_rate']:.1%}",
                f"{low:.1%} to {high:.1%}",
                str(n),
                f"{r['mean_reward']:.2f}",
                f"{r['invalid_share']:.0%}",
                f"{r['tokens'] / max(1, n):.0f}",
            )
            lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--only", default="", help="cells whose name holds this text")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/zero_shot.json"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if arguments.table:
        print(table(results))
        return
    torch.set_num_threads(1)
    loaded = load_model(ModelConfig(path=str(arguments.model), dtype=arguments.dtype, device="cpu"), 0)
    for cell in cells():
        if cell.key in results or arguments.only not in cell.key:
            continue
        found = play(cell, loaded, arguments.tasks)
        results[cell.key] = {name: value for name, value in found.items() if "seconds" not in name}
        write_atomically(arguments.out, json.dumps(results, indent=1).encode() + b"\n")
        low, high = found["interval"]
        print(f"{cell.key:50} {found['success_rate']:6.1%} [{low:.1%}, {high:.1%}]", flush=True)


if __name__ == "__main__":
    main()
