"""Two models whose packages ship weights and no ONNX: the graphs that torch's exporter makes of them, written by hand.

* `lite0`  : EfficientNet-Lite0, x float32 [n, 3, 224, 224] to y [n, 1000]; BatchNormalization folded into Conv, as it is in
  an export for inference (Tan and Le, ICML 2019; "Lite": no squeeze and excitation, ReLU6);
* `minilm` : all-MiniLM-L6-v2, a BERT of six layers, token numbers, mask and types (int64 [batch, length]) to
  last_hidden_state float32 [batch, length, 384]; LayerNormalization as an operator, GELU by Erf, the mask by -3.4e38.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from _rivals.building import Builder
from _rivals.packages import LITE0, MINILM, fetched, torch_weights

# Repeats and first stride of EfficientNet-B0's stages; kernels and widths are those of the weights.
_STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))
_BATCH_EPSILON, _LAYER_EPSILON = 1e-3, 1e-12
_LAYERS, _HEADS, _WIDTH = 6, 12, 384


def lite0() -> onnx.ModelProto:
    """EfficientNet-Lite0.

    Raises:
        Unavailable: the weights cannot be had.
    """
    weights, build = torch_weights(fetched(LITE0)), Builder()
    build.hold("low", np.asarray(0, np.float32))
    build.hold("high", np.asarray(6, np.float32))

    def conv(x: str, name: str, norm: str, *, stride: int = 1, clip: bool = True) -> str:
        kernel = weights[f"{name}.weight"]
        gain = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + np.float32(_BATCH_EPSILON))
        held = [
            build.hold(f"{name}.w", kernel * gain[:, None, None, None]),
            build.hold(f"{name}.b", weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * gain),
        ]
        group = kernel.shape[0] if kernel.shape[1] == 1 else 1
        made = build.add("Conv", [x, *held], name, group=group, strides=[stride] * 2, auto_pad="SAME_UPPER")
        return build.add("Clip", [made, "low", "high"], f"{name}.clip") if clip else made

    x = conv("x", "_conv_stem", "_bn0", stride=2)
    channels = weights["_bn0.bias"].size
    strides = [first if turn == 0 else 1 for repeats, first in _STAGES for turn in range(repeats)]
    for number, stride in enumerate(strides):
        block = f"_blocks.{number}"
        inner = conv(x, f"{block}._expand_conv", f"{block}._bn0") if f"{block}._bn0.bias" in weights else x
        inner = conv(inner, f"{block}._depthwise_conv", f"{block}._bn1", stride=stride)
        made = conv(inner, f"{block}._project_conv", f"{block}._bn2", clip=False)
        given = weights[f"{block}._bn2.bias"].size
        x = build.add("Add", [made, x], f"{block}.add") if stride == 1 and given == channels else made
        channels = given
    pooled = build.add("GlobalAveragePool", [conv(x, "_conv_head", "_bn1")], "pool")
    flat = build.add("Flatten", [pooled], "flat")
    held = [build.hold("fc.w", weights["_fc.weight"]), build.hold("fc.b", weights["_fc.bias"])]
    build.add("Gemm", [flat, *held], "y", transB=1)
    return build.model(
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 224, 224])],
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1000]),
    )


def minilm() -> onnx.ModelProto:
    """all-MiniLM-L6-v2.

    Raises:
        Unavailable: the weights cannot be had.
    """
    from safetensors.numpy import load_file

    weights, build = load_file(fetched(MINILM)), Builder()
    scalars = {"zero": 0.0, "one": 1.0, "half": 0.5, "root": 2**0.5, "depth": (_WIDTH / _HEADS) ** 0.5}
    for name, number in scalars.items():
        build.hold(name, np.asarray(number, np.float32))
    build.hold("lowest", np.asarray(np.finfo(np.float32).min))
    held = {"none": 0, "wide": [1, 2], "begin": [0], "second": [1], "third": [2], "merge": [0, 0, _WIDTH]}
    held |= {"split": [0, 0, _HEADS, _WIDTH // _HEADS], "positions": [list(range(512))]}
    for name, integers in held.items():
        build.hold(name, np.array(integers, np.int64))

    def dense(x: str, name: str) -> str:
        product = build.add("MatMul", [x, build.hold(f"{name}.w", weights[f"{name}.weight"].T)], f"{name}.product")
        return build.add("Add", [product, build.hold(f"{name}.b", weights[f"{name}.bias"])], name)

    def norm(x: str, name: str) -> str:
        held = [build.hold(f"{name}.{one}", weights[f"{name}.{one}"]) for one in ("weight", "bias")]
        return build.add("LayerNormalization", [x, *held], name, axis=-1, epsilon=_LAYER_EPSILON)

    def heads(x: str, name: str, order: list[int]) -> str:
        return build.add(
            "Transpose", [build.add("Reshape", [x, "split"], f"{name}.split")], f"{name}.heads", perm=order
        )

    def table(kind: str, indices: str) -> str:
        name = f"embeddings.{kind}_embeddings"
        return build.add("Gather", [build.hold(f"{name}.w", weights[f"{name}.weight"]), indices], name)

    length = build.add("Slice", [build.add("Shape", ["input_ids"], "shape"), "second", "third"], "length")
    places = build.add("Slice", ["positions", "begin", length, "second"], "places")
    summed = build.add("Add", [table("word", "input_ids"), table("token_type", "token_type_ids")], "words")
    x = norm(build.add("Add", [summed, table("position", places)], "embedded"), "embeddings.LayerNorm")
    holes = build.add("Equal", [build.add("Unsqueeze", ["attention_mask", "wide"], "mask.wide"), "none"], "holes")
    bias = build.add("Where", [holes, "lowest", "zero"], "bias")
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        own = f"{layer}.attention.self"
        query, value = (heads(dense(x, f"{own}.{one}"), f"{own}.{one}", [0, 2, 1, 3]) for one in ("query", "value"))
        key = heads(dense(x, f"{own}.key"), f"{own}.key", [0, 2, 3, 1])
        scores = build.add("Div", [build.add("MatMul", [query, key], f"{own}.scores"), "depth"], f"{own}.scaled")
        chances = build.add("Softmax", [build.add("Add", [scores, bias], f"{own}.masked")], f"{own}.softmax", axis=-1)
        mixed = build.add("MatMul", [chances, value], f"{own}.mixed")
        back = build.add("Transpose", [mixed], f"{own}.back", perm=[0, 2, 1, 3])
        joined = build.add("Reshape", [back, "merge"], f"{own}.joined")
        given = dense(joined, f"{layer}.attention.output.dense")
        x = norm(build.add("Add", [given, x], f"{layer}.first"), f"{layer}.attention.output.LayerNorm")
        inner = dense(x, f"{layer}.intermediate.dense")
        erf = build.add("Erf", [build.add("Div", [inner, "root"], f"{layer}.over_root")], f"{layer}.erf")
        gate = build.add("Mul", [inner, build.add("Add", [erf, "one"], f"{layer}.plus_one")], f"{layer}.gate")
        gelu = build.add("Mul", [gate, "half"], f"{layer}.gelu")
        x = norm(
            build.add("Add", [dense(gelu, f"{layer}.output.dense"), x], f"{layer}.second"), f"{layer}.output.LayerNorm"
        )
    build.add("Identity", [x], "last_hidden_state")
    names = ("input_ids", "attention_mask", "token_type_ids")
    return build.model(
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names],
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", _WIDTH]),
    )
