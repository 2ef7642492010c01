"""Writes values as JSON, and reads them: an encoding of a fixed list of types of the standard library.

This file is sent as source into the two sandboxes of `peer`, so it imports nothing but the standard library, and only
what it needs. Reading makes objects of exactly the listed types; nothing is evaluated or unpickled. The list:

- None, bool, int, float, complex, str, bytes, bytearray, range, slice, Ellipsis, NotImplemented;
- list, tuple, dict, set, frozenset, the views of a dict, deque, Counter, defaultdict, OrderedDict, named tuples, array;
- Decimal, Fraction, the types of `datetime`, UUID, paths, IP addresses, compiled patterns, SimpleNamespace;
- numbers and arrays of NumPy, if both sandboxes have NumPy;
- classes and plain functions of the standard library that are named in TYPES and FUNCTIONS.

An object of a class that derives from one of these is written as a value of the type in the list, so it cannot bring a
comparison of its own. Any other object stays where it is, and `peer` passes a reference to it.

A container that occurs twice in a message is one object on the other side too. `changes` and `apply` carry what a
function did to the containers that it was given.
"""

# mypy: ignore-errors
# ruff: noqa: B905  `strict` of zip is newer than the oldest Python of a sandbox

import math
from importlib import import_module

DEPTH = 150  # largest depth of a value
NODES = 400_000  # largest number of values in one message
TYPES = {
    "builtins": "int float str bool bytes bytearray complex list tuple dict set frozenset range slice object type map"
    " filter zip enumerate reversed memoryview property staticmethod classmethod",
    "collections": "Counter OrderedDict defaultdict deque ChainMap UserDict UserList UserString",
    "datetime": "date time datetime timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "types": "SimpleNamespace",
    "uuid": "UUID",
}
FUNCTIONS = {
    "builtins": "abs all any ascii bin bool callable chr divmod format hash hex id isinstance issubclass iter len max"
    " min next oct ord pow print repr round sorted sum",
    "math": "*",
    "operator": "*",
    "_operator": "*",
    "_functools": "reduce",
    "functools": "reduce",
}
CALLED = {  # class -> the arguments with which it makes an equal object
    "builtins.complex": lambda v: (v.real, v.imag),
    "builtins.range": lambda v: (v.start, v.stop, v.step),
    "builtins.slice": lambda v: (v.start, v.stop, v.step),
    "decimal.Decimal": lambda v: (str(v),),
    "fractions.Fraction": lambda v: (v.numerator, v.denominator),
    "datetime.date": lambda v: (v.year, v.month, v.day),
    "datetime.time": lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo),
    "datetime.datetime": lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo),
    "datetime.timedelta": lambda v: (v.days, v.seconds, v.microseconds),
    "datetime.timezone": lambda v: tuple(v.__getinitargs__()),
    "zoneinfo.ZoneInfo": lambda v: (v.key,),
    "uuid.UUID": lambda v: (str(v),),
    "pathlib.PurePosixPath": lambda v: (str(v),),
    "pathlib.PosixPath": lambda v: (str(v),),
    "pathlib._local.PosixPath": lambda v: (str(v),),
    "pathlib._local.PurePosixPath": lambda v: (str(v),),
    "ipaddress.IPv4Address": lambda v: (str(v),),
    "ipaddress.IPv6Address": lambda v: (str(v),),
    "ipaddress.IPv4Network": lambda v: (str(v),),
    "ipaddress.IPv6Network": lambda v: (str(v),),
    "collections.ChainMap": lambda v: tuple(v.maps),
    "builtins.mappingproxy": lambda v: (dict(v),),
    "re.Pattern": lambda v: (v.pattern, v.flags),
    "time.struct_time": lambda v: (tuple(v),),
}
ALIASES = {  # class -> what makes its objects, where that has another name
    "re.Pattern": "re.compile",
    "builtins.mappingproxy": "types.MappingProxyType",
    "pathlib._local.PosixPath": "pathlib.PosixPath",
    "pathlib._local.PurePosixPath": "pathlib.PurePosixPath",
}
BUILT = {ALIASES.get(name, name) for name in CALLED}
DATA = set()  # classes of data whose objects pass by their fields; `program` puts them in
SINGLE = {
    "...": Ellipsis,
    "NotImplemented": NotImplemented,
    "NoneType": type(None),
    "function": type(lambda: None),
    "generator": type(one for one in ()),
    "module": type(math),
}
REDUCED = (str, int, float, complex, bytes, bytearray, list, tuple, set, frozenset)


class Refused(BaseException):
    """A value that does not pass between the sandboxes, or something that the answer's code may not do there."""


def full_name(kind):
    """The module and the name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def listed(table, module, name):
    """Is a name of a module in TYPES or FUNCTIONS?"""
    names = table.get(module, "")
    return (names == "*" and not name.startswith("_")) or name in names.split()


def items_of(value):
    """The contents of a changeable container as a flat list; None for any other object."""
    kind = full_name(type(value))
    if kind == "builtins.list":
        return value
    if kind in ("builtins.dict", "collections.Counter", "collections.defaultdict", "collections.OrderedDict"):
        return [part for pair in value.items() for part in pair]
    if kind in ("builtins.set", "collections.deque", "array.array", "builtins.bytearray"):
        return list(value)
    if kind == "numpy.ndarray":
        return value.reshape(-1).tolist()
    if type(value) in DATA:
        state = [(name, getattr(value, name)) for name in type(value).__dataclass_fields__ if hasattr(value, name)]
        return [part for pair in state for part in pair]
    return None


def refill(value, items):
    """Give a container other contents, which are a flat list as `items_of` gives it."""
    kind = full_name(type(value))
    if kind == "builtins.list":
        value[:] = items
    elif kind == "builtins.bytearray":
        value[:] = bytes(items)
    elif kind == "numpy.ndarray":
        value[...] = import_numpy().array(items, value.dtype).reshape(value.shape)
    elif kind == "array.array":
        value[:] = type(value)(value.typecode, items)
    elif kind == "collections.deque":
        value.clear()
        value.extend(items)
    elif kind == "builtins.set":
        value.clear()
        value.update(items)
    elif type(value) in DATA:
        for name, one in zip(items[::2], items[1::2]):
            if name not in type(value).__dataclass_fields__:
                raise ValueError(name)
            object.__setattr__(value, name, one)
    else:
        value.clear()
        for key, one in zip(items[::2], items[1::2]):
            value[key] = one


def import_numpy():
    """The module numpy."""
    try:
        return import_module("numpy")
    except ImportError:
        raise Refused("a value of NumPy does not pass: name numpy in env.sandbox.packages") from None


class Writer:
    """Writes the values of one message.

    Args:
        reference: writes an object that is not in the list, and refuses it with `Refused`.
        known: containers of earlier messages of the same call, by their numbers.
    """

    def __init__(self, reference, known=()):
        self.reference, self.objects = reference, list(known)
        self.numbers = {id(one): number for number, one in enumerate(self.objects)}
        self.depth = self.nodes = 0

    def value(self, value):
        """A value as something that `json.dumps` takes."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(1 << 53) < value < 1 << 53 else ["int", hex(value)]
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if id(value) in self.numbers:
            return ["again", self.numbers[id(value)]]
        self.depth += 1
        self.nodes += 1
        if self.depth > DEPTH:
            raise Refused(f"a value is nested more than {DEPTH} deep")
        if self.nodes > NODES:
            raise Refused(f"a value has more than {NODES} parts")
        written = self.compound(value, kind)
        self.depth -= 1
        return written

    def values(self, values):
        """A list of values."""
        self.nodes += len(values)
        return [self.value(one) for one in values]

    def compound(self, value, kind):
        """A value that is not written as itself."""
        name = full_name(kind)
        items = items_of(value)
        if items is not None:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
            option = {"collections.defaultdict": "default_factory", "collections.deque": "maxlen"}.get(name)
            option = value.typecode if name == "array.array" else getattr(value, option) if option else None
            if name == "numpy.ndarray":
                return self.numpy(value)
            if kind in DATA:
                return ["data", kind.__name__, self.values(items)]
            return [name, self.value(option), self.values(items)]
        if kind is tuple or kind is frozenset:
            return [kind.__name__, self.values(list(value))]
        if kind is bytes:
            return ["bytes", value.hex()]
        for single, one in SINGLE.items():
            if value is one:
                return ["single", single]
        if name in CALLED:
            return ["made", ALIASES.get(name, name), self.values(CALLED[name](value))]
        return self.rare(value, kind, name)

    def rare(self, value, kind, name):
        """A view, a class, a function, a value of NumPy, or an object of a class that derives from a listed type."""
        if name in ("builtins.dict_keys", "builtins.dict_values", "builtins.odict_keys", "builtins.odict_values"):
            return ["view", name[-4:].strip("_"), self.values(list(value))]
        if name in ("builtins.dict_items", "builtins.odict_items"):
            return ["view", "items", self.values(list(value))]
        if name == "types.SimpleNamespace":
            return ["namespace", self.values([part for pair in vars(value).items() for part in pair])]
        if isinstance(value, type) and listed(TYPES, value.__module__, value.__qualname__):
            return ["type", value.__module__, value.__qualname__]
        if kind is type(len) and listed(FUNCTIONS, value.__module__, value.__name__):
            return ["function", value.__module__, value.__name__]
        if kind.__module__ == "numpy" and hasattr(value, "dtype"):
            return self.numpy(value)
        written = self.reference(self, value, first=True)
        if written is None and not isinstance(value, type):
            written = self.derived(value, kind)
        return self.reference(self, value) if written is None else written

    def numpy(self, value):
        """A number or an array of NumPy."""
        if value.dtype.kind not in "biufcSU":
            raise Refused(f"an array of NumPy with dtype {value.dtype} does not pass")
        shape = list(value.shape) if hasattr(value, "reshape") and type(value).__name__ == "ndarray" else None
        return ["numpy", value.dtype.str, shape, self.values(value.reshape(-1).tolist())]

    def derived(self, value, kind):
        """The plain value of an object whose class derives from a listed type; None for any other object."""
        fields = getattr(kind, "_fields", None)
        if isinstance(value, tuple) and type(fields) is tuple and all(type(one) is str for one in fields):
            return ["named", kind.__name__, list(fields), self.values(list(tuple.__iter__(value)))]
        if isinstance(value, dict):
            return self.value(dict(dict.items(value)))
        for base in REDUCED:
            if isinstance(value, base):
                if base in (str, int, float, bytes):
                    return self.value(base.__str__(value) if base is str else base(base.__getnewargs__(value)[0]))
                return self.value(base(base.__iter__(value)) if hasattr(base, "__iter__") else base(value))
        return None

    def changes(self, before):
        """[number, new contents] of the containers of `before` (number, container, contents) whose contents changed."""
        found = []
        for number, one, old in before:
            items = items_of(one)
            if len(items) != len(old) or any(a is not b for a, b in zip(items, old)):
                if type(one) is bytearray and items == old:
                    continue
                found.append([number, self.values(items)])
        return found


class Reader:
    """Reads the values of one message.

    Args:
        refer: reads what the other side's `reference` wrote.
        known: see `Writer`.
    """

    def __init__(self, refer, known=()):
        self.refer, self.objects = refer, list(known)

    def value(self, written):
        """The value; Refused if the text is no encoding of one."""
        try:
            return self.any(written)
        except (Refused, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  the constructors of the listed types raise several
            raise Refused(f"a reply cannot be read ({type(error).__name__})") from None

    def values(self, written):
        """A list of values."""
        if type(written) is not list:
            raise ValueError(written)
        return [self.any(one) for one in written]

    def any(self, written):
        """The value of any encoding."""
        if written is None or type(written) in (bool, int, float, str):
            return written
        if type(written) is not list or type(written[0]) is not str:
            raise ValueError("no list with a tag")
        tag, rest = written[0], written[1:]
        if tag == "again":
            return self.objects[rest[0] if rest[0] >= 0 else len(self.objects)]
        return READ[tag](self, *rest) if tag in READ else self.refer(self, tag, rest)

    def refill(self, number, items):
        """Give the container of this number other contents."""
        refill(self.objects[number if number >= 0 else len(self.objects)], self.values(items))

    def container(self, value, items):
        """A container with its contents, registered before they are read, because they may contain it."""
        self.objects.append(value)
        items = self.values(items)
        if items:
            refill(value, items)
        return value


def read_list(reader, option, items):
    return reader.container([], items)


def read_dict(reader, option, items):
    return reader.container({}, items)


def read_set(reader, option, items):
    return reader.container(set(), items)


def read_bytearray(reader, option, items):
    return reader.container(bytearray(), items)


def read_counter(reader, option, items):
    return reader.container(import_module("collections").Counter(), items)


def read_ordereddict(reader, option, items):
    return reader.container(import_module("collections").OrderedDict(), items)


def read_defaultdict(reader, option, items):
    made = import_module("collections").defaultdict()
    reader.objects.append(made)
    made.default_factory = reader.any(option)
    refill(made, reader.values(items))
    return made


def read_deque(reader, option, items):
    return reader.container(import_module("collections").deque(maxlen=option), items)


def read_array(reader, option, items):
    return reader.container(import_module("array").array(option), items)


def read_int(reader, text):
    return int(text, 16)


def read_float(reader, text):
    return float(text)


def read_bytes(reader, text):
    return bytes.fromhex(text)


def read_single(reader, name):
    return SINGLE[name]


def read_tuple(reader, items):
    return tuple(reader.values(items))


def read_frozenset(reader, items):
    return frozenset(reader.values(items))


def read_made(reader, name, arguments):
    if name not in BUILT:
        raise ValueError(name)
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)(*reader.values(arguments))


def read_view(reader, name, items):
    items = reader.values(items)
    if name == "items":
        return dict(items).items()
    return dict.fromkeys(items).keys() if name == "keys" else dict(enumerate(items)).values()


def read_namespace(reader, items):
    items = reader.values(items)
    return import_module("types").SimpleNamespace(**dict(zip(items[::2], items[1::2])))


def read_type(reader, module, name):
    if not listed(TYPES, module, name):
        raise ValueError(name)
    return getattr(import_module(module), name)


def read_function(reader, module, name):
    if not listed(FUNCTIONS, module, name):
        raise ValueError(name)
    return getattr(import_module(module), name)


def read_named(reader, name, fields, items):
    kind = import_module("collections").namedtuple(name, fields)
    return kind(*reader.values(items))


def read_numpy(reader, kind, shape, items):
    numpy = import_numpy()
    if kind.lstrip("<>|=")[:1] not in tuple("biufcSU"):
        raise ValueError(kind)
    array = numpy.array(reader.values(items), numpy.dtype(kind))
    if shape is None:
        return array[0]
    array = array.reshape([int(n) for n in shape])
    reader.objects.append(array)
    return array


READ = {
    "builtins.list": read_list,
    "builtins.dict": read_dict,
    "builtins.set": read_set,
    "builtins.bytearray": read_bytearray,
    "collections.Counter": read_counter,
    "collections.OrderedDict": read_ordereddict,
    "collections.defaultdict": read_defaultdict,
    "collections.deque": read_deque,
    "array.array": read_array,
    "int": read_int,
    "float": read_float,
    "bytes": read_bytes,
    "single": read_single,
    "tuple": read_tuple,
    "frozenset": read_frozenset,
    "made": read_made,
    "view": read_view,
    "namespace": read_namespace,
    "type": read_type,
    "function": read_function,
    "named": read_named,
    "numpy": read_numpy,
}  # tag -> what reads it
