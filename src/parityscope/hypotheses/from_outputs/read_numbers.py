"""Integers that are fed and say how much there is, such as a length or a width: others that a caller may have given.

What is padded is counted with its padding, or the padding is taken off once more: the extents of other inputs' axes, and these
and the numbers themselves with a power of two added, as paddings and strides are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.stretch import ComputedStretch

_FEW = 64  # integers of an input that says how much there is: a number for each row of a batch; chosen
_BITS = 5.0  # chosen, as for the other changes of an input


def edits_of_numbers(site: EditSite) -> Iterator[StretchEdit]:
    """Of what is read of one input; none where it holds other things than an integer for each row."""
    array, reference = site.result, site.reference
    if array.dtype.kind not in "iu" or not 0 < array.size <= _FEW or array.size != (*array.shape, 1)[0]:
        return
    sources: dict[str, tuple[str, int] | None] = {"the result": None}
    for name in reference.program.inputs:
        shapes = [values[name].shape for values in reference.values if name in values]
        for axis in range(len(shapes[0]) if len(shapes) == len(reference.values) else 0):
            held = [site.result_on(sample).max() <= shape[axis] for sample, shape in enumerate(shapes)]
            if all(held) and max(shape[axis] for shape in shapes) > 1:
                sources[f"the extent of axis {axis} of '{name}'"] = name, axis
    powers = range(int(array.max()).bit_length())
    offsets = [0, *(sign * 2**power for power in powers for sign in (-1, 1))]
    for offset in offsets:
        for words, at in sources.items():
            if at is not None or offset:
                yield StretchEdit(
                    words=f"{words} plus {offset}" if offset else f"{words} in place of the result",
                    bits=_BITS + math.log2(len(sources) * (len(offsets) if offset else 1)),
                    whole=lambda stretch, sample, at=at, by=offset: _numbers(stretch, sample, at) + by,
                )


def _numbers(stretch: ComputedStretch, sample: int, at: tuple[str, int] | None) -> np.ndarray:
    base = stretch.base[sample]
    held = None if at is None else stretch.value(sample, at[0])
    return base if at is None or held is None else np.full_like(base, held.shape[at[1]])
