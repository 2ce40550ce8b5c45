"""Which constants of a graph a number format cannot hold as they are.

Elements beyond the format's largest number overflow, those that round to zero are flushed, and those below its
smallest normal number lose digits. Inputs that steer an operator (a scale of Resize, a limit of Range) are not counted:
engines keep them. TF32 has FP32's range and changes none; quantized weights have scales, and none of this happens to them.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import QUANTIZED
from parityscope.arithmetic.reading import blocks_of
from parityscope.arithmetic.sites import EXACT_INPUTS
from parityscope.case.graph import constant_value, node_name
from parityscope.evaluation.rounding import FloatRounding
from parityscope.expectation.forecasts import ChangedParameter
from parityscope.expectation.ranges import join_ranges, range_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import role_of
from parityscope.records import Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic import Format

__all__ = ["changed_parameters"]


_NOWHERE = Site(tensor="", node="", op_type="", index=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Constant:
    """A float constant that is read as data: its name, the nodes that read it, and the first one's operator and role for it."""

    name: str
    nodes: tuple[str, ...]
    op_type: str
    role: str
    tensor: ir.TensorProtocol


def _float_constants(model: ir.Model) -> tuple[_Constant, ...]:
    """The float constants of `model`, bodies included, that have elements, in graph order."""
    order = {node: index for index, node in enumerate(node for node in model.graph if node.op_type != "Constant")}
    readers: dict[ir.Value, list[tuple[str, ir.Node, int]]] = {}
    for node in model.graph.all_nodes():
        for index, value in enumerate(node.inputs):
            if value is not None and index not in EXACT_INPUTS.get(node.op_type, ()):
                name = node_name(node, order.get(node, -1))
                readers.setdefault(value, []).append((name, node, index))
    found = []
    for value, (first, *rest) in readers.items():
        tensor = constant_value(value)
        if tensor is not None and tensor.dtype.is_floating_point() and tensor.size:
            found.append(
                _Constant(
                    name=str(value.name),
                    nodes=tuple(dict.fromkeys((first[0], *(name for name, _, _ in rest)))),
                    op_type=first[1].op_type,
                    role=role_of(first[1].op_type, first[2]),
                    tensor=tensor,
                )
            )
    return tuple(found)


def changed_parameters(model: ir.Model, number_format: Format) -> tuple[ChangedParameter, ...]:
    """The float constants of `model`, bodies included, that lose range in `number_format`, in graph order."""
    if number_format.name == "tf32" or number_format.name in QUANTIZED:
        return ()
    found = []
    for one in _float_constants(model):
        change = _change_in_format(one.tensor, number_format)
        if change is None:
            continue
        found.append(
            ChangedParameter(
                name=one.name,
                nodes=one.nodes,
                op_type=one.op_type,
                role=one.role,
                elements=int(one.tensor.size),
                overflowed=change.overflowed,
                flushed=change.flushed,
                subnormal=change.subnormal,
                rel_l2=change.rel_l2,
                value=change.value,
                smallest=change.smallest,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Counts of elements, the change as a relative L2 error, and the ends of the magnitudes, by `ChangedParameter`."""

    overflowed: int
    flushed: int
    subnormal: int
    rel_l2: float
    value: float
    smallest: float


def _change_in_format(tensor: ir.TensorProtocol, number_format: Format) -> _Change | None:
    """What the format does to the elements of a constant; None when it can hold all of them."""
    held = reduce(join_ranges, (range_of(_NOWHERE, block) for block in blocks_of(tensor)))
    # Most formats hold most constants: only where one does not is it read once more, and rounded.
    if held.largest <= number_format.largest and not 0 < held.smallest < number_format.smallest_normal:
        return None
    overflowed = flushed = subnormal = 0
    before, distance, value = 0.0, 0.0, math.nan
    rounding = FloatRounding(number_format.name)
    for block in blocks_of(tensor):
        exact = block.astype(np.float64 if block.dtype.itemsize > 4 else np.float32)
        rounded = rounding(exact)
        magnitude = np.abs(exact)
        finite = np.isfinite(magnitude)
        kept = finite & np.isfinite(rounded)
        whole = bool(kept.all())  # as a rule: then nothing has to be taken out
        small = magnitude < number_format.smallest_normal
        overflowed += 0 if whole else int(np.count_nonzero(finite & ~kept))
        if small.any():
            flushed += int(np.count_nonzero((rounded[small] == 0) & (exact[small] != 0)))
            subnormal += int(np.count_nonzero((rounded[small] != 0) & kept[small]))
        wide = (exact if whole else exact[kept]).astype(np.float64)
        before += float(wide @ wide)
        moved = (rounded if whole else rounded[kept]) - wide
        distance += float(moved @ moved)
        largest = int((magnitude if whole else np.where(finite, magnitude, -1)).argmax())
        if finite[largest] and not magnitude[largest] <= abs(value):
            value = float(exact[largest])
    if not (overflowed or flushed or subnormal):
        return None
    change = math.sqrt(distance / before) if before else 0.0
    return _Change(
        overflowed=overflowed,
        flushed=flushed,
        subnormal=subnormal,
        rel_l2=math.inf if overflowed else change,
        value=value,
        smallest=held.smallest,
    )
