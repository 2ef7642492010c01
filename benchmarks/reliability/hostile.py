"""Random and hostile answers of a model, each a function of a random generator and of the current observation."""

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agentrl.tool import random_action
from agentrl.types import Observation

LONG, ENORMOUS = 2_000, 200_000  # characters
TOKENS = (
    "<|im_end|>",
    "<|im_start|>system\n",
    "</s>",
    "<|endoftext|>",
    "[INST]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
)
TAGS = ("<search>", "</search>", "<answer>", "</answer>", "<action>", "</action>", "<information>", "</information>")
CONTROLS = tuple(chr(code) for code in (0, 1, 7, 8, 9, 10, 12, 13, 27, 127, 0x85, 0x200B, 0x202E, 0x2028, 0xFEFF))
SURROGATES = ("\ud800", "\udfff", "a\ud83d", "\udc00\ud800")
BOMBS = (
    "a" * 40 + "!",
    "(a+)+$",
    "((",
    "[[",
    "click[",
    "\\boxed{\\text{",
    "a a ",
    "1,",
    "- ",
    "{{",
    "\\frac{",
    "<search>",
)
NUMBERS = (
    "1e999",
    "-0",
    "9" * 400,
    "nan",
    "0x" + "f" * 99,
    "1/0",
    "9**9**9",
    "10**10**10",
    "1" + "0" * 5000,
    "٣",
    "1_0",
)
PLACES = (
    "../../etc/passwd",
    "/dev/zero",
    "file:///etc/shadow",
    "{0.__class__}",
    "%s%n%x",
    "{{7*7}}",
    "$(reboot)",
    "`id`",
)
CODE = (
    "__import__('os').system('id')",
    "().__class__.__mro__",
    "lambda:0",
    "[" * 90,
    "'a'*10**9",
    "f(" * 60,
    "not " * 300,
)
NAMES = ("calculator", "search", "code_interpreter", "next", "answer", "calc", "go to", "take", "click", "up", "", "\0")

Kind = Callable[[np.random.Generator, Observation], str]


def pick(rng: np.random.Generator, texts: Sequence[str]) -> str:
    return texts[int(rng.integers(len(texts)))]


def length(rng: np.random.Generator) -> int:
    """Draw a length: mostly short, now and then long, rarely enormous."""
    draw = rng.random()
    most = 80 if draw < 0.9 else LONG if draw < 0.995 else ENORMOUS
    return 1 + int(rng.integers(most))


def listed(rng: np.random.Generator, seen: Observation) -> str:
    """An action that the environment lists, or a call of its tools, so that episodes make progress."""
    if seen.tools and not seen.actions:
        return random_action(seen, rng)
    return pick(rng, seen.actions) if seen.actions else pick(rng, seen.text.split() or [""])


def mutated(rng: np.random.Generator, seen: Observation) -> str:
    """A listed action with one change: a letter less, an odd piece more, cut off, doubled, in capitals, ..."""
    text = listed(rng, seen)
    at = int(rng.integers(len(text) + 1))
    changes = (
        text[:at] + text[at + 1 :],
        text[:at] + pick(rng, (*CONTROLS, *SURROGATES, *TAGS, "é", "🙂", " ")) + text[at:],
        text.upper(),
        text * 2,
        f"  {text}\n",
        text[:at],
        f"{text} {listed(rng, seen)}",
        text.replace(" ", "\u00a0"),
    )
    return pick(rng, changes)


def repeated(rng: np.random.Generator, seen: Observation) -> str:
    """A piece that parsers look for, over and over, with a beginning and an end."""
    piece = pick(rng, (*BOMBS, *TOKENS, *TAGS, *CONTROLS, *SURROGATES, "[", "(", "{", '"', "\\", "a", " ", "\n", "1"))
    return (
        pick(rng, ("", "a", "<action>"))
        + piece * (1 + length(rng) // len(piece))
        + pick(rng, ("", "!", "</action>", "]"))
    )


def mixed(rng: np.random.Generator, seen: Observation) -> str:
    """Pieces of every kind, side by side."""
    pieces = (*TOKENS, *TAGS, *CONTROLS, *SURROGATES, *NUMBERS, *PLACES, *CODE, *NAMES, *BOMBS)
    return "".join(pick(rng, pieces) for _ in range(1 + int(rng.integers(8))))


def code_points(rng: np.random.Generator, seen: Observation) -> str:
    """Any code points, halves of surrogate pairs too."""
    return "".join(map(chr, rng.integers(0x110000, size=min(length(rng), LONG)).tolist()))


def deep(rng: np.random.Generator, seen: Observation) -> str:
    """JSON that nests deeply, closed or not."""
    depth, (left, right) = length(rng), pick_pair(rng)
    return left * depth + "1" + (right * depth if rng.random() < 0.5 else "")


def pick_pair(rng: np.random.Generator) -> tuple[str, str]:
    pairs = (("[", "]"), ('{"a":', "}"), ('{"name":"calculator","arguments":', "}"), ("(", ")"), ("-", ""))
    return pairs[int(rng.integers(len(pairs)))]


def value(rng: np.random.Generator) -> object:
    """An argument of the wrong type, mostly."""
    values = (
        None,
        True,
        -1,
        1e308,
        10**400,
        "",
        [],
        {},
        [[]],
        {"a": {"b": [None]}},
        pick(rng, NUMBERS),
        pick(rng, CODE),
    )
    texts = (pick(rng, SURROGATES), pick(rng, CONTROLS), pick(rng, PLACES), "a" * length(rng), pick(rng, TOKENS))
    every = (*values, *texts)
    return every[int(rng.integers(len(every)))]


def tool_call(rng: np.random.Generator, seen: Observation) -> str:
    """A tool call as JSON: canonical, or between tags, with names and arguments of any type."""
    keys = ("expression", "query", "code", "a", "", "\ud800", "name", "__class__")
    arguments = {pick(rng, keys): value(rng) for _ in range(int(rng.integers(3)))}
    given: object = arguments if rng.random() < 0.8 else value(rng)
    name: object = pick(rng, NAMES) if rng.random() < 0.8 else value(rng)
    one = {"name": name, "arguments": given}
    forms = (
        json.dumps({"calls": [one] * int(rng.integers(4))}),
        json.dumps({"calls": [one]}, ensure_ascii=False),
        json.dumps({"answer": value(rng)}),
        f"<tool_call>{json.dumps(one)}</tool_call>",
        f"<tool_call>{json.dumps(one)[:-2]}",
        f"{name}({given})",
        f"<answer>{value(rng)}</answer>",
        f"<search>{value(rng)}</search>",
        f"calc {value(rng)}",
        f"answer {value(rng)}",
        f"search[{value(rng)}]",
        f"click[{value(rng)}]",
    )
    return pick(rng, forms)


def expression(rng: np.random.Generator, seen: Observation) -> str:
    """An expression for a calculator, often one that is huge."""
    parts = [pick(rng, (*NUMBERS, *CODE, "1", "2.5", "(3)", "-4")) for _ in range(1 + int(rng.integers(4)))]
    text = pick(rng, ("+", "**", "*", "//", "%", "<<", " if 1 else ", ",")).join(parts)
    return pick(
        rng, (f"calc {text}", text, json.dumps({"calls": [{"name": "calculator", "arguments": {"expression": text}}]}))
    )


KINDS: Mapping[str, tuple[Kind, float]] = {
    "listed": (listed, 0.4),
    "mutated": (mutated, 0.15),
    "repeated": (repeated, 0.08),
    "mixed": (mixed, 0.1),
    "code_points": (code_points, 0.03),
    "deep": (deep, 0.04),
    "tool_call": (tool_call, 0.12),
    "expression": (expression, 0.06),
    "empty": (lambda rng, seen: pick(rng, ("", " ", "\n", "\0", "\u3000")), 0.02),
}
SHARES = np.cumsum([share for _, share in KINDS.values()])


def draw(rng: np.random.Generator, seen: Observation) -> tuple[str, str]:
    """(kind, text) of the next answer."""
    names = list(KINDS)
    kind = names[min(int(np.searchsorted(SHARES, rng.random() * SHARES[-1])), len(names) - 1)]
    return kind, KINDS[kind][0](rng, seen)
