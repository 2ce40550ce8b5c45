"""Outputs of few numbers: one draw of the rounding says little about an engine's error, so several are made."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from command_line import exit_status
from parityscope.case import Inputs, Sample, load_model
from parityscope.expectation.forecasting import ForecastSettings, forecast
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case import Model

TERMS = 512
X = np.random.default_rng(5).normal(size=(1, TERMS)).astype(np.float32)
WEIGHTS = np.random.default_rng(6).normal(size=(TERMS, 80)).astype(np.float32)


def product(folder: Path, columns: int) -> tuple[Model, Inputs]:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,{TERMS}] x) => (float[1,{columns}] y) {{ y = MatMul(x, w) }}'
    path = write_network(folder / "model.onnx", text, {"w": WEIGHTS[:, :columns]})
    np.savez(folder / "x.npz", x=X)
    sample = Sample(index=0, name="sample", arrays={"x": X})
    return load_model(path), Inputs(origin="test", names=("x",), sha256="", indices=(0,), read=lambda _: sample)


@pytest.mark.parametrize("name", ["f16", "tf32"])
def test_an_output_of_one_number_is_drawn_nine_times(tmp_path: Path, name: str) -> None:
    output = forecast(*product(tmp_path, 1), [name]).formats[0].outputs[0]
    assert len(output.drawn) == 8
    draws = np.array([output.rel_l2, *output.drawn])
    assert output.expected == pytest.approx(math.sqrt(np.mean(draws**2)))
    # Each of both operands of each term is rounded with a root mean square of 0.4247 u; in FP16 the result, too.
    terms = X[0].astype(np.float64) * WEIGHTS[:, 0]
    size = 0.4247 * 2.0**-11 * math.sqrt(2.0 * np.sum(terms**2) / np.sum(terms) ** 2 + (name == "f16"))
    # Nine squares of normal numbers: their mean is known to 47 %, its root to a quarter.
    assert 0.5 * size < output.expected < 1.6 * size
    assert min(draws) < 0.5 * output.expected  # one alone would have said something else


def test_the_draws_are_told_with_their_ends(tmp_path: Path) -> None:
    found = forecast(*product(tmp_path, 1), ["f16"]).formats[0]
    told = next(each for each in found.statements if each.startswith("Output 'y'"))
    draws = (found.outputs[0].rel_l2, *found.outputs[0].drawn)
    assert f"over 9 draws of the rounding {found.outputs[0].expected:.3g} (root mean square)" in told
    assert f"from {min(draws):.3g} to {max(draws):.3g}" in told


@pytest.mark.parametrize(("columns", "draws"), [(80, 9), (1, 1)])
def test_nothing_is_drawn_of_many_numbers_or_where_one_draw_is_asked_for(
    tmp_path: Path, columns: int, draws: int
) -> None:
    found = forecast(*product(tmp_path, columns), ["f16"], ForecastSettings(draws=draws)).formats[0].outputs[0]
    assert not found.drawn
    assert found.expected == found.rel_l2


def test_the_document_holds_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product(tmp_path, 1)
    asked = ["predict", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "x.npz"), "--formats", "f16"]
    assert exit_status(*asked, "--outputs-only", "--draws", "3", "--format", "json", "--quiet") == 0
    output = json.loads(capsys.readouterr().out)["formats"][0]["outputs"][0]
    draws = [output["rel_l2"], *output["drawn"]]
    assert len(draws) == 3
    assert output["expected"] == pytest.approx(math.sqrt(sum(each**2 for each in draws) / 3))


def test_a_constant_may_be_an_output(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y, float[3] c) { y = Add(x, c) }'
    path = write_network(tmp_path / "model.onnx", text, {"c": np.float32([0.1, 1.0, 2.0])})
    sample = Sample(index=0, name="sample", arrays={"x": np.float32([1.0, 2.0, 3.0])})
    inputs = Inputs(origin="test", names=("x",), sha256="", indices=(0,), read=lambda _: sample)
    found = forecast(load_model(path), inputs, ["f16"], ForecastSettings(draws=1)).formats[0]
    # Of the constant 0.1 alone is no number of FP16: it has 11 bits of it.
    error = abs(float(np.float16(0.1)) - float(np.float32(0.1))) / math.sqrt(0.1**2 + 1.0 + 4.0)
    assert {one.site.tensor: one.rel_l2 for one in found.outputs}["c"] == pytest.approx(error, rel=1e-6)
