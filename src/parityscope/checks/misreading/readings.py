"""What an engine holds when an input arrives wrongly: (its values, those of the sample before) -> changed values.

Each is named in words. A buffer that is only partly written keeps what was there: nought when it was fresh, the sample
before when it is used again. Values of the changed array have the model's dtype and shape, whatever bytes they come from.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# One changed array, in words behind the input's name.
Reading = tuple[str, np.ndarray]

# Kinds of readings: what they are called in experiments.
FAMILIES = {
    "absent": "never arrived",
    "part": "arrived only in part",
    "type": "was read as another type",
    "layout": "was read in another memory order",
}

# What is said of an input that was never written, and of one that is old.
ZERO = "is zero throughout: it was never uploaded, or is not read"
BEFORE = "was not uploaded again: it holds the values of the sample before"
# What is said of a state that is as the call before left it.
CARRIED = "was not reset: it holds what the call before gave"

_SEQUENCES = 3  # axes: a batch, the steps and what each holds
_BYTE = 255  # the largest value of a byte

# Bytes to which rows are aligned: vector registers, cache lines, cudaMallocPitch and textures.
_PITCHES = (16, 32, 64, 128, 256, 512)


def misreadings_of(family: str, array: np.ndarray, previous: np.ndarray | None) -> Iterator[Reading]:
    """The readings of one family that differ from `array`; `previous` is the same input of the sample before, if any."""
    if previous is not None and (previous.shape != array.shape or previous.dtype != array.dtype):
        previous = None
    if array.size == 0 or array.dtype.kind not in "fiub":
        return
    for words, changed in _MAKERS[family](array, previous):
        if changed.shape == array.shape and changed.tobytes() != array.tobytes():
            yield words, changed


def _read_never_uploaded(array: np.ndarray, previous: np.ndarray | None) -> Iterator[Reading]:
    yield ZERO, np.zeros_like(array)
    if previous is not None:
        yield BEFORE, previous


def _read_partly_uploaded(array: np.ndarray, previous: np.ndarray | None) -> Iterator[Reading]:
    # Half: a buffer sized for a type of half the width, or for one of two streams. One part in itemsize: a copy of as many
    # bytes as there are elements.
    counts = dict.fromkeys(array.size // share for share in (2, array.dtype.itemsize))
    for kept in counts:
        if not 0 < kept < array.size:
            continue
        for words, rest in (("zero", np.zeros_like(array)), ("the sample before", previous)):
            if rest is not None:
                changed = array.reshape(-1).copy()
                changed[kept:] = rest.reshape(-1)[kept:]
                text = f"arrived only up to element {kept} of {array.size}; the rest is {words}"
                yield text, changed.reshape(array.shape)
    if array.ndim > 1 and array.shape[-1] < array.size and array.shape[-1] not in counts:
        yield _first_row(array)


def _read_as_type(array: np.ndarray, previous: np.ndarray | None) -> Iterator[Reading]:
    del previous
    name = array.dtype.name
    if name in {"int64", "int32"}:
        other = np.dtype(np.int32 if name == "int64" else np.int64)
        yield _given_as(array, other)
        yield _taken_for(array, other)
    elif name == "float32":
        for wide in ("float16", "float64"):
            yield _given_as(array, np.dtype(wide))
        yield _taken_for(array, np.dtype(np.float16))
        whole = bool((array == np.rint(array)).all())
        if whole and array.min() >= 0 and array.max() <= _BYTE:
            yield _given_as(array, np.dtype(np.uint8))
        elif array.min() >= 0 and array.max() <= 1:
            words, changed = _given_as(np.rint(array * _BYTE), np.dtype(np.uint8))
            yield words, changed
        if whole and abs(array).max() < np.iinfo(np.int32).max:
            yield _given_as(array, np.dtype(np.int32))


def _given_as(array: np.ndarray, other: np.dtype[np.generic]) -> Reading:
    """The bytes of the values in type `other`, read as the model's type; zero where they end."""
    with np.errstate(over="ignore"):
        given = array.astype(other).reshape(-1).tobytes()
    held = np.zeros(array.size, array.dtype)
    taken = given[: min(len(given), held.nbytes)]
    held.view(np.uint8)[: len(taken)] = np.frombuffer(taken, np.uint8)
    return f"was given as {other} and read as {array.dtype}", held.reshape(array.shape)


def _taken_for(array: np.ndarray, other: np.dtype[np.generic]) -> Reading:
    """The model's bytes, read by the engine as `other`: as many elements as the model has."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    held = np.zeros(array.size * other.itemsize, np.uint8)
    count = min(len(data), len(held))
    held[:count] = data[:count]
    with np.errstate(invalid="ignore"):
        read = held.view(other).astype(array.dtype)
    return f"was given as {array.dtype} and read as {other}", read.reshape(array.shape)


def _read_in_layout(array: np.ndarray, previous: np.ndarray | None) -> Iterator[Reading]:
    """The bytes of an array in another order of axes, read in C order: whoever skips ascontiguousarray does that."""
    del previous
    long = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    turned = {tuple(reversed(range(array.ndim))): "its bytes lie in Fortran order (a transposed array)"}
    for first, second in itertools.pairwise(long):
        order = list(range(array.ndim))
        order[first], order[second] = second, first
        turned.setdefault(tuple(order), f"its bytes lie with axes {first} and {second} exchanged")
    for axes, words in turned.items():
        changed = np.ascontiguousarray(array.transpose(axes)).reshape(array.shape)
        yield f"was read as if it were contiguous: {words}", changed
    yield from _read_with_pitch(array)
    # A sequence that is reversed; of an image that is preparation.
    for axis in long if array.ndim <= _SEQUENCES else ():
        yield f"was read backwards along axis {axis}", np.ascontiguousarray(np.flip(array, axis))


def _read_with_pitch(array: np.ndarray) -> Iterator[Reading]:
    """Rows that begin at multiples of so many bytes for one side, and end to end for the other."""
    width = array.shape[-1] if array.ndim > 1 else 0
    if width < 2 or array.size == width:
        return
    rows = array.reshape(-1, width)
    first = _first_row(array)[1].tobytes()
    steps = (-(-width * array.itemsize // pitch) * pitch for pitch in _PITCHES if pitch % array.itemsize == 0)
    for step in dict.fromkeys(steps):
        # Where the second row begins behind the end of the buffer, nothing is left to tell one pitch from another.
        if not width * array.itemsize < step < array.nbytes:
            continue
        stride = step // array.itemsize
        padded = np.zeros((len(rows), stride), array.dtype)
        padded[:, :width] = rows
        # Behind the end of the buffer there is nothing of this array.
        held = np.zeros(len(rows) * stride, array.dtype)
        held[: array.size] = array.reshape(-1)
        for words, changed in (
            (f"its rows begin every {step} bytes and were read end to end", padded.reshape(-1)[: array.size]),
            (f"its rows lie end to end and were read every {step} bytes", held.reshape(-1, stride)[:, :width]),
        ):
            if changed.tobytes() != first:
                yield words, changed.reshape(array.shape)


def _first_row(array: np.ndarray) -> Reading:
    """What is left where the second row begins behind the end of the buffer, and of a copy of one row."""
    alone = np.zeros(array.size, array.dtype)
    width = array.shape[-1]
    alone[:width] = array.reshape(-1)[:width]
    words = f"holds its first row alone: one row was copied, or its rows begin every {array.nbytes} bytes or more"
    return words, alone.reshape(array.shape)


_MAKERS = {
    "absent": _read_never_uploaded,
    "part": _read_partly_uploaded,
    "type": _read_as_type,
    "layout": _read_in_layout,
}
