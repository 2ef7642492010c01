"""A call as a Python expression, `add(a=1, b=2)`: only literals are read, nothing is evaluated."""

import ast
import json
import keyword
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import Call, function_of, properties_of
from agentrl.tool.calls._strict_json import check

LITERALS = {"true": True, "false": False, "null": None}


def read_expression(text: str, schemas: Sequence[Mapping[str, Any]]) -> Call:
    """The call that a Python expression means; arguments without a name get names from the tool's schema, in order.

    Raises:
        ValueError: the text is no call; the message says why.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the warning about an unknown escape
            node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no call: {getattr(error, 'msg', error)}") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("it is no call of a tool")
    known = next((properties_of(schema) for schema in schemas if function_of(schema)["name"] == node.func.id), {})
    if len(node.args) > len(known):
        raise ValueError(f"{node.func.id} is given {len(node.args)} arguments without a name and has {len(known)}")
    named = dict(zip(known, node.args, strict=False))
    for argument in node.keywords:
        if argument.arg is None or argument.arg in named:
            raise ValueError(f"the argument {argument.arg or '**'} cannot stand there")
        named[argument.arg] = argument.value
    return Call(name=node.func.id, arguments={name: _literal(value) for name, value in named.items()})


def _literal(node: ast.expr) -> Any:
    """The JSON value of a literal. `true`, `false` and `null` are read too, but not inside a list or a dict."""
    if isinstance(node, ast.Name) and node.id in LITERALS:
        return LITERALS[node.id]
    try:
        value = json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))
        check(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{_shown(node)!r} is no text, number, list or object") from None
    return value


def _shown(node: ast.expr) -> str:
    """At most 40 characters of an expression; its node type if it is nested too deeply or holds too long a number."""
    try:
        return ast.unparse(node)[:40].encode("utf-8", "replace").decode()
    except (ValueError, RecursionError, MemoryError):
        return type(node).__name__


def write_expression(call: Call) -> str:
    """The call as an expression, from which `read_expression` reads the same call."""
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def check_names(schemas: Sequence[Mapping[str, Any]], format_name: str) -> None:
    """Raises ValueError for a tool or argument that a Python expression cannot name."""
    for schema in schemas:
        tool = str(function_of(schema)["name"])
        odd = next((n for n in (tool, *properties_of(schema)) if not n.isidentifier() or keyword.iskeyword(n)), None)
        if odd is not None:
            what = "tool" if odd == tool else f"argument of {tool}"
            raise ValueError(
                f"call format {format_name} writes calls as Python does, which cannot name the {what} {odd!r}: "
                "use hermes"
            )
