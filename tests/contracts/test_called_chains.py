"""The chains of a program's episode count once: laws that hold for every reader of the statistics of a group.

A program that runs sub-agents at the same time has a main chain and called chains, all with the episode's outcome.
"""

import json
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from agentrl import catalogue
from agentrl.cli.credit import json_lines
from agentrl.credit import assign, rescore, reward_metrics
from agentrl.graph import StepGraph
from tests.algorithms.credit.steps import Row, chain, forest, graph_of
from tests.contracts.every import entry

CREDIT = catalogue.names("credit")
# Methods that compare the scores of whole episodes: each chain gets the advantage of its episode. The docstrings of all
# other methods that compare steps say how the steps of called chains are compared.
EPISODES = ["grpo", "rloo", "multi_conversation", "m_grpo", "tree_grpo", "single_stream", "clip", "sum", "whiten"]
STEPS = ["gigpo", "hgpo", "graph_gpo", "graft", "salt", "turn_returns", "tl_grpo", "role_grpo", "info_gain"]
STEPS += ["turn_ppo", "bilevel_gae", "token_gae", "hiper"]
BY_VOTES = ("grpo", "rloo", "multi_conversation", "clip", "sum")  # they count as `grpo.votes` says, or not at all
OPTIONS = {"m_grpo": {"align": "off"}}  # alignment draws which called chains are trained
PRESETS = ("paper", "official")


def episodes(seed: int) -> list[Row]:
    """Two groups of chains whose reward is on their last step."""
    rows = forest(seed, groups=2)
    last = {row["episode"]: row["turn"] for row in rows}
    for row in rows:
        row["reward"] = row["reward"] if row["turn"] == last[row["episode"]] else 0.0
    return rows


def with_called(rows: list[Row], count: int, *, order: int = 1) -> list[Row]:
    """The rows, with `count` equal called chains below the first step of every episode but the last of each group."""
    more: list[Row] = []
    for name in sorted({row["episode"] for row in rows if not row["episode"].endswith("e3")}):
        own = [row for row in rows if row["episode"] == name]
        for number in range(count)[::order]:
            copy = [row | {"episode": f"{name}/{number}", "agent": "agent/called", "caller": [name, 0]} for row in own]
            more += [row | {"tree": f"{name}/{number}"} for row in copy]
    return [*rows, *more]


def advantages(method: str, rows: list[Row], **options: Any) -> dict[tuple[str, int], float]:
    """(episode, turn) -> advantage."""
    graph = graph_of(rows)
    found = assign(entry("credit", method, **OPTIONS.get(method, {}), **options), graph)
    lines = [json.loads(line) for line in json_lines(graph, found)]
    return {(line["episode"], line["turn"]): line["advantage"] for line in lines}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", EPISODES)
def test_called_chains_change_no_advantage_and_have_that_of_their_episode(method, preset):
    rows = episodes(1)
    alone, several = (advantages(method, table, preset=preset) for table in (rows, with_called(rows, 3)))
    assert max(map(abs, alone.values())) > 0.1
    for (episode, turn), found in several.items():
        assert found == pytest.approx(alone[episode.partition("/")[0], turn], abs=1e-12), (episode, turn)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", CREDIT)
def test_the_number_of_equal_chains_changes_nothing(method, preset):
    rows = episodes(2)
    one, five = (advantages(method, with_called(rows, count), preset=preset) for count in (1, 5))
    for (episode, turn), found in five.items():
        main, _, number = episode.partition("/")
        assert found == pytest.approx(one[f"{main}/0" if number else main, turn], abs=1e-9), (episode, turn)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", CREDIT)
def test_the_order_of_the_chains_changes_nothing(method, preset):
    rows = episodes(3)
    forwards, backwards = (advantages(method, with_called(rows, 3, order=o), preset=preset) for o in (1, -1))
    assert backwards == pytest.approx(forwards, abs=1e-9)


@pytest.mark.parametrize("method", [*EPISODES, *STEPS])
def test_methods_say_what_they_make_of_called_chains(method):
    if method not in BY_VOTES:
        assert "called chain" in " ".join(catalogue.load("credit", method).about.split()), method


def test_every_method_that_reads_the_statistics_of_a_group_is_listed():
    statistics = {"group_norm", "leave_one_out", "moments", "whiten"}
    used = {name for name in CREDIT if statistics & {*vars(import_module(f"agentrl.algorithms.credit.{name}"))}}
    assert used - {*EPISODES, *STEPS} == {"segment_tree"}  # a called chain is a tree of its own


def scored(reward: float, signals: dict[str, float], *, called: int, name: str) -> list[Row]:
    rows = chain("g", name, [0.0, reward], terminated=[False, True])
    rows[-1] |= {f"signal/{key}": x for key, x in signals.items()}
    below = {"agent": "agent/called", "caller": [name, 0]}
    return [*rows, *(row | below | {"episode": f"{name}/{i}"} for i in range(called) for row in rows)]


def two_signals(called: int) -> StepGraph:
    """Three episodes; the first one has this number of called chains."""
    right, short = (1.0, 0.0, 1.0), (0.2, 0.9, 0.4)
    tables = [
        scored(r, {"right": r, "short": s}, called=called if i == 0 else 0, name=f"e{i}")
        for i, (r, s) in enumerate(zip(right, short, strict=True))
    ]
    graph = graph_of([{k: x for k, x in row.items() if "/" not in k} for table in tables for row in table])
    order = graph.column("line")
    rows = [row for table in tables for row in table]
    columns = {
        key: np.array([rows[int(line) - 1].get(key, np.nan) for line in order])
        for key in ("signal/right", "signal/short")
    }
    return graph.with_columns(**columns)


@pytest.mark.parametrize("options", [{}, {"unit": "step"}, {"batch": True}, {"std": "none"}])
def test_signals_are_normalised_by_episode(options):
    alone, several = (
        rescore(two_signals(called), [entry("reward", "group_normalised", **options)]) for called in (0, 4)
    )
    ends = several.last
    of_episode = {several.names["episode"][several.episode[i]]: several.reward[i] for i in np.flatnonzero(ends)}
    for row in np.flatnonzero(alone.last):
        name = alone.names["episode"][alone.episode[row]]
        same = [x for key, x in of_episode.items() if key.partition("/")[0] == name]
        assert same == pytest.approx([alone.reward[row]] * len(same), abs=1e-12)
    assert reward_metrics(several) == pytest.approx(reward_metrics(alone))


def test_filters_and_metrics_count_an_episode_once():
    """Two episodes of one score; a called chain with another score, as a length penalty makes it, lets nothing vary."""
    rows = [*scored(1.0, {}, called=2, name="a"), *scored(1.0, {}, called=0, name="b")]
    rows[-3]["reward"] = 0.5
    graph = graph_of(rows)
    assert len(np.unique(graph.score)) == 2
    sampler = entry("sampler", "dynamic")
    assert not sampler.hooks.keep(sampler.config, graph).any()
    found = assign(entry("credit", "grpo"), graph).metrics
    assert (found["zero_variance_groups"], found["singleton_groups"]) == (1.0, 0.0)
