"""The bytes of a model, looked at before they are parsed: whether they are whole, how much they become, whether names are text.

A message of two bytes becomes an object of more than a hundred, so what a file costs to parse cannot be told from its size. This
walks the wire format as ONNX's own descriptors describe it, builds nothing, and stops at the first thing that cannot be.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from mmap import mmap

MOST_NODES = 250_000  # chosen: the largest exports have some tens of thousands; each costs about 10 kB in all that is built of it
_MOST_NBYTES = 1 << 30  # of memory that parsing may take beside the content of tensors; chosen: a node takes some 1,000
# What protobuf builds of a message, and of a field that holds no message: taken from the structures that it uses.
_MESSAGE_NBYTES, _FIELD_NBYTES, _NUMBER_NBYTES = 200, 24, 8
_DEEPEST = 100  # messages in messages: protobuf reads no more
_LONGEST = 1 << 16  # bytes of a name; chosen
_TEN = 70  # bits: a number has ten bytes of seven at most
_NOTES = frozenset({"doc_string", "value"})  # texts of any length
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # protobuf's wire types


@dataclass(slots=True, kw_only=True)
class _Kind:
    """A type of message: its fields that are messages or texts, by number."""

    name: str
    messages: dict[int, _Kind] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)  # fields that may be packed: a byte becomes a number
    nodes: int = -1  # the number of the field that holds nodes


def scan_bytes(content: bytes | mmap, where: str) -> None:
    """Looks at the bytes of a model.

    Raises:
        ParityError: they end in the middle, hold more than can be read, or a name in them is not UTF-8.
    """
    try:
        _walk_messages(content, where)
    except (IndexError, _DamagedError) as error:
        raise ParityError(
            "the model is damaged, or no ONNX model at all: "
            + (str(error) if isinstance(error, _DamagedError) else "it ends in the middle"),
            where=where,
            fix="check that the download or export finished, and export it again",
        ) from error


class _DamagedError(Exception):
    """What cannot be in a file that protobuf wrote."""


def _walk_messages(content: bytes | mmap, where: str) -> None:
    kind, at, end = _message_kinds(), 0, len(content)
    stack: list[tuple[_Kind, int]] = []
    nbytes = nodes = 0
    while True:
        while at >= end:
            if at > end:
                raise _DamagedError(f"what begins before byte {at} ends beyond its message")
            if not stack:
                return
            kind, end = stack.pop()
        tag, at = _read_varint(content, at) if content[at] & 0x80 else (content[at], at + 1)
        wire, number = tag & 7, tag >> 3
        if wire == _BYTES:
            length, at = _read_varint(content, at) if content[at] & 0x80 else (content[at], at + 1)
            if at + length > end:
                raise _DamagedError(f"byte {at} begins {length} bytes, and {end - at} are there")
            if number in kind.messages:
                nbytes += _MESSAGE_NBYTES
                nodes += number == kind.nodes
                if len(stack) >= _DEEPEST or nodes > MOST_NODES or nbytes > _MOST_NBYTES:
                    raise _too_much(where, nodes, nbytes)
                stack.append((kind, end))
                kind, end = kind.messages[number], at + length
                continue
            if number in kind.texts and length:
                _check_text(content, at, length, f"{kind.name}.{kind.texts[number]}", where)
            if number in kind.numbers:
                nbytes += length * _NUMBER_NBYTES
            at += length
        elif wire == _VARINT:
            at = _read_varint(content, at)[1] if content[at] & 0x80 else at + 1
        elif wire in {_EIGHT, _FOUR}:
            at += 8 if wire == _EIGHT else 4
        else:
            raise _DamagedError(f"byte {at} begins nothing that ONNX knows")
        nbytes += _FIELD_NBYTES
        if nbytes > _MOST_NBYTES:
            raise _too_much(where, nodes, nbytes)
        if not number:
            raise _DamagedError(f"byte {at} is of a field without a number")


def _read_varint(content: bytes | mmap, at: int) -> tuple[int, int]:
    """A varint, and the place behind it."""
    value = shift = 0
    while shift < _TEN:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _DamagedError(f"byte {at} is in a number without end")


def _check_text(content: bytes | mmap, at: int, length: int, name: str, where: str) -> None:
    if length > _LONGEST and name.rpartition(".")[2] not in _NOTES:
        raise ParityError(
            f"a {name} has {length} bytes, more than the {_LONGEST} that a name may have",
            where=f"{where}, byte {at}",
            fix="check that this is the model that was meant",
        )
    try:
        content[at : at + length].decode()
    except UnicodeDecodeError as error:
        raise ParityError(
            f"a {name} is not UTF-8: it holds the byte 0x{content[at + error.start]:02x}",
            where=f"{where}, byte {at + error.start}",
            fix="export the model again, with names in UTF-8",
        ) from error


def _too_much(where: str, nodes: int, nbytes: int) -> ParityError:
    if nodes > MOST_NODES:
        said = f"it has more than {MOST_NODES} nodes"
    elif nbytes > _MOST_NBYTES:
        said = f"what it consists of beside its weights takes more than {_MOST_NBYTES >> 20} MiB"
    else:
        said = f"its parts are nested more than {_DEEPEST} deep, which protobuf does not read"
    return ParityError(
        f"the model is too large to be examined: {said}",
        where=where,
        fix="export it with fewer nodes (loops kept as loops, constants folded), or cut it; what both sides answered can be "
        "compared without the model: parityscope compare reference.npz candidate.npz",
    )


@functools.cache
def _message_kinds() -> _Kind:
    """The kinds of messages that a model is made of, beginning with the model itself."""
    import onnx

    known: dict[str, _Kind] = {}
    return _kind_of(onnx.ModelProto.DESCRIPTOR, known)


def _kind_of(descriptor: Any, known: dict[str, _Kind]) -> _Kind:  # protobuf's descriptors have no types
    if descriptor.full_name in known:
        return known[descriptor.full_name]
    kind = known[descriptor.full_name] = _Kind(name=descriptor.name.removesuffix("Proto").lower())
    for one in descriptor.fields:
        if one.message_type is not None:
            kind.messages[one.number] = _kind_of(one.message_type, known)
            if one.message_type.name == "NodeProto":
                kind.nodes = one.number
        elif one.type == one.TYPE_STRING:
            kind.texts[one.number] = one.name
        elif one.type in {one.TYPE_INT64, one.TYPE_INT32, one.TYPE_UINT64}:
            kind.numbers.add(one.number)
    return kind
