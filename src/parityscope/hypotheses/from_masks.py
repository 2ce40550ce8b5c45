"""A mask that is off by one, that of another row, or lost: inputs that hold two values alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_inputs import edit_of_input
from parityscope.hypotheses.moves import FILLED, move_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.stretch import ComputedStretch

_FILLS = ("edge", "maximum", "minimum")
_SAID = {0.0: "zeros", 1.0: "ones"}
_LOST_BITS = 4.0  # of an input, and which of its two values; chosen
_LOOKED_AT = 1 << 16  # elements of an input whose values are counted; chosen


def mask_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Every mask that a step reads as one value throughout, moved by one along each of its axes, or that of another index."""
    for index, name in enumerate(node.input):
        array = stretch.value(0, name) if name else None
        if array is None or not _is_mask(array):
            continue
        for value in (array.min(), array.max()):
            said = str(bool(value)) if array.dtype.kind == "b" else _SAID.get(float(value), f"{value:.6g}")
            yield edit_of_input(
                place,
                f"the mask {name!r} lost: all {said}",
                _LOST_BITS,
                index,
                lambda a, value=value: np.full_like(a, value),
            )
        axes = [axis for axis, length in enumerate(array.shape) if length > 1]
        bits = 5 + math.log2(8 * len(axes))
        for axis in axes:
            for by in (-1, 1):
                said = f"the mask {name!r} off by one: moved by {by} along axis {axis}"
                for mode in _FILLS:
                    yield edit_of_input(
                        place,
                        f"{said}, {FILLED[mode]}",
                        bits,
                        index,
                        lambda a, by=by, axis=axis, mode=mode: move_array(a, [(axis, by)], mode),
                    )
                yield edit_of_input(
                    place,
                    f"the mask {name!r} of another row: that of {by:+d} along axis {axis}",
                    bits,
                    index,
                    lambda a, by=by, axis=axis: np.roll(a, -by, axis),
                )


def _is_mask(array: np.ndarray) -> bool:
    """Whether an input of two axes or more holds exactly two values."""
    if array.ndim < 2 or array.dtype.kind not in "fiub":
        return False
    flat = array.reshape(-1)[:: (array.size // _LOOKED_AT) | 1]
    return flat.size > 1 and bool(flat.min() < flat.max()) and bool(((flat == flat.min()) | (flat == flat.max())).all())
