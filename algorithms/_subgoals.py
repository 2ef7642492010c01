"""Sub-goals that a model names in its answers: `<switch>`, `<subgoal>` and `<action>` (HiPER, arXiv:2602.16165).

Where the context policy asks for them (`algorithms/context/plan`), this fills what credit of two levels reads. As in
the released code, a switch that says anything but KEEP begins a segment, one that is missing or empty does not, tags
belong to what they enclose, and an answer without an action is all action.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agentrl.graph import Columns, PolicyReader, StepGraph
from agentrl.text import first_tagged

REST, ACTION, SUBGOAL, SWITCH = range(4)  # of a token
KEEP = "KEEP"
_TAGS = ("action", "subgoal", "switch")


class Subgoals:
    """Fills `segment_start` [N] bool, does the step begin a new sub-goal, and `token_level` [S] int64, what a sampled
    token belongs to: the rest, the action, the sub-goal or the switch."""

    fills = ("segment_start", "token_level")

    def columns(self, graph: StepGraph, policy: PolicyReader) -> Columns:
        """See the class."""
        assert graph.tokens is not None, "sub-goals are read from tokens"
        tokens = graph.tokens
        start, level = np.zeros(len(graph), bool), np.zeros(len(tokens.ids), np.int64)
        for row, (begin, end) in enumerate(zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)):
            own = begin + np.flatnonzero(tokens.sampled[begin:end])  # [T]
            pieces = _pieces(policy.tokenizer, tokens.ids[own])
            start[row] = switches("".join(pieces))
            level[own] = levels(pieces)
        return Columns(steps={"segment_start": start}, tokens={"token_level": level})


def switches(text: str) -> bool:
    """Does an answer begin a new sub-goal?"""
    found = first_tagged(text, ("switch",))
    said = found.content.strip().upper() if found is not None else ""
    return said not in ("", KEEP)


def levels(pieces: Sequence[str]) -> np.ndarray:
    """[T] what each token of an answer belongs to, from the tokens' texts."""
    ends = np.cumsum([len(piece) for piece in pieces])  # [T] in characters
    out = np.full(len(pieces), REST)
    for code, first, last in spans("".join(pieces)):
        out[(ends > first) & (ends - [len(piece) for piece in pieces] < last)] = code
    return out


def spans(text: str) -> Iterator[tuple[int, int, int]]:
    """(what, first character, one past the last) of each part of an answer, tags included."""
    found = {tag: first_tagged(text, (tag,)) for tag in _TAGS}
    for tag, code in (("switch", SWITCH), ("subgoal", SUBGOAL)):
        if (pair := found[tag]) is not None:
            yield code, pair.start, pair.end
    action = found["action"]
    yield (ACTION, action.start, action.end) if action is not None else (ACTION, 0, len(text))


def _pieces(tokenizer: Any, ids: np.ndarray) -> list[str]:
    decoded: list[str] = tokenizer.batch_decode(
        [[int(i)] for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return decoded
