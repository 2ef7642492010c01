"""Grounds a game's goal: evaluates quantifiers and unchanging facts in advance, so that small trees of tests remain.

A goal is a conjunction of clauses; each clause is satisfied by any of several conjunctions of changing facts.
Alternatives that begin with the same tests share them in a tree, so that one look-up dismisses most of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from agentrl.envs.alfworld.pddl import Expression, NotNative

Atom: TypeAlias = tuple[str, ...]
Static: TypeAlias = Mapping[str, frozenset[tuple[str, ...]]]

# The facts that actions change, cheapest to fail first: this is the order of tests in an alternative.
CHANGING = (
    "holds",
    "holdsany",
    "istoggled",
    "ishot",
    "iscool",
    "isclean",
    "issliced",
    "atlocation",
    "inreceptacle",
    "objectatlocation",
    "opened",
)
_RANK = {name: rank for rank, name in enumerate(CHANGING)}


class Node(NamedTuple):
    """A test (predicate and numbers), and the tests of which one must also hold; none: the alternative is complete."""

    predicate: str
    first: int
    second: int
    branches: tuple["Node", ...]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a goal asks for, in types as the agent reads them ("mug"); "" where it asks for none.

    `condition` is "clean", "hot", "cool", "sliced", several of these joined by "+", or ""; `count` is how many objects
    must be brought.
    """

    object: str
    receptacle: str
    lamp: str
    condition: str
    count: int

    @property
    def kind(self) -> str:
        """The task type; "" if the goal has another shape."""
        shape = (bool(self.object), bool(self.receptacle), bool(self.lamp), self.count)
        match shape, self.condition:
            case (True, False, True, 1), "":
                return "look_at_obj_in_light"
            case (True, True, False, 2), "":
                return "pick_two_obj_and_place"
            case (True, True, False, 1), "":
                return "pick_and_place_simple"
            case (True, True, False, 1), ("clean" | "hot" | "cool") as condition:
                verb = {"clean": "clean", "hot": "heat", "cool": "cool"}[condition]
                return f"pick_{verb}_then_place_in_recep"
        return ""


class _Scope(NamedTuple):
    static: Static
    by_type: Mapping[str, Sequence[str]]


class Alternative(NamedTuple):
    """Changing facts that satisfy a clause together, in the order to test them.

    `real` is False if two variables that must differ are bound to one object. Nothing satisfies such an
    alternative, but the genuine engine counts it when it asks whether a goal can be reached.
    """

    atoms: tuple[Atom, ...]
    real: bool


def ground(goal: Expression, static: Static, types: Mapping[str, str]) -> list[list[Alternative]]:
    """The clauses of a goal, each a list of its alternatives.

    Args:
        goal: parsed goal.
        static: facts no action changes, as predicate -> argument tuples.
        types: type of each object. As in the original translator, `object` covers every type.

    Raises:
        NotNative: the goal uses something other than and, exists, =, not = and known facts.
    """
    by_type: dict[str, list[str]] = defaultdict(list)
    for name, of in types.items():
        by_type[of].append(name)
    by_type["object"] = list(types)
    scope = _Scope(static, by_type)
    return [sorted(set(_solve(_flatten(part), {}, scope))) for part in _parts(goal)]


def wanted(goal: Expression) -> Wanted:
    """What the goal asks for, in the words that the agent reads."""
    literals = [atom for part in _parts(goal) for sign, atom in _flatten(part).literals if sign]
    named = {predicate: [atom for atom in literals if atom[0] == predicate] for predicate, *_ in literals}
    lamps = {atom[1] for atom in named.get("istoggled", ())}
    of = [(variable, kind.removesuffix("type")) for _, variable, kind in named.get("objecttype", ())]
    things = [kind for variable, kind in of if variable not in lamps]
    conditions = [name for name in ("clean", "hot", "cool", "sliced") if f"is{name}" in named]
    return Wanted(
        object=things[0] if len(set(things)) == 1 else "",
        receptacle=next((kind.removesuffix("type") for _, _, kind in named.get("receptacletype", ())), ""),
        lamp=next((kind for variable, kind in of if variable in lamps), ""),
        condition=conditions[0] if len(conditions) == 1 else "+".join(conditions),
        count=len(things),
    )


def _parts(goal: Expression) -> Sequence[Expression]:
    return goal[1:] if goal and goal[0] == "and" else [goal]


def _order(atom: Atom) -> tuple[int, Atom]:
    return _RANK[atom[0]], atom


Test: TypeAlias = tuple[str, int, int]


def tree(alternatives: list[list[Test]]) -> tuple[Node, ...]:
    """The alternatives as trees: alternatives that begin with the same test share the node of this test."""
    by_first: dict[Test, list[list[Test]]] = {}
    for first, *rest in alternatives:
        by_first.setdefault(first, []).append(rest)
    return tuple(Node(*first, () if [] in rests else tree(rests)) for first, rests in by_first.items())


class _Flat(NamedTuple):
    """A conjunction with its existential variables pulled to the front; `real` as in `Alternative`."""

    variables: dict[str, str]
    literals: list[tuple[bool, Atom]]
    real: bool = True


def _flatten(part: Expression) -> _Flat:
    flat = _Flat({}, [])
    _gather(part, flat)
    return flat


def _gather(part: Expression, flat: _Flat) -> None:
    match part:
        case ["and", *parts]:
            for inner in parts:
                _gather(inner, flat)
        case ["exists", [*declared], inner]:
            for name, of in _typed(declared):
                # A name bound twice would need renaming; no published goal does it.
                if name in flat.variables:
                    raise NotNative(f"its goal binds {name} twice")
                flat.variables[name] = of
            _gather(inner, flat)
        case ["not", [str("="), str(left), str(right)]]:
            flat.literals.append((False, ("=", left, right)))
        case [str(predicate), *arguments] if all(isinstance(one, str) for one in arguments):
            flat.literals.append((True, (predicate, *(str(one) for one in arguments))))
        case _:
            raise NotNative(f"its goal holds {part!r}, which the native engine does not know")


def _typed(declared: Sequence[Expression]) -> Iterator[tuple[str, str]]:
    words = [str(word) for word in declared]
    if len(words) % 3 or any(dash != "-" for dash in words[1::3]):
        raise NotNative(f"its goal declares {' '.join(words)!r}, expected one type after each variable")
    return zip(words[::3], words[2::3], strict=True)


def _solve(flat: _Flat, bound: dict[str, str], scope: _Scope) -> Iterator[Alternative]:
    """The changing facts of each binding of the variables under which everything unchanging holds."""
    real = flat.real
    literals = [(sign, tuple(bound.get(word, word) for word in atom)) for sign, atom in flat.literals]
    remaining = []
    for sign, atom in literals:
        if atom[0] in _RANK or any(word.startswith("?") for word in atom[1:]):
            remaining.append((sign, atom))
        elif not sign:
            real = real and atom[1] != atom[2]
        elif not _holds(atom, scope):
            return
    if len(bound) == len(flat.variables):
        free = {word for _, atom in remaining for word in atom[1:] if word.startswith("?")}
        if free:
            raise NotNative(f"its goal uses {sorted(free)[0]} outside its quantifier")
        yield Alternative(tuple(sorted({atom for _, atom in remaining}, key=_order)), real)
        return
    options = {name: _options(name, of, remaining, scope) for name, of in flat.variables.items() if name not in bound}
    name = min(options, key=lambda one: len(options[one]))
    for value in options[name]:
        yield from _solve(_Flat(flat.variables, remaining, real), {**bound, name: value}, scope)


def _holds(atom: Atom, scope: _Scope) -> bool:
    predicate, *arguments = atom
    if predicate == "=":
        return arguments[0] == arguments[1]
    return tuple(arguments) in _relation(predicate, scope)


def _relation(predicate: str, scope: _Scope) -> frozenset[tuple[str, ...]]:
    try:
        return scope.static[predicate]
    except KeyError:
        raise NotNative(f"its goal asks for {predicate!r}, which the native engine does not follow") from None


def _options(name: str, of: str, literals: list[tuple[bool, Atom]], scope: _Scope) -> Sequence[str]:
    """Values the variable may take, narrowed by the unchanging facts in which it is the only unknown."""
    values: Sequence[str] = scope.by_type.get(of, ())
    for sign, (predicate, *arguments) in literals:
        unknown = [position for position, word in enumerate(arguments) if word.startswith("?")]
        if not sign or predicate == "=" or predicate in _RANK or name not in arguments or len(unknown) != 1:
            continue
        spot = unknown[0]
        fitting = {
            row[spot]
            for row in _relation(predicate, scope)
            if all(row[i] == word for i, word in enumerate(arguments) if i != spot)
        }
        values = [value for value in values if value in fitting]
    return values
