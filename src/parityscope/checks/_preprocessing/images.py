"""Steps for images: channels, layout, orientation, number format, normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._preprocessing.normalizations import changes, likely, unit
from parityscope.checks._preprocessing.steps import PREPARED, RAW, Step, on_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.checks._preprocessing.normalizations import Normalization

    Change = Callable[[np.ndarray], np.ndarray]

__all__ = ["Image", "image_of", "image_steps"]

# How the keys of steps end that most wrong preparations are made of.
_USUAL = ("channels-(2, 1, 0)", "layout-nhwc", "layout-nchw", ">bytes", ">unit", "wrong-not-divided")

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, what OpenCV and PIL make grey with


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An input that holds images of rank 4: its name, the axis of its channels (1 or 3) and how many there are."""

    name: str
    axis: int
    channels: int


def image_of(name: str, array: np.ndarray) -> Image | None:
    """Which axis holds the channels; None where the array is no image: not rank 4, or without 1, 3 or 4 channels."""
    if array.ndim != 4 or array.dtype == np.bool_:
        return None
    for axis in (1, 3):
        others = [size for place, size in enumerate(array.shape) if place not in {0, axis}]
        if array.shape[axis] in {1, 3, 4} and min(others) > array.shape[axis]:
            return Image(name=name, axis=axis, channels=array.shape[axis])
    return None


def image_steps(image: Image, samples: Sequence[Mapping[str, np.ndarray]]) -> list[Step]:
    """Every step for one image input, the frequent ones first; `samples` tell its normalization."""
    arrays = [sample[image.name] for sample in samples]
    moves = _moves(image)
    prepared = [_step(image, key, words, PREPARED, change) for key, words, change in moves]
    if not np.issubdtype(arrays[0].dtype, np.floating):
        return prepared
    bases = likely(arrays, image.axis) or [unit]
    steps = [one for base in bases for one in changes(image.name, base, image.axis, image.channels)]
    raw_changes = [move for move in moves if move[0].startswith(("channels", "layout"))] + _colours(image)
    raws = [_raw_step(image, base, *change) for base in bases for change in raw_changes]
    numbers = [_step(image, key, words, PREPARED, change) for key, words, change in _NUMBERS]
    likeliest = f"{image.name}:{bases[0].key}"
    return [
        replace(one, usual=one.key.startswith(likeliest) and one.key.endswith(_USUAL))
        for one in (*steps, *raws, *prepared, *numbers)
    ]


def _step(image: Image, key: str, words: str, stage: int, change: Change) -> Step:
    return Step(key=f"{image.name}:{key}", words=words, stage=stage, apply=on_input(image.name, change))


def _raw_step(image: Image, base: Normalization, key: str, words: str, change: Change) -> Step:
    """`change` before normalization."""
    before = "" if len(base.gain) == 1 or key.startswith("colour") else " before it normalises"

    def changed(array: np.ndarray) -> np.ndarray:
        return base.prepared(change(base.undone(array, image.axis)), image.axis)

    return _step(image, f"{base.key}:{key}", words + before, RAW, changed)


def _moves(image: Image) -> list[tuple[str, str, Change]]:
    """Changes that only move elements; applied to the prepared array, or where it makes a difference to the raw one."""
    down, across = (2, 3) if image.axis == 1 else (1, 2)
    found: list[tuple[str, str, Change]] = []
    orders = {3: ((2, 1, 0), (1, 2, 0), (2, 0, 1)), 4: ((2, 1, 0, 3), (3, 0, 1, 2), (1, 2, 3, 0), (3, 2, 1, 0))}
    for order in orders.get(image.channels, ()):
        words = "exchanges channels 0 and 2 (BGR for RGB)" if order[:3] == (2, 1, 0) else f"takes channels {order}"
        found.append((f"channels-{order}", words, _channels(order, image.axis)))
    if image.channels > 1:
        if image.axis == 1:
            found.append(
                ("layout-nhwc", "gives the memory of an NHWC array where NCHW is expected", _as_memory(0, 2, 3, 1))
            )
            found.append(("layout-nchw", "takes the memory of the NCHW array for NHWC and transposes it", _from_memory))
        else:
            found.append(
                ("layout-nchw", "gives the memory of an NCHW array where NHWC is expected", _as_memory(0, 3, 1, 2))
            )
    transposed = (0, 1, 3, 2) if image.axis == 1 else (0, 2, 1, 3)
    return [
        *found,
        ("flip-across", "mirrors the image left to right", lambda array: np.flip(array, across)),
        ("flip-down", "turns the image upside down", lambda array: np.flip(array, down)),
        ("transposed", "exchanges height and width", _as_memory(*transposed)),
    ]


def _channels(order: tuple[int, ...], axis: int) -> Change:
    return lambda array: np.take(array, order, axis=axis)


def _as_memory(*axes: int) -> Change:
    """The array's memory in another order of its axes, read as if nothing had happened."""
    return lambda array: np.ascontiguousarray(array.transpose(axes)).reshape(array.shape)


def _from_memory(array: np.ndarray) -> np.ndarray:
    n, c, h, w = array.shape
    return np.ascontiguousarray(array).reshape(n, h, w, c).transpose(0, 3, 1, 2)


def _colours(image: Image) -> list[tuple[str, str, Change]]:
    """Changes of raw colours in [0, 1]."""

    def grey(raw: np.ndarray) -> np.ndarray:
        weights = np.array(_LUMA).reshape(-1, *[1] * (3 - image.axis))
        return np.broadcast_to((raw * weights).sum(axis=image.axis, keepdims=True), raw.shape)

    found: list[tuple[str, str, Change]] = [
        ("colour-inverted", "inverts the image (255 - x)", lambda raw: 1.0 - raw),
        ("colour-whole", "truncates to 8 bits before it normalises", lambda raw: np.floor(raw * 255.0 + 1e-6) / 255.0),
    ]
    return [("colour-grey", "gives a grey image", grey), *found] if image.channels == 3 else found


# Number formats of the prepared array.
_NUMBERS: tuple[tuple[str, str, Change], ...] = (
    ("clipped", "clips the prepared input to [0, 1]", lambda array: np.clip(array, 0.0, 1.0)),
    ("clipped-bytes", "clips the prepared input to [0, 255]", lambda array: np.clip(array, 0.0, 255.0)),
    ("wrapped", "casts the prepared input to uint8 (modulo 256)", lambda array: np.mod(np.trunc(array), 256.0)),
    ("whole", "truncates the prepared input to whole numbers", np.trunc),
)
