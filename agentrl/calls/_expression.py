"""A call as a Python expression, `add(a=1, b=2)`: literals only, nothing is evaluated."""

import ast
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.calls import Call, function_of, properties_of

LITERALS = {"true": True, "false": False, "null": None}


def read_expression(text: str, schemas: Sequence[Mapping[str, Any]]) -> Call:
    """The call a Python expression means; arguments without a name are matched by the tool's schema.

    Raises:
        ValueError: it is none; the sentence says why.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an escape that Python does not know
            node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no call: {getattr(error, 'msg', error)}") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("it is no call of a tool")
    known = next((properties_of(schema) for schema in schemas if function_of(schema)["name"] == node.func.id), {})
    if len(node.args) > len(known):
        raise ValueError(f"{node.func.id} is given {len(node.args)} arguments without a name and has {len(known)}")
    named = dict(zip(known, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in named:
            raise ValueError(f"the argument {keyword.arg or '**'} cannot stand there")
        named[keyword.arg] = keyword.value
    return Call(name=node.func.id, arguments={name: _literal(value) for name, value in named.items()})


def _literal(node: ast.expr) -> Any:
    """The JSON value of a literal; `true`, `false` and `null` are known too."""
    if isinstance(node, ast.Name) and node.id in LITERALS:
        return LITERALS[node.id]
    try:
        value = ast.literal_eval(node)
        return json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{ast.unparse(node)[:40]!r} is no text, number, list or object") from None


def write_expression(call: Call) -> str:
    """The call as an expression that `read_expression` gives back."""
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
