"""The error of an output is one draw: a second look draws more before an output is called beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from one_sample import one_sample
from parityscope.arithmetic.formats import FORMATS
from parityscope.backends.recording import ignore_progress
from parityscope.case import Inputs, load_model
from parityscope.comparison.rows import align_as_given
from parityscope.expectation.drawing import drawn_outputs
from parityscope.expectation.records import Expectation
from parityscope.records import Policy
from parityscope.study.more_draws import redraw_doubtful
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case import Model

TERMS, OUTPUTS = 2048, 8
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2048] x) => (float[1,8] y) {
  small = Constant<value_floats = [1.0, 0.1]>()
  h = MatMul(x, w)
  s = ReduceSum(small)
  y = Add(h, s)
}"""
UNIT = FORMATS["tf32"].unit_roundoff


def network(folder: Path) -> tuple[Model, Inputs, np.ndarray]:
    draw = np.random.default_rng(3)
    weights = draw.normal(size=(TERMS, OUTPUTS)).astype(np.float32)
    write_network(folder / "model.onnx", TEXT, {"w": weights})
    x = draw.normal(size=(1, TERMS)).astype(np.float32)
    inputs = one_sample({"x": x})
    return load_model(folder / "model.onnx"), inputs, weights


def second_look(folder: Path, first: float, measured: float, declared: str = "tf32") -> float:
    """What is expected after a second look, where `first` was and `measured` was found."""
    model, inputs, _ = network(folder)
    expectation = Expectation(errors={"f32": {"y": 1e-7}, "tf32": {"y": first}, "f16": {"y": first}})
    policy = Policy(declared=declared)
    found = redraw_doubtful(model, inputs, [0], expectation, {"y": measured}, policy, align_as_given, ignore_progress)
    assert found.errors["f32"] == {"y": 1e-7}
    return found.errors[declared]["y"]


def test_an_unlucky_first_draw_is_pooled_with_others(tmp_path: Path) -> None:
    # Both operands of a product are rounded, each with a root mean square of 0.4247 u: of 2048 products of normal
    # numbers the sum has the same relative error as a product, in L2 over all outputs.
    usual = np.sqrt(2.0) * 0.4247 * UNIT
    # Nine draws of eight outputs, one of them an eighth of what is usual: 72 degrees of freedom, known to 8 %.
    found = second_look(tmp_path, first=usual / 3.0, measured=usual)
    assert found == pytest.approx(usual * np.sqrt((8.0 + 1.0 / 9.0) / 9.0), rel=0.25)
    assert usual <= 2.0 * found


@pytest.mark.parametrize(
    ("first", "measured"),
    [
        (1e-4, 1.9e-4),  # within the margin
        (1e-4, 6.1e-4),  # more than three margins: no luck
        (0.0, 1e-4),  # nothing was expected
    ],
)
def test_where_nothing_is_in_doubt_nothing_is_drawn(tmp_path: Path, first: float, measured: float) -> None:
    assert second_look(tmp_path, first, measured) == first


def test_fp32_is_not_drawn(tmp_path: Path) -> None:
    assert second_look(tmp_path, 1e-4, 3e-4, declared="f32") == 1e-7


def test_every_draw_rounds_otherwise_beside_one_reference(tmp_path: Path) -> None:
    model, inputs, weights = network(tmp_path)
    x = inputs.sample(0).arrays["x"]
    drawn = list(drawn_outputs(model, inputs, [0], "f16", ["y"], 4, bounded=True))
    assert [(number, sample) for number, sample, _, _ in drawn] == [(number, 0) for number in range(4)]
    true = x.astype(np.float64) @ weights + np.float32(1.1)
    errors = [given["y"] - true for _, _, expected, given in drawn if np.allclose(expected["y"], true, rtol=1e-4)]
    unit = FORMATS["f16"].unit_roundoff
    assert len(errors) == 4
    assert all(0.1 * unit < np.linalg.norm(one) / np.linalg.norm(true) < 3 * unit for one in errors)
    alike = np.corrcoef([one.reshape(-1) for one in errors])[np.triu_indices(4, 1)]
    assert np.abs(alike).max() < 0.98


def test_a_weight_that_only_a_stretched_grid_cannot_hold_stays(tmp_path: Path) -> None:
    largest = FORMATS["f16"].largest
    weights = np.random.default_rng(3).uniform(-largest, largest, (TERMS, OUTPUTS)).astype(np.float32)
    weights[0, 0] = largest
    write_network(tmp_path / "model.onnx", TEXT, {"w": weights})
    inputs = one_sample({"x": np.full((1, TERMS), 1e-4, np.float32)})
    for _, _, _, given in drawn_outputs(
        load_model(tmp_path / "model.onnx"), inputs, [0], "f16", ["y"], 8, bounded=True
    ):
        assert np.isfinite(given["y"]).all()
