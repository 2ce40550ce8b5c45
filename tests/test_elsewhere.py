"""A layer that gives its result moved, mixed with tensors near by, or with another mask: what is told, with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import parityscope
from layer_faults import causes_of, run_layers
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,11,7] x) => (float[n,11,4] y) {
  a = MatMul(x, w1)
  b = Add(a, b1)
  s = Sigmoid(b)
  q = Mul(b, s)
  c = MatMul(q, w2)
  r = Add(c, x)
  y = MatMul(r, w3)
}"""
_ATTENTION = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,2,9,5] q, float[n,2,5,9] k, float[n,2,9,5] v)
 => (float[n,2,9,5] y) {
  s = MatMul(q, k)
  z = Mul(s, scale)
  u = Add(z, mask)
  p = Softmax <axis = -1> (u)
  y = MatMul(p, v)
}"""


def _network() -> onnx.ModelProto:
    draw = np.random.default_rng(11)
    sizes = {"w1": (7, 9), "b1": (9,), "w2": (9, 7), "w3": (7, 4)}
    return parse_network(_TEXT, {name: draw.normal(size=size).astype(np.float32) / 2 for name, size in sizes.items()})


def _samples(count: int = 3) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(12)
    return [{"x": draw.normal(size=(3, 11, 7)).astype(np.float32)} for _ in range(count)]


def _zeros_in(array: np.ndarray) -> np.ndarray:
    moved = np.zeros_like(array)
    moved[:, 4:, :-3] = array[:, :-4, 3:]
    return moved


_MOVED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "zeros": (_zeros_in, "the result moved by 4 along axis 1 and by -3 along axis 2, zeros put in"),
    "wrapped": (
        lambda array: np.roll(array, (5, -2), (1, 2)),
        "the result moved by 5 along axis 1 and by -2 along axis 2, wrapped around",
    ),
    "edge": (
        lambda array: np.concatenate([array[:, :1]] * 4 + [array[:, :-4]], 1),
        "the result moved by 4 along axis 1, the edge repeated",
    ),
    "mirrored": (
        lambda array: np.roll(array[:, ::-1], 4, 1),
        "the result mirrored along the axes [1] and moved by 4 along axis 1, wrapped around",
    ),
    "memory": (
        lambda array: np.roll(array.ravel(), -17).reshape(array.shape),
        "the result moved by -17 elements in memory, wrapped around",
    ),
}


@pytest.mark.parametrize("plant", list(_MOVED))
def test_any_move_is_told(plant: str, tmp_path: Path) -> None:
    change, told = _MOVED[plant]
    first = causes_of(_network(), _samples(), "q", lambda arrays: [change(one) for one in arrays], tmp_path)[0]
    assert first["site"]["tensor"] == "q"
    assert told in first["claim"], first["claim"]


@pytest.mark.search_of(0.1)
def test_a_move_of_each_sample_by_its_own_is_not_claimed(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [np.roll(one, 2 + 2 * number, 1) for number, one in enumerate(arrays)]

    assert not [one for one in causes_of(_network(), _samples(), "q", fault, tmp_path) if "moved" in one["claim"]]


_SEVERAL: dict[str, tuple[str, dict[str, float], tuple[str, ...]]] = {
    "residual and another": ("r", {"x": 0.25, "c": -0.5}, ("0.25 times 'x' added", "-0.5 times 'c' added")),
    "a bias and the result": ("q", {"b1": 1.0, "q": -0.5}, ("'b1' added once more", "the result scaled by 0.5")),
    "three": (
        "q",
        {"a": 0.2, "s": -2.0, "q": -0.5},
        ("0.2 times 'a' added", "-2 times 's' added", "the result scaled by 0.5"),
    ),
}


@pytest.mark.parametrize("plant", list(_SEVERAL))
def test_several_tensors_near_by_are_told_with_their_factors(plant: str, tmp_path: Path) -> None:
    tensor, terms, told = _SEVERAL[plant]
    model, samples = _network(), _samples()
    held = {one.name: np.frombuffer(one.raw_data, np.float32) for one in model.graph.initializer if one.name == "b1"}
    known = [{**sample, **run_layers(model, sample), **held} for sample in samples]

    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [
            one + sum(times * values[name] for name, times in terms.items())
            for one, values in zip(arrays, known, strict=True)
        ]

    first = causes_of(model, samples, tensor, fault, tmp_path)[0]
    assert first["site"]["tensor"] == tensor
    assert all(one in first["claim"] for one in told), first["claim"]


@pytest.mark.search_of(0.1)
def test_factors_of_each_sample_by_its_own_are_not_claimed(tmp_path: Path) -> None:
    model, samples = _network(), _samples()
    known = [{**sample, **run_layers(model, sample)} for sample in samples]

    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [
            one + (number - 1.2) * values["a"] + (0.7 - number) * values["b"]
            for number, (one, values) in enumerate(zip(arrays, known, strict=True))
        ]

    assert not [one for one in causes_of(model, samples, "q", fault, tmp_path) if " added" in one["claim"]]


@pytest.mark.parametrize("first_hidden", [0, 2])
def test_a_causal_mask_that_is_off_by_one_is_called_that(first_hidden: int, tmp_path: Path) -> None:
    def causal(first: int) -> np.ndarray:
        return np.triu(np.full((9, 9), -1e4, np.float32), first)

    model = parse_network(_ATTENTION, {"scale": np.float32(0.4), "mask": causal(1)})
    draw = np.random.default_rng(13)
    shapes = {"q": (2, 2, 9, 5), "k": (2, 2, 5, 9), "v": (2, 2, 9, 5)}
    samples = [{name: draw.normal(size=one).astype(np.float32) for name, one in shapes.items()} for _ in range(3)]
    other = parse_network(_ATTENTION, {"scale": np.float32(0.4), "mask": causal(first_hidden)})
    wrong = [run_layers(other, sample)["u"] for sample in samples]
    first = causes_of(model, samples, "u", lambda _: wrong, tmp_path)[0]
    assert "the mask 'mask' off by one: moved by" in first["claim"].partition("It cannot be told from")[0]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_a_right_deployment_is_neither_moved_nor_mixed(form: str) -> None:
    found = parityscope.diagnose(_network(), candidate=f"sim:{form}", inputs=_samples()).document
    assert not [one for one in found["findings"] if one["code"] == "FUS002"]
