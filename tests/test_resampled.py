"""A layer that gives its result, or reads an input, resampled: what is told, with its numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from layer_faults import causes_of, run_layers
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3,14,12] x) => (float[n,2,14,12] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w1)
  b = Sigmoid(a)
  y = Conv <pads = [1, 1, 1, 1]> (b, w2)
}"""


def _network() -> onnx.ModelProto:
    draw = np.random.default_rng(41)
    sizes = {"w1": (4, 3, 3, 3), "w2": (2, 4, 3, 3)}
    return parse_network(_TEXT, {name: draw.normal(size=size).astype(np.float32) / 3 for name, size in sizes.items()})


def _samples(count: int = 2) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(42)
    return [{"x": draw.normal(size=(1, 3, 14, 12)).astype(np.float32)} for _ in range(count)]


def _sampled(array: np.ndarray, rows: np.ndarray, columns: np.ndarray, mode: str = "nearest") -> np.ndarray:
    """Each plane read at places between its rows and columns, by SciPy."""
    places = np.meshgrid(rows, columns, indexing="ij")
    planes = [map_coordinates(one.astype(np.float64), places, order=1, mode=mode) for one in array.reshape(-1, 14, 12)]
    return np.stack(planes).reshape(array.shape)


ROWS, COLUMNS = np.arange(14.0), np.arange(12.0)
_PLANTED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "half a pixel": (
        lambda array: _sampled(array, ROWS + 0.5, COLUMNS + 0.5),
        "the result resampled along the axes [2, 3]: half a pixel further, the edge repeated",
    ),
    "half a pixel of columns": (
        lambda array: _sampled(array, ROWS, COLUMNS - 0.5, "grid-constant"),
        "the result resampled along axis 3: half a pixel before, zeros beyond the edge",
    ),
    # A grid of centres (i + 1/2) / n, read as if its ends were the first and the last centre.
    "aligned corners": (
        lambda array: _sampled(array, (ROWS + 0.5) / 14 * 13, (COLUMNS + 0.5) / 12 * 11),
        "the result resampled along the axes [2, 3]: with corners aligned in place of half pixels",
    ),
    "half pixels": (
        lambda array: _sampled(array, ROWS / 13 * 14 - 0.5, COLUMNS / 11 * 12 - 0.5),
        "the result resampled along the axes [2, 3]: at half pixels in place of aligned corners, the edge repeated",
    ),
    "coarser": (
        lambda array: np.repeat(np.repeat(array[:, :, ::2, ::2], 2, 2), 2, 3),
        "the result coarser along the axes [2, 3]: the first of each 2 of them repeated",
    ),
}


@pytest.mark.parametrize("plant", list(_PLANTED))
def test_usual_rules_are_told(plant: str, tmp_path: Path) -> None:
    change, told = _PLANTED[plant]
    first = causes_of(_network(), _samples(), "a", lambda arrays: [change(one) for one in arrays], tmp_path)[0]
    assert first["site"]["tensor"] == "a"
    assert told in first["claim"], first["claim"]


def test_any_shift_is_told_with_its_numbers(tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [_sampled(one, ROWS + 0.37, COLUMNS - 0.21) for one in arrays]

    first = causes_of(_network(), _samples(), "a", fault, tmp_path)[0]
    told = re.search(
        r"read (\S+) indices further along axis 2; read (\S+) indices further along axis 3", first["claim"]
    )
    assert told is not None, first["claim"]
    assert [float(number) for number in told.groups()] == pytest.approx([0.37, -0.21], abs=1e-4)


def test_an_input_that_is_read_half_a_pixel_off_is_told(tmp_path: Path) -> None:
    model, samples = _network(), _samples()
    moved = [{"x": _sampled(one["x"], ROWS - 0.5, COLUMNS - 0.5).astype(np.float32)} for one in samples]
    given = [run_layers(model, one)["a"] for one in moved]
    first = causes_of(model, samples, "a", lambda _: given, tmp_path)[0]
    assert first["site"]["tensor"] == "a"
    assert re.search(r"input X .*resampled along the axes \[2, 3\]: half a pixel before", first["claim"]), first[
        "claim"
    ]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("size", [0.0, 0.05])
def test_a_right_layer_and_noise_are_not_called_resampled(size: float, tmp_path: Path) -> None:
    def fault(arrays: list[np.ndarray]) -> list[np.ndarray]:
        draw = np.random.default_rng(43)
        return [one + size * draw.normal(size=one.shape) for one in arrays]

    assert not [one for one in causes_of(_network(), _samples(), "a", fault, tmp_path) if "resampled" in one["claim"]]


def test_a_resize_by_nearest_in_place_of_linear_is_told(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3,14,12] x) => (float[n,2,28,24] y) {
      scales = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
      r = Resize <mode = "linear"> (x, , scales)
      y = Conv <pads = [1, 1, 1, 1]> (r, w)
    }"""
    weights = {"w": np.random.default_rng(44).normal(size=(2, 3, 3, 3)).astype(np.float32)}
    samples = _samples()
    given = [np.repeat(np.repeat(one["x"], 2, 2), 2, 3) for one in samples]
    first = causes_of(parse_network(text, weights), samples, "r", lambda _: given, tmp_path)[0]
    assert first["site"]["tensor"] == "r"
    assert "nearest" in first["claim"], first["claim"]
