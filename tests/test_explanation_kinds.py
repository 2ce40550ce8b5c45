"""Faults in kinds of layers that `bench/_planted` does not draw: each is computed as another ONNX model, and must be named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.explanation import ExplanationOptions, explain_region
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Change = Callable[[str, dict[str, np.ndarray]], tuple[str, dict[str, np.ndarray]]]

SAID = {
    "padding": "pads|output_padding|padded",
    "channel_scaled": "scaled by",
    "bias_dropped": "left out|all zeros|zeroed",
    "epsilon": "epsilon",
}
DRAW = np.random.default_rng(11)


def numbers(*shape: int, scale: float = 1.0, mean: float = 0.0) -> np.ndarray:
    return DRAW.normal(mean, scale, shape).astype(np.float32)


# name -> (opset, rank of what enters and of what comes out, the layer, its parameters, its input)
LAYERS: Mapping[str, tuple[int, tuple[int, int], str, dict[str, np.ndarray], np.ndarray]] = {
    "conv1d": (
        17,
        (3, 3),
        "Conv<pads = [2, 1], strides = [2], dilations = [2]>(x, w, b)",
        {"w": numbers(7, 9, 5, scale=0.15), "b": numbers(7)},
        numbers(2, 9, 40),
    ),
    "conv3d": (
        17,
        (5, 5),
        "Conv<pads = [1, 1, 1, 1, 0, 1], group = 2>(x, w, b)",
        {"w": numbers(6, 3, 3, 3, 3, scale=0.1), "b": numbers(6)},
        numbers(1, 6, 5, 6, 7),
    ),
    "transposed": (
        17,
        (4, 4),
        "ConvTranspose<strides = [2, 2], pads = [1, 1, 0, 1], output_padding = [1, 0]>(x, w, b)",
        {"w": numbers(10, 6, 3, 3, scale=0.2), "b": numbers(6)},
        numbers(1, 10, 9, 8),
    ),
    "groups normalized": (
        21,
        (4, 4),
        "GroupNormalization<num_groups = 3, epsilon = 1e-3>(x, s, b)",
        {"s": numbers(12, scale=0.3, mean=1.0), "b": numbers(12)},
        numbers(2, 12, 7, 6, scale=0.2),
    ),
    "rms": (
        23,
        (3, 3),
        "RMSNormalization<epsilon = 1e-3>(x, s)",
        {"s": numbers(48, scale=0.3, mean=1.0)},
        numbers(2, 9, 48, scale=0.2),
    ),
    "layer normalized": (
        17,
        (3, 3),
        "LayerNormalization<epsilon = 1e-12>(x, s, b)",
        {"s": numbers(48, scale=0.3, mean=1.0), "b": numbers(48)},
        numbers(2, 9, 48),
    ),
    "many channels": (
        17,
        (3, 3),
        "Conv(x, w, b)",
        {"w": numbers(96, 5, 1, scale=0.4), "b": numbers(96)},
        numbers(2, 5, 20),
    ),
    "gru": (
        17,
        (3, 4),
        "GRU<hidden_size = 8, linear_before_reset = 1>(x, w, r, b)",
        {"w": numbers(1, 24, 10, scale=0.3), "r": numbers(1, 24, 8, scale=0.3), "b": numbers(1, 48, scale=0.5)},
        numbers(12, 3, 10),
    ),
}


def written(old: str, new: str) -> Change:
    def change(text: str, parameters: dict[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
        assert old in text
        return text.replace(old, new), parameters

    return change


def scaled(name: str, axis: int, channel: int, factor: float) -> Change:
    def change(text: str, parameters: dict[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
        array = parameters[name].copy()
        np.moveaxis(array, axis, 0)[channel] *= np.float32(factor)
        return text, {**parameters, name: array}

    return change


def zeroed(part: slice) -> Change:
    def change(text: str, parameters: dict[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
        bias = parameters["b"].copy()
        bias[..., part] = 0
        return text, {**parameters, "b": bias}

    return change


def graph(name: str, text: str, parameters: dict[str, np.ndarray]) -> ir.Model:
    opset, ranks, _, _, _ = LAYERS[name]
    letters = [",".join(f"{side}{axis}" for axis in range(rank)) for side, rank in zip("AB", ranks, strict=True)]
    head = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[{letters[0]}] x) => (float[{letters[1]}] y)'
    return ir.from_proto(parse_network(f"{head} {{ y = {text} }}", parameters))


def stored(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "change", "truth", "declared"),
    [
        ("conv1d", written("[2, 1]", "[1, 2]"), "padding", "bf16"),
        ("conv1d", scaled("w", 0, 2, 1.05), "channel_scaled", "f32"),
        ("conv3d", written("[1, 1, 1, 1, 0, 1]", "[1, 0, 1, 1, 1, 1]"), "padding", "f32"),
        ("conv3d", zeroed(slice(None)), "bias_dropped", "f32"),
        ("transposed", written("[1, 1, 0, 1]", "[0, 1, 1, 1]"), "padding", "bf16"),
        pytest.param(
            *("transposed", scaled("w", 1, 2, 0.9), "channel_scaled", "bf16"), marks=pytest.mark.search_of(0.1)
        ),
        ("groups normalized", scaled("s", 0, 3, 1.1), "channel_scaled", "f32"),
        ("groups normalized", written("epsilon = 1e-3", "epsilon = 3e-3"), "epsilon", "f32"),
        ("rms", written("epsilon = 1e-3", "epsilon = 1e-5"), "epsilon", "bf16"),
        ("rms", scaled("s", 0, 3, 1.1), "channel_scaled", "f32"),
        ("layer normalized", written("epsilon = 1e-12", "epsilon = 0.05"), "epsilon", "f32"),
        ("many channels", scaled("w", 0, 70, 1.5), "channel_scaled", "f32"),
        ("gru", zeroed(slice(None)), "bias_dropped", "f32"),
        ("gru", zeroed(slice(24, None)), "bias_dropped", "f32"),
    ],
)
def test_a_fault_in_another_kind_of_layer_is_named(name: str, change: Change, truth: str, declared: str) -> None:
    _, _, text, parameters, x = LAYERS[name]
    feeds = {"x": x}
    changed, others = change(text, parameters)
    if declared == "bf16":
        others = {key: stored(array) for key, array in others.items()}
        feeds = {"x": stored(x)}
    candidate = open_session(graph(name, changed, others), outputs=["y"])(feeds)["y"]
    candidate = stored(candidate) if declared == "bf16" else candidate
    found = explain_region(graph(name, text, parameters), feeds, candidate, ExplanationOptions(declared=declared))
    assert any(re.search(SAID[truth], each.words) for each in found.by)
    assert found.is_bug


def test_an_activation_before_the_bias_of_the_layer_above_is_named() -> None:
    weights = {"w": numbers(7, 9, 5, scale=0.15), "b": numbers(7)}
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[A,B,C] x) => (float[D,E,F] y) {
      c = Conv(x, w, b)
      y = Relu(c)
    }"""
    feeds = {"x": numbers(2, 9, 40)}
    product = open_session(ir.from_proto(parse_network(text.replace(", b)", ")"), weights)), outputs=["y"])(feeds)["y"]
    found = explain_region(ir.from_proto(parse_network(text, weights)), feeds, product + weights["b"].reshape(1, 7, 1))
    assert found.is_bug
    assert found.by[0].words == "Relu done before 'b' is added in Conv"


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("name", list(LAYERS))
def test_the_same_layers_without_a_fault_are_no_bugs(name: str) -> None:
    _, _, text, parameters, x = LAYERS[name]
    low = {key: stored(array) for key, array in parameters.items()}
    candidate = stored(open_session(graph(name, text, low), outputs=["y"])({"x": stored(x)})["y"])
    found = explain_region(
        graph(name, text, parameters), {"x": stored(x)}, candidate, ExplanationOptions(declared="bf16")
    )
    assert found.status in {"explained", "expected"}
    assert not found.is_bug


def test_weights_of_four_bits_are_constants_of_the_layer() -> None:
    # No runtime takes them as an input of their own.
    weights = DRAW.integers(-7, 8, (24, 6))
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[A,B] x) => (float[C,D] y) {
      w = DequantizeLinear(q, s)
      y = MatMul(x, w)
    }"""
    proto = parse_network(text, {"s": np.float32(0.1)})
    proto.graph.initializer.append(onnx.helper.make_tensor("q", onnx.TensorProto.INT4, (24, 6), weights.ravel()))
    feeds = {"x": stored(numbers(5, 24))}
    exact = feeds["x"].astype(np.float64) @ stored(weights.astype(np.float32) * np.float32(0.1)).astype(np.float64)
    found = explain_region(
        ir.from_proto(proto), feeds, stored(exact.astype(np.float32)), ExplanationOptions(declared="bf16")
    )
    assert not found.is_bug
    assert found.status in {"explained", "expected"}
