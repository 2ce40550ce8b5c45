"""An encoder whose matrix products are of useful size, from a seed: BERT-base's shape, its twelve layers sharing one set of
weights as ALBERT's do (Lan et al., ICLR 2020), so that the file is a twelfth of BERT's.

x, float32 [batch, tokens, 768], to y of the same shape. LayerNormalization is decomposed, as exporters for opsets below 17
write it, and the residual stream reaches a few hundred, so that Pow overflows in FP16. Needs numpy and onnx alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from _rivals.building import Builder

if TYPE_CHECKING:
    import onnx

_WIDTH, _HEADS, _INNER, _LAYERS = 768, 12, 3072, 12
_GAIN = 0.1  # of normalization; products then give numbers near 0.1
_RESIDUAL = 120.0  # what attention and the inner layers add is this much larger than their inputs
_SEED = 7


def large_encoder() -> onnx.ModelProto:
    """The encoder, the same on every machine."""
    draw, build = np.random.default_rng(_SEED), Builder()
    for name, number in {"two": 2.0, "epsilon": 1e-5, "root": 2**0.5, "half": 0.5, "one": 1.0}.items():
        build.hold(name, np.asarray(number, np.float32))
    build.hold("scale", np.asarray((_WIDTH / _HEADS) ** -0.5, np.float32))
    build.hold("split", np.array([0, 0, _HEADS, _WIDTH // _HEADS], np.int64))
    build.hold("merge", np.array([0, 0, _WIDTH], np.int64))
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (_WIDTH, _WIDTH))
    shapes |= {"w1": (_WIDTH, _INNER), "w2": (_INNER, _WIDTH)}
    for name, shape in shapes.items():
        gain = _RESIDUAL if name in {"wo", "w2"} else 1.0
        build.hold(name, (draw.normal(size=shape) * gain * shape[0] ** -0.5).astype(np.float32))
    for name, shift in (("gain", _GAIN), ("bias", 0.0)):
        build.hold(name, (shift + _GAIN * draw.normal(size=_WIDTH)).astype(np.float32))
    x = "x"
    for number in range(_LAYERS):
        layer = f"layer{number}"
        x = build.add("Add", [x, _attention(build, _norm(build, x, f"{layer}.norm1"), layer)], f"{layer}.residual1")
        x = build.add("Add", [x, _inner(build, _norm(build, x, f"{layer}.norm2"), layer)], f"{layer}.residual2")
    build.add("Identity", [_norm(build, x, "final")], "y")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "tokens", _WIDTH]) for name in "xy"]
    return build.model(ends[:1], ends[1])


def inputs(draw: np.random.Generator, batch: int, tokens: int) -> dict[str, np.ndarray]:
    """Normally distributed numbers, each sequence at a level of its own."""
    levels = np.exp(0.3 * draw.normal(size=(batch, 1, 1)))
    return {"x": (levels * draw.normal(size=(batch, tokens, _WIDTH))).astype(np.float32)}


def _norm(build: Builder, x: str, name: str) -> str:
    centered = build.add("Sub", [x, build.add("ReduceMean", [x], f"{name}.mean", axes=[-1])], f"{name}.centered")
    squares = build.add("Pow", [centered, "two"], f"{name}.pow")
    variance = build.add("ReduceMean", [squares], f"{name}.variance", axes=[-1])
    root = build.add("Sqrt", [build.add("Add", [variance, "epsilon"], f"{name}.guarded")], f"{name}.deviation")
    scaled = build.add("Mul", [build.add("Div", [centered, root], f"{name}.norm"), "gain"], f"{name}.scaled")
    return build.add("Add", [scaled, "bias"], f"{name}.out")


def _attention(build: Builder, x: str, layer: str) -> str:
    parts = {}
    for part in "qkv":
        split = build.add(
            "Reshape", [build.add("MatMul", [x, f"w{part}"], f"{layer}.{part}"), "split"], f"{layer}.{part}.split"
        )
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = build.add("Transpose", [split], f"{layer}.{part}.heads", perm=order)
    scores = build.add("MatMul", [parts["q"], parts["k"]], f"{layer}.scores")
    chances = build.add(
        "Softmax", [build.add("Mul", [scores, "scale"], f"{layer}.scaled")], f"{layer}.softmax", axis=-1
    )
    mixed = build.add("MatMul", [chances, parts["v"]], f"{layer}.mixed")
    back = build.add("Transpose", [mixed], f"{layer}.back", perm=[0, 2, 1, 3])
    return build.add("MatMul", [build.add("Reshape", [back, "merge"], f"{layer}.merged"), "wo"], f"{layer}.attention")


def _inner(build: Builder, x: str, layer: str) -> str:
    inner = build.add("MatMul", [x, "w1"], f"{layer}.inner")
    erf = build.add("Erf", [build.add("Div", [inner, "root"], f"{layer}.div")], f"{layer}.erf")
    gate = build.add("Mul", [inner, build.add("Add", [erf, "one"], f"{layer}.plus_one")], f"{layer}.gate")
    return build.add("MatMul", [build.add("Mul", [gate, "half"], f"{layer}.gelu"), "w2"], f"{layer}.outer")
