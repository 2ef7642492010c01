"""Which credit method has the least error per sampled token, by the shape of a world?

    python -m benchmarks.credit_shape [--steps N] [--seed S] [--out benchmarks/results/credit_shape]
    python -m benchmarks.credit_shape --like runs/NAME [--last 5]

A world is a corridor of decisions with four actions each. One action leads to the next decision, and one does nothing.
The two others do nothing either (`stay`), lead back by one decision (`back`), or lead into a state that no action
leaves (`lost`). Tasks start at three points. The reward comes at the end alone, or every fourth decision pays as well
when it is made (not in worlds with `back`). The policy prefers the right action so much that 30% of the episodes
succeed; how much it does so differs between states. One action is one token.

For each shape and method the table has the expected cosine between the estimate from a batch and the exact gradient of
the expected return. All batches have equally many sampled steps. An estimate without error has cosine 1. Compare the
methods within a row. turn_ppo has an exact critic, which no run has, or a critic with a fixed error in each state
(standard deviation 0.2).

Three things differ from a language model: the policy is a table, so that nothing is generalised between states; the
scale of an estimate does not count, as under optimisers that rescale every update (Adam, Muon); and each step costs the
same, while a language model pays for its context.

--like reads the stored graphs of a run, measures its shape, and names the most similar shapes.

Letters: B batches, E episodes, G groups, N steps, S states, A actions.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentrl.graph import StepGraph, read_graph
from agentrl.run.folder import RunFolder
from benchmarks.credit_gradient import Advantage, Mdp, chains, exact, method, spoiled, to_go
from benchmarks.result_files import write

RESULTS = Path(__file__).parent / "results"
ACTIONS, STARTS, SUCCESS = 4, (0.0, 0.2, 0.4), 0.3
BATCH = 2000  # steps of a batch
MIN_GROUPS = 100  # sampled per shape, however few steps are asked for


@dataclass(frozen=True)
class Shape:
    """The shape of a world.

    Attributes:
        rungs: decisions from the first start to the end.
        horizon: largest number of steps of an episode.
        wrong: what two of the four actions do: `lost`, `stay` or `back`.
        paid: every fourth rung pays.
        copies: episodes per group.
    """

    rungs: int
    horizon: int
    wrong: str
    paid: bool
    copies: int

    @property
    def name(self) -> str:
        pays = "rungs pay" if self.paid else "end pays"
        return f"{self.horizon} steps, {self.rungs} decisions, wrong: {self.wrong}, {pays}, {self.copies} copies"


SHAPES = [
    *(
        Shape(r, h, w, False, c)
        for r, h in ((4, 8), (10, 20), (20, 50))
        for w in ("lost", "stay", "back")
        for c in (8,)
    ),
    *(Shape(20, 50, w, False, c) for w in ("stay", "back") for c in (4, 16)),
    *(Shape(r, h, w, True, 8) for r, h in ((10, 20), (20, 50)) for w in ("lost", "stay")),
]

METHODS: dict[str, Advantage] = {
    "grpo": method("grpo"),
    "grpo std=none": method("grpo", std="none"),
    "rloo": method("rloo"),
    "return to go": to_go,
    "turn_returns": method("turn_returns", gamma=1, std="none"),
    "gigpo": method("gigpo"),
    "gigpo std=none": method("gigpo", std="none"),
    "hgpo": method("hgpo"),
    "salt": method("salt"),
    "graph_gpo": method("graph_gpo"),
    "graft": method("graft"),
    "tl_grpo": method("tl_grpo", key="state", outcome="score"),
    "turn_ppo, critic off by 0.2": method("turn_ppo", spoiled),
    "turn_ppo, exact critic": method("turn_ppo"),
}
CRITICS = ("turn_ppo, critic off by 0.2", "turn_ppo, exact critic")


def world(shape: Shape, bias: float) -> Mdp:
    """The corridor: states 0 to rungs - 1, the state that no action leaves, and the end.

    `bias` is the policy's preference for the right action, in nats.
    """
    trap, end = shape.rungs, shape.rungs + 1
    rng = np.random.default_rng(5)
    move, reward = np.zeros((end + 1, ACTIONS, end + 1)), np.zeros((end + 1, ACTIONS))
    for state in range(shape.rungs):
        onwards = state + 1 if state + 1 < shape.rungs else end
        wrong = {"lost": trap, "stay": state, "back": max(state - 1, 0)}[shape.wrong]
        move[state, 0, onwards] = 1
        for action in range(1, ACTIONS):
            move[state, action, wrong if action > 1 else state] = 1  # one idle action everywhere
        reward[state, 0] = float(onwards == end or (shape.paid and state % 4 == 3))
    move[trap, :, trap] = move[end, :, end] = 1
    logits = 0.5 * rng.normal(size=(end + 1, ACTIONS))
    logits[:, 0] += bias
    starts = np.array([int(part * shape.rungs) for part in STARTS])
    return Mdp(
        name=shape.name, note="", move=move, reward=reward, starts=starts, horizon=shape.horizon, logits=logits,
        alias=np.arange(end + 1),
    )  # fmt: skip


def arrives(mdp: Mdp) -> float:
    """The probability that an episode reaches the end."""
    at = np.bincount(mdp.starts, minlength=len(mdp.logits)) / len(mdp.starts)
    step = np.einsum("sa,sat->st", mdp.policy, mdp.move)
    for _ in range(mdp.horizon):
        at = at @ step
    return float(at[-1])


def tuned(shape: Shape) -> Mdp:
    """The world whose policy succeeds in 30% of its episodes."""
    low, high = -5.0, 15.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if arrives(world(shape, middle)) < SUCCESS else (low, middle)
    return world(shape, high)


class Measured(NamedTuple):
    """What was measured on one shape.

    Attributes:
        cosine: expected cosine of a batch's estimate, and half of its 95% interval, per method.
        like: figures of the graph; see `looks`.
    """

    cosine: dict[str, tuple[float, float]]
    like: dict[str, float]


def measure(shape: Shape, steps: int, seed: int) -> Measured:
    """Every method on one shape, on the same episodes.

    Args:
        shape: the world.
        steps: approximate number of steps to sample.
        seed: seed of the episodes.
    """
    mdp = tuned(shape)
    truth, rng = exact(mdp), np.random.default_rng(seed)
    pilot = chains(mdp, 50, truth, rng, copies=shape.copies)
    groups = max(MIN_GROUPS, round(steps / (len(pilot) / 50)))
    graph = chains(mdp, groups, truth, rng, copies=shape.copies)
    size = max(1, round(BATCH * groups / len(graph)))  # groups of a batch
    found = {name: batched(mdp, graph, advantage(graph), size) for name, advantage in METHODS.items()}
    target = truth.gradient.ravel()
    return Measured({name: interval(cosines(x, target)) for name, x in found.items()}, looks(graph))


def batched(mdp: Mdp, graph: StepGraph, advantage: np.ndarray, size: int) -> np.ndarray:
    """[B, S * A] estimates of batches of `size` groups: sums over steps of A grad log pi."""
    states, actions = mdp.logits.shape
    batch = graph.group // size  # [N]
    count = (int(graph.group.max()) + 1) // size
    kept = batch < count
    cell = (batch * states + graph.column("true_state")) * actions + graph.action
    total = np.bincount(cell[kept], advantage[kept], minlength=count * states * actions)
    total = total.reshape(count, states, actions)
    return (total - mdp.policy * total.sum(2, keepdims=True)).reshape(count, -1)


def cosines(found: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[B] cosine of each estimate; an estimate of zeros, where no group varied, has cosine 0."""
    norm = np.linalg.norm(found, axis=1) * np.linalg.norm(target)
    return np.divide(found @ target, norm, out=np.zeros(len(found)), where=norm > 0)


def interval(cosine: np.ndarray) -> tuple[float, float]:
    """Mean over batches, and half of the 95% interval of that mean."""
    return float(cosine.mean()), float(1.96 * cosine.std(ddof=1) / np.sqrt(len(cosine)))


def looks(graph: StepGraph) -> dict[str, float]:
    """Figures of a graph of complete groups, from a shape or from a run.

    Returns:
        steps: steps per episode. revisits: share of steps in a state that the episode has visited before. shared: share
        of steps whose state another episode of the group visited. success: share of episodes whose score is more than
        half of the best score. copies: episodes per group. paying: steps with a reward, per episode.
    """
    episodes = np.unique(graph.rollout)
    own = np.unique(np.stack([graph.rollout, graph.state]), axis=1)  # [2, visited states of episodes]
    group_of = dict(zip(graph.rollout.tolist(), graph.group.tolist(), strict=True))
    groups = np.array([group_of[one] for one in own[0].tolist()])
    _, inverse, visitors = np.unique(np.stack([groups, own[1]]), axis=1, return_inverse=True, return_counts=True)
    many = dict(zip(map(tuple, own.T.tolist()), (visitors[inverse.ravel()] > 1).tolist(), strict=True))
    shared = np.mean([many[pair] for pair in zip(graph.rollout.tolist(), graph.state.tolist(), strict=True)])
    score = graph.score[graph.first]
    return {
        "steps": len(graph) / len(episodes),
        "revisits": 1 - own.shape[1] / len(graph),
        "shared": float(shared),
        "success": float(np.mean(score > 0.5 * max(score.max(), 1e-9))),
        "copies": len(episodes) / len(np.unique(graph.group)),
        "paying": float(np.count_nonzero(graph.reward) / len(episodes)),
    }


def row(shape: Shape, found: Measured) -> dict[str, Any]:
    """The line of the JSON file."""
    cosine = {name: {"mean": mean, "half_width": half} for name, (mean, half) in found.cosine.items()}
    return {"shape": vars(shape), "name": shape.name, "like": found.like, "cosine": cosine}


def gain(line: dict[str, Any]) -> tuple[str, float]:
    """The best method without a critic, and by how much its cosine exceeds that of `grpo std=none`."""
    means = {name: x["mean"] for name, x in line["cosine"].items() if name not in CRITICS}
    best = max(means, key=lambda name: means[name])
    return best, means[best] - means["grpo std=none"]


def markdown(lines: list[dict[str, Any]], seconds: float, steps: int) -> str:
    """The table for readers, the largest difference first."""
    about = __doc__.split("\n\n", 2)[2].rsplit("\n\n", 2)[0].strip()
    widest = max(x["half_width"] for line in lines for x in line["cosine"].values())
    head = ["shape", "steps, revisits, shared", *METHODS]
    out = [
        "# Which credit method has the least error per token, by the shape of a world", "", about, "",
        f"Batches of {BATCH:,} steps, about {steps:,} steps per row, {seconds:.0f} s of CPU; half-widths of 95% "
        f"intervals are at most {widest:.3f}; written by `python -m benchmarks.credit_shape`. Bold: the best without "
        "a critic.", "",
        "| " + " | ".join(head) + " |", "| --- " * len(head) + "|",
    ]  # fmt: skip
    for line in sorted(lines, key=lambda line: -gain(line)[1]):
        best, like = gain(line)[0], line["like"]
        cells = [f"{'**' * (name == best)}{x['mean']:.3f}{'**' * (name == best)}" for name, x in line["cosine"].items()]
        seen = f"{like['steps']:.0f}, {100 * like['revisits']:.0f}%, {100 * like['shared']:.0f}%"
        out.append(f"| {line['name']} | {seen} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def nearest(like: dict[str, float], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines, the most similar first; `steps` and `copies` are compared by ratio, shares by difference."""

    def distance(line: dict[str, Any]) -> float:
        other = line["like"]
        ratios = [abs(np.log2(like[key] / other[key])) for key in ("steps", "copies")]
        shares = [2 * abs(like[key] - other[key]) for key in ("revisits", "shared")]
        paying = abs(np.log2((like["paying"] + 0.1) / (other["paying"] + 0.1)))
        return float(sum(ratios) + sum(shares) + 0.5 * paying)

    return sorted(lines, key=distance)


def run_like(run: Path, last: int) -> dict[str, float]:
    """Figures of a run (see `looks`): means over its last stored iterations."""
    files = sorted(RunFolder(run).stored_graphs())[-last:]
    if not files:
        raise SystemExit(f"{run} has no stored graphs: train with run.graphs_every=1")
    found = [looks(read_graph(path)) for path in files]
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]}


def predicted(run: Path, last: int, stored: list[dict[str, Any]]) -> str:
    """The three shapes that are most similar to a run, and the order of methods in each."""
    like = run_like(run, last)
    out = [f"{run}: " + ", ".join(f"{key} {value:.3g}" for key, value in like.items())]
    for line in nearest(like, stored)[:3]:
        order = sorted(line["cosine"], key=lambda name: -line["cosine"][name]["mean"])
        out.append(f"like {line['name']}:")
        out += [f"    {line['cosine'][name]['mean']:.3f}  {name}" for name in order]
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=400_000, help="to sample for each shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "credit_shape")
    parser.add_argument("--like", type=Path, help="a run's folder with stored graphs")
    parser.add_argument("--last", type=int, default=5, help="with --like: stored iterations to read")
    given = parser.parse_args()
    if given.like is not None:
        print(predicted(given.like, given.last, json.loads(given.out.with_suffix(".json").read_text())))
        return
    start = time.process_time()
    lines = [row(shape, measure(shape, given.steps, given.seed)) for shape in SHAPES]
    write(given.out, lines, markdown(lines, time.process_time() - start, given.steps))


if __name__ == "__main__":
    main()
