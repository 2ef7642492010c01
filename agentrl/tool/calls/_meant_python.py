"""Texts that are nothing but calls of tools in Python's syntax: `get(q="a")`, `[get(q="a"), list_files()]`."""

import ast
import re
import warnings
from collections.abc import Container

TAG_BEFORE, TAG_BEHIND = re.compile(r"(?:<[^<>\n]{1,40}>\s*)+"), re.compile(r"<[^<>\n]{1,40}>\Z")
OWNERS = ("functions", "tools", "tool", "default_api")  # `functions.get(...)` calls `get`
BROKEN = re.compile(r"(\w+)\(\s{0,20}\w+\s{0,20}=[^\n]*\)")  # a call that cannot be read, as get(q="it"s")
MOST_CHARS = 2_000  # longer texts are not read


def called_in_python(text: str, tools: Container[str]) -> str:
    """The first tool that a text calls, if all of it is calls of tools; else empty.

    Tags and backquotes around the calls do not matter, nor do `await` and `print` around a call. A call that may be a
    formula, such as `sqrt(2)`, is none.
    """
    words = _without_tags(text[: MOST_CHARS + 1])
    if len(words) > MOST_CHARS or "(" not in words:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the warning about an unknown escape
            body = ast.parse(words).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        broken = BROKEN.fullmatch(words)
        return broken[1] if broken and broken[1] in tools else ""
    calls: list[ast.expr | None] = []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        calls += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    names = [_called_by(one, tools) for one in calls]
    return names[0] if names and all(names) else ""


def _called_by(node: ast.expr | None, tools: Container[str]) -> str:
    node = node.value if isinstance(node, ast.Await) else node
    if not isinstance(node, ast.Call):
        return ""
    called = node.func
    name = called.id if isinstance(called, ast.Name) else ""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in OWNERS:
        name = called.attr
    if name == "print" and name not in tools:
        return _called_by(node.args[0], tools) if len(node.args) == 1 and not node.keywords else ""
    plain = (one.value if isinstance(one, ast.Constant) else one for one in node.args)
    certain = node.keywords or not node.args or any(isinstance(one, str | ast.Dict) for one in plain)
    return name if certain and name in tools else ""


def _without_tags(text: str) -> str:
    """A text without tags and backquotes around it."""
    text = text.strip().strip("`").strip()
    before = TAG_BEFORE.match(text)
    text = text[before.end() :] if before else text
    while (behind := text.rfind("<")) >= 0 and TAG_BEHIND.match(text, behind):
        text = text[:behind].rstrip()
    return text.strip("`").strip()
