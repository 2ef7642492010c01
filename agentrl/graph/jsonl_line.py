"""Parses and checks one line of `steps.jsonl`: the fields of a step."""

import json
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, NamedTuple

from agentrl.types import Status

LARGEST = sys.float_info.max
MOST = 2**62  # whole numbers must be smaller, because turns are stored as int64


class Kind(NamedTuple):
    """A type of JSON value: `word` names the type in error messages, `accepts` tests whether a value has the type."""

    word: str
    accepts: Callable[[Any], bool]


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and -LARGEST <= x <= LARGEST


def _text(x: Any) -> bool:
    return isinstance(x, str | int) and not isinstance(x, bool)


def _natural(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x < MOST


TEXT = Kind("a string", _text)
NATURAL = Kind("a whole number from 0", _natural)
COUNT = Kind("a whole number from 0 to a million", lambda x: _natural(x) and x <= 10**6)
NUMBER = Kind("a finite number", _number)
WEIGHT = Kind("a finite number from 0", lambda x: _number(x) and x >= 0)
FLAG = Kind("true or false", lambda x: isinstance(x, bool) or (isinstance(x, int) and x in (0, 1)))
STEP = Kind("[episode, turn]", lambda x: isinstance(x, list) and len(x) == 2 and _text(x[0]) and _natural(x[1]))
NUMBERS = Kind("a list of finite numbers", lambda x: isinstance(x, list) and all(map(_number, x)))
STATUS = Kind("one of " + ", ".join(s.name.lower() for s in Status), lambda x: str(x).upper() in Status.__members__)

FIELDS: Mapping[str, Kind] = MappingProxyType({
    "group": TEXT, "episode": TEXT, "turn": NATURAL, "reward": NUMBER,
    "state": TEXT, "action": TEXT, "next_state": TEXT, "agent": TEXT, "task": TEXT, "tree": TEXT,
    "status": STATUS, "terminated": FLAG, "truncated": FLAG, "valid": FLAG, "matched": FLAG,
    "segment_start": FLAG, "caller": STEP, "parent": STEP,
    "value": NUMBER, "next_value": NUMBER, "value_high": NUMBER, "score": NUMBER, "weight": WEIGHT,
    "gold_logprob": NUMBER, "gold_logprob_start": NUMBER, "entropy": NUMBER, "policy_kl": NUMBER,
    "n_tokens": COUNT, "observation_tokens": COUNT, "token_value": NUMBERS,
})  # fmt: skip
REQUIRED = ("group", "episode", "turn", "reward")
NUMERIC = ("value", "next_value", "value_high", "gold_logprob", "gold_logprob_start", "entropy", "policy_kl")

Key = tuple[str, str]  # (group, episode)


class Row(NamedTuple):
    """One line: its number, counted from 1, and its fields that are not null."""

    line: int
    fields: Mapping[str, Any]

    @property
    def episode(self) -> Key:
        return str(self.fields["group"]), str(self.fields["episode"])

    @property
    def turn(self) -> int:
        return int(self.fields["turn"])

    def reference(self, name: str) -> tuple[Key, int]:
        """The step that `parent` or `caller` names."""
        episode, turn = self.fields[name]
        return (self.episode[0], str(episode)), turn


def _start(value: Any) -> str:
    """The first 60 characters of a value as JSON, for error messages."""
    try:
        return json.dumps(value)[:60]
    except RecursionError:
        return "a value that is nested very deep"


def parse_line(line: int, text: str) -> Row:
    """The fields of one line; ValueError names the line and the field that is wrong."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {line}: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"line {line}: not a JSON object but {text.strip()[:40]!r}")
    for name in REQUIRED:
        if fields.get(name) is None:
            raise ValueError(f"line {line}: {name}: missing, and every step needs it")
    for name, value in fields.items():
        kind = FIELDS.get(name)
        if kind is None:
            close = get_close_matches(name, FIELDS, n=1, cutoff=0.8)
            if close:
                raise ValueError(f"line {line}: {name}: unknown field, did you mean {close[0]}?")
        elif value is not None and not kind.accepts(value):
            raise ValueError(f"line {line}: {name}: must be {kind.word}, not {_start(value)}")
    return Row(line, {name: value for name, value in fields.items() if value is not None})
