"""Stand-ins for objects that live at the other end of a judged program; see `peer`.

The end of the tests does not let the agent's code decide whether two values are equal. If the task's own solution has a
class of the same name, `twins` compares. Otherwise a stand-in is equal to nothing but itself, and then only after a
test has handed it over (so that a function cannot answer with the object that the test made to compare with). A test
that compares stand-ins in another way gets a note, which the verdict shows.
"""

# mypy: ignore-errors
import sys
import types

from agentrl.envs.code_repair.references import References
from agentrl.envs.code_repair.special import ARITHMETIC, COMPARED, CONTEXT, SLOTS, Meta, is_standin, no_protocol
from agentrl.envs.code_repair.twins import Twins


class Delegated:
    """A method or property of a trusted enumeration, which tests have carried out by the agent's enumeration."""

    def __init__(self, peer, kind, name, own):
        self.peer, self.kind, self.name, self.own = peer, kind, name, own

    def __get__(self, one, kind=None):
        if sys._getframe(1).f_code.co_filename == CONTEXT:
            return self.own.__get__(one, kind)
        if isinstance(self.own, property):
            return self.own if one is None else self.peer.remote("getattr", one, self.name)
        first = (self.kind,)
        if isinstance(self.own, types.FunctionType):
            first = () if one is None else (one,)

        def call(*arguments, **named):
            target, *others = (*first, *arguments)
            return self.peer.remote("method", target, self.name, *others, **named)

        return call


class StandIns(References):
    """Makes stand-ins for objects of the other end."""

    is_standin = staticmethod(is_standin)

    def __init__(self, guarded):
        References.__init__(self, guarded)
        self.twins, self.waiting = Twins(self), []

    def standin(self, kind, hid):
        if type(kind) is not Meta:
            raise ValueError("an object needs a class")
        value = object.__new__(kind)
        for slot, first in SLOTS.items():
            object.__setattr__(value, slot, first)
        object.__setattr__(value, "_peer_hid", hid)
        return value

    def number(self, value):
        """The number of a stand-in's object, which is made now if it was not needed before."""
        call = object.__getattribute__(value, "_peer_call")
        if call is not None:
            object.__setattr__(value, "_peer_call", None)
            made = self.made_there(type(value), *call)
            if not is_standin(made):
                raise self.refuse(
                    f"the agent's class {type(value).__name__} makes no objects such as the task's own class makes"
                )
            hid = object.__getattribute__(made, "_peer_hid")
            object.__setattr__(value, "_peer_hid", hid)
            self.values[hid] = value
        object.__setattr__(value, "_peer_touched", True)
        object.__setattr__(value, "_peer_twin", None)  # from now on the object may change
        return object.__getattribute__(value, "_peer_hid")

    def construct(self, kind, arguments, named):
        """A stand-in for a new object of a class of the other end.

        If there is a trusted class of its name, the object is made at the other end when it is used; see `twins`.
        """
        twin = self.twins.made(kind, arguments, named) if self.guarded else None
        if twin is None:
            return self.made_there(kind, arguments, named)
        value = self.standin(kind, None)
        for slot, content in (("_peer_made", True), ("_peer_twin", twin), ("_peer_call", (arguments, named))):
            object.__setattr__(value, slot, content)
        self.waiting.append(value)
        return value

    def made_there(self, kind, arguments, named):
        """Have the other end make an object.

        If the class gives an object that was seen before, the stand-in is another one than that object's, because the
        answer of a function must not become what it is compared with. A class without arguments may be a singleton.
        """
        known = set(self.values)
        value = self.remote("construct", kind, *arguments, **named)
        if is_standin(value) and type(value) is not Meta:
            hid = object.__getattribute__(value, "_peer_hid")
            if self.guarded and hid in known and (arguments or named):
                self.note(f"the class {kind.__name__} gave an object that existed already")
                value = self.standin(type(value), hid)
            object.__setattr__(value, "_peer_made", True)
        return value

    def make_waiting(self, kind):
        """Make the objects of a class that wait for their use."""
        waiting, self.waiting = self.waiting, []
        for value in waiting:
            if issubclass(type(value), kind):
                self.number(value)
            elif object.__getattribute__(value, "_peer_call") is not None:
                self.waiting.append(value)

    def method(self, name):
        """The method of stand-ins that has an operation carried out."""
        peer = self

        def method(self, *arguments, **named):
            if name == "__call__":
                return peer.remote("call", self, *arguments, **named)
            if (
                peer.guarded
                and name in ARITHMETIC
                and not self._peer_made
                and not all(is_standin(one) for one in arguments)
            ):
                raise peer.refuse(f"a test calculates with an object of the agent's class {type(self).__name__}")
            if peer.guarded and name == "__contains__":
                return any(one is arguments[0] or one == arguments[0] for one in self)
            if name == "__exit__":
                arguments = (*arguments[:2], None)
            return peer.remote("special", self, name, *arguments)

        return method

    def common(self):
        """The methods of every stand-in."""
        peer = self

        def no_pickle(self, protocol):
            raise peer.refuse("an object of the agent's code cannot be pickled")

        return {
            "__slots__": tuple(SLOTS),
            "__module__": "solution",
            "__doc__": property(lambda self: peer.remote("getattr", self, "__doc__")),
            "__getattr__": lambda self, name: no_protocol(peer, name) or peer.remote("getattr", self, name),
            "__setattr__": lambda self, name, value: peer.remote("setattr", self, name, value),
            "__delattr__": lambda self, name: peer.remote("delattr", self, name),
            "__copy__": lambda self: peer.remote("copy", self, False),
            "__deepcopy__": lambda self, memo: peer.remote("copy", self, True),
            "__reduce_ex__": no_pickle,
        }

    def comparisons(self):
        """The comparisons and the hash of a stand-in."""
        if not self.guarded:
            return {"__hash__": lambda one: self.remote("special", one, "__hash__")}
        return {
            **{name: (lambda n: lambda one, other: self.compared(n, one, other))(name) for name in COMPARED},
            "__hash__": lambda one: self.twins.hash(one),
        }

    def compared(self, name, one, other):
        """The outcome of a comparison at the end of the tests."""
        if other is None and name in ("__eq__", "__ne__"):
            return name == "__ne__"
        try:
            return self.twins.compare(name, one, other)
        except LookupError:
            pass
        if name not in ("__eq__", "__ne__"):
            raise self.refuse(f"a test orders objects of the agent's class {type(one).__name__}")
        equal = one is other and object.__getattribute__(one, "_peer_touched")
        if not equal:
            self.note(
                f"an object of the agent's class {type(one).__name__} was compared with an object of"
                f" {type(other).__name__}: the agent's code does not decide whether values are equal, so they count as"
                " unequal"
            )
        return equal if name == "__eq__" else not equal

    def delegate(self, kind, names):
        """Have the methods and properties of a trusted enumeration carried out by the agent's enumeration.

        Where the trusted code itself calls them, as a comparison may do, they are its own.
        """
        for name in names:
            setattr(kind, name, Delegated(self, kind, name, vars(kind)[name]))

    def note(self, sentence):
        """Keep a sentence for the verdict."""
        if sentence not in self.notes and len(self.notes) < 5:
            self.notes.append(sentence)
