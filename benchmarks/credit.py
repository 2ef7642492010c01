"""CPU time of every credit method beside a plain dictionary implementation.

    python benchmarks/credit.py [--steps N ...] [--methods a,b] [--no-plain] [--json]
    python benchmarks/credit.py --similarity

Chains of 20 steps, 8 episodes per group, 40 states per group, 4 tokens per step. Process time of one thread: the best
of `--repeat` calls of the method, and one call of the plain implementation. The output has the largest difference
between the advantages of the two.
"""

import argparse
import json
import time
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

import credit_plain
import numpy as np

from agentrl import catalogue
from agentrl.graph import COLUMNS, StepGraph, Tokens, first_fit

LENGTH, GROUP, STATES, TOKENS = 20, 8, 40, 4
OPTIONS = {
    "m_grpo": {"align": "off"},
    "role_grpo": {"key": "group,turn,agent"},
    "tl_grpo": {"key": "state", "outcome": "score"},
}


def make(n: int, seed: int = 0) -> StepGraph:
    """Random chains with every column a method may need."""
    rng = np.random.default_rng(seed)
    episode, turn = np.arange(n) // LENGTH, np.arange(n) % LENGTH
    last = (turn == LENGTH - 1) | (np.arange(n) == n - 1)
    group = episode // GROUP
    state = rng.integers(STATES, size=n) + STATES * group
    columns: dict[str, np.ndarray] = {name: np.zeros(n, kind) for name, kind in COLUMNS.items()}
    columns |= {
        "group": group,
        "episode": episode,
        "rollout": episode,
        "tree": episode // 4,
        "turn": turn,
        "parent": np.where(turn > 0, np.arange(n) - 1, -1),
        "caller": np.full(n, -1),
        "state": state,
        "action": rng.integers(4, size=n),
        "next_state": np.where(last, -1, np.append(state[1:], -1)),
        "reward": np.where(last, 10.0 * rng.integers(2, size=n), 0.0),
        "terminated": last,
        "valid": np.ones(n, bool),
        "weight": np.ones(n),
        "value": rng.normal(size=n),
        "value_high": rng.normal(size=n),
        "segment_start": (turn == 0) | (rng.random(n) < 0.3),
        "gold_logprob": -rng.random(n),
        "gold_logprob_start": np.where(turn == 0, -1.0, np.nan),
    }
    tokens = Tokens(
        offsets=np.arange(n + 1) * TOKENS,
        ids=np.zeros(n * TOKENS, np.int64),
        sampled=np.ones(n * TOKENS, bool),
        logprobs=np.zeros(n * TOKENS),
        allowed_offsets=np.zeros(n * TOKENS + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=columns["parent"],
        context_tokens=turn * TOKENS,
        columns={"token_value": rng.normal(size=n * TOKENS)},
    )
    return StepGraph(columns=columns, tokens=tokens)


def plain_rows(graph: StepGraph) -> list[dict[str, Any]]:
    """The same steps as dictionaries."""
    n = len(graph)
    values = zip(*(column.tolist() for column in graph.columns.values()), strict=True)
    rows = [dict(zip(graph.columns, row, strict=True)) for row in values]
    for row, own in zip(rows, graph.token_column("token_value").reshape(n, TOKENS).tolist(), strict=True):
        row["token_value"] = own
    return rows


def cpu(call: Callable[[], Any], repeat: int) -> float:
    """Best process time of `repeat` calls, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def measure(method: str, graph: StepGraph, rows: list[dict[str, Any]] | None, repeat: int) -> dict[str, Any]:
    """One line of the table."""
    module = catalogue.load("credit", method)
    config = module.config(**OPTIONS.get(method, {}))
    line = {"method": method, "steps": len(graph), "cpu_s": cpu(lambda: module.credit(graph, config), repeat)}
    if rows is not None:
        plain = getattr(credit_plain, method)
        apart = np.abs(module.credit(graph, config).advantage - np.array(plain(rows))).max()
        slow = cpu(lambda: plain(rows), 1)
        line |= {"plain_cpu_s": slow, "ratio": slow / line["cpu_s"], "largest_difference": float(apart)}
    return line


def similarity(rows: int = 5120, groups: int = 256, characters: int = 1500, threshold: float = 0.9) -> dict[str, Any]:
    """CPU time of the official partition: agentrl against comparing each text with every cluster (released code).

    Texts look like search results: sentences of words with English letter frequencies, capitals, digits and
    punctuation. The texts of a group are drawn with repetition from a pool of a quarter of their number. Every other
    text of the pool is an edit of the text before (1% of its characters in one place), so that some of them merge.
    """
    rng = np.random.default_rng(0)
    per_mille = [127, 91, 82, 75, 70, 67, 63, 61, 60, 43, 40, 28, 28, 24, 24, 22, 20, 20, 19, 15, 10, 8]
    letters = np.repeat(list("etaoinshrdlcumwfgypbvkjxqz"), [*per_mille, 2, 2, 1, 1])
    vocabulary = ["".join(rng.choice(letters, size=rng.integers(2, 11))) for _ in range(5000)]

    def sentence() -> str:
        chosen = [vocabulary[i] for i in rng.integers(5000, size=rng.integers(6, 16))]
        if rng.random() < 0.5:
            chosen.append(str(rng.integers(2050)))
        return " ".join(chosen).capitalize() + rng.choice([".", ",", "?", " (", ")."])

    texts: list[str] = []
    group_of: list[int] = []
    for group in range(groups):
        pool: list[str] = []
        for k in range(rows // groups // 4):
            text = ""
            while len(text) < characters:
                text += sentence()
            if k % 2:
                at = int(rng.integers(len(pool[-1]) - 20))
                text = pool[-1][:at] + text[: characters // 100] + pool[-1][at + characters // 100 :]
            pool.append(text)
        group_of += [group] * (rows // groups)
        texts += [pool[i] for i in rng.integers(len(pool), size=rows // groups)]

    def released() -> list[int]:
        out, members = [], {}
        for group, text in zip(group_of, texts, strict=True):
            own = members.setdefault(group, [])
            fits = (c for c, m in enumerate(own) if SequenceMatcher(None, text, m).ratio() >= threshold)
            fate = next(fits, len(own))
            if fate == len(own):
                own.append(text)
            out.append(fate)
        return out

    start = time.process_time()
    slow = released()
    middle = time.process_time()
    fast = first_fit(group_of, texts, threshold).tolist()
    end = time.process_time()
    assert slow == fast, "the partitions differ"
    seconds = {"released_cpu_s": middle - start, "cpu_s": end - middle}
    shape = {"rows": rows, "groups": groups, "mean_characters": float(np.mean([len(t) for t in texts]))}
    clusters = len(set(zip(group_of, fast, strict=True)))
    return {**shape, "clusters": clusters, **seconds, "ratio": seconds["released_cpu_s"] / seconds["cpu_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    every = [name for name in catalogue.names("credit") if hasattr(credit_plain, name)]
    parser.add_argument("--methods", default=",".join(every))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-plain", action="store_true", help="only the catalogue's methods")
    parser.add_argument("--similarity", action="store_true", help="the partition of similar states instead")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.similarity:
        print(json.dumps(similarity(), indent=None if given.json else 2))
        return
    lines = []
    for steps in given.steps:
        graph = make(steps)
        rows = None if given.no_plain else plain_rows(graph)
        lines += [measure(method, graph, rows, given.repeat) for method in given.methods.split(",")]
    if given.json:
        print(json.dumps(lines))
        return
    print("method                  steps      cpu s   us/step   plain s   ratio  difference")
    for line in lines:
        each = 1e6 * line["cpu_s"] / line["steps"]
        text = f"{line['method']:20} {line['steps']:8d} {line['cpu_s']:10.5f} {each:9.3f}"
        if rows is not None:
            text += f" {line['plain_cpu_s']:9.3f} {line['ratio']:7.1f} {line['largest_difference']:11.1e}"
        print(text)


if __name__ == "__main__":
    main()
