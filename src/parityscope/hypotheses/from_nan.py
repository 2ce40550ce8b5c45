"""An operator that makes a number of NaN where the standard's hands it on.

IEEE 754-2019, 9.6, has both: maximum hands NaN on, maximumNumber gives the other operand, as C's fmax and fmin do (C17 7.12.12.2)
and kernels that are built on them. ONNX does not say which it means; ONNX Runtime's CPU provider hands NaN on. A Clip that is
computed as fmin(fmax(x, low), high) makes `low` of a NaN, one that is computed the other way round `high`. So each is what the
operator gives where an infinity stands in the place of the NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from parityscope.hypotheses.edits import Arrays
    from parityscope.hypotheses.stretch import ComputedStretch

SWALLOWED = "swallowed"  # the kind of edit
_BITS = 4.0  # as many as saying that an input is left out
_BOUNDS = {"the lower bound": -np.inf, "the upper bound": np.inf}


def swallowing_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """The operator with a bound, or the other operand, in the place of each NaN that it reads; none where it reads none."""
    record = STANDARD.get(node.op_type)
    if record is None or node.domain or "bounds" not in record.traits or not _reads_nan(stretch, node):
        return
    ends = _BOUNDS
    if {"largest", "smallest"} & set(record.traits):
        ends = {"the other operand": -np.inf if "largest" in record.traits else np.inf}
    for words, end in ends.items():
        yield StretchEdit(words=f"NaN becomes {words} (swallowed)", bits=_BITS, at=place, before=_put_for_nan(end))


def _reads_nan(stretch: ComputedStretch, node: onnx.NodeProto) -> bool:
    arrays = (stretch.value(sample, name) for sample in range(len(stretch.base)) for name in node.input if name)
    return any(array is not None and array.dtype.kind == "f" and bool(np.isnan(array).any()) for array in arrays)


def _put_for_nan(end: float) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [
        np.where(np.isnan(array), array.dtype.type(end), array)
        if array is not None and array.dtype.kind == "f"
        else array
        for array in arrays
    ]
