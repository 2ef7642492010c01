"""Objects in JSON or in Python's spelling that call a tool under any of the keys that models write.

An object that has what came of a call (`"answer"`, `"result"`, ...), the description of a tool, and a list of names
are no calls.
"""

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from agentrl.tool.calls._strict_json import read_json

# Keys under which models write the name of a tool and its arguments, in the formats of published models and servers.
# Letters of either case and `_` do not matter.
NAME_KEYS = (
    "name",
    "tool",
    "toolname",
    "function",
    "functionname",
    "fn",
    "recipientname",
    "action",
    "method",
    "command",
)
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "params", "kwargs", "input", "inputs", "actioninput"),
    *(f"{tool}{word}" for tool in ("tool", "function") for word in ("input", "args", "arguments", "parameters")),
)
# Keys of an object that holds a call or a list of calls.
HOLDERS = {"toolcalls", "tooluses", "toolcall", "tooluse", "functioncall", "functioncalls", "calls", "call", "actions"}
HOLDERS |= {"action", "function", "tool"}
NOTES = {"id", "type", "toolcallid", "index"}  # keys beside a name that are no arguments
TYPES = ("function", "tool", "tool_call", "tool_use", "function_call")  # values of the key `type` of a call
UNKNOWN = re.compile(r"[a-z_][\w.-]{0,63}")  # a name that may be misspelt; `Alice` is none
# Keys that no call has: an object with one of these tells what came of a call.
OUTCOMES = {"answer", "finalanswer", "observation", "output", "response", "result", "results", "return", "returns"}
MOST_CHARS = 2_000  # longer texts are not read in Python's spelling


class JsonCalls:
    """Finds the tool that an object calls.

    Args:
        arguments: tool name -> names of its arguments.
    """

    def __init__(self, arguments: Mapping[str, set[str]]) -> None:
        self._arguments = arguments
        self._given = {name for known in arguments.values() for name in known}
        names = "|".join(re.escape(name) for name in sorted(arguments, key=len, reverse=True)) or r"(?!)"
        key = r"[{,]\s{0,20}[\"']?(?:%s)[\"']?\s{0,20}:"
        name_key, argument_key = (key % "|".join("_?".join(one) for one in keys) for keys in (NAME_KEYS, ARGUMENT_KEYS))
        self._named = re.compile(
            rf"{name_key}\s{{0,20}}[\"']?(?:functions?[.:/])?({names})(?::\d+)?[\"']?\s{{0,20}},", re.I
        )
        self._argued = re.compile(argument_key, re.I)

    def called(self, group: str) -> str:
        """The tool that a text in brackets calls, or would call if it were well-formed; empty if there is none."""
        value = _value(group)
        if value is not None:
            return self._called_by(value)
        named = self._named.search(group)
        return named[1] if named is not None and self._argued.search(group) else ""

    def takes(self, name: str, given: Any) -> bool:
        """Is a value an object of arguments of a tool?"""
        return isinstance(given, dict) and bool(given) and set(given) <= self._arguments[name]

    def _called_by(self, value: Any) -> str:
        if isinstance(value, list):
            calls = (self._called_by(one) for one in value if not _is_name(one))  # a list of names holds no call
            return next(filter(None, calls), "")
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            return ""
        entries = {_plain(key): one for key, one in value.items()}
        if OUTCOMES & entries.keys() - self._given:
            return ""
        for key, one in entries.items():
            if key in HOLDERS and isinstance(one, dict | list) and (name := self._called_by(one)):
                return name
        (only, given), *others = value.items() or [("", None)]
        if not others and only in self._arguments and self.takes(only, given):
            return str(only)  # {"get": {"q": "a"}}
        return self._named_by(value, entries)

    def _named_by(self, value: Mapping[str, Any], entries: Mapping[str, Any]) -> str:
        """The tool of {"name": "get", "arguments": {"q": "a"}}, {"name": "get", "q": "a"} or {"name": "get"}."""
        given = [entries[key] for key in ARGUMENT_KEYS if key in entries and not isinstance(entries[key], int | float)]
        for key in NAME_KEYS:
            name = re.sub(r"^functions?[.:/]|:\d+$", "", entries[key]) if isinstance(entries.get(key), str) else ""
            if name not in self._arguments:
                continue
            known = self._arguments[name]
            if given:
                return "" if _is_schema(given[0]) and "properties" not in known else name
            flat = {one for one in value if one in known or _plain(one) not in {key, *NOTES}}
            typed = "type" in known or entries.get("type", TYPES[0]) in TYPES
            if flat <= known and typed and (flat or entries.keys() - NOTES == {"name"}):
                return name
        unknown = entries.get("name")
        whole = entries.keys() - NOTES == {"name", "arguments"} and isinstance(entries["arguments"], dict)
        return unknown if whole and isinstance(unknown, str) and UNKNOWN.fullmatch(unknown) else ""


def _is_name(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"name"}


def _plain(key: str) -> str:
    return key.lower().replace("_", "")


def _value(group: str) -> Any:
    """The list or object that a text in brackets is, in JSON or in Python's spelling; None if it is none."""
    try:
        return read_json(group, 0).value
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the warning about an unknown escape
            value = ast.literal_eval(group) if len(group) <= MOST_CHARS else None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, list | dict) else None


def _is_schema(given: Any) -> bool:
    """Are the arguments a JSON schema, as in the description of a tool?"""
    return isinstance(given, dict) and isinstance(given.get("properties"), dict) and given.get("type") == "object"
