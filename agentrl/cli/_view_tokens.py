"""`agentrl view RUN --episode N --tokens`: the token ids that the model read and sampled, as text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentrl.exchange import word
from agentrl.graph import StepGraph
from agentrl.report import stored_tokenizer


class Turn(NamedTuple):
    """The tokens that a step adds to its context: of the prompt, and sampled ones with log-probs in nats."""

    number: int
    prompt: list[int]
    answer: list[int]
    logprobs: list[float]
    fresh: bool


def show(graph: StepGraph, run: Path, episode: int, *, as_json: bool) -> None:
    """Print the tokens of an episode; with `as_json`, one JSON object per token.

    Raises:
        ValueError: the graph has no such episode or no tokens, or the run has stored no tokenizer.
    """
    turns = list(_turns(graph, episode))
    tokenizer = stored_tokenizer(run)
    if tokenizer is None:
        raise ValueError(f"{run} has stored no tokenizer, or several: --tokens needs a run with one model")

    def words(ids: list[int]) -> list[str]:
        return [tokenizer.decode([i], skip_special_tokens=False) for i in ids]

    if as_json:
        print("\n".join(json.dumps(one, ensure_ascii=False) for one in _objects(turns, words)))
        return
    task = word(graph, "group", int(graph.group[np.flatnonzero(graph.episode == episode)[0]]))
    print(f"episode {episode}, {task}: what the model read, then >>> what it sampled")
    for turn in turns:
        how = "a fresh prompt" if turn.fresh else "continues the turn before"
        print(
            f"--- turn {turn.number}: {len(turn.prompt)} prompt tokens ({how}), {len(turn.answer)} sampled, "
            f"log-prob {sum(turn.logprobs):.2f}"
        )
        print(tokenizer.decode(turn.prompt, skip_special_tokens=False))
        print(">>> " + "|".join(words(turn.answer)))


def _turns(graph: StepGraph, episode: int) -> Iterator[Turn]:
    if graph.tokens is None:
        raise ValueError("the stored steps have no tokens: --tokens needs a run whose policy has a tokenizer")
    rows = np.flatnonzero(graph.episode == episode)
    if not len(rows):
        raise ValueError(f"there is no episode {episode}: the last one is {int(graph.episode.max(initial=-1))}")
    table = graph.tokens
    for row in rows[np.argsort(graph.turn[rows], kind="stable")].tolist():
        index = np.arange(table.offsets[row], table.offsets[row + 1])
        sampled = table.sampled[index]
        yield Turn(
            number=int(graph.turn[row]),
            prompt=table.ids[index[~sampled]].tolist(),
            answer=table.ids[index[sampled]].tolist(),
            logprobs=table.logprobs[index[sampled]].tolist(),
            fresh=int(table.context[row]) < 0,
        )


def _objects(turns: list[Turn], words: Any) -> Iterator[dict[str, Any]]:
    for turn in turns:
        for number, text in zip(turn.prompt, words(turn.prompt), strict=True):
            yield {"turn": turn.number, "id": number, "text": text, "sampled": False}
        for number, text, logprob in zip(turn.answer, words(turn.answer), turn.logprobs, strict=True):
            yield {"turn": turn.number, "id": number, "text": text, "sampled": True, "logprob": logprob}
