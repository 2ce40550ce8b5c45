"""NumPy's archives: as samples, recorded outputs, labels and inputs of the deployment."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.making import (
    NAMES,
    SPECIAL,
    Trap,
    about_answers,
    about_samples,
    answer,
    rows,
    special_file,
    write_answers,
    write_model,
    write_samples,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LATER = ("recording", "fixed")


def npy(header: bytes, content: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A .npy of any header at all."""
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header) % (1 << 16 if version == (1, 0) else 1 << 32))
    return b"\x93NUMPY" + bytes(version) + size + header + content


def described(descr: str = "'<f4'", shape: str = "(1, 8)", order: str = "False", content: bytes = b"\0" * 32) -> bytes:
    """A .npy whose header says these things."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return npy(header + b" " * (-len(header) % 64) + b"\n", content)


def right_npy(array: np.ndarray) -> bytes:
    """A .npy as numpy writes it."""
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def archive(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    """A zip of these members."""
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path


def _ask(folder: Path, draw: Draw, right: frozenset[int] = REFUSED, **more: bool) -> Ask:
    """Given as samples, or, as `y`, as what a deployment recorded."""
    return Ask(about_samples(folder, draw, "x.npz"), right, writes=_LATER, **more)


def _as_either(folder: Path, draw: Draw, content: bytes, right: frozenset[int] = REFUSED) -> Ask:
    """One member, as a sample or as an answer."""
    if draw.turn((True, False)):
        archive(folder / "x.npz", {"x.npy": content})
        return _ask(folder, draw, right)
    archive(folder / "y.npz", {"y.npy": content})
    return Ask(about_answers(folder, draw, "y.npz"), right)


def no_archive(folder: Path, draw: Draw) -> Ask:
    """Other things under the name of an archive."""
    whole = archive(folder / "x.npz", {"x.npy": right_npy(rows()[0])}).read_bytes()
    content = draw.turn(
        (
            b"",
            b"PK\x03\x04",
            b"PK\x05\x06" + b"\0" * 18,
            pickle.dumps(Trap(folder)),
            right_npy(rows()[0]),
            draw.noise(999),
            whole[: len(whole) // 2],
            whole[:-3],
            whole[40:],
            b"\x1f\x8b" + draw.noise(50),
            b"[1,2,3]",
            b"\0" * 100_000,
        )
    )
    (folder / "x.npz").write_bytes(content)
    return _ask(folder, draw, ANY if content == whole[40:] else REFUSED)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file."""
    special_file(folder / "x.npz", draw.turn(SPECIAL))
    return _ask(folder, draw, unprivileged=True)


def special_among_samples(folder: Path, draw: Draw) -> Ask:
    """A folder of right samples with one that is no file."""
    write_samples(folder)
    special_file(folder / "samples" / "000001b.npz", draw.turn(SPECIAL))
    return Ask(about_samples(folder, draw, "samples"), writes=_LATER, unprivileged=True)


def pickled(folder: Path, draw: Draw) -> Ask:
    """Arrays of objects, which are programs."""
    load = pickle.dumps(Trap(folder))
    descr = draw.turn(("'|O'", "'O'", "[('a', '|O')]", "'<f4'", "('O', (8,))"))
    return _as_either(folder, draw, described(descr, "(1, 8)", content=load if "O" in descr else load.ljust(32, b"\0")))


def headers(folder: Path, draw: Draw) -> Ask:
    """Headers that are no description of an array, or cost more than one."""
    content = draw.turn(
        (
            npy(b"__import__('os').system('touch ../outside/ran')\n"),
            npy(b"(" * 60_000 + b"\n"),
            npy(b"[" * 5000 + b"]" * 5000 + b"\n"),
            npy(b"-" * 60_000 + b"1\n"),
            npy(b"9" * 60_000 + b"\n"),
            npy(b"{" + b"1:{" * 8000),
            npy(b"", version=(9, 9)),
            npy(b"x" * 100, version=(2, 0)),
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
            b"\x93NUMPY\x03\x00\xff\xff\xff\x7f" + b" " * 1000,
            npy(b"\xff\xfe\n"),
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 8), 'x': 1}\n", b"\0" * 32),
            npy(b"None\n"),
            npy(b"{'descr': '<f4'}\n"),
            described(order="'no'"),
            npy(b"{'descr': '<f4', 'fortran_order': 0, 'shape': [1, 8]}\n", b"\0" * 32),
        )
    )
    return _as_either(folder, draw, content)


def shapes(folder: Path, draw: Draw) -> Ask:
    """Shapes that no memory holds, or that contradict the content."""
    shape = draw.turn(
        (
            "(1000000000000, 8)",
            "(-1, 8)",
            "(4611686018427387904, 8)",
            "(1, 8.0)",
            "(True, 8)",
            "(1, 9)",
            "(1, 7)",
            "8",
            "()",
            "(1, None)",
            "(" + "1, " * 5000 + "8)",
            "('1', 8)",
            "(1, 8, 0)",
            "(10**3, 8)",
            "(99999999999999999999999999, 8)",
        )
    )
    return _as_either(folder, draw, described(shape=shape))


def types(folder: Path, draw: Draw) -> Ask:
    """Types that are no tensor's."""
    descr = draw.turn(
        (
            "'<U2000000000'",
            "'|S2147483647'",
            "'<M8[D]'",
            "'<c16'",
            "'|V4'",
            "[('a', '<f4'), ('b', '<f4')]",
            "'<f4,<f4'",
            "'evil'",
            "'<f0'",
            "'>f4'",
            "'<f8'",
            "'<f2'",
            "'<i4'",
            "'<g'",
            "''",
            "None",
            "'<f4' * 10",
            "{'names': ['a'], 'formats': ['<f4']}",
        )
    )
    return _as_either(folder, draw, described(descr, content=b"\0" * 512))


def bombs(folder: Path, draw: Draw) -> Ask:
    """A small archive that unpacks to gigabytes."""
    size = draw.turn((1 << 30, 3 << 30))
    name, method = draw.turn(((".npy", "deflated"), (".npy", "lzma"), ("", "deflated")))
    shape = draw.turn(((1, 8), (size // 32, 8)))
    path = folder / "x.npz"
    kind = zipfile.ZIP_LZMA if method == "lzma" else zipfile.ZIP_DEFLATED
    with (
        zipfile.ZipFile(path, "w", kind, compresslevel=1) as opened,
        opened.open("x" + name, "w", force_zip64=True) as member,
    ):
        member.write(described(shape=str(shape), content=b""))
        block = b"\0" * (1 << 24)
        for _ in range((size if method != "lzma" else size // 8) >> 24):
            member.write(block)
    return _ask(folder, draw)


def archives_that_lie(folder: Path, draw: Draw) -> Ask:
    """Directories of archives that say other than their members do."""
    content = right_npy(rows()[0])
    whole = bytearray(archive(folder / "x.npz", {"x.npy": content}).read_bytes())
    directory = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    which = draw.turn(
        ("checksum", "size", "offset", "method", "encrypted", "count", "name", "comment", "start", "content", "disk")
    )
    if which == "checksum":
        whole[directory + 16] ^= 1
        whole[14] ^= 1
    elif which == "size":
        whole[directory + 20 : directory + 28] = struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0)
    elif which == "offset":
        whole[directory + 42 : directory + 46] = struct.pack("<I", draw.pick((7, 10**9, len(whole))))
    elif which == "method":
        method = draw.pick((1, 6, 12, 93, 99))
        whole[directory + 10] = method
        whole[8] = method
    elif which == "encrypted":
        whole[directory + 8] |= 1
        whole[6] |= 1
    elif which == "count":
        whole[end + 8 : end + 12] = b"\xff\xff\xff\xff"
    elif which == "name":
        whole[30:35] = b"y.npy"
    elif which == "comment":
        whole += b"PK\x05\x06" * 1000
    elif which == "start":
        whole = bytearray(b"#!/bin/sh\n") + whole
    elif which == "content":
        whole[whole.index(content) + len(content) - 2] ^= 0x40
    else:
        whole[end + 4 : end + 8] = b"\x07\0\x07\0"
    (folder / "x.npz").write_bytes(bytes(whole))
    return _ask(folder, draw, ANY if which in {"count", "comment", "start", "disk", "name"} else REFUSED)


def members(folder: Path, draw: Draw) -> Ask:
    """Members that are too many, the same, nested, or named to harm."""
    content = right_npy(rows()[0])
    path = folder / "x.npz"
    which = draw.turn(("many", "twice", "nested", "none", "other suffix", "harm", "extra", "folder"))
    if which == "many":
        archive(path, {f"{n}.npy": content for n in range(60_000)})
    elif which == "nested":
        archive(path, {"x.npy": archive(folder / "inner.npz", {"x.npy": content}).read_bytes()})
    elif which == "none":
        archive(path, {})
    elif which == "other suffix":
        archive(path, {"x.txt": content, "x.pkl": pickle.dumps(Trap(folder))})
    elif which == "harm":
        archive(path, {f"{name[:60_000]}.npy": content for name in NAMES if "\0" not in name})
    elif which == "folder":
        archive(path, {"x.npy/": b"", "x.npy/y.npy": content})
    elif which == "extra":
        archive(path, {"x.npy": content, "../../outside/ran.npy": content})
    else:
        with zipfile.ZipFile(path, "w") as opened:
            opened.writestr("x.npy", content)
            opened.fp.write(b"")
            opened.NameToInfo.clear()
            opened.writestr("x.npy", right_npy(rows()[1]))
    return _ask(folder, draw, ANY if which in {"extra", "twice"} else REFUSED)


def wrong_samples(folder: Path, draw: Draw) -> Ask:
    """Arrays that are whole and not what the model takes."""
    x = rows()[0]
    arrays = draw.turn(
        (
            {"z": x},
            {"X": x},
            {"x": x[0]},
            {"x": x.astype(np.float64)},
            {"x": x.astype(np.float16)},
            {"x": x.T},
            {"x": x[:0]},
            {},
            {"x": x.astype("U9")},
            {"x": x > 0},
            {"x": np.full_like(x, np.nan)},
            {"x ": x},
            {"x": np.zeros((2, 8), np.float32)},
        )
    )
    np.savez(folder / "x.npz", **arrays)
    # A plain name of the only array is taken as the only input, and said.
    if arrays.keys() <= {"z", "X"} and arrays:
        return _ask(folder, draw, ANSWERED)
    lost = any(array.dtype.kind == "f" and np.isnan(array).all() for array in arrays.values() if array.size)
    return _ask(folder, draw, REFUSED | {3} if lost else REFUSED)


def stacked(folder: Path, draw: Draw) -> Ask:
    """Stacks without samples, of unlike lengths, of numbers alone."""
    arrays = draw.turn(
        (
            {"x": np.zeros((0, 1, 8), np.float32)},
            {"x": np.float32(3)},
            {"x": np.zeros((3, 1, 9), np.float32)},
            {},
            {"x": np.zeros((3, 1, 8), np.float32), "z": np.zeros((2, 1), np.float32)},
            {"x": np.full((3, 1, 8), np.nan, np.float32)},
        )
    )
    np.savez(folder / "x.npz", **arrays)
    words = about_samples(folder, draw, "x.npz")
    return Ask((*words, "--stacked"), writes=_LATER)


def wrong_answers(folder: Path, draw: Draw) -> Ask:
    """Recorded outputs that are no answers to these samples: nothing, or less than all, can be compared."""
    y = [answer(x) for x in rows()]
    arrays = draw.turn(
        (
            [{"z": one} for one in y],
            [{"y": one[:, :3]} for one in y],
            [{"y": one[:, :0]} for one in y],
            [{} for _ in y],
            [{"y": y[0]}],
            [{"y": one.astype("U12")} for one in y],
            [{"y": one.astype(np.complex64)} for one in y],
            [{"y": one[0, 0]} for one in y],
        )
    )
    write_samples(folder, "recorded", arrays)
    return Ask(about_answers(folder, draw, "recorded"), frozenset({2, 3}))


def not_finite(folder: Path, draw: Draw) -> Ask:
    """Answers of NaN or infinities: beyond, and never within."""
    bad = draw.turn((np.nan, np.inf, -np.inf, 3e38))
    write_answers(folder, "recorded", lambda x: np.full_like(answer(x), bad))
    about_answers(folder, draw, "recorded")
    verb = draw.turn(("compare", "diagnose"))
    return Ask((verb, "model.onnx", "--candidate", "saved?path=recorded", "--inputs", "samples"), frozenset({1}))


def labels(folder: Path, draw: Draw) -> Ask:
    """Labels of every bad kind."""
    write_model(folder)
    write_samples(folder)
    content = draw.turn(
        (
            {"class.npy": described("'|O'", "(3,)", content=pickle.dumps(Trap(folder)))},
            {"class.npy": right_npy(np.zeros(2, np.int64))},
            {},
            {"class.npy": right_npy(np.array([-1, 10**12, 3]))},
            {"class.npy": right_npy(np.full(3, np.nan))},
            {"\x1b[31m.npy": right_npy(np.zeros(3, np.int64))},
            {"class.npy": described(shape="(1000000000000,)")},
            {"class.npy": right_npy(np.array(["a", "b", "c"]))},
            {"class.npy": b"x"},
        )
    )
    archive(folder / "labels.npz", content)
    words = ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "samples", "--no-timing")
    right = ANSWERED if "\x1b[31m.npy" in content else REFUSED  # one array is the labels, whatever it is called
    return Ask((*words, "--metric", "top1", "--labels", "labels.npz"), right)


def elsewhere(folder: Path, draw: Draw) -> Ask:
    """Bad archives as the deployment's own inputs, or as real samples."""
    archive(
        folder / "bad.npz",
        {"x.npy": draw.turn((described("'|O'", content=pickle.dumps(Trap(folder))), b"", described(shape="(-1,)")))},
    )
    write_model(folder)
    write_samples(folder)
    write_answers(folder, "answers", lambda x: answer(x) + 1)
    words = ("diagnose", "model.onnx", "--candidate", "saved?path=answers", "--inputs", "samples")
    return Ask((*words, draw.turn(("--candidate-inputs", "--real")), "bad.npz"))


def right(folder: Path, draw: Draw) -> Ask:
    """Unusual archives that are right: they are answered."""
    x = rows()[0]
    which = draw.turn(("compressed", "fortran", "big", "strided", "comment", "version 2", "infinite", "lzma"))
    path = folder / "x.npz"
    if which == "compressed":
        np.savez_compressed(path, x=x)
    elif which == "fortran":
        np.savez(path, x=np.asfortranarray(x))
    elif which == "infinite":
        np.savez(path, x=np.where(x > 1, np.float32(np.inf), x))
    elif which == "version 2":
        held = right_npy(x)
        archive(path, {"x.npy": npy(held[10:128], held[128:], (2, 0))})
    elif which == "lzma":
        archive(path, {"x.npy": right_npy(x)}, zipfile.ZIP_LZMA)
    else:
        np.savez(path, x=x)
        if which == "comment":
            with zipfile.ZipFile(path, "a") as opened:
                opened.comment = b"made by hand"
    return _ask(folder, draw, ANY if which in {"lzma", "infinite"} else ANSWERED)


def flipped(folder: Path, draw: Draw) -> Ask:
    """Answers with bytes that changed on the way: the checksum tells, and what is still whole is answered as it is."""
    held = bytearray(archive(folder / "whole.npz", {"y.npy": right_npy(answer(rows()[0]))}).read_bytes())
    for _ in range(draw.turn((1, 2, 8))):
        held[draw.integer(0, len(held) - 1)] = draw.integer(0, 255)
    (folder / "y.npz").write_bytes(bytes(held))
    words = about_answers(folder, draw, "y.npz")
    return Ask((*words, "--samples", "1"), ANY, after=_unchanged)


def _unchanged(folder: Path, ending: object) -> str:
    """A 0 is right only where the numbers are what was recorded."""
    if getattr(ending, "code", 2) != 0:
        return ""
    try:
        with np.load(folder / "y.npz") as held:
            same = np.allclose(held["y"], answer(rows()[0]))
    except (ValueError, OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        return f"within, although numpy cannot read it: {error}"
    return "" if same else "within, although the numbers are others"


FAMILY = Family("npz", (
    no_archive, special, special_among_samples, pickled, headers, shapes, types, bombs, archives_that_lie, members, wrong_samples,
    stacked, wrong_answers, not_finite, labels, elsewhere, right, flipped,
))  # fmt: skip
