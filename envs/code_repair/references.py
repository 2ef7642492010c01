"""Writes references to objects of this end of a judged program, and reads those of the other end; see `peer`."""

# mypy: ignore-errors
import builtins
import types

from agentrl.envs.code_repair.crossing import Refused, full_name
from agentrl.envs.code_repair.iterators import async_generator, coroutine, generator
from agentrl.envs.code_repair.special import CLASSES, ITERATORS, SPECIALS, Meta, Opaque, Ref, flag_value, itself, plain


class References:
    """Writes references to objects of this end, and reads those of the other end."""

    def __init__(self, guarded):
        self.guarded = guarded
        self.kinds, self.values, self.errors = {}, {}, {}  # by number
        self.error_kinds = {}  # class of exceptions that was read -> its number
        self.raised = {}  # id of an exception that was read -> its number, and itself
        self.by_value = {}  # name -> class: its objects pass as values
        self.given = set()  # numbers of the classes that were passed as values
        self.notes = []

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
        if isinstance(value, type) and self.by_value.get(value.__name__) is value:
            return ["own", value.__name__]
        if isinstance(value, type):
            written = self.kind(value)
            self.given.add(written[1])
            return written
        if isinstance(value, BaseException):
            return self.error(writer, value)
        name = kind.__name__
        if self.by_value.get(name) is kind:
            record = isinstance(value, tuple)
            return (
                ["record", name, writer.values(list(value))]
                if record
                else ["enum", name, value.name, flag_value(value)]
            )
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

    def refer_own(self, reader, name):
        return self.by_value[name]

    def refer_enum(self, reader, name, member, value):
        kind = self.by_value[name]
        return kind[member] if value is None else kind(value)

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
            body = {
                "__module__": module,
                "__str__": lambda one: one.__dict__.get("_text") or BaseException.__str__(one),
            }
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
            return coroutine(self, ref)
        if name == "async_generator":
            return async_generator(self, ref)
        items = generator(self, ref)
        if name in ("map", "filter"):
            return map(itself, items) if name == "map" else filter(lambda one: True, items)
        return items
