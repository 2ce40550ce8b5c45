"""Arrays moved along axes, and what comes in at the edge: what went out at the other one, a number, or the edge itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# What comes in, as `numpy.pad` calls it, in words.
FILLED = {
    "wrap": "wrapped around",
    "constant": "zeros put in",
    "edge": "the edge repeated",
    "maximum": "its largest value put in",
    "minimum": "its least value put in",
}
LINEAR = ("wrap", "constant", "edge")  # what is added up of the elements alone


def move_array(array: np.ndarray, moved: Sequence[tuple[int, int]], mode: str) -> np.ndarray:
    """Moved along axes by so many indices each, and what comes in at the edge as `mode` of `FILLED` says."""
    fill = {"constant": 0, "maximum": array.max(initial=0), "minimum": array.min(initial=0)}.get(mode)
    for axis, by in moved:
        if mode == "wrap":
            array = np.roll(array, by, axis)
            continue
        source = np.arange(array.shape[axis]) - by
        inside = (source >= 0) & (source < array.shape[axis])
        array = np.take(array, np.clip(source, 0, array.shape[axis] - 1), axis)
        if fill is not None:
            view = [-1 if other == axis else 1 for other in range(array.ndim)]
            array = np.where(inside.reshape(view), array, np.asarray(fill, array.dtype))
    return array
