"""The final answer of a model's text, and the right answer in a cell of a data set.

A model's answer is the content of the last `\\boxed{}` or `\\fbox{}` (MATH, DAPO, ReTool). If there is none, it is
what the text declares last: after `####` (GSM8K), in `<answer>` tags, or after "the answer is", "Answer:" and the
like, in bold or not, on the same line or the next one. If there is no declaration either, it is the content of a box
that is not closed; else the whole text. What stands in a thought does not count.

An answer that is declared as a sentence is what the sentence says: 34 in "Final answer: The largest n is 34".

A declared answer ends with its line or its sentence ("The answer is 42. This is because ..."), or where a reason
begins ("42, because", "$42$ since"). What makes it another answer stays: "5 or 6", "5, 6", "not 5".

Boxes that only commas, "and" or "or" part are one answer: `\\boxed{1}` and `\\boxed{2}` are the list 1, 2.
"""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from agentrl.chat import without_thoughts

LONGEST = 2000  # characters of a declared answer
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])\s{0,20}")
_BRACE = re.compile(r"\\.|[{}]", re.S)
_JOINS = re.compile(r",|;|\band\b|\bor\b")
_BETWEEN = re.compile(r"\\text|\\quad|\\[()\[\]]|\b(?:and|or)\b|[A-Za-z](?:_\{?\d\}?)?\s*=|[\s$,;.{}&]")
_FORMULA_END = re.compile(r"\$|\\\)|\\\]")
_BARE = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\\[a-zA-Z]+(?:\s?\{[^{}]*\}|\s?\d)*|[^\s{}$\\]")

_MARK = r"[*_`\s]*"
_VERB = r"(?:is\s+equal\s+to|is\s+given\s+by|(?:is|are|equals|was|would\s+be|should\s+be|must\s+be|will\s+be)\b|=)"
_DECLARED = re.compile(
    r"####[ \t]*"
    r"|<(?:final_?)?answer>\s*|\[answer\]\s*|<\|begin_of_box\|>\s*"
    rf"|(?<![^\W_])(?:answers?|ans)(?![^\W_])\.?(?:\s(?:to|for|of|in)\s[^\n.:?!]{{0,80}}?)?{_MARK}"
    rf"(?:{_VERB}{_MARK}:?{_MARK}|[:：]{_MARK}|[ \t]*(?=\$|\\[(\[]))"
    rf"|\b(?:correct|right)\s(?:option|choice)\sis\b{_MARK}:?{_MARK}"
    rf"|^[ \t]*(?:#{{1,6}}[ \t]*|\*\*|__)?(?:the\s)?(?:final\s)?answers?{_MARK}\n{_MARK}"
    rf"|答案{_MARK}(?:是|为|等于|：|:|=)+{_MARK}[：:]?{_MARK}"
    rf"|(?:答え|正解){_MARK}(?:は|[:：]){_MARK}|정답{_MARK}(?:은|[:：]){_MARK}"
    r"|\b(?:respuesta|réponse|antwort|risposta|resposta|ответ)\b[^\n:：.]{0,20}?"
    rf"(?:\b(?:es|est|ist|lautet|è|é)\b{_MARK}:?|[:：]){_MARK}",
    re.I | re.M,
)
_TAG = re.compile(r"</(?:final_?)?answer>|\[/answer\]|<\||</?[a-zA-Z]+>|\*\*", re.I)
_REASON = re.compile(
    r",?\s(?:because|since|as\s(?:required|desired|shown|claimed|we)|which|so|so\sthat|by\sthe|due\sto|I\shope|therefore|"
    r"hence|thus|and\s(?:we|this|that|it)|where\swe)\b|です|である|입니다",
    re.I,
)
_LEADING = re.compile(r"[\s*_`:}]*(?:(?:therefore|thus|hence|then|simply|option|choice)\b[\s*_`:]*)?", re.I)
# "The largest n is 34": what a declared sentence says. A number or a formula must follow.
_SUBJECT = re.compile(r"[A-Z][^\n]{0,200}?\s(?:is|are|equals)(?:\s(?:equal\sto|exactly))?\s+(?=[-+\d$(]|\\[a-zA-Z(\[])")
_AROUND = (("**", "**"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("「", "」"))
_SENTENCE = re.compile(r"[.．!?。](?=[\s\"'”’)*_]|$)")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\$([^$\n]+)\$|\\\((.+?)\\\)", re.S)


def boxed(text: str) -> str | None:
    """The content of the last closed box, or of the last boxes that are one answer, joined by commas; None if there is
    no closed box.

    A box without braces (`\\boxed 5`) holds what stands before the end of the formula, or else one number, letter or
    command.
    """
    found: list[tuple[int, int, str]] = []
    ends = _closing(text)
    for match in _BOX.finditer(text):
        start = match.end()
        if not text.startswith("{", start):
            inside = _unbraced(text, start)
            found.append((match.start(), start + len(inside), inside))
        elif start in ends:
            found.append((match.start(), ends[start] + 1, text[start + 1 : ends[start]]))
    if not found:
        return None
    start, _, last = found.pop()
    parts = [last.strip()]
    while found and found[-1][1] <= start and _joined(text, found[-1][1], start) and found[-1][2].strip() not in parts:
        start, _, content = found.pop()
        parts.insert(0, content.strip())
    return ", ".join(parts)


def _closing(text: str) -> dict[int, int]:
    """Position of each opening brace that is closed -> position of the brace that closes it."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            ends[opened.pop()] = brace.start()
    return ends


def _unbraced(text: str, start: int) -> str:
    """What a box without braces holds."""
    line = text[start : start + LONGEST].partition("\n")[0]
    end = _FORMULA_END.search(line)
    if end is not None and "\\boxed" not in line[: end.start()]:
        return line[: end.start()]
    bare = _BARE.match(line)
    return bare[0] if bare else ""


def _joined(text: str, end: int, start: int) -> bool:
    """Does the text between two boxes only join them?"""
    between = text[end:start]
    return len(between) < 40 and bool(_JOINS.search(between)) and not _BETWEEN.sub("", between)


def _open_box(text: str) -> str | None:
    """The content of the last box if it is not closed: the rest of its line."""
    found = list(_BOX.finditer(text))
    if not found or not text.startswith("{", found[-1].end()):
        return None
    return _FORMULA_END.split(text[found[-1].end() + 1 :].partition("\n")[0], maxsplit=1)[0]


def declared(text: str) -> str | None:
    """The answer that a text declares last in words; None if it declares none."""
    found = [match.end() for match in _DECLARED.finditer(text)]
    return next((said for end in reversed(found) if (said := _said(text[end : end + LONGEST]))), None)


def _said(text: str) -> str:
    """The answer at the beginning of a text, without what follows it."""
    text = _LEADING.sub("", text, count=1)
    formula = _FORMULA.match(text)
    at = formula.end() if formula else 0
    rest = text[at:].partition("\n")[0]
    for end in (_TAG, _SENTENCE, _REASON):
        rest = end.split(rest, maxsplit=1)[0]
    said = _undressed((text[:at] + rest).rstrip(" \t\n*_`.．,;:").lstrip(" \t\n*_`,;:"))
    subject = None if at else _SUBJECT.match(said)
    return said[subject.end() :] if subject else said


def _undressed(text: str) -> str:
    """The text without the marks of markdown or the quotation marks around it."""
    for opening, closing in _AROUND:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            return text[len(opening) : -len(closing)].strip()
    return text


def final_answer(text: str) -> str:
    """The answer that a model's text ends with; the module's docstring says how it is found."""
    text = without_thoughts(text)
    for find in (boxed, declared, _open_box):
        found = find(text)
        if found is not None:
            return found.strip()
    return _undressed(text.strip().rstrip("."))


def gold_answer(cell: Any) -> str:
    """The right answer in a cell of a data set: the answer itself, or a solution that ends with it.

    A number is its text. A list with one entry is the entry. A list with several entries, also as JSON or Python
    text, is the list of all of them, so none of them is right alone. A mapping is its entry `target`, `answer`,
    `ground_truth` or `value`. In a text, the answer is found as in a model's text, and a text in which nothing is
    found is the answer. The result is empty if there is no answer.
    """
    if isinstance(cell, Mapping):
        cell = next((cell[name] for name in ("target", "answer", "ground_truth", "value") if name in cell), None)
    if isinstance(cell, str):
        cell = _entries(cell)
    if isinstance(cell, list | tuple):
        return "; ".join(filter(None, map(gold_answer, cell)))
    text = "" if cell is None else str(cell).strip()
    spoken = without_thoughts(text) or text
    for find in (boxed, declared, _open_box):
        found = find(spoken)
        if found is not None and found.strip():
            return found.strip()
    return _undressed(spoken.strip())


def _entries(text: str) -> str | list[str]:
    """The entries of a text that is a list of texts in JSON or Python; else the text. `[1, 2]` is an interval."""
    if text.lstrip()[:2] not in ('["', "['"):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    return text
