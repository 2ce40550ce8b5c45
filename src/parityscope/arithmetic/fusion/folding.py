"""Scales and biases behind a product, folded into its weights in FP32 before anything is rounded.

Engines turn `Conv -> BatchNormalization`, and any run of Mul, Div, Add and Sub with one constant for each channel, into
one product with other weights: y = s·(W x + b) + t = (s W) x + (s b + t). What they then round is s W and s b + t. Here
the graph keeps its nodes and its names, so that its constants are changed until it computes the same: W becomes
round(s W) / s, and the last constant that is added behind it takes the difference round(s b + t) - (s b + t). In exact
arithmetic this is the folded product; in FP32 it differs by rounding errors of FP32.

Arrays are those of the constants; s and t have one element for each output channel and are float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass
from parityscope.operators import role_of, with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.rounding import Overflow

    Use = tuple[ir.Node, int]

_PARAMETERS = 4  # of a BatchNormalization


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStep:
    """One node of the chain: y = scale·x + shift; `added` is its input whose rise by d raises y by `sign`·d."""

    scale: np.ndarray
    shift: np.ndarray
    added: Use | None = None
    sign: float = 1.0


def fold_constants(
    node: ir.Node,
    inside: Callable[[ir.Node], bool],
    number_format: Format,
    overflow: Overflow,
    held: Mapping[Use, np.ndarray] | None = None,
) -> dict[Use, np.ndarray]:
    """What the constants of product `node`, and of the chain folded into it, become when they are rounded folded.

    `held` are constants that were changed before.
    """
    held = held or {}
    steps = [step for _, step in linear_chain(node, inside, held)]
    scale = np.ones(1)
    for step in steps:
        scale = scale * step.scale
    changed: dict[Use, np.ndarray] = {}
    for index in (0, 1):
        weight = _constant_of(node, index, held)
        if weight is not None:
            spread = spread_over_channels(node, index, scale, weight.ndim)
            changed[node, index] = _round_scaled_weight(weight, spread, number_format, overflow)
    changed.update(_move_last_bias(node, steps, number_format, overflow, held))
    return changed


def _round_scaled_weight(
    weight: np.ndarray, scale: np.ndarray, number_format: Format, overflow: Overflow
) -> np.ndarray:
    """round(scale · weight) / scale; where the scale is nought, the weight itself."""
    rounded = round_to((weight * scale).astype(np.float32), number_format, overflow=overflow).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        back = np.where(scale == 0, weight, rounded / scale)
    return np.asarray(back, weight.dtype)


def _move_last_bias(
    node: ir.Node,
    steps: list[LinearStep],
    number_format: Format,
    overflow: Overflow,
    held: Mapping[Use, np.ndarray],
) -> dict[Use, np.ndarray]:
    """The last constant that is added, moved by what rounding the sum of all of them moves it."""
    bias = _constant_of(node, 2, held) if role_of(node.op_type, 2) == "bias" else None
    total = np.zeros(1) if bias is None else bias.reshape(-1).astype(np.float64)
    target: tuple[Use, float] | None = None if bias is None else ((node, 2), 1.0)
    behind = np.ones(1)
    for step in steps:
        total = total * step.scale + step.shift
        behind = behind * step.scale
        if step.added is not None:
            target, behind = (step.added, step.sign), np.ones(1)
    if target is None:
        return {}
    rounded = round_to(total.astype(np.float32), number_format, overflow=overflow).astype(np.float64)
    (user, index), sign = target
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.where(behind == 0, 0.0, sign * (rounded - total) / behind)
    old = _constant_of(user, index, held)
    if old is None or not move.any():
        return {}
    if user.op_type == "BatchNormalization" or user is node:
        return {(user, index): (old + move.reshape(-1)).astype(old.dtype)}
    return {(user, index): (old + _broadcast_to_output(move, node)).astype(old.dtype)}


def linear_chain(
    node: ir.Node, inside: Callable[[ir.Node], bool] = lambda _: True, held: Mapping[Use, np.ndarray] | None = None
) -> list[tuple[ir.Node, LinearStep]]:
    """The nodes behind the product `node` that are folded into it, as far as `inside` (of its kernel) holds."""
    channels = output_channels(node)
    found: list[tuple[ir.Node, LinearStep]] = []
    value = node.outputs[0]
    while len(uses := list(value.uses())) == 1 and not value.is_graph_output():
        user, index = uses[0]
        step = _chain_step(user, index, node, channels, held or {}) if inside(user) else None
        if step is None:
            break
        found.append((user, step))
        value = user.outputs[0]
    return found


def _chain_step(
    user: ir.Node, index: int, product: ir.Node, channels: int, held: Mapping[Use, np.ndarray]
) -> LinearStep | None:
    """`user`, which reads the chain at `index`, as scale and shift; None where it is anything else."""
    if user.op_type == "BatchNormalization" and index == 0:
        return _normalization_step(user, held)
    if user.op_type not in with_trait("affine") or len(user.inputs) != 2:
        return None
    other = _constant_of(user, 1 - index, held)
    vector = None if other is None else _constant_by_channel(other, product, channels)
    if vector is None:
        return None
    one, none = np.ones(1), np.zeros(1)
    use = (user, 1 - index)
    match user.op_type, index:
        case "Mul", _:
            return LinearStep(scale=vector, shift=none)
        case "Div", 0:
            return LinearStep(scale=1.0 / vector, shift=none) if vector.all() else None
        case "Add", _:
            return LinearStep(scale=one, shift=vector, added=use)
        case "Sub", 0:
            return LinearStep(scale=one, shift=-vector, added=use, sign=-1.0)
        case "Sub", 1:
            return LinearStep(scale=-one, shift=vector, added=use)
    return None


def _normalization_step(user: ir.Node, held: Mapping[Use, np.ndarray]) -> LinearStep | None:
    line = normalization_as_line(user, [_constant_of(user, index, held) for index in range(1, len(user.inputs))])
    return None if line is None else LinearStep(scale=line[0], shift=line[1], added=(user, 2))


def normalization_as_line(
    node: ir.Node, parameters: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray] | None:
    """BatchNormalization in inference, gamma (x - mean) / sqrt(variance + epsilon) + beta, as scale and shift of each channel.

    None where a parameter is computed, in training, and for a variance of -epsilon or less, which nobody folds.
    """
    known = [each.astype(np.float64) for each in parameters if each is not None]
    if len(known) != _PARAMETERS or node.attributes.get_int("training_mode", 0) != 0:
        return None
    gamma, beta, mean, variance = known
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes.get_float("epsilon", DEFAULT_EPSILON))
    return (scale, beta - mean * scale) if np.isfinite(scale).all() else None


def _constant_by_channel(array: np.ndarray, product: ir.Node, channels: int) -> np.ndarray | None:
    """A constant that is the same for all, or has one number for each output channel, as a vector; else None."""
    vector = array.astype(np.float64).reshape(-1)
    if array.size == 1:
        return vector
    trailing = _trailing_dimensions(product)
    shape = array.shape
    fits = len(shape) > trailing and shape[-1 - trailing] == channels == array.size
    return vector if fits else None


def _broadcast_to_output(vector: np.ndarray, product: ir.Node) -> np.ndarray:
    """A vector over output channels, in the shape that broadcasts against the product's output."""
    return vector.reshape(-1, *[1] * _trailing_dimensions(product)) if vector.size > 1 else vector


def _trailing_dimensions(product: ir.Node) -> int:
    """How many dimensions the product's output has behind its channels."""
    if product.op_type not in {"Conv", "ConvTranspose"}:
        return 0
    weight = product.inputs[1]
    rank = None if weight is None or weight.shape is None else len(weight.shape)
    return (rank or 4) - 2


def output_channels(product: ir.Node) -> int:
    """How many output channels a product has by its weight; 0 where that is computed."""
    weight = product.inputs[1]
    tensor = None if weight is None else constant_value(weight)
    if tensor is None:
        return 0
    axis = channel_axis_of(product, 1, len(tensor.shape))
    return int(tensor.numpy().shape[axis]) if axis is not None else 0


def channel_axis_of(product: ir.Node, index: int, rank: int) -> int | None:
    """The axis of weight `index`, of `rank` dimensions, that runs over output channels; None where there is none of its own."""
    if product.op_type == "Conv" and index == 1:
        return 0
    if product.op_type == "ConvTranspose" and index == 1:
        return 1 if product.attributes.get_int("group", 1) == 1 else None
    if product.op_type == "Gemm" and index == 1:
        return 0 if product.attributes.get_int("transB", 0) else 1
    return rank - 1 if product.op_type == "MatMul" and index == 1 else None


def spread_over_channels(product: ir.Node, index: int, scale: np.ndarray, rank: int) -> np.ndarray:
    """`scale` along the output channels of weight `index`, of `rank` dimensions; ones where it has none, or shares them."""
    if scale.size == 1:
        return scale.reshape([1] * rank)
    axis = channel_axis_of(product, index, rank)
    if axis is None:
        return np.ones([1] * rank)
    shape = [1] * rank
    shape[axis] = scale.size
    return scale.reshape(shape)


def _constant_of(node: ir.Node, index: int, held: Mapping[Use, np.ndarray]) -> np.ndarray | None:
    if (node, index) in held:
        return held[node, index]
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = None if value is None else constant_value(value)
    if tensor is None or not tensor.dtype.is_floating_point():
        return None
    return tensor.numpy()
