"""What became of a layer's constants and inputs is told without its file: grids, bytes read otherwise, parts gone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.explanation import ExplanationOptions, explain_region
from parityscope.hypotheses.changes import changes_of
from parityscope.hypotheses.from_other_graph.constants import change_of
from parityscope.hypotheses.grids import Grid, GridRule, Sharing
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

    Fault = Callable[[np.ndarray], np.ndarray]

DRAW = np.random.default_rng(21)


def numbers(*shape: int, scale: float = 1.0) -> np.ndarray:
    return DRAW.normal(0.0, scale, shape).astype(np.float32)


# name -> (the layer, its parameters, its input, the weight's axis of results)
LAYERS = {
    "product": ("MatMul(x, w)", {"w": numbers(96, 40, scale=0.1)}, numbers(64, 96), 1),
    "convolution": (
        "Conv<pads = [1, 1, 1, 1]>(x, w, b)",
        {"w": numbers(12, 8, 3, 3, scale=0.1), "b": numbers(12)},
        numbers(2, 8, 8, 8),
        0,
    ),
}


def graph(text: str, parameters: dict[str, np.ndarray], rank: int) -> ir.Model:
    shapes = [",".join(f"{letter}{axis}" for axis in range(rank)) for letter in "AB"]
    head = f'<ir_version: 10, opset_import: ["" : 17]> g (float[{shapes[0]}] x) => (float[{shapes[1]}] y)'
    return ir.from_proto(parse_network(f"{head} {{ y = {text} }}", parameters))


def on_levels(array: np.ndarray, scale: np.ndarray | float, low: int, high: int) -> np.ndarray:
    return (np.clip(np.round(array / scale), low, high) * scale).astype(np.float32)


def largest_of(array: np.ndarray, axis: int) -> np.ndarray:
    return np.abs(array).max(tuple(other for other in range(array.ndim) if other != axis), keepdims=True)


def with_zero_point(array: np.ndarray, bits: int) -> np.ndarray:
    """As DynamicQuantizeLinear of the ONNX operator specification, of any number of bits."""
    low, high = min(array.min(), 0), max(array.max(), 0)
    scale = (high - low) / (2**bits - 1)
    zero = np.round(-low / scale)
    return ((np.clip(np.round(array / scale) + zero, 0, 2**bits - 1) - zero) * scale).astype(np.float32)


def in_blocks(array: np.ndarray, axis: int, length: int) -> np.ndarray:
    made = np.moveaxis(array, axis, -1).copy()
    for start in range(0, made.shape[-1], length):
        part = made[..., start : start + length]
        scale = np.abs(part).max(-1, keepdims=True) / 7
        made[..., start : start + length] = np.round(part / scale) * scale
    return np.moveaxis(made, -1, axis)


# name -> (what was done to the weight, the axis of its results given; how it is told)
OF_WEIGHTS: dict[str, tuple[Callable[[np.ndarray, int], np.ndarray], str]] = {
    "8 bits, fitted": (
        lambda w, _: on_levels(w, 0.83 * np.abs(w).max() / 127, -128, 127),
        "quantized to 8 bits as a whole, of the step",
    ),
    "4 bits, fitted": (
        lambda w, _: on_levels(w, 0.7 * np.abs(w).max() / 7, -8, 7),
        "quantized to 4 bits as a whole, of the step",
    ),
    "8 bits a channel, fitted": (
        lambda w, axis: on_levels(
            w,
            largest_of(w, axis) * np.linspace(0.6, 1, w.shape[axis]).reshape(largest_of(w, axis).shape) / 127,
            -127,
            127,
        ),
        "quantized to 8 bits at each index of axis {axis}, of steps from",
    ),
    "4 bits with a zero point": (
        lambda w, _: with_zero_point(w, 4),
        "quantized to 4 bits as a whole, with a zero point",
    ),
    "powers of two": (
        lambda w, _: on_levels(w, 2.0 ** np.ceil(np.log2(np.abs(w).max() / 127)), -127, 127),
        "quantized to 8 bits as a whole, scales powers of two",
    ),
    "a percentile": (
        lambda w, _: on_levels(w, np.quantile(np.abs(w), 0.999) / 127, -127, 127),
        "cut off at the 99.9 % percentile of the sizes",
    ),
    "small ones gone": (lambda w, _: np.where(np.abs(w) < 0.05, 0, w), "zero where smaller than 0.0"),
    "cut off": (lambda w, _: np.clip(w, -0.21, 0.21), "cut off on both sides at 0.2"),
    "other bytes": (
        lambda w, _: w.astype(ml_dtypes.bfloat16).view(np.float16).astype(np.float32),
        "kept in bfloat16 and its bytes read as float16",
    ),
}


def told(layer: str, weight: Fault | None = None, entering: Fault | None = None) -> tuple[bool, list[str]]:
    """Whether a fault of a layer's weight or of its input is called one, and in what words."""
    text, parameters, x, _ = LAYERS[layer]
    others = {**parameters, "w": weight(parameters["w"])} if weight else parameters
    given = entering(x) if entering else x
    candidate = open_session(graph(text, others, x.ndim), outputs=["y"])({"x": given})["y"]
    found = explain_region(graph(text, parameters, x.ndim), {"x": x}, candidate)
    return found.is_bug, [each.words for each in found.by]


# Every fault, in each kind of layer in turn.
@pytest.mark.parametrize(("fault", "layer"), [*zip(OF_WEIGHTS, itertools.cycle(LAYERS), strict=False)])
def test_what_became_of_a_weight_is_told(fault: str, layer: str) -> None:
    change, words = OF_WEIGHTS[fault]
    axis = LAYERS[layer][3]
    is_bug, found = told(layer, weight=lambda w: change(w, axis).astype(np.float32))
    assert is_bug
    assert any("('w') " in one and words.format(axis=axis) in one for one in found), found


def test_blocks_of_a_weight_share_a_scale_and_the_last_may_be_shorter() -> None:
    is_bug, found = told(
        "product", weight=lambda w: np.concatenate([in_blocks(w[:, :32], 1, 32), in_blocks(w[:, 32:], 1, 8)], 1)
    )
    assert is_bug
    assert "constant B ('w') quantized to 4 bits in blocks of 32 along axis 1" in found


@pytest.mark.parametrize(
    ("layer", "fault", "words"),
    [
        ("product", lambda x: on_levels(x, 0.7 * np.abs(x).max() / 127, -128, 127), "as a whole, of the step"),
        ("convolution", lambda x: on_levels(x, 7.7 / 255, -120, 135), "as a whole, of the step 0.0302"),
        ("product", lambda x: with_zero_point(x, 8), "as a whole, with a zero point"),
    ],
    ids=["cut off", "a range that was seen before", "its own range"],
)
def test_an_input_on_a_grid_is_told(layer: str, fault: Fault, words: str) -> None:
    is_bug, found = told(layer, entering=fault)
    assert is_bug
    assert any("('x') " in one and f"quantized to 8 bits {words}" in one for one in found), found


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("layer", list(LAYERS))
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_no_grid(layer: str, kind: type) -> None:
    text, parameters, x, _ = LAYERS[layer]
    low = {name: array.astype(kind).astype(np.float32) for name, array in parameters.items()}
    candidate = open_session(graph(text, low, x.ndim), outputs=["y"])({"x": x.astype(kind).astype(np.float32)})["y"]
    declared = "f16" if kind is np.float16 else "bf16"
    options = ExplanationOptions(declared=declared)
    found = explain_region(
        graph(text, parameters, x.ndim), {"x": x}, candidate.astype(kind).astype(np.float32), options
    )
    assert not found.is_bug
    assert not any("quantized" in each.words for each in found.by)


@pytest.mark.parametrize("sharing", [Sharing(), Sharing(axis=1), Sharing(axis=0, block=4)])
def test_groups_and_their_numbers_are_the_same_elements(sharing: Sharing) -> None:
    array = numbers(6, 5).astype(np.float64)
    by_rows = sorted(float(np.abs(row).max()) for row in sharing.rows(array))
    reduced = np.broadcast_to(sharing.reduce(np.abs(array), np.maximum), array.shape)
    assert len(by_rows) == sharing.count(array.shape)
    assert set(by_rows) == set(map(float, reduced.ravel()))


def test_a_grid_has_as_many_levels_as_its_bits_say() -> None:
    array = numbers(4000)
    for rule in (GridRule(), GridRule(symmetric=False), GridRule(above=0.0), GridRule(symmetric=False, zero=False)):
        levels = np.unique(Grid(bits=4, sharing=Sharing(), rule=rule).apply(array))
        assert 14 <= levels.size <= 16
        assert np.ptp(np.diff(levels)) < 1e-5
        assert (np.abs(levels).min() < 1e-6) == rule.zero


@pytest.mark.parametrize(
    ("kept", "read", "words"),
    [
        ("int8", "uint8", "wrapped to uint8"),
        ("uint8", "int8", "wrapped to int8"),
        ("bfloat16", "float16", "kept in bfloat16 and its bytes read as float16"),
        ("float16", "bfloat16", "kept in float16 and its bytes read as bfloat16"),
    ],
)
def test_bytes_that_are_read_as_another_type_are_told_of_a_constant(kept: str, read: str, words: str) -> None:
    kinds = [np.dtype(getattr(ml_dtypes, name, name)) for name in (kept, read)]
    # Half of the integers wrap, in some of the channels alone.
    whole = np.arange(-100, 120, 5) if kept == "int8" else np.arange(0, 220, 5)
    array = whole.reshape(4, 11).astype(np.float32) if "int" in kept else numbers(6, 8)
    other = np.ascontiguousarray(array.astype(kinds[0])).view(kinds[1]).astype(np.float32)
    assert change_of(array, other).words == words


def test_another_order_of_bytes_and_of_axes_is_among_the_changes_of_an_array() -> None:
    whole = DRAW.integers(0, 200, (3, 4)).astype(np.int32)
    assert change_of(whole, whole.byteswap()).words == "kept in int32 and read in the other order of bytes"
    picture = numbers(1, 3, 4, 5)
    by_words = {words: change(picture) for words, change in changes_of(picture)}
    # The buffer of (N, H, W, C) taken for one of (N, C, H, W), and the other way round.
    as_it_lies = picture.transpose(0, 2, 3, 1).reshape(picture.shape)
    back = picture.reshape(1, 4, 5, 3).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(by_words["transposed [0, 2, 3, 1] and read in the old shape"], as_it_lies)
    np.testing.assert_array_equal(by_words["laid out [0, 2, 3, 1] and read as it stands"], back)
