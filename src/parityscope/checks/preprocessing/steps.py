"""A step: one way in which a deployment's input may differ from the prepared input that the reference got; compositions of them.

A composition has at most one step of each `slot` (the order of channels, the kernel, the filling ...), and its steps are done in
the order of a preprocessing: the image is read, placed, its colours changed, normalized, laid out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from parityscope.case.imaging.recipe import Placing

# Where in the preprocessing a step stands; steps are composed in this order, and those of one stage by their slots.
READING, PLACING, RAW, NORMALIZING, PREPARED = -2, -1, 0, 1, 2
_SLOTS = ("colours", "number", "padding", "mirrored", "turned", "channels", "layout", "cut", "ids", "mask", "segments")

# Under this name, which no model has, stands the image that a sample was made from, where it is known: uint8
# (height, width, 3), RGB; and under the other the same image as the file stores it, before it is turned as EXIF says.
ORIGINAL = "the original image"
STORED = "the original image as it is stored"
# And which of its pixels a letterbox fills: bool (height, width).
FILLED = "the pixels that are filled"

# The part of the error without a step that may be left with it: mean 127.5 for 128 in bytes, the nearest two steps, differ by
# four times that.
UNEXPLAINED = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """How the reference puts an image on the network's size, and the step that puts it there in another way."""

    placing: Placing
    step: Callable[[Placing], PreprocessingStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreprocessingStep:
    """What is done to the reference's inputs, and the words that complete "the deployment ...".

    `apply` maps inputs by name to those that the deployment would have given its model; shapes and dtypes may change;
    None where the step does not apply to these. `key` is a stable name; of steps of one `slot` a composition holds one.
    `leaves` is the part of the error that may be left, more than UNEXPLAINED where programs do the step in slightly different
    ways. `usual`: so common that two of them together are looked for even if neither comes near alone.

    `right` is what the reference does in place of it, as a formula of a pixel; "" where none is that short.

    A step with `base` changes how an image is placed, by `refine` or by what it does to the image before: all of a composition
    are done as one placing.
    """

    key: str
    words: str
    stage: int
    slot: str
    apply: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray] | None] | None = None
    leaves: float = UNEXPLAINED
    usual: bool = False
    right: str = ""
    base: Base | None = None
    refine: Callable[[Placing], Placing] | None = None


def change_on_input(
    name: str, change: Callable[[np.ndarray], np.ndarray]
) -> Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]:
    """`change` on the one input `name`: C-contiguous and in the dtype that the input had."""

    def apply(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        array = inputs[name]
        with np.errstate(all="ignore"):  # what overflows the input's format is part of what the step does
            changed = np.ascontiguousarray(change(array).astype(array.dtype, copy=False))
        return {**inputs, name: changed}

    return apply


def order_steps(steps: Iterable[PreprocessingStep]) -> tuple[PreprocessingStep, ...]:
    """Steps in the order in which a preprocessing does them."""
    return tuple(sorted(steps, key=lambda step: (step.stage, _slot_place(step.slot), step.key)))


def _slot_place(slot: str) -> int:
    """The place of a slot among those of its stage; slots are called `input:slot`."""
    kind = slot.rpartition(":")[2]
    return _SLOTS.index(kind) if kind in _SLOTS else -1


def apply_steps(
    steps: tuple[PreprocessingStep, ...], inputs: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray] | None:
    """The steps one after the other; None where one of them does not apply."""
    now: Mapping[str, np.ndarray] | None = inputs
    for step in _merge_placing_steps(steps):
        now = None if now is None or step.apply is None else step.apply(now)
    return now


def describe_steps(steps: tuple[PreprocessingStep, ...]) -> str:
    """The steps in words: "the deployment exchanges channels 0 and 2, and does not divide by 255"."""
    return "the deployment " + ", and ".join(step.words for step in _merge_placing_steps(steps) if step.words)


def model_inputs(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Without the images that the steps need beside them."""
    return {name: array for name, array in inputs.items() if name not in {ORIGINAL, STORED, FILLED}}


def _merge_placing_steps(steps: tuple[PreprocessingStep, ...]) -> tuple[PreprocessingStep, ...]:
    """The steps as they are done: those of a placing as one."""
    placed = [step for step in steps if step.base is not None]
    if not placed or placed[0].base is None:
        return steps
    base = placed[0].base
    placing = base.placing
    for step in placed:
        placing = step.refine(placing) if step.refine else placing
    rest = [step for step in steps if step.base is None or step.apply is not None]
    if placing == base.placing and len(rest) + len(placed) == len(steps):
        return tuple(rest)
    return order_steps([*rest, base.step(placing)])
