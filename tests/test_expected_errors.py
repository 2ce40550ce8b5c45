"""What a format is expected to cost: rounding alone, so that no loss of range and no division by nothing excuses a bug."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import parityscope
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.case import Inputs, Sample, load_model
from parityscope.comparison import measure_pair
from parityscope.comparison.parts import measure_parts
from parityscope.evaluation.simulating import open_simulation
from parityscope.expectation.expecting import ErrorQuestion, expect_error
from parityscope.expectation.forecasting import forecast
from parityscope.expectation.grades import FLOAT32_ROUNDING, graded_error
from parityscope.study.output_parts import covers_parts
from parityscope.testing.networks import parse_network, write_network

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y) '
# 60000 |x| is beyond 65504 in the float16 nodes of the file, which ONNX Runtime computes in FP32 on a CPU.
MIXED = HEAD + "{ h = Cast<to = 10>(x)  a = Mul(h, large)  b = Mul(a, small)  y = Cast<to = 1>(b) }"
CONSTANTS = {"large": np.float16(60000), "small": np.float16(1e-4)}
# A pair of Casts alone, which ONNX Runtime keeps: the reference overflows itself.
OVERFLOWS = HEAD + "{ f = Mul(x, large)  h = Cast<to = 10>(f)  g = Cast<to = 1>(h)  y = Mul(g, small) }"


def inputs(x: np.ndarray = X) -> Inputs:
    sample = Sample(index=0, name="sample", arrays={"x": x})
    return Inputs(origin="test", names=("x",), sha256="", indices=(0,), read=lambda _: sample)


@pytest.mark.parametrize("precision", ["f16", "bf16", "tf32"])
def test_without_ranges_a_files_own_float16_has_none_either(precision: str) -> None:
    model = ir.from_proto(parse_network(MIXED, CONSTANTS))
    for bounded in (True, False):
        found = open_simulation(arrange_precision(model, precision, bounded=bounded), ["y"])({"x": X})["y"]
        assert np.isinf(found).any() == bounded
    # Rounding is still that of 11 bits (8 of BF16): 6.0 x, three roundings of 2^-11 (2^-8), and that of the constants.
    exact = X * np.float32(np.float16(60000)) * np.float32(np.float16(1e-4))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 0.2 * 2.0**-11 < error < 3 * 2.0 ** (-8 if precision == "bf16" else -11)


def test_a_file_of_opset_7_whose_weights_are_no_inputs_is_converted() -> None:
    # Before IR version 4 weights had to be inputs as well; files that leave them out are common, and runtimes take them.
    text = '<ir_version: 3, opset_import: ["" : 7]> g (float[4,64] x) => (float[4,4] y) { y = MatMul(x, w) }'
    model = ir.from_proto(parse_network(text, {"w": np.ones((64, 4), np.float32)}))
    found = open_simulation(arrange_precision(model, "bf16"), ["y"])({"x": np.ones((4, 64), np.float32)})["y"]
    np.testing.assert_array_equal(found, np.full((4, 4), 64, np.float32))


def test_a_bug_is_not_excused_by_what_overflows_in_the_file_itself(tmp_path: Path) -> None:
    model = write_network(tmp_path / "mixed.onnx", MIXED, CONSTANTS)
    np.savez(tmp_path / "x.npz", x=X)
    np.savez(tmp_path / "candidate.npz", y=X * np.float32(6.0 * 1.2))  # a fifth too large
    study = parityscope.diagnose(
        model, candidate=f"saved:f16?path={tmp_path / 'candidate.npz'}", inputs=tmp_path / "x.npz"
    )
    assert study.verdict == "beyond"


def test_a_prediction_says_what_its_reference_leaves_out_of_a_mixed_file(tmp_path: Path) -> None:
    path = write_network(tmp_path / "mixed.onnx", MIXED, CONSTANTS)
    found = forecast(load_model(path), inputs(), ["f16"])
    assert any(said.startswith("3 of the file's own tensors are float16") for said in found.statements)
    # What the formats' rounding costs does not overflow, what the file makes of the numbers does.
    assert found.lost
    assert 0.2 * 2.0**-11 < found.formats[0].rounding["y"] < 3 * 2.0**-11
    plain = write_network(tmp_path / "plain.onnx", HEAD + "{ y = Mul(x, c) }", {"c": np.float32(0.3)})
    assert not forecast(load_model(plain), inputs(), ["f16"]).statements


def test_elements_in_which_the_reference_overflows_say_nothing_about_rounding(tmp_path: Path) -> None:
    path = write_network(tmp_path / "m.onnx", OVERFLOWS, {"large": np.float32(1e5), "small": np.float32(1e-5)})
    found = expect_error(ErrorQuestion(model=load_model(path), inputs=inputs(), samples=[0], tensors=["y"]))
    assert 0.2 * 2.0**-11 < found.errors["f16"]["y"] < 3 * 2.0**-11
    assert not found.skipped


def test_nothing_is_expected_where_rounding_alone_gives_nan(tmp_path: Path) -> None:
    # 1 + t is 1 in BF16 for t below 2^-8, and the logarithm of its distance from 1 is that of zero.
    text = HEAD + "{ one = Add(x, c)  t = Sub(one, c)  y = Log(t) }"
    path = write_network(tmp_path / "m.onnx", text, {"c": np.float32(1)})
    tiny = inputs(np.full((4, 64), 2.0**-10, np.float32))
    found = expect_error(ErrorQuestion(model=load_model(path), inputs=tiny, samples=[0], tensors=["y"]))
    assert "y" not in found.errors["bf16"]
    assert "y" in found.errors["f16"]
    assert [skip.what for skip in found.skipped] == ["expected error of bf16 at y"]


def test_of_a_reference_that_is_zero_the_absolute_size_counts() -> None:
    nothing, error = np.zeros((3, 4), np.float32), np.full((3, 4), 0.5, np.float32)
    assert graded_error(measure_pair(nothing, error, channel_axis=None)) == 0.5
    assert graded_error(measure_pair(nothing, nothing, channel_axis=None)) == 0.0
    assert graded_error(measure_pair(nothing, nothing / np.float32(0.5) + np.inf, channel_axis=None)) == math.inf
    assert graded_error(measure_pair(error, 2 * error, channel_axis=None)) == 1.0


@pytest.mark.parametrize(("size", "verdict"), [(1.0, "within"), (64.0, "beyond")])
def test_an_output_of_zeros_is_judged_by_what_rounding_makes_of_it(tmp_path: Path, size: float, verdict: str) -> None:
    # (x + 4096) - 4096 - x is zero in FP32 for multiples of 2^-8. In FP16 the sum is a multiple of 4 and x, of size 1, is lost.
    text = HEAD + "{ a = Add(x, c)  b = Sub(a, c)  y = Sub(b, x) }"
    path = write_network(tmp_path / "zeros.onnx", text, {"c": np.float32(4096)})
    np.savez(tmp_path / "x.npz", x=np.round(X * 256) / 256)
    np.savez(tmp_path / "candidate.npz", y=np.full_like(X, size))
    study = parityscope.diagnose(
        path, candidate=f"saved:f16?path={tmp_path / 'candidate.npz'}", inputs=tmp_path / "x.npz"
    )
    assert study.verdict == verdict


def test_nothing_finer_is_asked_of_a_saturated_sigmoid_than_a_rounding_of_one() -> None:
    reference = np.full((64, 32), 0.5, np.float32)
    reference[:, :4] = 1e-12
    candidate = reference.copy()
    candidate[:, :4] *= 1.5
    measured, own = measure_parts(reference, candidate), measure_parts(reference, reference * np.float32(1 + 1e-7))
    assert measured is not None
    assert own is not None
    both = {"y": {0: measured}}, {(0, "y"): own}
    assert not covers_parts(*both)
    asked: list[str] = []
    assert covers_parts(*both, lambda output: asked.append(output) or FLOAT32_ROUNDING)
    assert asked == ["y"]
    candidate[:, :4] = 1e-5
    far = measure_parts(reference, candidate)
    assert far is not None
    assert not covers_parts({"y": {0: far}}, both[1], lambda _output: FLOAT32_ROUNDING)
