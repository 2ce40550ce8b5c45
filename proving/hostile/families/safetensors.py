"""Safetensors: eight bytes of length, a header of JSON, and what the header says of the rest."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.making import (
    NAMES,
    SPECIAL,
    about_answers,
    about_samples,
    answer,
    rows,
    special_file,
    write_samples,
)

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")
_NBYTES = 32


def framed(header: bytes, content: bytes = b"", length: int | None = None) -> bytes:
    """A file of any header at all."""
    return struct.pack("<Q", len(header) if length is None else length) + header + content


def described(entry: object, content: bytes | None = None, name: str = "x", **more: object) -> bytes:
    """A file whose header is JSON."""
    header = json.dumps({name: entry, **more}).encode()
    return framed(header, rows()[0].tobytes() if content is None else content)


def _entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1, 8], "data_offsets": [0, _NBYTES]} | changes


def _either(folder: Path, draw: Draw, content: bytes, right: frozenset[int] = REFUSED) -> Ask:
    """As samples, one file or a folder of them, or as what a deployment recorded."""
    which = draw.turn(("file", "folder", "recorded"))
    if which == "file":
        (folder / "x.safetensors").write_bytes(content)
        return Ask(about_samples(folder, draw, "x.safetensors"), right, writes=_LATER)
    if which == "folder":
        (folder / "data").mkdir()
        (folder / "data" / "0.safetensors").write_bytes(content)
        return Ask(about_samples(folder, draw, "data"), right, writes=_LATER)
    (folder / "y.safetensors").write_bytes(content.replace(b'"x"', b'"y"', 1))
    return Ask(
        (*about_answers(folder, draw, "y.safetensors"), "--samples", "1"), REFUSED if right == ANSWERED else right
    )


def lengths(folder: Path, draw: Draw) -> Ask:
    """Lengths of headers that are no lengths."""
    whole = json.dumps({"x": _entry()}).encode()
    content = draw.turn(
        (
            b"",
            b"\0" * 7,
            framed(whole, length=0),
            framed(whole, length=2**64 - 1),
            framed(whole, length=2**63),
            framed(whole, length=10**8),
            framed(whole, b"\0" * _NBYTES, len(whole) + 1),
            framed(whole, b"\0" * _NBYTES, len(whole) - 1),
            framed(b"", b""),
            b"\0" * 5000,
            framed(whole[:-1], b"\0" * _NBYTES),
            framed(whole),
            framed(whole, b"\0" * 31),
            framed(whole, b"\0" * 33),
            draw.noise(300),
        )
    )
    return _either(folder, draw, content)


def headers(folder: Path, draw: Draw) -> Ask:
    """Headers that are no header, or cost more than one."""
    header = draw.turn(
        (
            b"[]",
            b"null",
            b"3",
            b'"x"',
            b"{",
            b"{}",
            b"[" * 200_000,
            b'{"x":' * 50_000,
            b'{"x": NaN}',
            b"\xff\xfe{}",
            b"\xef\xbb\xbf{}",
            b'{"x": {"dtype": "F32", "shape": [1, 8], "data_offsets": [0, 32]}, "x": {"dtype": "F32", "shape": [1, 8], "data_offsets": [0, 32]}}',
            b'{"x": {"dtype": "F32", "shape": [1, 8], "data_offsets": [0, ' + b"9" * 100_000 + b"]}}",
            "{'x': 1}".encode("utf-16"),
            b'{"\\ud800": {"dtype": "F32", "shape": [1, 8], "data_offsets": [0, 32]}}',
            b'{"x": 1e999}',
            b"{}" + b" " * 1_000_000,
        )
    )
    return _either(folder, draw, framed(header, b"\0" * _NBYTES))


def entries(folder: Path, draw: Draw) -> Ask:
    """Entries of other types than they have, or with less or more than they hold."""
    entry = draw.turn((
        None, [], "F32", 7, {}, {"dtype": "F32"}, _entry(dtype="F33"), _entry(dtype=None), _entry(dtype=["F32"]), _entry(dtype="O"),
        _entry(dtype="\x1b[31mF32"), _entry(dtype={"F32": 1}), _entry(shape="18"), _entry(shape=None), _entry(shape=[1, -8]),
        _entry(shape=[1, 8.0]), _entry(shape=[1, "8"]), _entry(shape=[True, 8]), _entry(shape=[2**62, 4]), _entry(shape=[1] * 100_000),
        _entry(shape=[10**400]), _entry(shape=[[1, 8]]), _entry(shape=8), _entry(shape=[0, 8], data_offsets=[0, 0]),
    ))  # fmt: skip
    return _either(folder, draw, described(entry))


def offsets(folder: Path, draw: Draw) -> Ask:
    """Places of tensors that are none."""
    place = draw.turn(
        (
            [0, 2**63],
            [-32, 0],
            [32, 0],
            [0],
            [0, 32, 64],
            None,
            "0-32",
            [0.0, 32.0],
            [False, 32],
            [0, 31],
            [4, 36],
            [0, 10**30],
            ["0", "32"],
            {"0": 32},
            [2**64, 2**64 + 32],
            [0, 4096],
        )
    )
    return _either(folder, draw, described(_entry(data_offsets=place)))


def overlapping(folder: Path, draw: Draw) -> Ask:
    """Tensors that lie in one another, with holes between them, or beside data of nobody."""
    other = draw.turn(
        (_entry(), _entry(data_offsets=[16, 48]), _entry(data_offsets=[64, 96]), _entry(shape=[0], data_offsets=[5, 5]))
    )
    content = rows()[0].tobytes() + b"\0" * draw.turn((0, 64))
    return _either(folder, draw, described(_entry(), content, z=other), ANY)


def notes(folder: Path, draw: Draw) -> Ask:
    """Metadata that is none; it says nothing about numbers."""
    note = draw.turn(
        (
            [],
            None,
            "x",
            {"a": 1},
            {"a": {"b": {}}},
            {"\x1b]0;owned\x07": "\x1b[2J"},
            {"a": "x" * 2_000_000},
            {"format": "pt"},
        )
    )
    return _either(folder, draw, described(_entry(), __metadata__=note), ANY)


def names(folder: Path, draw: Draw) -> Ask:
    """Names that a terminal or a page would obey."""
    name = draw.turn((*NAMES, "\ud800", "__metadata__", "", "X"))
    # A plain name of the only array is no trouble: it is taken as the only input, and said.
    return _either(folder, draw, described(_entry(), name=name), ANSWERED if name == "X" else REFUSED)


def many(folder: Path, draw: Draw) -> Ask:
    """Very many tensors beside the one that is asked for."""
    count = draw.turn((20_000, 200_000))
    more = {f"t{n}": {"dtype": "U8", "shape": [0], "data_offsets": [_NBYTES, _NBYTES]} for n in range(count)}
    return _either(folder, draw, described(_entry(), **more), ANY)


def types(folder: Path, draw: Draw) -> Ask:
    """Types that the model does not take."""
    name, size = draw.turn(
        (
            ("F64", 8),
            ("F16", 2),
            ("BF16", 2),
            ("I32", 4),
            ("BOOL", 1),
            ("U8", 1),
            ("F8_E4M3", 1),
            ("F8_E5M2", 1),
            ("C64", 8),
        )
    )
    return _either(
        folder,
        draw,
        described(_entry(dtype=name, data_offsets=[0, 8 * size]), b"\0" * 8 * size),
        ANY,
    )


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file."""
    special_file(folder / "x.safetensors", draw.turn(SPECIAL))
    if draw.turn((True, False)):
        return Ask(about_samples(folder, draw, "x.safetensors"), writes=_LATER, unprivileged=True)
    return Ask(about_answers(folder, draw, "x.safetensors"), unprivileged=True)


def cut(folder: Path, draw: Draw) -> Ask:
    """A copy that broke off."""
    whole = described(_entry())
    return _either(folder, draw, whole[: draw.integer(1, len(whole) - 1)])


def flipped(folder: Path, draw: Draw) -> Ask:
    """Headers with bytes that changed on the way."""
    held = bytearray(described(_entry()))
    for _ in range(draw.turn((1, 2, 8))):
        held[draw.integer(0, len(held) - _NBYTES - 1)] = draw.integer(0, 255)
    return _either(folder, draw, bytes(held), ANY)


def sparse(folder: Path, draw: Draw) -> Ask:
    """A tensor of many gigabytes of nothing, which takes no room on disk."""
    size = draw.turn((8 << 30, 100 << 30))
    header = json.dumps({"x": _entry(shape=[size // 32, 8], data_offsets=[0, size])}).encode()
    with (folder / "x.safetensors").open("wb") as file:
        file.write(framed(header))
        file.truncate(8 + len(header) + size)
    return Ask(about_samples(folder, draw, "x.safetensors"), writes=_LATER)


def wrong_answers(folder: Path, draw: Draw) -> Ask:
    """Recorded outputs that are no answers: nothing can be compared."""
    y = answer(rows()[0])
    entry, content = draw.turn(
        (
            (_entry(shape=[0, 4], data_offsets=[0, 0]), b""),
            (_entry(shape=[1, 3], data_offsets=[0, 12]), y.tobytes()[:12]),
            (_entry(shape=[4], data_offsets=[0, 16]), y.tobytes()),
            (_entry(dtype="BOOL", shape=[1, 4], data_offsets=[0, 4]), b"\x07\x05\xff\x02"),
        )
    )
    (folder / "y.safetensors").write_bytes(described(entry, content, "y"))
    # One that lacks the batch axis gets it back.
    status = ANSWERED if content == y.tobytes() else frozenset({2, 3})
    return Ask((*about_answers(folder, draw, "y.safetensors"), "--samples", "1"), status)


def right(folder: Path, draw: Draw) -> Ask:
    """Files that are right: they are answered."""
    which = draw.turn(("plain", "padded", "notes", "scalar beside", "folder"))
    more: dict[str, object] = {}
    if which == "notes":
        more["__metadata__"] = {"made by": "模型 🎉"}
    content = described(_entry(), **more)
    if which == "padded":
        header = json.dumps({"x": _entry()}).encode()
        content = framed(header + b" " * (-len(header) % 64), rows()[0].tobytes())
    if which == "scalar beside":
        content = described(
            _entry(), rows()[0].tobytes() + b"\0" * 4, z={"dtype": "F32", "shape": [], "data_offsets": [32, 36]}
        )
    name = "x.safetensors"
    if which == "folder":
        (folder / "data").mkdir()
        name = "data/0.safetensors"
    (folder / name).write_bytes(content)
    words = about_samples(folder, draw, "data" if which == "folder" else name)
    return Ask(words, ANSWERED if which != "scalar beside" else REFUSED, writes=_LATER)  # it is no input of the model


def stacked(folder: Path, draw: Draw) -> Ask:
    """Stacks that are none."""
    entry, content = draw.turn(
        (
            (_entry(shape=[0, 1, 8], data_offsets=[0, 0]), b""),
            (_entry(shape=[], data_offsets=[0, 4]), b"\0" * 4),
            (_entry(shape=[8], data_offsets=[0, 32]), None),
            (_entry(shape=[2, 1, 4], data_offsets=[0, 32]), None),
        )
    )
    (folder / "x.safetensors").write_bytes(described(entry, content))
    return Ask((*about_samples(folder, draw, "x.safetensors"), "--stacked"), writes=_LATER)


def mixed(folder: Path, draw: Draw) -> Ask:
    """A folder of both kinds of files."""
    write_samples(folder, "data")
    (folder / "data" / "9.safetensors").write_bytes(described(_entry()))
    if draw.turn((True, False)):
        np.save(folder / "data" / "x.npy", rows()[0])
    return Ask(about_samples(folder, draw, "data"), writes=_LATER)


FAMILY = Family("safetensors", (
    lengths, headers, entries, offsets, overlapping, notes, names, many, types, special, cut, flipped, sparse, wrong_answers, right,
    stacked, mixed,
))  # fmt: skip
