"""Steps of integers as the steps of floats that they stand for: to first order, as if nothing were rounded on the way.

A quantizer is a staircase, and has no slope; that of the line which it follows (Y. Bengio, N. Leonard, A. Courville, "Estimating
or Propagating Gradients Through Stochastic Neurons", 2013, section 4: the straight-through estimator) says where a change leads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.evaluation.program import ProgramStep

    Arrays = Sequence[np.ndarray | None]

# (data, its scale, its zero point, weights, their scale, their zero point, the result's scale, bias): places of inputs.
_PRODUCTS: Mapping[str, tuple[str, tuple[int | None, ...]]] = {
    "MatMulInteger": ("MatMul", (0, None, 2, 1, None, 3, None, None)),
    "ConvInteger": ("Conv", (0, None, 2, 1, None, 3, None, None)),
    "QLinearMatMul": ("MatMul", (0, 1, 2, 3, 4, 5, 6, None)),
    "QLinearConv": ("Conv", (0, 1, 2, 3, 4, 5, 6, 8)),
}
# Of ONNX Runtime: weights (directions, input, gates), with their scales and zero points behind the inputs of an LSTM.
_RECURRENT = "DynamicQuantizeLSTM"
_RECURRENT_INPUTS = 8
_OF_WEIGHTS = {1: (8, 9), 2: (10, 11)}
# What gives integers that stand for numbers.
QUANTIZES = frozenset({*_PRODUCTS, "DynamicQuantizeLinear", "QuantizeLinear"})
_CAST = "Cast"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatStep:
    """A step of floats with its inputs; adjoints of its data are times `scale` those of what the step itself reads.

    Adjoints of its result are divided by `result` first.
    """

    step: ProgramStep
    inputs: list[np.ndarray | None]
    scale: np.ndarray | float = 1.0
    result: np.ndarray | float = 1.0


def step_of_floats(step: ProgramStep, inputs: Arrays) -> FloatStep | None:
    """The product of floats that a product of integers stands for; None where it is no such step."""
    if step.op_type == _RECURRENT:
        return _recurrent_of_floats(step, inputs)
    if step.op_type not in _PRODUCTS:
        return None
    name, places = _PRODUCTS[step.op_type]
    data, scale, zero, weights, their_scale, their_zero, result, bias = (_take(inputs, place) for place in places)
    if data is None or weights is None:
        return None
    axis = 0 if name == "Conv" else weights.ndim - 1
    held = _dequantize(weights, their_scale, their_zero, axis)
    own = 1.0 if scale is None else scale.astype(np.float32)
    made: list[np.ndarray | None] = [_dequantize(data, scale, zero, data.ndim - 2 if data.ndim > 1 else 0), held]
    if bias is not None and scale is not None and their_scale is not None:
        made.append((bias * scale * their_scale).astype(np.float32))
    node = ir.Node("", name, [None] * len(made), list(step.node.attributes.values()))
    given = tuple(step.inputs[place] if place is not None else "" for place in (places[0], places[3]))
    named = (*given, *("::bias" for _ in made[2:]))
    changed = replace(step, node=node, inputs=named, kind=b"floats" + step.kind)
    return FloatStep(step=changed, inputs=made, scale=own, result=1.0 if result is None else result.astype(np.float32))


def _recurrent_of_floats(step: ProgramStep, inputs: Arrays) -> FloatStep | None:
    made = [_take(inputs, place) for place in range(_RECURRENT_INPUTS)]
    for place, (scale, zero) in _OF_WEIGHTS.items():
        weights, held = made[place], _take(inputs, scale)
        if weights is None or held is None:
            return None
        point = _take(inputs, zero)
        shifted = weights.astype(np.float32) - (0 if point is None else _along(point, weights.ndim))
        made[place] = np.ascontiguousarray((shifted * _along(held, weights.ndim)).swapaxes(1, 2).astype(np.float32))
    node = ir.Node("", "LSTM", [None] * len(made), list(step.node.attributes.values()), num_outputs=len(step.outputs))
    named = (*step.inputs[:_RECURRENT_INPUTS], *("" for _ in made[len(step.inputs) :]))
    return FloatStep(step=replace(step, node=node, inputs=named, kind=b"floats" + step.kind), inputs=made)


def _along(held: np.ndarray, rank: int) -> np.ndarray:
    """A number for each direction, or for each of its gates' rows, beside weights (directions, input, gates)."""
    return held.astype(np.float32).reshape((held.shape[0], 1, -1) if held.ndim else (1,) * rank)


def adjoints_of_quantizers(
    step: ProgramStep,
    inputs: Arrays,
    adjoint: np.ndarray | None,
    values: Callable[[str], np.ndarray | None],
    makers: Mapping[str, ProgramStep],
) -> np.ndarray | None:
    """The adjoint of what a quantizer reads from that of what it gives, (dimensions, directions); None where it is none."""
    if adjoint is None:
        return None
    if step.op_type == _CAST:
        maker = makers.get(step.inputs[0])
        return adjoint if maker is not None and maker.op_type in QUANTIZES else None
    data, scale = inputs[0], _take(inputs, 1)
    if step.op_type == "DynamicQuantizeLinear":
        scale = values(step.outputs[1])
    elif step.op_type not in {"QuantizeLinear", "DequantizeLinear"}:
        return None
    if data is None or scale is None or scale.ndim > 1:
        return None
    axis = step.node.attributes.get_int("axis", 1) % max(1, data.ndim)
    by = _shaped(scale, data.ndim, axis)[..., None].astype(np.float32)
    return np.asarray(adjoint * by if step.op_type == "DequantizeLinear" else adjoint / by)


def _dequantize(array: np.ndarray, scale: np.ndarray | None, zero: np.ndarray | None, axis: int) -> np.ndarray:
    shifted = array.astype(np.float32) - (0 if zero is None else _shaped(zero, array.ndim, axis).astype(np.float32))
    return np.asarray(shifted if scale is None else shifted * _shaped(scale, array.ndim, axis), np.float32)


def _shaped(held: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """One number, or one for each index of an axis, beside an array of that rank."""
    if held.size == 1:
        return held.reshape((1,) * rank)
    return held.reshape([-1 if other == axis else 1 for other in range(rank)]) if held.ndim == 1 else held


def _take(inputs: Arrays, place: int | None) -> np.ndarray | None:
    return inputs[place] if place is not None and place < len(inputs) else None
