"""Inputs of a step scaled or shifted, wholly or in a run of rows, and its attributes, by numbers fitted to the candidate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.changes import blocks_of
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import round_to_nice
from parityscope.hypotheses.measures import as_float64
from parityscope.hypotheses.numbered import (
    real_attributes,
    scale_input,
    set_real_attribute,
    shift_input,
    typical_size,
)
from parityscope.hypotheses.schemas import REAL, changed_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from parityscope.hypotheses.stretch import ComputedStretch

    Change = Callable[[np.ndarray], np.ndarray]

from parityscope.hypotheses.from_inputs import edit_of_input, input_values, label_of_input

_FITTINGS = 10  # Gauss-Newton steps at most; what is linear needs one
_CONVERGED = 1e-6  # of the amount: what the last step may change; chosen
_PART = 0.05  # of an input: by which it is moved first; chosen
_LEAST_STEP = 1e-3  # of an attribute: by which one that is nearly nought is moved first; chosen
_MOST_ROWS, _ROW_WORK = (
    64,
    5e7,
)  # rows; elements read and written for all of them where there are more, a fraction of a second
_ALONG = 0.2  # of the squared error: what one row's change must explain to first order to be looked at


def fitted_input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs scaled or offset by a fitted amount."""
    if not stretch.same_shape:
        return
    values = {i: a for i, a in input_values(stretch, node).items() if a.dtype.kind == "f" and a.size}
    for index, array in values.items():
        label = label_of_input(stretch, node, index)
        # What the layer reads was seen; its constants were not.
        least = 6 if node.input[index] in stretch.context.constants else 7
        scaled = _fit_amount(stretch, lambda by, i=index: scale_input(place, i, "", 1 + by, 0), _PART)
        if scaled is not None:
            yield scale_input(place, index, label, 1 + scaled, least)
        offset = _fit_amount(stretch, lambda by, i=index: shift_input(place, i, "", by, 0), _PART * typical_size(array))
        if offset is not None:
            yield shift_input(place, index, label, offset, least)


def fitted_attribute_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Attributes that are numbers (epsilon, alpha, beta) at a fitted value."""
    for name, now in real_attributes(stretch, node) if stretch.same_shape else ():

        def edit(by: float, name: str = name, now: float = now) -> StretchEdit:
            return StretchEdit(words="", bits=0, at=place, node=changed_node(node, name, now + by, REAL))

        # A tenth of an epsilon of 1e-12 moves nothing that FP32 can show.
        for step in dict.fromkeys((0.1 * abs(now) or 0.1, max(0.1 * abs(now), _LEAST_STEP))):
            amount = _fit_amount(stretch, edit, step)
            if amount is not None:
                yield set_real_attribute(place, node, name, now, now + amount)


def row_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """One index or block of one axis of an input scaled or offset by a fitted amount."""
    if not stretch.same_shape:
        return
    chosen = stretch.fitted_on & np.isfinite(stretch.found[0]) & np.isfinite(stretch.replayed[0])
    error = (stretch.found[0] - stretch.replayed[0])[chosen]
    for index, array in input_values(stretch, node).items():
        if array.dtype.kind != "f" or array.size < 2:
            continue
        size = typical_size(array)
        for axis, length in enumerate(array.shape):
            few = length <= _MOST_ROWS or length * (array.size + stretch.found[0].size) <= _ROW_WORK
            parts = [(f"index {row}", slice(row, row + 1)) for row in range(length) if few and length > 1]
            parts += [
                (f"block {block} of {count}", slice(block * length // count, (block + 1) * length // count))
                for count in blocks_of(length)
                for block in range(count)
            ]
            for (said, rows), add in itertools.product(parts, (False, True)):
                change = _edit_moving_rows(place, index, axis, rows, add=add)
                step = 0.1 * size if add else 0.1
                try:
                    beside = stretch.stored(stretch.run(0, change(step)))
                except MemoryError:
                    raise
                except Exception:  # noqa: BLE001 - what cannot be run explains nothing
                    break
                slope = (as_float64(beside) - stretch.replayed[0])[chosen] / step
                slope, rest = slope[np.isfinite(slope)], error[np.isfinite(slope)]
                squares = float(np.dot(slope, slope))
                if not squares or np.dot(slope, rest) ** 2 < _ALONG * squares * float(np.dot(rest, rest)):
                    continue
                amount = _fit_amount(stretch, change, step)
                if amount is None:
                    continue
                value, bits = round_to_nice(amount if add else 1 + amount)
                where = f"{said} of axis {axis} of {label_of_input(stretch, node, index)}"
                words = f"{value:.6g} added to {where}" if add else f"{where} scaled by {value:.6g}"
                yield replace(
                    change(value if add else value - 1),
                    words=words,
                    bits=7 + bits + math.log2(len(parts)),
                    numbers={"offset" if add else "factor": value},
                )


def _edit_moving_rows(place: int, index: int, axis: int, rows: slice, *, add: bool) -> Callable[[float], StretchEdit]:
    cut = (slice(None),) * axis + (rows,)

    def edit(amount: float) -> StretchEdit:
        def change(array: np.ndarray) -> np.ndarray:
            moved = array.copy()
            moved[cut] = moved[cut] + amount if add else moved[cut] * (1 + amount)
            return moved

        return edit_of_input(place, "", 0, index, change)

    return edit


def _fit_amount(stretch: ComputedStretch, edit: Callable[[float], StretchEdit], step: float) -> float | None:
    """The amount of a change of one number that leaves least, from no change on; None where it cannot be run."""
    chosen = stretch.fitted_on & np.isfinite(stretch.found[0])
    amount = 0.0
    try:
        for _ in range(_FITTINGS):
            here, beside = (stretch.stored(stretch.run(0, edit(at))) for at in (amount, amount + step))
            slope = (beside - here) / step
            used = chosen & np.isfinite(slope)
            squares = float(np.dot(slope[used], slope[used]))
            if not squares:
                return None
            change = float(np.dot(slope[used], (stretch.found[0] - here)[used])) / squares
            amount += change
            if abs(change) < _CONVERGED * abs(amount):
                break
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - what cannot be run explains nothing
        return None
    return amount
