"""A layer that is wrong in one place alone: where that is, and what stands there, are told together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import parityscope
from layer_faults import causes_of
from parityscope.hypotheses.places import find_place
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3,13,17] x) => (float[n,5] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  r = Relu(a)
  c = Conv <pads = [1, 1, 1, 1]> (r, w2, b2)
  t = Tanh(c)
  p = GlobalAveragePool(t)
  f = Flatten(p)
  y = MatMul(f, w3)
}"""


def _network() -> onnx.ModelProto:
    draw = np.random.default_rng(5)
    sizes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (12, 8, 3, 3), "b2": (12,), "w3": (12, 5)}
    return parse_network(_TEXT, {name: draw.normal(size=size).astype(np.float32) / 3 for name, size in sizes.items()})


def _samples(count: int = 3, batch: int = 3) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(6)
    return [{"x": draw.normal(size=(batch, 3, 13, 17)).astype(np.float32)} for _ in range(count)]


def _keep_inside(array: np.ndarray) -> None:
    inside = array[..., 1:-1, 1:-1].copy()
    array[...] = 0
    array[..., 1:-1, 1:-1] = inside


def _zero_tail(array: np.ndarray) -> None:
    array.reshape(-1)[-37:] = 0


def _set(where: tuple[object, ...], of: Callable[[np.ndarray], object]) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[where] = of(array[where])

    return change


_ALL = slice(None)
_PLANTS: dict[str, tuple[Callable[[np.ndarray], None], str]] = {
    "tail of an axis": (
        _set((..., slice(-3, None)), lambda _: 0),
        "the result is 0, only at the last 3 indices of axis 3",
    ),
    "stripes": (
        _set((_ALL, _ALL, slice(None, None, 2)), lambda part: 0.5 * part),
        "the result scaled by 0.5, only at every second index of axis 2, from 0 on",
    ),
    "phase": (
        _set((_ALL, slice(1, None, 4)), lambda part: part + 2),
        "2 added to the result, only at 1 of every 4 indices of axis 1, from 1 on",
    ),
    "tile": (
        _set((..., slice(4, 8), slice(8, 12)), lambda _: 0),
        "the result is 0, only at indices 4 to 7 of axis 2, of these indices 8 to 11 of axis 3",
    ),
    "border": (
        _keep_inside,
        "the result is 0, only at the first and the last index of axis 2, and at the first and the last index of axis 3",
    ),
    "tail in memory": (_zero_tail, "the result is 0, only at the last 37 indices of axes 0 to 3 read as one"),
    "one sample of a batch": (_set((1,), lambda part: -part), "the result scaled by -1, only at index 1 of axis 0"),
    "not a number": (_set((..., 0), lambda _: np.nan), "the result is NaN, only at the first index of axis 3"),
    "another function": (
        _set((..., slice(2), _ALL), np.abs),
        "Abs applied to the result, only at the first 2 indices of axis 2",
    ),
    "diagonal": (
        _set((_ALL, _ALL, np.arange(13), np.arange(1, 14)), lambda part: part + 1),
        "1 added to the result, only at elements whose index of axis 2 minus that of axis 3 is -1",
    ),
}


@pytest.mark.parametrize("plant", list(_PLANTS))
def test_the_place_and_what_stands_there_are_told(plant: str, tmp_path: Path) -> None:
    change, told = _PLANTS[plant]

    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        for array in arrays:
            change(array)
        return arrays

    first = causes_of(_network(), _samples(), "c", fault, tmp_path)[0]
    assert first["site"]["tensor"] == "c"
    # Another change that gives the same is named beside it.
    assert re.search(rf": {re.escape(told)}( \(the same here: .*\))?: it explains 100 %", first["claim"]), first[
        "claim"
    ]


def test_a_place_in_one_sample_alone_is_judged_by_its_other_elements(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        arrays[0][:, 5:] *= 0.25
        return arrays

    first = causes_of(_network(), _samples(1), "c", fault, tmp_path)[0]
    assert "the result scaled by 0.25, only at the last 7 indices of axis 1" in first["claim"]


@pytest.mark.search_of(0.1)
def test_a_place_that_moves_from_sample_to_sample_is_not_claimed(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        for number, array in enumerate(arrays):
            array[..., 4 * number : 4 * number + 3] = 0
        return arrays

    found = causes_of(_network(), _samples(), "c", fault, tmp_path)
    assert not [one for one in found if "only at" in one["claim"]]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_a_right_deployment_has_no_place(form: str) -> None:
    found = parityscope.diagnose(_network(), candidate=f"sim:{form}", inputs=_samples()).document
    assert "only at" not in str(found["findings"])


def test_elements_by_chance_are_no_place() -> None:
    draw = np.random.default_rng(1)
    for shape in ((7, 9, 11), (300,), (5, 64, 33)):
        wrong = draw.random(shape) < 0.3
        assert find_place(wrong, np.ones(shape, bool)) is None


def test_half_of_the_elements_and_right_ones_by_chance_tell_the_same_place() -> None:
    draw = np.random.default_rng(2)
    truth = np.zeros((6, 19, 23), bool)
    truth[:, 3::5, -4:] = True
    wrong = truth & (draw.random(truth.shape) < 0.6)  # what a Relu made 0 is right where it is zeroed
    place = find_place(wrong, draw.random(truth.shape) < 0.5)
    assert place is not None
    np.testing.assert_array_equal(np.broadcast_to(place.mask(truth.shape), truth.shape), truth)


def test_a_place_is_told_where_the_sample_before_was_not_looked_at(tmp_path: Path) -> None:
    # Of five samples the three that are wrong are looked at, and the two before them are not.
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        for array in arrays[2:]:
            array[:, 1::2] = np.abs(array[:, 1::2])
        return arrays

    first = causes_of(_network(), _samples(5), "c", fault, tmp_path)[0]
    assert "Abs applied to the result, only at every second index of axis 1, from 1 on" in first["claim"]


def test_one_sample_alone_that_shows_an_error_is_judged_by_its_other_elements(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        arrays[2][..., -3:] *= 0.6
        return arrays

    first = causes_of(_network(), _samples(), "c", fault, tmp_path)[0]
    assert "the result scaled by 0.6, only at the last 3 indices of axis 3" in first["claim"]
