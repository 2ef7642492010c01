"""Reads a PDDL problem of the ALFRED domain: declared objects, initial facts, goal.

Everything is lower-cased, as the original translator (fast-downward) does. The reader refuses a problem that holds
anything unknown, so that no game is played by a guess.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Expression: TypeAlias = "str | list[Expression]"

_COMMENT = re.compile(r";[^\n]*")
_SECTION = re.compile(r"\(\s*:(\w+)\b")
_ATOM = re.compile(r"\(([^()]*)\)")
# (= (distance a b) 3) and (= (total-cost) 0): costs of a planner, never part of the played state.
_COST = re.compile(r"\(\s*=\s*\([^()]*\)\s*\d+\s*\)")
_TOKEN = re.compile(r"[()]|[^\s()]+")
_NAME = re.compile(r"[a-z0-9_.+\-@]+")


class NotNative(ValueError):
    """The native engine is not known to play this game exactly."""


class Problem(NamedTuple):
    """A parsed problem: types of declared objects, facts as (predicate, arguments), goal as nested lists."""

    types: Mapping[str, str]
    facts: list[tuple[str, tuple[str, ...]]]
    goal: Expression


def parse_problem(text: str) -> Problem:
    """The parts of a problem.

    Raises:
        NotNative: a part is missing, or is written in a way this reader does not know.
    """
    text = text.lower()
    if ";" in text:
        text = _COMMENT.sub("", text)
    starts = {match[1]: match for match in _SECTION.finditer(text)}
    try:
        objects, init, goal = starts["objects"], starts["init"], starts["goal"]
    except KeyError as missing:
        raise NotNative(f"its PDDL problem has no (:{missing.args[0]} ...) part") from None
    if not objects.start() < init.start() < goal.start():
        raise NotNative("the parts of its PDDL problem are not in the order objects, init, goal")
    return Problem(
        _types(text[objects.end() : init.start()]),
        _facts(text[init.end() : goal.start()]),
        _goal(text[goal.start() :]),
    )


def _types(section: str) -> dict[str, str]:
    body, closed, rest = section.partition(")")
    if not closed or rest.strip():
        raise NotNative("its PDDL object list is not a flat typed list")
    types: dict[str, str] = {}
    waiting: list[str] = []
    words = iter(body.split())
    for word in words:
        if word != "-":
            waiting.append(word)
            continue
        of = next(words, "")
        for name in waiting:
            if name in types:
                raise ValueError(f"the object {name!r} is declared twice, which the genuine engine refuses too")
            types[name] = of
        waiting = []
    if waiting:
        raise NotNative(f"its PDDL object {waiting[0]!r} has no type")
    if not all(map(_NAME.fullmatch, types)):
        raise NotNative("its PDDL objects have names with unusual characters")
    return types


def _facts(section: str) -> list[tuple[str, tuple[str, ...]]]:
    if "=" in section:
        section = _COST.sub("", section)
    facts = []
    for body in _ATOM.findall(section):
        words = body.split()
        facts.append((words[0] if words else "", tuple(words[1:])))
    if _ATOM.sub("", section).strip() != ")":
        raise NotNative("its PDDL init part holds more than plain facts")
    return facts


def _goal(text: str) -> Expression:
    tokens = _TOKEN.findall(text)
    stack: list[list[Expression]] = [[]]
    for position, token in enumerate(tokens):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if len(stack) == 1:
                if tokens[position + 1 :] != [")"] or len(done) != 2:
                    raise NotNative("its PDDL problem does not end with one goal")
                return done[1]
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    raise NotNative("the parentheses of its PDDL goal do not close")
