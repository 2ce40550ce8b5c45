"""Steps for images: channels, layout, orientation, number format, normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks.preprocessing.normalizations import likely_normalizations, normalization_steps, unit
from parityscope.checks.preprocessing.steps import PREPARED, RAW, UNEXPLAINED, PreprocessingStep, change_on_input
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.checks.preprocessing.normalizations import Normalization

    Change = Callable[[np.ndarray], np.ndarray]
    # Slot, key, words and the change itself.
    Move = tuple[str, str, str, Change]

# How the keys of steps end that most wrong preparations are made of.
_USUAL = ("channels-(2, 1, 0)", "layout-nhwc", "layout-nchw", ">bytes", ">unit", "wrong-not-divided")

# Programs round colours to bytes in their own ways: of what a change of colours does, that may be left; chosen.
_LEAVES = 0.05
_ROUNDING = ("colour-grey", "colour-limited", "colour-expanded")

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


def image_steps(image: Image, samples: Sequence[Mapping[str, np.ndarray]]) -> list[PreprocessingStep]:
    """Every step for one image input, the frequent ones first; `samples` tell its normalization."""
    arrays = [sample[image.name] for sample in samples]
    moves = _moves_of_elements(image)
    prepared = [_step_from_move(image, move, PREPARED) for move in moves]
    if not np.issubdtype(arrays[0].dtype, np.floating):
        return prepared
    bases = likely_normalizations(arrays, image.axis) or [unit]
    steps = [one for base in bases for one in normalization_steps(image.name, base, image.axis, image.channels)]
    raw_changes = [move for move in moves if move[0] in {"channels", "layout"}] + _changes_of_colour(image)
    raws = [_raw_step(image, base, change) for base in bases for change in raw_changes]
    numbers = [_step_from_move(image, move, PREPARED) for move in _NUMBERS]
    likeliest = f"{image.name}:{bases[0].key}"
    return [
        replace(one, usual=one.key.startswith(likeliest) and one.key.endswith(_USUAL))
        for one in (*steps, *raws, *prepared, *numbers)
    ]


def _step_from_move(image: Image, move: Move, stage: int, base: str = "") -> PreprocessingStep:
    slot, key, words, change = move
    return PreprocessingStep(
        key=f"{image.name}:{base}{key}",
        words=words,
        stage=stage,
        slot=f"{image.name}:{slot}",
        apply=change_on_input(image.name, change),
        leaves=_LEAVES if key in _ROUNDING else UNEXPLAINED,
    )


def _raw_step(image: Image, base: Normalization, move: Move) -> PreprocessingStep:
    """The change of `move` before normalization."""
    slot, key, words, change = move
    before = "" if len(base.gain) == 1 or slot == "colours" else " before it normalises"

    def changed(array: np.ndarray) -> np.ndarray:
        return base.prepared(change(base.undone(array, image.axis)), image.axis)

    return _step_from_move(image, (slot, key, words + before, changed), RAW, f"{base.key}:")


def _moves_of_elements(image: Image) -> list[Move]:
    """Changes that only move elements; applied to the prepared array, or where it makes a difference to the raw one."""
    down, across = (2, 3) if image.axis == 1 else (1, 2)
    found: list[Move] = []
    orders = {3: ((2, 1, 0), (1, 2, 0), (2, 0, 1)), 4: ((2, 1, 0, 3), (3, 0, 1, 2), (1, 2, 3, 0), (3, 2, 1, 0))}
    for order in orders.get(image.channels, ()):
        words = "exchanges channels 0 and 2 (BGR for RGB)" if order[:3] == (2, 1, 0) else f"takes channels {order}"
        found.append(("channels", f"channels-{order}", words, _take_channels(order, image.axis)))
    if image.channels > 1:
        memory = _permute_memory(0, 2, 3, 1) if image.axis == 1 else _permute_memory(0, 3, 1, 2)
        given, wanted = ("NHWC", "NCHW") if image.axis == 1 else ("NCHW", "NHWC")
        words = f"gives the memory of an {given} array where {wanted} is expected"
        found.append(("layout", f"layout-{given.lower()}", words, memory))
        if image.axis == 1:
            words = "takes the memory of the NCHW array for NHWC and transposes it"
            found.append(("layout", "layout-nchw", words, _unpermute_memory))
    transposed = (0, 1, 3, 2) if image.axis == 1 else (0, 2, 1, 3)
    return [
        *found,
        ("mirrored", "flip-across", "mirrors the image left to right", lambda array: np.flip(array, across)),
        ("mirrored", "flip-down", "turns the image upside down", lambda array: np.flip(array, down)),
        ("mirrored", "flip-both", "turns the image by 180 degrees", lambda array: np.flip(array, (down, across))),
        ("turned", "transposed", "exchanges height and width", _permute_memory(*transposed)),
    ]


def _take_channels(order: tuple[int, ...], axis: int) -> Change:
    return lambda array: np.take(array, order, axis=axis)


def _permute_memory(*axes: int) -> Change:
    """The array's memory in another order of its axes, read as if nothing had happened."""
    return lambda array: np.ascontiguousarray(array.transpose(axes)).reshape(array.shape)


def _unpermute_memory(array: np.ndarray) -> np.ndarray:
    n, c, h, w = array.shape
    return np.ascontiguousarray(array).reshape(n, h, w, c).transpose(0, 3, 1, 2)


def _changes_of_colour(image: Image) -> list[Move]:
    """Changes of raw colours in [0, 1]."""

    def grey(raw: np.ndarray) -> np.ndarray:
        weights = np.array(_LUMA).reshape(-1, *[1] * (3 - image.axis))
        return np.broadcast_to((raw * weights).sum(axis=image.axis, keepdims=True), raw.shape)

    found: list[Move] = [
        ("colours", "colour-inverted", "inverts the image (255 - x)", lambda raw: 1.0 - raw),
        (
            "colours",
            "colour-whole",
            "truncates to 8 bits before it normalises",
            lambda raw: np.floor(raw * 255.0 + 1e-6) / 255.0,
        ),
        (
            "colours",
            "colour-limited",
            "gives colours of the limited range (16 to 235)",
            lambda raw: np.rint(16.0 + 219.0 * raw) / 255.0,
        ),
        (
            "colours",
            "colour-expanded",
            "expands colours from the limited range (16 to 235) to the full one",
            lambda raw: np.clip(np.rint((raw * 255.0 - 16.0) * 255.0 / 219.0), 0.0, 255.0) / 255.0,
        ),
    ]
    return [("colours", "colour-grey", "gives a grey image", grey), *found] if image.channels == 3 else found


# Number formats of the prepared array.
_NUMBERS: tuple[Move, ...] = (
    ("number", "clipped", "clips the prepared input to [0, 1]", lambda array: np.clip(array, 0.0, 1.0)),
    ("number", "clipped-bytes", "clips the prepared input to [0, 255]", lambda array: np.clip(array, 0.0, 255.0)),
    (
        "number",
        "wrapped",
        "casts the prepared input to uint8 (modulo 256)",
        lambda array: np.mod(np.trunc(array), 256.0),
    ),
    ("number", "whole", "truncates the prepared input to whole numbers", np.trunc),
)
