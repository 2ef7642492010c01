"""Stand-ins for objects that live at the other end of a judged program; see `peer`.

The end of the tests does not let the agent's code decide whether two values are equal. If the task's own solution has a
class of the same name, `twins` compares. Otherwise a stand-in is equal to nothing but itself, and then only after a test
has handed it over (so that a function cannot answer with the object that the test made to compare with). A test that
compares stand-ins in another way gets a note, which the verdict shows.
"""

# mypy: ignore-errors
import builtins
import math
import operator
import types

from agentrl.envs.code_repair.crossing import Refused, full_name
from agentrl.envs.code_repair.twins import Twins

COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
BINARY = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor"
PLAIN = "neg pos abs invert index getitem setitem delitem contains"
SPECIALS = {
    **{f"__{n}__": getattr(operator, f"__{n}__") for n in f"{BINARY} {PLAIN}".split()},
    **{f"__i{n}__": getattr(operator, f"__i{n}__") for n in BINARY.split()},
    **{name: getattr(operator, name) for name in COMPARED},
    **{
        f"__r{n}__": (lambda f: lambda value, other: f(other, value))(getattr(operator, f"__{n}__"))
        for n in BINARY.split()
    },
    **{f"__{n}__": getattr(builtins, n) for n in "len bool int float complex str repr hash bytes iter next round".split()},
    **{f"__{n}__": getattr(math, n) for n in "trunc floor ceil".split()},
    "__divmod__": divmod,
    "__reversed__": reversed,
    "__format__": format,
    "__enter__": lambda value: type(value).__enter__(value),
    "__exit__": lambda value, *error: type(value).__exit__(value, *error),
}
ARITHMETIC = {f"__{kind}{n}__" for n in BINARY.split() for kind in ("", "r", "i")} | {"__divmod__"}
ITERATORS = ("map", "filter", "generator", "coroutine", "async_generator")
SLOTS = {"_peer_hid": None, "_peer_touched": False, "_peer_made": False, "_peer_twin": None, "_peer_call": None}


class Opaque:
    """Marks an object to which a reference passes, although its value could pass."""

    def __init__(self, value):
        self.value = value


class Ref:
    """An object of the other end, by its number."""

    def __init__(self, hid):
        self.hid = hid


class Meta(type):
    """The class of the stand-ins for classes. `peer` and `hid` of such a class are in `CLASSES`."""

    def __call__(cls, *arguments, **named):
        return CLASSES[cls][0].construct(cls, arguments, named)

    def __new__(meta, name, bases, body, **options):
        raise CLASSES[bases[0]][0].refuse("a test derives a class from the agent's class {}".format(bases[0].__name__))

    def __getattr__(cls, name):
        peer = CLASSES[cls][0]
        value = peer.remote("getattr", cls, name)
        if is_standin(value) or not peer.waiting:
            return value
        peer.make_waiting(cls)  # the value may be a count of objects
        return peer.remote("getattr", cls, name)

    def __setattr__(cls, name, value):
        CLASSES[cls][0].remote("setattr", cls, name, value)

    def __instancecheck__(cls, value):
        return type.__instancecheck__(cls, value) or is_standin(value) and ask(cls, "isinstance", value)

    def __subclasscheck__(cls, other):
        return cls is other or type(other) is Meta and ask(cls, "issubclass", other)

    def __iter__(cls):
        return CLASSES[cls][0].remote("special", cls, "__iter__")

    def __len__(cls):
        return CLASSES[cls][0].remote("special", cls, "__len__")

    def __bool__(cls):
        return True

    def __getitem__(cls, key):
        return CLASSES[cls][0].remote("special", cls, "__getitem__", key)


CLASSES = {}


def ask(kind, what, value):
    """Is a stand-in an instance (or a class a subclass) of a class of the other end, as the other end says?"""
    return CLASSES[kind][0].remote(what, value, kind) is True


def is_standin(value):
    """Is this a stand-in for an object or a class of the other end?"""
    return type(type(value)) is Meta or type(value) is Meta


class StandIns:
    """Writes references to objects of this end, and reads those of the other end."""

    is_standin = staticmethod(is_standin)

    def __init__(self, guarded):
        self.guarded = guarded
        self.kinds, self.values, self.errors = {}, {}, {}  # by number
        self.error_kinds, self.raised = {}, {}  # class or id of an exception that was read -> number (and the exception)
        self.by_value = {}  # name -> class: its objects pass as values
        self.given = set()  # numbers of the classes that were passed as values
        self.twins, self.waiting = Twins(self), []
        self.notes = []

    # writing

    def reference(self, writer, value, first=False):
        """Write an object that is not in the list of `crossing`. With `first`: None if its value may pass instead."""
        kind = type(value)
        if kind is Ref:
            return ["mine", value.hid]
        if kind is Opaque:
            return self.object(value.value)
        if type(kind) is Meta:
            return ["mine", self.number(value)]
        if kind is Meta:
            return ["mine", CLASSES[value][1]]
        if isinstance(value, type):
            written = self.kind(value)
            self.given.add(written[1])
            return written
        if isinstance(value, BaseException):
            return self.error(writer, value)
        name = kind.__name__
        if self.by_value.get(name) is kind:
            return ["record", name, writer.values(list(value))] if isinstance(value, tuple) else ["enum", name, value.name]
        if first:
            return None
        if name in ITERATORS or (hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")):
            return ["iterator", self.export(value), name]
        if self.guarded and isinstance(value, types.ModuleType):
            raise Refused("a module does not pass")
        return self.object(value)

    def object(self, value):
        return ["object", self.export(value), self.kind(type(value))]

    def kind(self, kind):
        """A class."""
        if kind in self.error_kinds:
            return ["mine", self.error_kinds[kind]]
        if issubclass(kind, BaseException):
            if kind.__module__ == "builtins":
                return ["builtin", kind.__name__]
            bases = [self.kind(base) for base in kind.__bases__ if issubclass(base, BaseException)]
            return ["errors", self.export(kind), full_name(kind), bases]
        found = {n for base in kind.__mro__ if base is not object for n in vars(base)}
        call = ["__call__"] if "__call__" in found else []
        return ["class", self.export(kind), kind.__name__, sorted(found & {*SPECIALS}) + call]

    def error(self, writer, value):
        """An exception."""
        if id(value) in self.raised:
            return ["mine", self.raised[id(value)][0]]
        state = dict(BaseException.__getattribute__(value, "__dict__"))
        state = {name: one for name, one in state.items() if type(one) in (str, int, float, bool, type(None))}
        try:
            text, arguments = str(value), writer.values([one if plain(one) else repr(one) for one in value.args])
        except BaseException:  # noqa: BLE001  its own methods may raise
            text, arguments = "", []
        return ["error", self.export(value), self.kind(type(value)), arguments, writer.value(state), text[:10_000]]

    # reading

    def refer(self, reader, tag, rest):
        """Read what `reference` wrote."""
        read = getattr(self, "refer_" + tag, None)
        if read is None:
            raise ValueError(tag)
        return read(reader, *rest)

    def refer_mine(self, reader, number):
        return self.exports[number if number >= 0 else len(self.exports)]

    def refer_builtin(self, reader, name):
        kind = vars(builtins)[name]
        if not issubclass(kind, BaseException):
            raise ValueError(name)
        return kind

    def refer_enum(self, reader, name, member):
        return self.by_value[name][member]

    def refer_record(self, reader, name, items):
        return tuple.__new__(self.by_value[name], reader.values(items))

    def refer_data(self, reader, name, items):
        kind = self.by_value[name]
        return reader.container(object.__new__(kind), items)

    def refer_class(self, reader, hid, name, specials):
        hid = int(hid)
        if hid not in self.kinds:
            body = {one: self.method(one) for one in specials if one in SPECIALS or one == "__call__"}
            kind = type.__new__(Meta, str(name)[:100], (), {**self.common(), **body, **self.comparisons()})
            CLASSES[kind] = (self, hid)
            self.kinds[hid] = kind
        return self.kinds[hid]

    def refer_object(self, reader, hid, kind):
        hid = int(hid)
        if hid not in self.values:
            self.values[hid] = self.standin(reader.any(kind), hid)
        return self.values[hid]

    def refer_errors(self, reader, hid, name, bases):
        hid = int(hid)
        if hid not in self.kinds:
            read = tuple(reader.any(one) for one in bases)
            if not read or not all(isinstance(one, type) and issubclass(one, BaseException) for one in read):
                raise ValueError(name)
            module, _, name = str(name)[:200].rpartition(".")
            body = {"__module__": module, "__str__": lambda one: one.__dict__.get("_text") or BaseException.__str__(one)}
            kind = self.kinds[hid] = type(name, read, body)
            self.error_kinds[kind] = hid
        return self.kinds[hid]

    def refer_error(self, reader, hid, kind, arguments, state, text):
        hid = int(hid)
        if hid not in self.errors:
            made_of, values = reader.any(kind), reader.values(arguments)
            state = reader.any(state)
            if not issubclass(made_of, BaseException) or type(state) is not dict:
                raise ValueError("no exception")
            try:
                error = made_of(*values) if made_of.__module__ == "builtins" else made_of.__new__(made_of, *values)
            except TypeError:
                error = made_of.__new__(made_of)
            error.args = tuple(values)
            error.__dict__.update({**state, "_text": str(text)} if made_of.__module__ != "builtins" else state)
            self.errors[hid] = error
            self.raised[id(error)] = (hid, error)
        return self.errors[hid]

    def refer_iterator(self, reader, hid, name):
        ref = Ref(int(hid))
        if name == "coroutine":
            return self.coroutine(ref)
        if name == "async_generator":
            return self.async_generator(ref)
        items = self.generator(ref)
        if name in ("map", "filter"):
            return map(lambda one: one, items) if name == "map" else filter(lambda one: True, items)
        return items

    def generator(self, ref):
        """The items of an iterator of the other end.

        The end of the tests takes several items at once, so the agent's code may be ahead of the test by some items.
        """
        count = 1
        while True:
            items, end = self.remote("next", ref, count)
            for number, item in enumerate(items):
                try:
                    sent = yield item
                except GeneratorExit:
                    return None
                except BaseException as error:  # noqa: BLE001
                    sent = None
                    yield self.remote("throw", ref, error)
                while sent is not None:
                    if number + 1 < len(items):
                        raise self.refuse("a test sends into a generator from which items were taken ahead")
                    sent = yield self.remote("send", ref, sent)
            if end is not None:
                return end[0]
            count = min(2 * count, 256) if self.guarded else 1

    async def coroutine(self, ref):
        return self.remote("await", ref)

    async def async_generator(self, ref):
        while True:
            try:
                item = self.remote("anext", ref)
            except StopAsyncIteration:
                return
            yield item

    # stand-ins

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
            hid = object.__getattribute__(made, "_peer_hid") if is_standin(made) else None
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
                self.note("the class {} gave an object that existed already".format(kind.__name__))
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
            if peer.guarded and name in ARITHMETIC and not self._peer_made and not all(is_standin(one) for one in arguments):
                raise peer.refuse("a test calculates with an object of the agent's class {}".format(type(self).__name__))
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
            "__getattr__": lambda self, name: peer.remote("getattr", self, name),
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
            raise self.refuse("a test orders objects of the agent's class {}".format(type(one).__name__))
        equal = one is other and object.__getattribute__(one, "_peer_touched")
        if not equal:
            self.note(
                "an object of the agent's class {} was compared with an object of {}: the agent's code does not decide"
                " whether values are equal, so they count as unequal".format(type(one).__name__, type(other).__name__)
            )
        return equal if name == "__eq__" else not equal

    def note(self, sentence):
        """Keep a sentence for the verdict."""
        if sentence not in self.notes and len(self.notes) < 5:
            self.notes.append(sentence)


def plain(value):
    """Is this a value that an exception's arguments keep?"""
    return value is None or type(value) in (str, int, float, bool, tuple, list, dict, set)
