"""Marks and stand-in classes of a judged program, and the operations that a stand-in has carried out; see `peer`."""

# mypy: ignore-errors
import builtins
import math
import operator

CONTEXT = "<context>"  # the file name of trusted code
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
    **{
        f"__{n}__": getattr(builtins, n)
        for n in ["len", "bool", "int", "float", "complex", "str", "repr", "hash", "bytes", "iter", "next", "round"]
    },
    **{f"__{n}__": getattr(math, n) for n in ["trunc", "floor", "ceil"]},
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
        raise CLASSES[bases[0]][0].refuse(f"a test derives a class from the agent's class {bases[0].__name__}")

    def __getattr__(cls, name):
        peer = CLASSES[cls][0]
        no_protocol(peer, name)
        value = peer.remote("getattr", cls, name)
        if is_standin(value) or not peer.waiting:
            return value
        peer.make_waiting(cls)  # the value may be a count of objects
        return peer.remote("getattr", cls, name)

    def __setattr__(cls, name, value):
        CLASSES[cls][0].remote("setattr", cls, name, value)

    def __instancecheck__(cls, value):
        return type.__instancecheck__(cls, value) or (is_standin(value) and ask(cls, "isinstance", value))

    def __subclasscheck__(cls, other):
        return cls is other or (type(other) is Meta and ask(cls, "issubclass", other))

    def __iter__(cls):
        return CLASSES[cls][0].remote("special", cls, "__iter__")

    def __len__(cls):
        return CLASSES[cls][0].remote("special", cls, "__len__")

    def __bool__(cls):
        return True

    def __getitem__(cls, key):
        return CLASSES[cls][0].remote("special", cls, "__getitem__", key)


CLASSES = {}
PROTOCOLS = ("__array", "__torch", "__jax", "__dlpack", "__cuda", "__dataframe", "__arrow")


def no_protocol(peer, name):
    """AttributeError for the methods by which NumPy and the like have an object compute (and compare) in their place.

    They look them up on classes too, and would hand the agent's code the value with which a test compares.
    """
    if peer.guarded and name.startswith(PROTOCOLS):
        raise AttributeError(f"{name!r:.60} of the agent's code is not asked for")


def ask(kind, what, value):
    """Is a stand-in an instance (or a class a subclass) of a class of the other end, as the other end says?"""
    return CLASSES[kind][0].remote(what, value, kind) is True


def is_standin(value):
    """Is this a stand-in for an object or a class of the other end?"""
    return type(type(value)) is Meta or type(value) is Meta


def flag_value(member):
    """The value of a flag, which may be several members together; None for a member of another enumeration."""
    return member.value if hasattr(type(member), "__or__") and type(member.value) is int else None


def itself(value):
    """The value."""
    return value


def plain(value):
    """Is this a value that an exception's arguments keep?"""
    return value is None or type(value) in (str, int, float, bool, tuple, list, dict, set)
