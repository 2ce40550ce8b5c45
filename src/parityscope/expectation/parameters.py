"""Which constants of a graph a number format cannot hold as they are.

Elements beyond the format's largest number overflow, those that round to zero are flushed, and those below its
smallest normal number lose digits. Inputs that steer an operator (a scale of Resize, a limit of Range) are not counted:
engines keep them. TF32 has FP32's range and changes none; quantized weights have scales, and none of this happens to them.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import QUANTIZED
from parityscope.arithmetic.reading import blocks_of
from parityscope.arithmetic.scanning import float_numbers
from parityscope.arithmetic.sites import EXACT_INPUTS
from parityscope.case.graph import constant_value, node_name
from parityscope.expectation.forecasts import ChangedParameter
from parityscope.expectation.ranges import join_ranges, range_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import role_of
from parityscope.records import Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic import Format


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
        held = reduce(join_ranges, (range_of(_NOWHERE, block) for block in blocks_of(one.tensor)))
        # Most formats hold most constants: only where one does not is it read once more, and rounded.
        if held.largest <= number_format.largest and not 0 < held.smallest < number_format.smallest_normal:
            continue
        numbers = float_numbers(blocks_of(one.tensor), (number_format,))
        loss = numbers.losses[number_format.name]
        if loss.beyond or loss.vanished or loss.subnormal:
            found.append(
                ChangedParameter(
                    name=one.name,
                    nodes=one.nodes,
                    op_type=one.op_type,
                    role=one.role,
                    elements=int(one.tensor.size),
                    overflowed=loss.beyond,
                    flushed=loss.vanished,
                    subnormal=loss.subnormal,
                    value=float(numbers.worst),
                    smallest=held.smallest,
                )
            )
    return tuple(found)
