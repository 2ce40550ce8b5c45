"""Outputs that differ from what a model declares by axes of one alone: `output[0]`, a squeeze, a scalar written as one number.

What they hold is the same in the same order, so they are given in the declared shape, and that is told.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from parityscope.case.conformance import fits_declared, sizes_of_symbols
from parityscope.case.formats import dtype_of
from parityscope.comparison.rows import is_coarser_float
from parityscope.light_dataclasses import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Model, Sample


def give_as_declared(session: Session, model: Model) -> Session:
    """The session, whose outputs have the axes that `model` declares; which were given otherwise stands in its `reshaped`.

    Which come in a coarser float than it declares, in its `rounded`.
    """
    declared = {value.name: value.shape for value in model.outputs if value.shape is not None}
    types = {value.name: dtype for value in model.outputs if (dtype := dtype_of(value.dtype)) is not None}

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        given = session.run(sample)
        for name, dtype in types.items():
            if name in given and given[name].dtype != dtype and is_coarser_float(given[name].dtype, dtype):
                session.rounded.setdefault(name, (given[name].dtype.name, dtype.name))
        other = {
            name: given[name]
            for name, wanted in declared.items()
            if name in given and not fits_declared(wanted, given[name].shape)
        }
        if not other:
            return given
        sizes = sizes_in(model, sample)
        changed = dict(given)
        for name, array in other.items():
            shape = place_axes(
                [sizes.get(one, one) if isinstance(one, str) else one for one in declared[name]], array.shape
            )
            if shape is not None:
                session.reshaped.setdefault(name, (array.shape, shape))
                changed[name] = array.reshape(shape)
        return changed

    return replace(session, run=run) if declared or types else session


def sizes_in(model: Model, sample: Sample) -> dict[str, int]:
    """What a sample says of the sizes that a model's inputs have names for."""
    return sizes_of_symbols(model.inputs, {name: array.shape for name, array in sample.arrays.items()})


def place_axes(declared: Sequence[int | str | None], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """`shape` with axes of one put in and left out so that it is as declared, the last axes filled first; None: it cannot be."""
    longer = [size for size in shape if size != 1]
    for axes in reversed(list(combinations(range(len(declared)), len(longer)))):
        sizes = [1] * len(declared)
        for axis, size in zip(axes, longer, strict=True):
            sizes[axis] = size
        if fits_declared(tuple(declared), tuple(sizes)):
            return tuple(sizes)
    return None
