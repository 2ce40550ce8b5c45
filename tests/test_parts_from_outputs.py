"""Parts, moves and grids from the outputs alone: what was done to one tensor inside is told by what it did to the outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import parityscope
from layer_faults import record_outputs
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[np.ndarray], np.ndarray]

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3,9,11] x) => (float[n,24] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  r = LeakyRelu <alpha = 0.2> (a)
  c = Conv <pads = [1, 1, 1, 1]> (r, w2, b2)
  t = Tanh(c)
  f = Flatten(t)
  y = MatMul(f, w3)
}"""
_ROWS = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,96] x) => (float[n,24] y) {
  a = MatMul(x, w1)
  t = Tanh(a)
  y = MatMul(t, w2)
}"""


def _weights(draw: np.random.Generator, **sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: draw.normal(size=size).astype(np.float32) / 4 for name, size in sizes.items()}


def _network() -> onnx.ModelProto:
    sizes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (10, 8, 3, 3), "b2": (10,), "w3": (990, 24)}
    return parse_network(_TEXT, _weights(np.random.default_rng(5), **sizes))


def _samples() -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(6)
    return [{"x": draw.normal(size=(4, 3, 9, 11)).astype(np.float32)} for _ in range(2)]


def _first(document: Any) -> dict[str, Any]:
    return dict(document["findings"][0])


def _set(where: tuple[object, ...], of: Change) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed[where] = of(changed[where])
        return changed

    return change


def _moved_by_two(array: np.ndarray) -> np.ndarray:
    moved = np.zeros_like(array)
    moved[..., 2:] = array[..., :-2]
    return moved


_ALL = slice(None)
_PLANTS: dict[str, tuple[str, Change, str]] = {
    "half": ("r", _set((_ALL, slice(4)), lambda part: 0.5 * part), "scaled by 0.5, only at the first 4 indices of axis 1"),
    "channels": ("c", _set((_ALL, slice(3, 6)), lambda part: 0 * part), "is 0, only at indices 3 to 5 of axis 1"),
    "constant": ("r", _set((..., slice(-3, None)), lambda part: 0 * part + 2), "is 2, only at the last 3 indices of axis 3"),
    "stripes": ("r", _set((..., slice(1, None, 2)), lambda part: part + 1), "1 added to the result, only at every second"),
    "tile": (
        "t",
        _set((..., slice(2, 5), slice(4, 10)), lambda part: 0 * part),
        "is 0, only at indices 2 to 4 of axis 2, of these indices 4 to 9 of axis 3",
    ),
    "function": ("c", _set((_ALL, slice(5)), np.abs), "Abs applied to the result, only at the first 5 indices of axis 1"),
    "wrapped": ("c", lambda array: np.roll(array, 4, 1), "moved by 4 along axis 1, wrapped around"),
    "zeros": ("r", _moved_by_two, "moved by 2 along axis 3, zeros put in"),
    "mirrored": ("t", lambda array: np.roll(array[..., ::-1], 5, -1), "mirrored along the axes [3] and moved by 5 along axis 3"),
}  # fmt: skip


@pytest.mark.parametrize("plant", list(_PLANTS))
@pytest.mark.search_of(0.3)
def test_a_part_or_a_move_of_an_inner_result_is_told_from_the_outputs(plant: str, tmp_path: Path) -> None:
    tensor, change, told = _PLANTS[plant]
    model, samples = _network(), _samples()
    candidate = record_outputs(model, samples, tensor, lambda arrays: [change(array) for array in arrays], tmp_path)
    first = _first(parityscope.diagnose(model, candidate=candidate, inputs=samples).document)
    assert (first["code"], first["role"]) == ("FUS014", "cause")
    assert told in f"{first['claim']} {first['details']['alike']} {first['details']['equal']}", first["claim"]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_a_right_deployment_has_no_part(form: str) -> None:
    found = parityscope.diagnose(_network(), candidate=f"sim:{form}", inputs=_samples()).document
    assert not [one for one in found["findings"] if one["role"] == "cause" and one["code"] == "FUS014"]
    assert "only at" not in str(found["findings"])


def _deployed(model: onnx.ModelProto, changes: dict[str, Change]) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for held in other.graph.initializer:
        if held.name in changes:
            changed = changes[held.name](numpy_helper.to_array(held))
            held.CopyFrom(numpy_helper.from_array(changed.astype(np.float32), held.name))
    return other


def _rows() -> onnx.ModelProto:
    return parse_network(_ROWS, _weights(np.random.default_rng(8), w1=(96, 40), w2=(40, 24)))


def _rows_of_samples() -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(9)
    return [{"x": draw.normal(size=(12, 96)).astype(np.float32)} for _ in range(2)]


def _on_levels(array: np.ndarray, step: float | np.ndarray, most: int) -> np.ndarray:
    return np.clip(np.round(array / step), -most, most) * step


def _blocks_of_32(array: np.ndarray) -> np.ndarray:
    parts = array.reshape(3, 32, -1)
    return _on_levels(parts, np.abs(parts).max(1, keepdims=True) / 7, 7).reshape(array.shape)


_GRIDS: dict[str, tuple[Change, str]] = {
    "4 bits": (lambda w: _on_levels(w, np.abs(w).max() / 7, 7), "quantized to 4 bits as a whole"),
    "4 bits by row": (
        lambda w: _on_levels(w, np.abs(w).max(0, keepdims=True) / 7, 7),
        "quantized to 4 bits at each index of axis 1",
    ),
    "4 bits in blocks": (_blocks_of_32, "quantized to 4 bits in blocks of 32 along axis 0"),
}


@pytest.mark.parametrize("grid", list(_GRIDS))
def test_weights_on_a_grid_are_told_from_the_outputs(grid: str, tmp_path: Path) -> None:
    change, told = _GRIDS[grid]
    model, samples = _rows(), _rows_of_samples()
    other = _deployed(model, {"w1": change})
    candidate = record_outputs(other, samples, "a", lambda arrays: arrays, tmp_path)
    first = _first(parityscope.diagnose(model, candidate=candidate, inputs=samples).document)
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("FUS014", "cause", "a")
    assert told in first["claim"]


def test_a_sum_that_is_halved_is_told_with_the_mean_that_it_is(tmp_path: Path) -> None:
    text = _ROWS.replace("t = Tanh(a)", "s = Add(a, b) t = Tanh(s)")
    model = parse_network(text, _weights(np.random.default_rng(8), w1=(96, 40), w2=(40, 24), b=(40,)))
    samples = _rows_of_samples()
    candidate = record_outputs(model, samples, "s", lambda arrays: [array / 2 for array in arrays], tmp_path)
    first = _first(parityscope.diagnose(model, candidate=candidate, inputs=samples).document)
    assert (first["role"], first["site"]["tensor"]) == ("cause", "s")
    # One function in two ways: neither is what cannot be told from the other.
    assert "Mean in place of Add (the same here: the result scaled by 0.5)" in first["claim"]
    assert not [one for one in first["details"]["alike"] if one.startswith("s: ")]
