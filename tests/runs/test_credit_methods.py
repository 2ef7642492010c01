"""Every credit method of the catalogue trains from a recipe, and says at the start what a recipe lacks."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl import catalogue
from agentrl.cli import main
from tests.toys.runs import TOY, recipe

RECIPE = recipe(
    TOY,
    run={"checkpoint_every": 0, "graphs_every": 0},
    env={"name": "tests.toys.walk", "count": 8},
    eval={"tasks": 1, "modes": ["greedy"], "env": {"first": 64}},
    engine={"max_slots": 16},
    limits={"turns": 5, "turn_tokens": 24},
    warmup={"expert": "straight"},
    batch={"tasks": 3, "copies": 4},
)
TOKENS = ("critic.model=head", "critic.at=token")
TREE, CANDIDATES = ("rollout={name='tree'}",), ("rollout={name='candidates', candidates=2}",)
LACKS = {  # what a method needs beyond plain chains, and the column that it names without
    "turn_ppo": (("critic.model=head",), "value"),
    "token_gae": (TOKENS, "token_value"),
    "poad": (TOKENS, "token_value"),
    "bilevel_gae": (TOKENS, "token_value"),
    "vine_ppo": (("rollout={name='vine', probes=2}",), "value"),
    "tree_grpo": (TREE, "tree"),
    "segment_tree": (TREE, "tree"),
    "hiper": (("critic.model=own", "critic.two_levels=true", "context={name='plan', starts='^right'}"), "value"),
    "info_gain": (
        (
            "env={name='search_qa', world='tiny', prompt='compact', top_k=1, max_turns=2}",
            "eval.env={split='test'}",
            "warmup.expert=careless:0.5",
            "model.new.entity_pattern=",
        ),
        "gold_logprob",
    ),
}
BESIDE = {  # what lets a method do something that plain chains cannot
    "tl_grpo": CANDIDATES,
    "role_grpo": CANDIDATES,
    "m_grpo": ("env={name='tests.toys.foreman', count=8}", "eval.env={count=4}", "credit.align=2"),
}
OPTIONS = {"sum": "credit={name='sum', methods=['grpo', 'gigpo']}"}
METHODS = sorted(catalogue.names("credit"))


def run(folder: Path, method: str, *more: str) -> int:
    (folder / "tiny.toml").write_text(RECIPE)
    chosen = OPTIONS.get(method, f"credit={{name='{method}'}}")
    return main(["train", str(folder / "tiny.toml"), f"run.folder={folder}", "run.name=run", chosen, *more])


@pytest.mark.parametrize("method", METHODS)
def test_it_trains(method, tmp_path):
    assert run(tmp_path, method, *(LACKS[method][0] if method in LACKS else BESIDE.get(method, ()))) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["stage"] == "train"]
    assert len(train) == 2 and all(np.isfinite(line["loss"]) for line in train)
    assert sum(line["optimizer_steps"] for line in train) > 0 and max(line["grad_norm"] for line in train) > 0
    assert all(line["env_error_share"] == 0 for line in train)


@pytest.mark.parametrize("method", sorted(LACKS))
def test_what_it_lacks_is_told_before_anything_is_played(method, tmp_path, capsys):
    assert run(tmp_path, method) == 2
    told = capsys.readouterr().err
    assert f"credit.name={method} needs the column '{LACKS[method][1]}'" in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_one_agent_alone_is_told(tmp_path, capsys):
    assert run(tmp_path, "m_grpo") == 2
    assert "this recipe has one agent" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_two_levels_need_answers_that_name_sub_goals(tmp_path, capsys):
    assert run(tmp_path, "hiper", "critic.model=own") == 2
    assert (
        "needs the column 'value_high': set critic.model=head or own, and critic.two_levels=true"
        in capsys.readouterr().err
    )
    assert run(tmp_path, "hiper", "critic.model=own", "critic.two_levels=true") == 2
    assert "needs the column 'segment_start': set context.name=plan" in capsys.readouterr().err
