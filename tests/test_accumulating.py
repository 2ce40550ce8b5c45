"""Depthwise convolutions that add up in float16, against a loop over taps in numpy's float16."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.arithmetic.accumulating import is_depthwise
from parityscope.arithmetic.simulation import simulate
from parityscope.backends._onnxruntime import open_session

if TYPE_CHECKING:
    from collections.abc import Mapping

GENERATOR = np.random.default_rng(11)
# kernel, strides, dilations, pads (begins, ends)
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "5x5 with strides": ((5, 5), (2, 3), (1, 1), (2, 2, 2, 2)),
    "dilated, padded at one side": ((3, 2), (1, 2), (2, 3), (0, 1, 3, 0)),
    "a line": ((4,), (2,), (1,), (0, 0)),
    "a single tap": ((1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
}


def convolution(
    kernel: tuple[int, ...], attributes: str, weights: Mapping[str, np.ndarray], *, opset: int = 19, group: int = 6
) -> ir.Model:
    dims = ",".join(["1", "6", *"abcdef"[: len(kernel)]])
    out = ",".join(["1", "6", *"uvwxyz"[: len(kernel)]])
    text = f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[{dims}] x) => (float[{out}] y) {{
        c = Conv<group={group}{attributes}>(x, w, b)  y = Relu(c) }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return ir.from_proto(proto)


def run(model: ir.Model, x: np.ndarray, profile: str = "onnxruntime-cuda-narrow") -> dict[str, np.ndarray]:
    simulation = simulate(model, "f16", profile=profile)
    return open_session(simulation.model, threads=1)({"x": x})


def by_taps(x: np.ndarray, w: np.ndarray, b: np.ndarray, shape: Any) -> np.ndarray:
    """s = fma(x, w, s) in float16, tap by tap; then the bias, then the result, each rounded."""
    kernel, strides, dilations, pads = shape
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]).astype(np.float16)
    sizes = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(padded.shape[2:], kernel, dilations, strides, strict=True)
    ]
    total = np.zeros((*x.shape[:2], *sizes), np.float16)
    for tap in product(*(range(k) for k in kernel)):
        places = tuple(
            np.s_[at * d : at * d + (size - 1) * s + 1 : s]
            for at, d, size, s in zip(tap, dilations, sizes, strides, strict=True)
        )
        term = padded[(..., *places)].astype(np.float32) * by_channel(w[(slice(None), 0, *tap)], rank)
        total = (total.astype(np.float32) + term).astype(np.float16)
    summed = total.astype(np.float32) + by_channel(b, rank)
    return np.maximum(summed.astype(np.float16), 0)


def by_channel(vector: np.ndarray, rank: int) -> np.ndarray:
    return vector.astype(np.float16).astype(np.float32).reshape(-1, *[1] * rank)


@pytest.mark.parametrize("opset", [9, 19])
@pytest.mark.parametrize("name", SHAPES)
def test_the_sum_of_taps_is_that_of_numpy_bit_for_bit(name: str, opset: int) -> None:
    kernel, strides, dilations, pads = SHAPES[name]
    x = GENERATOR.normal(size=(1, 6, 13, 17)[: 2 + len(kernel)]).astype(np.float32)
    w = GENERATOR.normal(size=(6, 1, *kernel)).astype(np.float32)
    b = GENERATOR.normal(size=6).astype(np.float32)
    attributes = f", strides={list(strides)}, dilations={list(dilations)}, pads={list(pads)}"
    found = run(convolution(kernel, attributes, {"w": w, "b": b}, opset=opset), x)["y"]
    expected = by_taps(x, w, b, SHAPES[name])
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    if len(kernel) > 1 and max(kernel) > 1:
        wide = run(convolution(kernel, attributes, {"w": w, "b": b}, opset=opset), x, "onnxruntime-cuda")["y"]
        assert not np.array_equal(found, wide)


def test_only_convolutions_of_single_channels_with_constant_weights_count() -> None:
    b = np.zeros(6, np.float32)
    depthwise = convolution((3, 3), "", {"w": np.zeros((6, 1, 3, 3), np.float32), "b": b})
    grouped = convolution((3, 3), "", {"w": np.zeros((6, 3, 3, 3), np.float32), "b": b}, group=2)
    same = convolution((3, 3), ', auto_pad="SAME_UPPER"', {"w": np.zeros((6, 1, 3, 3), np.float32), "b": b})
    assert [is_depthwise(model.graph[0]) for model in (depthwise, grouped, same)] == [True, False, False]
