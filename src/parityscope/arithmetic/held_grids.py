"""Two files -> how the second keeps the constants of the first in integers of eight bits.

A file that holds integers says by them on what grid a constant lies: one scale for all of it or one for each index of an axis,
symmetric or with a zero point, eight bits or seven (ONNX Runtime's `reduce_range`). Neither the scale nor the zero point that it
stores is believed: whoever asks fits the grid to the reference's own constant, so that a wrong one is no excuse for itself.

Which constant is which is told by shape and signs, whatever it is called; a grid of each channel keeps those, too. What it
is mistaken for can change nothing but the kind of grid that is expected.

Sources: ONNX operators DequantizeLinear-21, MatMulInteger-10 and QLinearConv-10; ONNX Runtime, "Quantize ONNX models".
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.integers import INTEGERS, IntegerFormat, fake_quantize, quantization_of
from parityscope.case.graph import constant_input, constant_value, input_at, values_before
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import OPERATORS, base_of, operators_that_move

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOVES = operators_that_move("in order", "permuted", "repeated", "picked")
_EIGHT = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
# What holds integers is called, and its zero point and scale, among a node's inputs.
_DEQUANTIZE = ("input", "zero point", "quantization scale")
_PRODUCT = ("weight", "weight zero point", "weight scale")
_SEEN = 4096  # elements by which constants are told apart, evenly spread; chosen
_ALIKE = 0.9  # of the signs of what is not zero; half of those of unrelated ones are the same. Chosen.


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGrid:
    """Integers that a constant is kept in, with one scale (`axis` None) or one for each index along `axis`."""

    number_format: IntegerFormat
    symmetric: bool
    axis: int | None = None

    def round(self, array: np.ndarray) -> np.ndarray:
        """What is left of a float32 constant on this grid, fitted to its own smallest and largest element."""
        return fake_quantize(
            array, quantization_of(array, self.number_format, axis=self.axis, symmetric=self.symmetric)
        )


def held_grids(reference: ir.Model, candidate: ir.Model) -> dict[str, HeldGrid]:
    """The grids on which `candidate` keeps float constants of the reference's main graph, by the reference's names."""
    held: dict[tuple[int, ...], list[tuple[np.ndarray, HeldGrid]]] = defaultdict(list)
    for integers, zero, axis in _integers_held(candidate):
        levels = integers.astype(np.int16) - _spread(zero, axis, integers.ndim)
        held[integers.shape].append((_signs_of(levels), _grid_of(integers, levels, zero, axis)))
    found = {}
    for value in dict.fromkeys(value for node in reference.graph for value in node.inputs if value is not None):
        tensor = constant_value(value)
        rivals = (
            () if tensor is None or tensor.dtype != ir.DataType.FLOAT else held.get(tuple(tensor.shape.numpy()), ())
        )
        if tensor is None or not rivals:
            continue
        signs = _signs_of(tensor.numpy())
        likeness, grid = max(((_likeness(signs, other), grid) for other, grid in rivals), key=lambda one: one[0])
        if likeness >= _ALIKE:
            found[str(value.name)] = grid
    return found


def _integers_held(model: ir.Model) -> Iterator[tuple[np.ndarray, np.ndarray, int | None]]:
    """Each constant of integers that is read with a scale: its elements, its zero points, and the axis that these lie on."""
    for node in model.graph.all_nodes():
        roles = OPERATORS[node.op_type].inputs if node.op_type in OPERATORS else ()
        read, zero_role, scale_role = _DEQUANTIZE if node.op_type == "DequantizeLinear" else _PRODUCT
        if read not in roles or zero_role not in roles:
            continue
        value = input_at(node, roles.index(read))
        origin = next(reversed([*values_before(value, _MOVES)]), None)
        tensor = constant_value(origin)
        if tensor is None or tensor.dtype not in _EIGHT or not tensor.shape.numpy():
            continue
        zero = constant_input(node, roles.index(zero_role))
        scale = constant_input(node, roles.index(scale_role)) if scale_role in roles else None
        counts = {one.size for one in (zero, scale) if one is not None and one.size > 1}
        axis = _axis_of(node, len(tensor.shape)) if counts else None
        if axis is not None and (value is not origin or counts != {tensor.shape.numpy()[axis]}):
            continue  # in blocks, or in an order that what moves it changes
        yield tensor.numpy(), np.zeros((), np.int16) if zero is None else zero.astype(np.int16), axis


def _axis_of(node: ir.Node, rank: int) -> int:
    if node.op_type == "DequantizeLinear":
        return node.attributes.get_int("axis", 1) % rank
    return (OPERATORS[base_of(node.op_type)].weight_axis or 0) % rank


def _spread(zero: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    """Zero points in a shape that broadcasts with a tensor of this rank."""
    if axis is None or zero.size == 1:
        return zero.reshape(-1)[:1]
    return zero.reshape([-1 if place == axis else 1 for place in range(rank)])


def _grid_of(integers: np.ndarray, levels: np.ndarray, zero: np.ndarray, axis: int | None) -> HeldGrid:
    whole = INTEGERS["int8" if integers.dtype == np.int8 else "uint8"]
    symmetric = bool(np.all(zero == (0 if whole.signed else 128)))
    # ±64 of a signed format and 0 to 127 of an unsigned one is what `reduce_range` uses.
    seven = np.abs(levels).max(initial=0) <= 64 if symmetric else int(np.ptp(integers.astype(np.int16))) <= 127
    number_format = replace(whole, name=f"{whole.name[:-1]}7", bits=7) if seven else whole
    return HeldGrid(number_format=number_format, symmetric=symmetric, axis=axis)


def _signs_of(array: np.ndarray) -> np.ndarray:
    """The signs of some elements, the same of equal shapes."""
    flat = array.reshape(-1)
    signs: np.ndarray = np.sign(flat[:: -(-flat.size // _SEEN) or 1]).astype(np.int8)
    return signs


def _likeness(signs: np.ndarray, others: np.ndarray) -> float:
    """How much of what is zero in neither has the same sign; 0.0 where there is none."""
    both = (signs != 0) & (others != 0)
    return float(np.mean(signs[both] == others[both])) if both.any() else 0.0
