"""What a JSON schema says: its parts, its references, and the kinds of values that it allows.

The schemas are those that tools bring with them, in any draft and in OpenAPI's dialect. `agentrl.tool.json_check`
checks values by them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.tool.json_check import Checker

Schema = Mapping[str, Any]

ONE_PART = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
LISTS_OF_PARTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED_PARTS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
DEFINITIONS = ("$defs", "definitions")
# Keywords that say nothing about values; a reference may have them beside it.
ANNOTATIONS = {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
MOST_PARTS = 20_000  # largest number of parts of a schema without references; n nested definitions can give 2^n parts
# A keyword that only concerns values of one kind; such a keyword shows the kind if the schema has no `type`.
KIND_OF_KEYWORD = {
    **dict.fromkeys(("additionalProperties", "maxProperties", "minProperties", "properties", "required"), "object"),
    **dict.fromkeys(("contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"), "array"),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), "number"),
    **dict.fromkeys(("format", "maxLength", "minLength", "pattern"), "string"),
}


class TooDeep(ValueError):
    """A value cannot be checked, because it is nested too deeply or the schema refers to itself without end."""


def json_checker(schema: Schema) -> "Checker":
    """A check of values by a schema, see `agentrl.tool.json_check`; ValueError if nothing can be checked by it."""
    from agentrl.tool.json_check import Checker  # it imports jsonschema, which only some tools need

    return Checker(schema)


def with_parts(schema: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with `change` applied to each schema directly inside it; other values are untouched."""

    def changed(key: str, value: Any) -> Any:
        if key in NAMED_PARTS and isinstance(value, Mapping):
            return {name: change(one) if isinstance(one, Mapping) else one for name, one in value.items()}
        if key in LISTS_OF_PARTS and isinstance(value, list):
            return [change(one) if isinstance(one, Mapping) else one for one in value]
        return change(value) if key in ONE_PART and isinstance(value, Mapping) else value

    return {key: changed(key, value) for key, value in schema.items()}


def parts(schema: Schema) -> Iterator[Schema]:
    """The schemas directly inside a schema."""
    found: list[Schema] = []
    with_parts(schema, found.append)
    yield from found


def definition(reference: object, root: Schema) -> tuple[str, Schema] | None:
    """(the name, the schema) of the definition of `root` to which `#/$defs/NAME` refers; None for other references."""
    for key in DEFINITIONS:
        start = f"#/{key}/"
        if isinstance(reference, str) and reference.startswith(start):
            name = reference.removeprefix(start)
            known = root.get(key)
            found = known.get(name) if isinstance(known, Mapping) else None
            return (f"{key}/{name}", found) if isinstance(found, Mapping) else None
    return None


def inlined(schema: Schema) -> dict[str, Any]:
    """A schema without titles and references to its definitions; a recursive type keeps the references to itself.

    Raises:
        ValueError: without references, the schema has more than MOST_PARTS parts or is nested too deeply.
    """
    count = 0

    def walk(node: Schema, inside: tuple[str, ...]) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count > MOST_PARTS:
            raise ValueError(f"the schema has more than {MOST_PARTS} parts after its references are followed")
        found = definition(node.get("$ref"), schema)
        if found is None or found[0] in inside:
            plain = {key: value for key, value in node.items() if key not in DEFINITIONS and not _is_title(key, value)}
            return with_parts(plain, lambda one: walk(one, inside))
        meant = walk(found[1], (*inside, found[0]))
        beside = walk({key: value for key, value in node.items() if key != "$ref"}, inside)
        if beside.keys() - ANNOTATIONS & meant.keys():  # both hold, and one key cannot hold both
            notes = {key: beside.pop(key) for key in ANNOTATIONS & beside.keys()}
            return {"allOf": [meant, beside], **notes}
        return {**meant, **beside}

    try:
        plain = walk(schema, ())
        every = tuple(f"{key}/{name}" for key in DEFINITIONS for name in schema.get(key) or ())
        for (key, name), one in _referred(plain, schema).items():
            plain.setdefault(key, {})[name] = walk(one, every)
        json.dumps(plain)
    except RecursionError:
        raise ValueError("the schema is nested too deeply") from None
    return plain


def _referred(schema: Schema, root: Schema) -> dict[tuple[str, str], Schema]:
    """(key of `root`, name) -> each definition that a schema needs. All of them if a reference is no definition's."""
    found: dict[tuple[str, str], Schema] = {}
    todo = [schema]
    while todo:
        node = todo.pop()
        todo += parts(node)
        if "$ref" not in node and "$dynamicRef" not in node:
            continue
        meant = definition(node.get("$ref"), root)
        if meant is None:
            both = [(key, root[key]) for key in DEFINITIONS if isinstance(root.get(key), Mapping)]
            return {(key, name): one for key, named in both for name, one in named.items() if isinstance(one, Mapping)}
        key, _, name = meant[0].partition("/")
        if (key, name) not in found:
            found[key, name] = meant[1]
            todo.append(meant[1])
    return found


def _is_title(key: str, value: object) -> bool:
    return key == "title" and isinstance(value, str)


def with_numeric_bounds(schema: Schema) -> dict[str, Any]:
    """The schema with draft 4's `{"minimum": 0, "exclusiveMinimum": true}` written as `{"exclusiveMinimum": 0}`."""
    changed = with_parts(schema, with_numeric_bounds)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if changed.get(exclusive) is False:
            del changed[exclusive]
        elif changed.get(exclusive) is True and bound in changed:
            changed[exclusive] = changed.pop(bound)
    return changed


def without_nullable(schema: Schema) -> dict[str, Any]:
    """The schema with OpenAPI's `nullable: true` written in JSON schema's own words."""
    changed = with_parts(schema, without_nullable)
    if changed.pop("nullable", False) is not True:
        return changed
    if isinstance(changed.get("enum"), list) and None not in changed["enum"]:
        changed["enum"] = [*changed["enum"], None]
    kind = changed.get("type")
    if isinstance(kind, str | list) and not {"$ref", "allOf", "anyOf", "oneOf", "const"} & changed.keys():
        listed = [kind] if isinstance(kind, str) else kind
        return {**changed, "type": listed if "null" in listed else [*listed, "null"]}
    notes = {key: changed.pop(key) for key in (ANNOTATIONS | set(DEFINITIONS)) & changed.keys()}
    return {"anyOf": [changed, {"type": "null"}], **notes} if changed else notes


def kind_of(value: object) -> str:
    """The kind of a JSON value, as `type` names it; 1.0 is a number."""
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "")


def kinds(schema: object, root: Schema, seen: tuple[str, ...] = ()) -> set[str] | None:
    """The kinds of values that a schema names, as in `type`; None if it names none, so that any value may fit.

    Every integer is a number, so `number` comes with `integer`.
    """
    if not isinstance(schema, Mapping):
        return None
    named: list[set[str] | None] = [_own_kinds(schema)]
    found = definition(schema.get("$ref"), root)
    if found is not None and found[0] not in seen:
        named.append(kinds(found[1], root, (*seen, found[0])))
    named += [kinds(one, root, seen) for one in schema.get("allOf") or ()]
    for key in ("anyOf", "oneOf"):
        choices = [kinds(one, root, seen) for one in schema.get(key) or ()]
        if choices and None not in choices:
            named.append(set().union(*(one for one in choices if one is not None)))
    known = [one for one in named if one is not None]
    if not known:
        return None
    return set.intersection(*known) | ({"null"} if schema.get("nullable") is True else set())


def _own_kinds(schema: Schema) -> set[str] | None:
    kind = schema.get("type")
    listed = [kind] if isinstance(kind, str) else [one for one in kind or () if isinstance(one, str)]
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return {kind_of(one) for one in values}
    if not listed and not {"$ref", "allOf", "anyOf", "oneOf"} & schema.keys():
        listed = sorted({KIND_OF_KEYWORD[key] for key in schema if key in KIND_OF_KEYWORD})
    return {*listed, *(["integer"] if "number" in listed else [])} or None


def argument_schemas(schema: Schema) -> dict[str, list[Schema]]:
    """Argument name -> every schema that a schema of arguments has for it, also in branches, as of `oneOf`."""
    found: dict[str, list[Schema]] = {}
    seen: set[str] = set()

    def gather(node: Schema) -> None:
        for name, one in (node.get("properties") or {}).items():
            found.setdefault(name, []).append(one if isinstance(one, Mapping) else {})
        meant = definition(node.get("$ref"), schema)
        if meant is not None and meant[0] not in seen:
            seen.add(meant[0])
            gather(meant[1])
        branches = [one for key in ("allOf", "anyOf", "oneOf") for one in node.get(key) or ()]
        branches += [node.get(key) for key in ("if", "then", "else")]
        branches += [one for key in ("dependentSchemas", "dependencies") for one in (node.get(key) or {}).values()]
        for branch in branches:
            if isinstance(branch, Mapping):
                gather(branch)

    gather(schema)
    return found
