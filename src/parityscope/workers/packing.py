"""Records as bytes and back, exactly: numbers, texts, arrays, containers and named dataclasses, and nothing that could be run.

A file: `_MAGIC`, the CRC-32 of all that follows, the length of a JSON text, the text, and the arrays' elements in C order. What
is no plain value of JSON is a list there, whose first element says what it is.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAGIC = b"parityscope-task/1\n"
_HEAD = struct.Struct("<IQ")  # CRC-32, bytes of JSON


def pack_record(value: Any) -> bytes:
    """The bytes of a value.

    Raises:
        ParityError: something in it is no plain data, such as the state of a metric from outside.
    """
    arrays: list[bytes] = []
    text = json.dumps(_pack_value(value, arrays)).encode()
    body = b"".join((text, *arrays))
    head = struct.pack("<Q", len(text))
    return _MAGIC + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + head + body


def is_whole(content: bytes) -> bool:
    """Whether this is all of what `pack_record` gave: a power cut may leave a part."""
    start = len(_MAGIC) + _HEAD.size
    if not content.startswith(_MAGIC) or len(content) < start:
        return False
    return bool(_HEAD.unpack_from(content, len(_MAGIC))[0] == zlib.crc32(memoryview(content)[start - 8 :]))


def unpack_record(content: bytes, classes: Iterable[type]) -> Any:
    """The value of which `pack_record` made `content`; dataclasses in it are of `classes`.

    Raises:
        ValueError: this is not whole, or holds what is not among `classes`.
    """
    if not is_whole(content):
        raise ValueError("the bytes are no whole record")
    start = len(_MAGIC) + _HEAD.size
    length = _HEAD.unpack_from(content, len(_MAGIC))[1]
    elements = memoryview(content)[start + length :]
    return _unpack_value(json.loads(content[start : start + length]), elements, {one.__name__: one for one in classes})


def _pack_value(value: Any, arrays: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic):
        return _pack_value(value.item(), arrays)
    if isinstance(value, int | float):
        return value  # the module writes NaN and infinities as words that it reads again
    if isinstance(value, np.ndarray):
        return _pack_array(value, arrays)
    if isinstance(value, Mapping):
        return ["map", *([_pack_value(key, arrays), _pack_value(held, arrays)] for key, held in value.items())]
    for kind, word in ((tuple, "tuple"), (list, "list"), (frozenset, "set")):
        if isinstance(value, kind):
            return [word, *(_pack_value(held, arrays) for held in value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: _pack_value(getattr(value, one.name), arrays) for one in dataclasses.fields(value)}
        return ["record", type(value).__name__, held]
    raise ParityError(
        f"a {type(value).__name__} cannot be sent from one worker to another",
        fix="leave --workers out, or let the metric keep numbers, texts, arrays and containers of these",
    )


def _pack_array(value: np.ndarray, arrays: list[bytes]) -> list[Any]:
    if value.dtype.kind in "OUST":
        texts = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else str(one) for one in value.flat]
        return ["texts", list(value.shape), texts]
    content = np.ascontiguousarray(value).tobytes()
    place = sum(map(len, arrays))
    arrays.append(content)
    return ["array", value.dtype.name, list(value.shape), place, len(content)]


def _unpack_value(plain: Any, elements: memoryview, classes: Mapping[str, type]) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain

    def held() -> Iterable[Any]:
        return (_unpack_value(one, elements, classes) for one in rest)

    match kind:
        case "tuple":
            return tuple(held())
        case "list":
            return list(held())
        case "set":
            return frozenset(held())
        case "map":
            return {_unpack_value(key, elements, classes): _unpack_value(one, elements, classes) for key, one in rest}
        case "array":
            name, shape, place, length = rest
            return np.frombuffer(elements[place : place + length], _dtype_named(name)).reshape(shape)
        case "texts":
            return np.array(rest[1], dtype=object).reshape(rest[0])
        case "record" if rest[0] in classes:
            fields = {name: _unpack_value(one, elements, classes) for name, one in rest[1].items()}
            return classes[rest[0]](**fields)
    raise ValueError(f"{rest[:1]} is no record that is known here")


def _dtype_named(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
