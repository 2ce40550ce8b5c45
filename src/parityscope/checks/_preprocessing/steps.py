"""A step: one way in which a deployment's input may differ from the prepared input that the reference got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "NORMALIZING",
    "ORIGINAL",
    "PLACING",
    "PREPARED",
    "RAW",
    "UNEXPLAINED",
    "Step",
    "apply_steps",
    "on_input",
    "said",
]

# Where in the preprocessing a step stands; steps are composed in this order.
PLACING, RAW, NORMALIZING, PREPARED = -1, 0, 1, 2

# Under this name, which no model has, stands the image that a sample was made from, where it is known: uint8
# (height, width, 3), RGB.
ORIGINAL = "the original image"

# The part of the error without a step that may be left with it: mean 127.5 for 128 in bytes, the nearest two steps, differ by
# four times that.
UNEXPLAINED = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is done to the reference's inputs, and the words that complete "the deployment ...".

    `apply` maps inputs by name to those that the deployment would have given its model; shapes and dtypes may change;
    None where the step does not apply to these. `key` is a stable name. `leaves` is the part of the error that may be left,
    more than UNEXPLAINED where programs do the step in slightly different ways. `usual`: so common that two of them together are
    looked for even if neither comes near alone.
    """

    key: str
    words: str
    stage: int
    apply: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray] | None]
    leaves: float = UNEXPLAINED
    usual: bool = False


def on_input(
    name: str, change: Callable[[np.ndarray], np.ndarray]
) -> Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]:
    """`change` on the one input `name`: C-contiguous and in the dtype that the input had."""

    def apply(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        array = inputs[name]
        with np.errstate(all="ignore"):  # what overflows the input's format is part of what the step does
            changed = np.ascontiguousarray(change(array).astype(array.dtype, copy=False))
        return {**inputs, name: changed}

    return apply


def apply_steps(steps: tuple[Step, ...], inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
    """The steps one after the other; None where one of them does not apply."""
    now: Mapping[str, np.ndarray] | None = inputs
    for step in steps:
        now = None if now is None else step.apply(now)
    return now


def said(steps: tuple[Step, ...]) -> str:
    """The steps in words: "the deployment exchanges channels 0 and 2 and does not divide by 255"."""
    return "the deployment " + " and ".join(step.words for step in steps)
