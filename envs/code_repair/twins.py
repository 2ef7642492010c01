"""Comparisons of objects of the agent's classes at the end of the tests; see `peer`.

The tests do not believe the agent's `__eq__`. They have the class of the same name from the task's own solution, which
is trusted, and make a twin of each object: by the arguments with which a test made the object, or by the attributes
that the agent's process names. An object that a test makes is not made in the agent's process before it is used there,
so a function cannot answer with the values that a test compares its answer with. The twins decide, and the agent's
classes must agree.
"""

# mypy: ignore-errors
import io
import operator
import sys

from agentrl.envs.code_repair.crossing import Refused

DEEP = 50  # largest depth of objects in objects


class Twins:
    """The trusted classes of a task, by name."""

    def __init__(self, peer):
        self.peer, self.kinds = peer, {}

    def made(self, kind, arguments, named):
        """The twin of an object that a test makes; None if there is no trusted class, or it cannot be made."""
        trusted = self.kinds.get(kind.__name__)
        single = trusted is not None and trusted.__new__ is not object.__new__ and not arguments and not named
        if trusted is None or single:
            return None
        out, sys.stdout = sys.stdout, io.StringIO()
        try:
            return trusted(*[self.of(one) for one in arguments], **{k: self.of(v) for k, v in named.items()})
        except Exception:  # noqa: BLE001  the agent's class may raise another exception, and at once
            return None
        finally:
            sys.stdout = out

    def of(self, value, known=None, depth=0, told=False):
        """The twin of a value: stand-ins become objects of the trusted classes, also in containers.

        Args:
            value, known, depth: the value, the twins of this comparison by id, and the number of objects around it.
            told: the value is from an object's attributes, as the agent's process names them.

        Raises:
            LookupError: a stand-in's class has no trusted class, or an attribute is a function or a class, which the
                trusted class might call to compare.
            Refused: the agent's process does not tell the attributes.
        """
        known = {} if known is None else known
        if depth > DEEP:
            raise Refused(f"objects are nested more than {DEEP} deep")
        if type(value) in (list, tuple, set, frozenset):
            return type(value)([self.of(one, known, depth + 1, told) for one in value])
        if type(value) is dict:
            return {key: self.of(one, known, depth + 1, told) for key, one in value.items()}
        if not self.peer.is_standin(value) or isinstance(value, type):
            if told and callable(value):
                raise LookupError("a function or a class")
            return value
        if id(value) in known:
            return known[id(value)]
        twin = object.__getattribute__(value, "_peer_twin")
        if twin is not None:
            return twin
        trusted = self.kinds[type(value).__name__]
        twin = known[id(value)] = object.__new__(trusted)
        for name, one in self.peer.remote("state", value).items():
            if name.startswith("__"):
                raise Refused(f"the agent's process tells an attribute {name!r:.40}")
            if callable(getattr(trusted, name, None)) and one is not getattr(trusted, name):
                raise Refused(f"an object of the agent's class {trusted.__name__} replaces its method {name!r:.40}")
            object.__setattr__(twin, name, self.of(one, known, depth + 1, told=True))
        return twin

    def compare(self, name, one, other):
        """The outcome of a comparison; LookupError if there is no trusted class."""
        kind = type(one).__name__
        if kind not in self.kinds:
            raise LookupError(kind)
        try:
            trusted = bool(getattr(operator, name)(self.of(one), self.of(other)))
        except (AttributeError, TypeError) as error:
            raise self.peer.refuse(
                f"objects of the agent's class {kind} cannot be compared as the task's own class compares them"
                f" ({error})"
            ) from None
        told = self.peer.remote("special", one, name, other)
        if type(told) is not bool or told is not trusted:
            raise self.peer.refuse(f"the agent's class {kind} compares otherwise than the task's own class")
        return trusted

    def hash(self, value):
        """The hash of a stand-in: that of its twin, or its identity."""
        trusted = self.kinds.get(type(value).__name__)
        if trusted is None or trusted.__hash__ is object.__hash__:
            return object.__hash__(value)
        return hash(self.of(value))
