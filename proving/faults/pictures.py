"""Prepared pictures back to pixels and again to what another program would have made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.trained import IMAGENET

if TYPE_CHECKING:
    from collections.abc import Callable

    from proving.faults.records import Bed, Plant

_ZERO, _ONE, _HALF = (np.full((1, 3, 1, 1), value) for value in (0.0, 1.0, 0.5))

# Mean and deviation of [0, 1] pixels by name.
NORMALS = {"unit": (_ZERO, _ONE), "half": (_HALF, _HALF), "imagenet": IMAGENET}

# What subjects were trained with and nobody gives another network by mistake: mean 127 and deviation 128 of bytes.
_OTHERS = {"lite": (np.full((1, 3, 1, 1), 127 / 255), np.full((1, 3, 1, 1), 128 / 255))}


def normal_of(bed: Bed) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of [0, 1] pixels that the subject was trained with: float64 (1, 3, 1, 1)."""
    return {**NORMALS, **_OTHERS}[bed.subject.normal]


def pixels(bed: Bed, array: np.ndarray) -> np.ndarray:
    """The pixels that a prepared picture was made of: float64 (1, 3, H, W) in [0, 1]."""
    mean, deviation = normal_of(bed)
    return np.asarray(array.astype(np.float64) * deviation + mean)


def prepared(bed: Bed, picture: np.ndarray) -> np.ndarray:
    """The subject's own preparation of pixels in [0, 1]: float32."""
    mean, deviation = normal_of(bed)
    return np.asarray((picture - mean) / deviation, np.float32)


def prepared_wrongly(bed: Bed, prepare: Callable[[np.ndarray], np.ndarray], words: str) -> Plant:
    """A recorded deployment whose pictures are what `prepare` makes of the pixels (float64 in [0, 1])."""
    (name,) = bed.samples[0]
    given = [
        {name: np.ascontiguousarray(prepare(pixels(bed, sample[name])), np.float32).reshape(sample[name].shape)}
        for sample in bed.samples
    ]
    return fed(bed, given, words)
