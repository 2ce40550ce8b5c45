"""Every generic change of one array that keeps its shape and type: layouts, formats, grids, shifts, order, scale.

One list serves inputs, constants, results and lists of numbers in attributes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from parityscope.hypotheses.grids import SYMMETRIC, ZERO_POINT, Grid, Sharing
from parityscope.hypotheses.moves import FILLED, move_array
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Change = Callable[[np.ndarray], np.ndarray]

FORMATS = ("float16", "bfloat16", "tf32", "bfloat16 cut off", "float8_e4m3fn", "float8_e5m2")
_FACTORS = (2.0, 0.5, -1.0, 0.0, 255.0, 1 / 255, 128.0, 1 / 128, 10.0, 0.1)
_OFFSETS = (1.0, -1.0, 0.5, -0.5, 128.0, -128.0)
_MOST_AXES = 5  # permutations of more are too many
_MOST_SHIFTED = 4096  # indices: a longer axis is no axis of channels
_TYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
)
FEW = 12  # indices of an axis that are exchanged two by two
_TF32_HALF, _TF32_KEPT, _BF16_KEPT = np.uint32(0x1000), np.uint32(0xFFFFE000), np.uint32(0xFFFF0000)


def round_to_format(name: str, *, saturating: bool = False) -> Change:
    """Rounding of floats to a format of `FORMATS` and back."""

    def change(array: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            if name == "tf32":
                return (
                    ((array.astype(np.float32).view(np.uint32) + _TF32_HALF) & _TF32_KEPT)
                    .view(np.float32)
                    .astype(array.dtype)
                )
            if name == "bfloat16 cut off":
                return (array.astype(np.float32).view(np.uint32) & _BF16_KEPT).view(np.float32).astype(array.dtype)
            kind = np.dtype(getattr(ml_dtypes, name, name))
            wide = array.astype(np.float32)
            if saturating:
                largest = float(ml_dtypes.finfo(kind).max)
                wide = np.clip(wide, -largest, largest)
            return wide.astype(kind).astype(array.dtype)

    return change


def to_integers(bits: int, *, signed: bool, wraps: bool) -> Change:
    """Kept in integers of so many bits: beyond their range saturated, or wrapped."""
    low, count = (-(1 << (bits - 1)) if signed else 0), 1 << bits

    def change(array: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            whole = np.trunc(array) if array.dtype.kind == "f" else array.astype(np.int64)
            return ((whole - low) % count + low if wraps else np.clip(whole, low, low + count - 1)).astype(array.dtype)

    return change


def changes_of(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    """Words and function of every change that arrays of this shape and type have."""
    yield from _changes_of_layout(array)
    if array.dtype.kind == "f":
        yield from _changes_of_format(array)
    if array.dtype.kind in "fiu":
        yield from _changes_of_range(array)
        yield from _changes_of_values(array)
        yield from _changes_of_bytes(array)
    if array.dtype.kind in "iu":
        yield from _changes_of_marks(array)
    if array.dtype.kind == "b":
        yield "negated", np.logical_not
    for axis, length in enumerate(array.shape):
        if length > 1:
            yield from _changes_along_axis(array, axis, length)


def _changes_of_layout(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    if not 1 < array.ndim <= _MOST_AXES or sum(length > 1 for length in array.shape) < 2:
        return
    for order in itertools.permutations(range(array.ndim)):
        if list(order) == sorted(order):
            continue
        yield (
            f"transposed {list(order)} and read in the old shape",
            lambda a, p=order: np.ascontiguousarray(a.transpose(p)).reshape(a.shape),
        )
        yield (
            f"laid out {list(order)} and read as it stands",
            lambda a, p=order: a.reshape([a.shape[i] for i in p]).transpose(np.argsort(p)),
        )
    last = tuple(range(array.ndim))
    for axes in {last[-2:], last}:
        yield f"reversed along the axes {list(axes)}", lambda a, axes=axes: np.flip(a, axes)


def _changes_of_format(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    for name in FORMATS:
        yield f"rounded to {name}", round_to_format(name)
    for name in ("float16", "float8_e4m3fn", "float8_e5m2"):
        yield f"rounded to {name}, saturated at its largest", round_to_format(name, saturating=True)
    for bits in (8, 4, 16, 7, 6, 5, 3):
        whole = (Grid(bits=bits, sharing=Sharing(), rule=rule) for rule in (SYMMETRIC, ZERO_POINT))
        yield f"quantized to int{bits} as a whole", next(whole).apply
        yield f"quantized to uint{bits} with a zero point", next(whole).apply
        for axis in range(array.ndim) if array.ndim > 1 else ():
            along = Grid(bits=bits, sharing=Sharing(axis=axis), rule=SYMMETRIC)
            yield f"quantized to int{bits} along axis {axis}", along.apply


def _changes_of_range(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    for bits, signed, wraps in itertools.product((8, 16, 32), (True, False), (True, False)):
        word = f"{'int' if signed else 'uint'}{bits}"
        yield f"{'wrapped' if wraps else 'saturated'} to {word}", to_integers(bits, signed=signed, wraps=wraps)
    if array.dtype.kind in "iu":
        for name in ("float16", "bfloat16", "float32"):
            kind = np.dtype(getattr(ml_dtypes, name, name))
            yield (
                f"passed through {name}",
                lambda a, kind=kind: np.nan_to_num(a.astype(kind).astype(np.float64), posinf=65504).astype(a.dtype),
            )


def _changes_of_values(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    whole = array.dtype.kind in "iu"
    for factor in _FACTORS:
        yield (
            f"times {factor:.4g}",
            lambda a, k=factor: (
                (a.astype(np.int64) * k).astype(np.int64).astype(a.dtype) if whole else (a * k).astype(a.dtype)
            ),
        )
    for offset in _OFFSETS:
        yield (
            f"plus {offset:g}",
            lambda a, k=offset: (a.astype(np.int64) + int(k)).astype(a.dtype) if whole else (a + k).astype(a.dtype),
        )


def _changes_of_marks(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    """The integer that stands most often, or the least or largest, as another one: a token or class that stands for none."""
    values, counts = np.unique(array, return_counts=True)
    if not 1 < len(values) < array.size:
        return
    often = values[np.argsort(-counts, kind="stable")[:2]].tolist()
    low, high = int(values[0]), int(values[-1])
    for mark in dict.fromkeys((often[0], low, high)):
        for other in dict.fromkeys((0, 1, -1, *often, mark - 1, mark + 1, low, high)):
            if other != mark and np.iinfo(array.dtype).min <= other <= np.iinfo(array.dtype).max:
                yield (
                    f"with each {mark} read as {other}",
                    lambda a, m=mark, o=other: np.where(a == m, np.array(o, a.dtype), a),
                )


def _changes_of_bytes(array: np.ndarray) -> Iterator[tuple[str, Change]]:
    """Kept in one type and read as another one of as many bytes, or of half as many, or in the other order of bytes.

    An integer that is read with a sign, or without, wraps.
    """
    for kept in dict.fromkeys((array.dtype.name, *(("float16", "bfloat16") if array.dtype.kind == "f" else ()))):
        kind = _type_named(kept)
        if kind.itemsize > 1:
            yield f"kept in {kept} and read in the other order of bytes", _read_bytes(kind, kind, swapped=True)
        for read in map(_type_named, _TYPES):
            same = read.itemsize == kind.itemsize and read != kind and {read.kind, kind.kind} != {"i", "u"}
            if same or (2 * read.itemsize == kind.itemsize and read.kind != "u" and kept == array.dtype.name):
                yield f"kept in {kept} and its bytes read as {read.name}", _read_bytes(kind, read)


def _type_named(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def _read_bytes(kept: np.dtype, read: np.dtype, *, swapped: bool = False) -> Change:
    """The first bytes of an array in another type, read as elements of a second one."""

    def change(array: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            bits = np.ascontiguousarray(array.astype(kept))
            if swapped:
                bits = bits.view(f"u{kept.itemsize}").byteswap()
            found = bits.reshape(-1).view(read)[: array.size].reshape(array.shape)
            if read.kind not in "iu":
                found = np.where(np.isnan(found), np.nan, found)  # no NaN that signals
            return found.astype(array.dtype)

    return change


def _changes_along_axis(array: np.ndarray, axis: int, length: int) -> Iterator[tuple[str, Change]]:
    yield f"reversed along axis {axis}", lambda a: np.flip(a, axis)
    for count in sorted({1, -1, 2, -2, 3, -3, length // 2}):
        yield f"rolled by {count} along axis {axis}", lambda a, k=count: np.roll(a, k, axis)
    if length < _MOST_SHIFTED:
        for (word, by), mode in itertools.product((("forward", 1), ("back", -1)), ("constant", "edge")):
            yield (
                f"shifted {word} by 1 along axis {axis}, {FILLED[mode]}",
                lambda a, by=by, mode=mode: move_array(a, [(axis, by)], mode),
            )
    for word, where in (("first", slice(0, 1)), ("last", slice(-1, None)), ("first and last", [0, -1])):
        yield f"{word} of axis {axis} zeroed", lambda a, i=where: _zero_part(a, axis, i)
    yield (
        f"every index of axis {axis} taken as the first",
        lambda a: np.broadcast_to(np.take(a, [0], axis), a.shape).copy(),
    )
    if array.dtype.kind == "f":
        for word, of in (("largest", np.max), ("mean", np.mean)):
            yield (
                f"every index of axis {axis} taken as the {word}",
                lambda a, of=of: np.broadcast_to(of(a, axis, keepdims=True), a.shape).astype(a.dtype),
            )
    if length <= FEW:
        yield from exchanges_along_axis(axis, length)
    for size in (1, 2, 4):
        if length % (2 * size) == 0 and length > 2 * size:
            yield (
                f"neighbouring {f'blocks of {size}' if size > 1 else 'indices'} of axis {axis} exchanged",
                lambda a, s=size: np.take(a, np.arange(length).reshape(-1, 2, s)[:, ::-1].ravel(), axis),
            )
    for count in blocks_of(length):
        for order in _block_orders(count):
            said = ", ".join(map(str, order))
            yield f"{count} blocks of axis {axis} in the order {said}", BlockOrder(axis, order, length)
        for block in range(count):
            yield (
                f"block {block} of {count} of axis {axis} zeroed",
                lambda a, b=block, n=length // count: _zero_part(a, axis, slice(b * n, (b + 1) * n)),
            )
        for rows, columns in {(count, length // count), (length // count, count)}:
            yield (
                f"axis {axis} interleaved ({rows} x {columns} read as {columns} x {rows})",
                lambda a, x=rows, y=columns: _interleave_blocks(a, axis, x, y),
            )


def exchanges_along_axis(axis: int, length: int) -> Iterator[tuple[str, Change]]:
    """Each two indices of an axis exchanged."""
    for one, other in itertools.combinations(range(length), 2):
        swapped = [other if i == one else one if i == other else i for i in range(length)]
        yield f"indices {one} and {other} of axis {axis} exchanged", lambda a, o=swapped: np.take(a, o, axis)


def blocks_of(length: int) -> list[int]:
    """Into how many equal blocks an axis may fall: gates, heads, groups."""
    return [count for count in (2, 3, 4, 6, 8) if length % count == 0 and length > count]


def _block_orders(count: int) -> list[tuple[int, ...]]:
    """All orders of few blocks; of more, two exchanged."""
    first = tuple(range(count))
    if count <= 4:
        return [order for order in itertools.permutations(first) if order != first]
    pairs = itertools.combinations(first, 2)
    return [tuple(b if i == a else a if i == b else i for i in first) for a, b in pairs]


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """Equal blocks of `length` indices of an axis in another order; of an axis twice as long, those of both halves."""

    axis: int
    order: tuple[int, ...]
    length: int

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The array so."""
        halves, block = array.shape[self.axis] // self.length, self.length // len(self.order)
        shape = (*array.shape[: self.axis], halves, len(self.order), block, *array.shape[self.axis + 1 :])
        return array.reshape(shape).take(self.order, self.axis + 1).reshape(array.shape)


def _interleave_blocks(array: np.ndarray, axis: int, rows: int, columns: int) -> np.ndarray:
    shape = (*array.shape[:axis], rows, columns, *array.shape[axis + 1 :])
    return array.reshape(shape).swapaxes(axis, axis + 1).reshape(array.shape)


def _zero_part(array: np.ndarray, axis: int, where: slice | list[int]) -> np.ndarray:
    changed = array.copy()
    changed[(slice(None),) * axis + (where,)] = 0
    return changed
