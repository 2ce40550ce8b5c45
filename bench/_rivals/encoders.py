"""Transformer encoders that are made to fail in a low format, each in one way that exporters and trained weights do.

All are `bench/encoder.py`'s graph (three layers, width 384, 256 tokens, LayerNormalization decomposed); `gentle` takes its
large residual stream away, and then one thing is put in:

* `squares` : nothing is taken away: the residual stream reaches a few hundred, and Pow overflows;
* `epsilon` : activations near 3e-4 with an epsilon of 1e-12: squares and epsilon vanish in FP16, and Div divides by nought;
* `mask`    : (1 - mask) * -3.4e38 is added to attention scores, as BERT's exports do: in FP16 the constant is infinite, and
  0 * inf is NaN;
* `scaled`  : values are 2^20 times as large and the output projection as much smaller, which FP32 does not notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from encoder import TOKENS, WIDTH, model
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("squares", "epsilon", "mask", "scaled")
_SEED = 3
_GENTLE = {"wo": 1 / 250, "w2": 1 / 1500}  # back to the scale of ordinary initializations
_TINY = 3e-4
_LARGE = 2.0**20


def encoder(kind: str) -> onnx.ModelProto:
    """The encoder that fails in the way called `kind`: x, float32 [1, 256, 384] (and mask, [1, 256]) to y."""
    made = model(np.random.default_rng(_SEED))
    if kind == "squares":
        return made
    _scale(made, _GENTLE)
    if kind == "epsilon":
        _scale(made, dict.fromkeys(_GENTLE, _TINY))
        _set(made, "epsilon", np.asarray(1e-12, np.float32))
    elif kind == "mask":
        _mask(made)
    elif kind == "scaled":
        _scale(made, {"wv": _LARGE, "wo": 1 / _LARGE})
    onnx.checker.check_model(made, full_check=True)
    return made


def samples(kind: str, draw: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Inputs of that encoder, without end."""
    size = _TINY if kind == "epsilon" else 1.0
    while True:
        x = size * draw.normal(size=(1, TOKENS, WIDTH)) * np.exp(0.3 * draw.normal())
        arrays = {"x": x.astype(np.float32)}
        if kind == "mask":
            length = int(draw.integers(TOKENS // 4, TOKENS + 1))
            arrays["mask"] = (np.arange(TOKENS)[None] < length).astype(np.float32)
        yield arrays


def _scale(made: onnx.ModelProto, factors: dict[str, float]) -> None:
    """Multiplies the weights whose names end so."""
    for tensor in made.graph.initializer:
        factor = next((one for end, one in factors.items() if tensor.name.endswith(f"_{end}")), None)
        if factor is not None:
            scaled = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))


def _set(made: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    for tensor in made.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(array, name))


def _mask(made: onnx.ModelProto) -> None:
    """Adds (1 - mask) * -3.4e38, one number a token, to the scores of every layer."""
    graph = made.graph
    graph.input.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, TOKENS]))
    graph.initializer.append(numpy_helper.from_array(np.asarray(np.finfo(np.float32).min), "lowest"))
    graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "mask_axes"))
    first = [
        helper.make_node("Unsqueeze", ["mask", "mask_axes"], ["mask_wide"], name="mask_wide"),
        helper.make_node("Sub", ["one", "mask_wide"], ["mask_holes"], name="mask_holes"),
        helper.make_node("Mul", ["mask_holes", "lowest"], ["mask_bias"], name="mask_bias"),
    ]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend(first)
    for node in rest:
        if node.op_type == "Softmax":
            masked = f"{node.name}_masked"
            graph.node.append(helper.make_node("Add", [node.input[0], "mask_bias"], [masked], name=masked))
            node.input[0] = masked
        graph.node.append(node)
