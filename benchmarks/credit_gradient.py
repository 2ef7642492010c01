"""Bias and variance of credit methods against the exact policy gradient of small enumerable MDPs.

    python -m benchmarks.credit_gradient [--groups N] [--seed S] [--out benchmarks/results/credit_gradient]

A tabular softmax policy acts in a few states. Dynamic programming gives the exact gradient of its expected return. A
group is 8 episodes of one task (for trees: 2 trees of 4 leaves). The estimate of a group is the mean over episodes of
the sum over steps of A * grad log pi, where A is the method's advantage. Many independent groups give the expected
estimate and its covariance. Reported for each method and MDP:

    cosine       between the expected estimate and the exact gradient, with a 95% interval (jackknife over 25 folds)
    norm ratio   norm of the expected estimate over that of the exact gradient (methods that divide by a standard
                 deviation change the scale by design)
    noise        trace of the covariance over the squared norm of the expected estimate: the variance at an equal
                 number of episodes, at the scale at which the estimates would be used; smaller is better
    biased       yes if the interval of the cosine lies below 0.999

The critic of turn_ppo is exact, or has a fixed error in each state (standard deviation 0.2). The values of vine_ppo
are means of 9 outcomes. A tree is a trunk and three leaves from uniformly drawn steps of the trunk, as Tree-GRPO
samples. A long trunk has later branches than a short one, so that a tree's paths are not distributed as the policy's
own episodes. This is a part of the bias of tree methods here.

values_only: each group has 8 stored episodes of an older policy, whose logits differ by noise of standard deviation
0.3 (near) or 1 (far). They enter statistics, step groups and merged values, and get no credit
(replay.name=values_only).

Letters: G groups, E episodes, N steps, S states, A actions.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.graph import COLUMNS, StepGraph
from benchmarks.result_files import write

GROUP, STORED, FOLDS = 8, 8, 25
APART = {"near": 0.3, "far": 1.0}  # standard deviation of the noise in an older policy's logits
NOT_APPLICABLE = {
    "bilevel_gae": "needs values inside a response; with one token per turn it is turn_ppo",
    "poad": "needs values inside a response; with one token per turn it is turn_ppo",
    "token_gae": "needs values inside a response; with one token per turn it is turn_ppo",
    "hiper": "needs sub-goals",
    "m_grpo": "needs sub-agents; without them it is grpo with std=population",
    "role_grpo": "needs candidates that are scored at each turn",
    "info_gain": "needs a gold answer",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Mdp:
    """A finite-horizon MDP with deterministic or random moves.

    Attributes:
        name, note: words for the table.
        move: [S, A, S] transition probabilities; the last state is the end (absorbing, no reward).
        reward: [S, A] expected reward of leaving a state; drawn as 0 or 1 with that probability.
        starts: [tasks] start state of each task, equally likely.
        horizon: steps after which an episode is over.
        logits: [S, A] logits of the policy.
        alias: [S] number of what is seen in a state; methods that compare states compare these numbers.
    """

    name: str
    note: str
    move: np.ndarray
    reward: np.ndarray
    starts: np.ndarray
    horizon: int
    logits: np.ndarray
    alias: np.ndarray

    @property
    def policy(self) -> np.ndarray:
        """[S, A] probabilities."""
        exps = np.exp(self.logits - self.logits.max(1, keepdims=True))
        return exps / exps.sum(1, keepdims=True)


class Exact(NamedTuple):
    """What dynamic programming finds.

    Attributes:
        value: [horizon + 1, S] value of each state at each time, counted from the start.
        gradient: [S, A] gradient of the expected return J.
    """

    value: np.ndarray
    gradient: np.ndarray


def exact(mdp: Mdp) -> Exact:
    """Exact values and gradient: values by dynamic programming backwards in time, then the gradient from the expected
    visits of each state forwards in time."""
    pi, n = mdp.policy, len(mdp.logits)
    value, q = np.zeros((mdp.horizon + 1, n)), np.zeros((mdp.horizon, *mdp.logits.shape))
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.reward + mdp.move @ value[t + 1]
        value[t] = (pi * q[t]).sum(1)
    visits = np.bincount(mdp.starts, minlength=n) / len(mdp.starts)  # [S]
    gradient = np.zeros_like(mdp.logits)
    for t in range(mdp.horizon):
        gradient += visits[:, None] * pi * (q[t] - value[t][:, None])
        visits = np.einsum("s,sa,sat->t", visits, pi, mdp.move)
    return Exact(value, gradient)


class Played(NamedTuple):
    """Steps of episodes, each column [E, horizon]; `alive` is True where a step was taken."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    after: np.ndarray
    alive: np.ndarray


def play(mdp: Mdp, start: np.ndarray, first: np.ndarray, rng: np.random.Generator) -> Played:
    """Play from `start` [E] at time `first` [E] to the end."""
    end, shape = len(mdp.logits) - 1, (len(start), mdp.horizon)
    out = Played(*(np.zeros(shape, kind) for kind in (np.int64, np.int64, np.float64, np.int64, bool)))
    choose, lead = mdp.policy.cumsum(1), mdp.move.cumsum(2)
    now = start.copy()
    for t in range(mdp.horizon):
        alive = (t >= first) & (now != end)  # [E]
        act = (rng.random((len(now), 1)) > choose[now]).sum(1)
        then = np.where(alive, (rng.random((len(now), 1)) > lead[now, act]).sum(1), now)
        gain = alive & (rng.random(len(now)) < mdp.reward[now, act])
        for column, x in zip(out, (now, act, gain, then, alive), strict=True):
            column[:, t] = x
        now = then
    return out


def chains(mdp: Mdp, groups: int, truth: Exact, rng: np.random.Generator, copies: int = GROUP) -> StepGraph:
    """Groups of independent episodes. The column `value` has the exact values; `spoiled` and `counted` replace them by
    those of an inexact critic and of Monte Carlo estimates."""
    task = np.repeat(rng.integers(len(mdp.starts), size=groups), copies)  # [E]
    played = play(mdp, mdp.starts[task], np.zeros(len(task), int), rng)
    episode, turn = np.nonzero(played.alive)  # [N]
    parent = np.where(turn, np.arange(len(turn)) - 1, -1)
    return graph_of(mdp, truth, played, episode, turn, group=episode // copies, parent=parent)


def replayed(mdp: Mdp, groups: int, truth: Exact, rng: np.random.Generator, apart: float) -> StepGraph:
    """Groups of `chains`, and in each STORED episodes of an older policy, which enter values and never the gradient.

    The columns are those of replay.name=values_only (`agentrl.rollout.replay_buffer`). The older policy's logits are
    those of the policy plus noise of standard deviation `apart`.
    """
    older = replace(mdp, logits=mdp.logits + apart * np.random.default_rng(11).normal(size=mdp.logits.shape))
    task = rng.integers(len(mdp.starts), size=groups)  # [G]
    fresh, old = (
        play(policy, mdp.starts[np.repeat(task, copies)], np.zeros(groups * copies, int), rng)
        for policy, copies in ((mdp, GROUP), (older, STORED))
    )
    group = np.concatenate([np.repeat(np.arange(groups), copies) for copies in (GROUP, STORED)])  # [E]
    order = np.argsort(group, kind="stable")  # the fresh episodes of a group before its stored ones
    played = Played(*(np.concatenate(pair)[order] for pair in zip(fresh, old, strict=True)))
    stored = order >= groups * GROUP  # [E]
    episode, turn = np.nonzero(played.alive)  # [N]
    parent = np.where(turn, np.arange(len(turn)) - 1, -1)
    trained = {"in_gradient": ~stored[episode], "in_statistics": np.ones(len(turn), bool)}
    return graph_of(mdp, truth, played, episode, turn, group=group[order][episode], parent=parent, **trained)


def trees(mdp: Mdp, groups: int, truth: Exact, rng: np.random.Generator) -> StepGraph:
    """Two trees per group: a chain, and three more leaves, each from a uniformly drawn step's state of the
    chain."""
    roots = groups * 2
    task = np.repeat(rng.integers(len(mdp.starts), size=groups), 2)
    trunk = play(mdp, mdp.starts[task], np.zeros(roots, int), rng)
    length = trunk.alive.sum(1)  # [roots]
    at = (rng.random((roots, 3)) * length[:, None]).astype(int)  # [roots, 3] the step that is played again
    source = np.repeat(np.arange(roots), 3)
    branch = play(mdp, trunk.state[source, at.ravel()], at.ravel(), rng)
    played = Played(*(np.concatenate(pair) for pair in zip(trunk, branch, strict=True)))
    tree = np.concatenate([np.arange(roots), source])  # [E]
    order = np.argsort(tree, kind="stable")  # a trunk before its branches
    played, tree = Played(*(x[order] for x in played)), tree[order]
    first = np.concatenate([np.zeros(roots, int), at.ravel()])[order]  # [E]
    episode, turn = np.nonzero(played.alive)  # [N]
    starts = np.searchsorted(episode, np.arange(len(tree)))  # [E] row of each episode's first step
    above = np.arange(len(turn)) - 1
    opening = turn == first[episode]
    trunk_row = starts[np.searchsorted(tree, tree[episode])]  # [N] first row of the tree's trunk
    above[opening] = np.where(turn > 0, trunk_row + turn - 1, -1)[opening]
    return graph_of(mdp, truth, played, episode, turn, group=tree[episode] // 2, parent=above, tree=tree[episode])


def graph_of(
    mdp: Mdp, truth: Exact, played: Played, episode: np.ndarray, turn: np.ndarray, **given: np.ndarray
) -> StepGraph:
    """The graph of the steps at (episode, turn), one row per step."""
    n = len(turn)
    last = np.append(episode[1:] != episode[:-1], True)
    state, after = played.state[episode, turn], played.after[episode, turn]
    columns: dict[str, np.ndarray] = {name: np.zeros(n, kind) for name, kind in COLUMNS.items()}
    columns |= {
        "episode": episode, "rollout": episode, "turn": turn, "caller": np.full(n, -1), "tree": episode,
        "state": mdp.alias[state], "action": played.action[episode, turn], "next_state": mdp.alias[after],
        "reward": played.reward[episode, turn], "terminated": last,
        "valid": np.ones(n, bool), "weight": np.ones(n),
        "value": truth.value[turn, state], "true_state": state, **given,
    }  # fmt: skip
    return StepGraph(columns=columns)


def estimates(mdp: Mdp, graph: StepGraph, advantage: np.ndarray) -> np.ndarray:
    """[G, S * A] each group's estimate: mean over its leaves of sum of A grad log pi."""
    s, a = mdp.logits.shape
    groups = int(graph.group.max()) + 1
    cell = (graph.group * s + graph.column("true_state")) * a + graph.action  # [N]
    total = np.bincount(cell, advantage, minlength=groups * s * a).reshape(groups, s, a)
    gradient = total - mdp.policy * total.sum(2, keepdims=True)
    return gradient.reshape(groups, -1) / GROUP


def compare(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Expected estimate against the exact gradient [S * A]."""
    usable = found[: len(found) // FOLDS * FOLDS]
    folds = usable.reshape(FOLDS, -1, found.shape[1]).mean(1)  # [folds, S * A]
    mean = folds.mean(0)
    left = (folds.sum(0) - folds) / (FOLDS - 1)  # leave-one-out means

    def cosine(x: np.ndarray) -> np.ndarray:
        return x @ truth / np.linalg.norm(x, axis=-1) / np.linalg.norm(truth)

    def half_width(x: np.ndarray) -> float:
        return float(1.96 * np.sqrt((FOLDS - 1) * np.var(x)))

    norm = np.linalg.norm(truth)
    angle, width = float(cosine(mean)), half_width(cosine(left))
    return {
        "cosine": angle,
        "cosine_half_width": width,
        "ratio": float(np.linalg.norm(mean) / norm),
        "ratio_half_width": half_width(np.linalg.norm(left, axis=-1) / norm),
        "noise": float(usable.var(0).sum() / (mean @ mean)),
        "biased": bool(angle + width < 0.999),
    }


def score(graph: StepGraph) -> np.ndarray:
    """REINFORCE: the return, no baseline."""
    return graph.score


def to_go(graph: StepGraph) -> np.ndarray:
    """REINFORCE with the return from the step on."""
    turn_returns = importlib.import_module("agentrl.algorithms.credit.turn_returns")
    return turn_returns.step_return(graph, turn_returns.Config(gamma=1.0))


Change = Callable[[StepGraph, np.random.Generator], StepGraph]
Advantage = Callable[[StepGraph], np.ndarray]


def method(name: str, change: Change | None = None, **options: Any) -> Advantage:
    """A function that returns the advantage of a catalogue method; `change` changes columns of the graph before."""
    entry = resolve(CreditMethod, {"name": name, **options})

    def advantage(graph: StepGraph) -> np.ndarray:
        changed = change(graph, np.random.default_rng(7)) if change else graph
        return assign(entry, changed).advantage

    return advantage


def spoiled(graph: StepGraph, rng: np.random.Generator) -> StepGraph:
    """A critic that is wrong by a fixed amount in each state (standard deviation 0.2)."""
    error = rng.normal(0, 0.2, int(graph.column("true_state").max()) + 1)
    return graph.with_columns(value=graph.column("value") + error[graph.column("true_state")])


def counted(graph: StepGraph, rng: np.random.Generator) -> StepGraph:
    """Monte Carlo values: the mean of 9 continuations (returns here are 0 or 1, so their sum is binomial)."""
    return graph.with_columns(value=rng.binomial(9, np.clip(graph.column("value"), 0, 1)) / 9)


METHODS: dict[str, tuple[str, Advantage]] = {
    "no baseline (reference)": ("chains", score),
    "return to go (reference)": ("chains", to_go),
    "grpo": ("chains", method("grpo")),
    "grpo std=none": ("chains", method("grpo", std="none")),
    "grpo unit=step std=none": ("chains", method("grpo", std="none", unit="step")),
    "rloo": ("chains", method("rloo")),
    "multi_conversation": ("chains", method("multi_conversation")),
    "single_stream whiten=false": ("chains", method("single_stream", whiten=False)),
    "gigpo": ("chains", method("gigpo")),
    "gigpo std=none": ("chains", method("gigpo", std="none")),
    "gigpo std=none gamma=1": ("chains", method("gigpo", std="none", gamma=1)),
    "gigpo preset=official": ("chains", method("gigpo", preset="official")),
    "hgpo": ("chains", method("hgpo")),
    "graph_gpo": ("chains", method("graph_gpo")),
    "graft": ("chains", method("graft")),
    "salt": ("chains", method("salt")),
    "salt base=rloo": ("chains", method("salt", base="rloo")),
    "turn_returns gamma=1 std=none": ("chains", method("turn_returns", gamma=1, std="none")),
    "turn_returns key=group+turn gamma=1 std=none": (
        "chains", method("turn_returns", gamma=1, std="none", key="group+turn")),
    "tl_grpo key=state outcome=score": ("chains", method("tl_grpo", key="state", outcome="score")),
    "turn_ppo exact critic": ("chains", method("turn_ppo")),
    "turn_ppo exact critic gamma=1": ("chains", method("turn_ppo", gamma=1)),
    "turn_ppo critic off by 0.2": ("chains", method("turn_ppo", spoiled)),
    "turn_ppo critic off by 0.2 gamma=1 lam=1": ("chains", method("turn_ppo", spoiled, gamma=1, lam=1)),
    "vine_ppo 9 continuations": ("chains", method("vine_ppo", counted)),
    "rloo, values_only": ("near", method("rloo")),
    "rloo, values_only far": ("far", method("rloo")),
    "gigpo, values_only": ("near", method("gigpo")),
    "gigpo std=none gamma=1, values_only": ("near", method("gigpo", std="none", gamma=1)),
    "gigpo std=none gamma=1, values_only far": ("far", method("gigpo", std="none", gamma=1)),
    "graft, values_only": ("near", method("graft")),
    "graph_gpo, values_only": ("near", method("graph_gpo")),
    "tree_grpo": ("trees", method("tree_grpo")),
    "tree_grpo std=none": ("trees", method("tree_grpo", std="none")),
    "segment_tree": ("trees", method("segment_tree")),
}  # fmt: skip


def ladder(alias: np.ndarray, name: str, note: str, slip: float = 0.1) -> Mdp:
    """Rungs 0 to 4; up or back, with slips; the top rung pays."""
    move = np.zeros((6, 2, 6))
    for s in range(5):
        move[s, 0, s + 1] = move[s, 1, max(s - 1, 0)] = 1 - slip
        move[s, :, s] += slip
    move[5, :, 5] = 1
    reward = np.zeros((6, 2))
    reward[4, 0] = 1 - slip
    return Mdp(
        name=name,
        note=note,
        move=move,
        reward=reward,
        starts=np.array([0, 2, 4]),
        horizon=8,
        logits=0.5 * np.random.default_rng(3).normal(size=(6, 2)),
        alias=alias,
    )


def lottery() -> Mdp:
    """A choice of a machine, then of a button; tasks start before the choice or at a machine."""
    move = np.zeros((5, 2, 5))
    move[0, 0, 1] = move[0, 1, 2] = 1
    move[1:, :, 4] = 1
    return Mdp(
        name="lottery",
        note="one or two choices, then luck; tasks of three difficulties",
        move=move,
        reward=np.array([[0, 0], [0.2, 0.4], [0.5, 0.7], [0.8, 1.0], [0, 0]]),
        starts=np.array([0, 1, 3]),
        horizon=2,
        logits=0.5 * np.random.default_rng(4).normal(size=(5, 2)),
        alias=np.arange(5),
    )


def mdps() -> list[Mdp]:
    """Small worlds; the same policy acts in all tasks of each."""
    note = "5 rungs, slips of 10%, tasks start on rungs 0, 2 and 4, horizon 8"
    return [
        ladder(np.arange(6), "ladder", note),
        ladder(np.array([0, 1, 1, 1, 4, 5]), "ladder, aliased", "the same, but rungs 1, 2, 3 look alike"),
        ladder(np.arange(6), "ladder, no slips", "the same, but every step is deterministic", slip=0.0),
        lottery(),
    ]


def run(groups: int, seed: int) -> list[dict[str, Any]]:
    """Every method on every MDP."""
    lines = []
    for mdp in mdps():
        truth = exact(mdp)
        rng = np.random.default_rng(seed)
        data = {"chains": chains(mdp, groups, truth, rng), "trees": trees(mdp, groups, truth, rng)}
        for kind, apart in APART.items():
            data[kind] = replayed(mdp, groups, truth, np.random.default_rng((seed, 1)), apart)
        for name, (kind, advantage) in METHODS.items():
            graph = data[kind]
            found = estimates(mdp, graph, advantage(graph))
            line = {"mdp": mdp.name, "method": name, "groups": groups, "steps": len(graph)}
            lines.append(line | compare(found, truth.gradient.ravel()))
    return lines


def markdown(lines: list[dict[str, Any]], seconds: float, groups: int) -> str:
    """The table for readers."""
    about = __doc__.split("\n\n", 2)[2].rsplit("\n\n", 1)[0].strip()
    out = [
        "# Credit methods against the exact policy gradient",
        "",
        about,
        "",
        f"{groups} groups per cell, {seconds:.0f} s of CPU; written by `python -m benchmarks.credit_gradient`.",
        "",
    ]
    head = ["| method | cosine | norm ratio | noise | biased |", "| --- | --- | --- | --- | --- |"]
    for mdp in mdps():
        out += [f"## {mdp.name}: {mdp.note}", "", *head]
        for x in lines:
            if x["mdp"] == mdp.name:
                angle = f"{x['cosine']:.4f} ± {x['cosine_half_width']:.4f}"
                norm = f"{x['ratio']:.3f} ± {x['ratio_half_width']:.3f}"
                verdict = "yes" if x["biased"] else "no"
                out.append(f"| {x['method']} | {angle} | {norm} | {x['noise']:.1f} | {verdict} |")
        out.append("")
    out += ["## Not applicable", "", *(f"- `{name}`: {why}" for name, why in NOT_APPLICABLE.items())]
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "credit_gradient")
    given = parser.parse_args()
    start = time.process_time()
    lines = run(given.groups, given.seed)
    write(given.out, lines, markdown(lines, time.process_time() - start, given.groups))


if __name__ == "__main__":
    main()
