"""The part of msgpack that retrievers use: None, bool, int, float, text, list, dict. https://msgpack.org"""

import struct
from typing import Any

# first byte -> struct format of what follows: of a number its value, else the length of the text, list or dict
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
            0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}  # fmt: skip
_TEXTS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_LISTS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}


def pack(value: Any) -> bytes:
    """The bytes of a value; TypeError for types that JSON does not have either."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + struct.pack(">I", len(text)) + text
    if isinstance(value, list | tuple):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        flat = b"".join(pack(part) for pair in value.items() for part in pair)
        return b"\xdf" + struct.pack(">I", len(value)) + flat
    raise TypeError(f"msgpack has no {type(value).__name__}")


def unpack(data: bytes) -> Any:
    """The value that the bytes encode; ValueError if they do not encode exactly one value."""
    try:
        value, end = _read(data, 0)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise ValueError(f"broken msgpack: {error}") from None
    if end != len(data):
        raise ValueError(f"broken msgpack: {len(data) - end} bytes too many")
    return value


def _read(data: bytes, at: int) -> tuple[Any, int]:
    first, at = data[at], at + 1
    if first <= 0x7F or first >= 0xE0:
        return (first if first <= 0x7F else first - 256), at
    if first in _PLAIN:
        return _PLAIN[first], at
    if first in _NUMBERS:
        return _number(data, at, _NUMBERS[first])
    if 0x80 <= first <= 0x8F or first in _MAPS:
        count, at = (first & 0x0F, at) if first <= 0x8F else _number(data, at, _MAPS[first])
        flat, at = _several(data, at, 2 * count)
        return dict(zip(flat[::2], flat[1::2], strict=True)), at
    if 0x90 <= first <= 0x9F or first in _LISTS:
        count, at = (first & 0x0F, at) if first <= 0x9F else _number(data, at, _LISTS[first])
        return _several(data, at, count)
    if 0xA0 <= first <= 0xBF or first in _TEXTS:
        length, at = (first & 0x1F, at) if first <= 0xBF else _number(data, at, _TEXTS[first])
        if at + length > len(data):
            raise IndexError("the text is cut off")
        return data[at : at + length].decode(), at + length
    raise ValueError(f"broken msgpack: byte {first:#x}")


def _number(data: bytes, at: int, form: str) -> tuple[Any, int]:
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


def _several(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    for _ in range(count):
        value, at = _read(data, at)
        values.append(value)
    return values, at
