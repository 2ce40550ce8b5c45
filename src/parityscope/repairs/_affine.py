"""y = gain * x + shift per channel, put into the weights of the node before it or behind it.

Before it (Conv, ConvTranspose, Gemm): w' = gain * w along the output channels, b' = gain * b + shift.
Behind it (Conv, Gemm): w' = w * gain along the input channels, b' = b + sum of w * shift. Padding puts zeros where the
affine map would have given the shift, so that a padded Conv takes up a gain alone.

In: float64 gain and shift, (channels,). Results are computed in float64 and stored in the weight's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs._editing import array_of, set_input

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Affine", "into_next", "into_previous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """gain * x + shift per channel: float64, (channels,); `dtype` is the parameters' own."""

    gain: np.ndarray
    shift: np.ndarray
    dtype: np.dtype[np.generic]


def into_previous(model: ir.Model, node: ir.Node, affine: Affine) -> bool:
    """Puts an affine map of the output of `node` into its weight and bias; False, nothing changed, if it cannot."""
    weight = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    old = _bias_of(node, affine.gain.size)
    if weight is None or old is None or node.domain:
        return False
    shift = affine.shift
    if node.op_type == "Conv":
        scaled = weight * affine.gain.reshape(-1, *[1] * (weight.ndim - 1))
    elif node.op_type == "ConvTranspose":
        # (inputs, outputs / groups, ...): the inputs of a group meet the outputs of the same group.
        groups = node.attributes.get_int("group", 1)
        gain = affine.gain.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        scaled = (weight.reshape(groups, -1, *weight.shape[1:]) * gain).reshape(weight.shape)
    elif node.op_type == "Gemm":
        beta = node.attributes.get_float("beta", 1.0)
        if beta == 0.0:
            return False
        scaled = weight * (affine.gain[:, None] if node.attributes.get_int("transB", 0) else affine.gain)
        shift = shift / beta
    else:
        return False
    _write_parameters(model, node, scaled, old * affine.gain + shift, weight.dtype)
    return True


def into_next(model: ir.Model, node: ir.Node, affine: Affine) -> bool:
    """Puts an affine map of the first input of `node` into its weight and bias; False, nothing changed, if it cannot."""
    weight = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or node.domain or node.op_type not in {"Conv", "Gemm"}:
        return False
    if node.op_type == "Conv":
        if affine.shift.any() and _is_padded(node):
            return False
        groups, taps = node.attributes.get_int("group", 1), [1] * (weight.ndim - 2)
        outputs = weight.shape[0]
        gain, shift = (each.reshape(groups, 1, -1, *taps) for each in (affine.gain, affine.shift))
        grouped = weight.astype(np.float64).reshape(groups, outputs // groups, *weight.shape[1:])
        scaled = (grouped * gain).reshape(weight.shape)
        added = (grouped * shift).reshape(outputs, -1).sum(axis=1)
    else:
        turned, beta = node.attributes.get_int("transB", 0), node.attributes.get_float("beta", 1.0)
        if node.attributes.get_int("transA", 0) or beta == 0.0:
            return False
        outputs = weight.shape[0 if turned else 1]
        scaled = weight * (affine.gain if turned else affine.gain[:, None])
        product = weight.astype(np.float64) * (affine.shift if turned else affine.shift[:, None])
        added = product.sum(axis=1 if turned else 0) * node.attributes.get_float("alpha", 1.0) / beta
    old = _bias_of(node, outputs)
    if old is None:
        return False
    _write_parameters(model, node, scaled, old + added, weight.dtype)
    return True


def _bias_of(node: ir.Node, channels: int) -> np.ndarray | None:
    """float64, (channels,), zeros where there is none; None where it is computed or has another shape."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return np.zeros(channels)
    array = array_of(node.inputs[2])
    if array is None or array.size not in {1, channels} or (array.size > 1 and array.shape[-1] != channels):
        return None
    return np.broadcast_to(array.ravel().astype(np.float64), (channels,))


def _write_parameters(
    model: ir.Model, node: ir.Node, weight: np.ndarray, bias: np.ndarray, dtype: np.dtype[np.generic]
) -> None:
    name = node.outputs[0].name
    set_input(model, node, 1, weight.astype(dtype), f"{name}::folded_weight")
    set_input(model, node, 2, bias.astype(dtype), f"{name}::folded_bias")


def _is_padded(node: ir.Node) -> bool:
    return node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME") or any(
        tuple(node.attributes.get_ints("pads", ()))
    )
