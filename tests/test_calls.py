"""Outputs that are fed back: what each call introduces, inherits and amplifies, and where that stops being linear."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.localization.calls import first_beyond, growth_of
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]


def fed_back(step: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {"next": step(arrays["h"])}


def start(*values: float, calls: int) -> list[dict[str, np.ndarray]]:
    return [{"h": np.array(values, np.float64)}] * calls


@settings(deadline=None)  # the first comparison loads compiled code
@given(st.floats(0.5, 2.0), st.floats(1e-6, 1e-2))
def test_a_linear_loop_amplifies_as_its_factor_says(gain: float, offset: float) -> None:
    # f(h) = 1 + a (h - 1) stays at 1; g adds e. The error after n calls is e (1 + a + ... + a^(n-1)).
    growth = growth_of(
        fed_back(lambda h: 1 + gain * (h - 1)),
        fed_back(lambda h: 1 + gain * (h - 1) + offset),
        start(1.0, calls=6),
        {"h": "next"},
    )
    for step in growth.steps:
        assert step.error == pytest.approx(offset * sum(gain**power for power in range(step.call)), rel=1e-6)
        assert step.introduced == pytest.approx(offset, rel=1e-6)
        # One direction only, so that introduced and inherited add up.
        assert step.introduced + step.inherited == pytest.approx(step.error, rel=1e-6)
    assert growth.factor == pytest.approx(gain, rel=1e-6)
    assert growth.leaves is None


def test_the_linear_regime_ends_where_half_the_error_does_not_inherit_half() -> None:
    # f(h) = h + (h - 1)^2 at 1, c = 1 + e: f(c) - f(r) = e + e^2, bent by e^2 - 2 (e/2)^2 = e^2 / 2. That is a tenth of what is
    # inherited at e / 2 = 0.1 (1 + e), which is e = 0.25.
    def square(h: np.ndarray) -> np.ndarray:
        return np.asarray(h + np.square(h - 1))

    for error, leaves in ((0.2, None), (0.3, 2)):
        states = iter([1.0 + error])
        growth = growth_of(
            fed_back(square),
            fed_back(lambda h, states=states: np.array([next(states, float(square(h)[0]))])),
            start(1.0, calls=2),
            {"h": "next"},
        )
        assert growth.leaves == leaves
        assert growth.steps[1].inherited == pytest.approx(error + error**2)


def test_tokens_leave_the_linear_regime_when_they_differ() -> None:
    calls = [{"h": np.array([3], np.int64)}] * 3
    growth = growth_of(fed_back(lambda h: h + 1), fed_back(lambda h: h + 1 + (h == 4)), calls, {"h": "next"})
    assert [step.error for step in growth.steps] == [0.0, 1.0, 1.0]
    assert growth.leaves == 3  # the first call that begins with another token
    assert growth.steps[2].curved == math.inf


def test_equal_sides_stay_equal_and_an_honest_one_excuses() -> None:
    chaos = fed_back(lambda h: 4 * h - 4 * h * h)
    same = growth_of(chaos, chaos, start(0.3, calls=20), {"h": "next"})
    assert first_beyond(same) is None
    assert math.isnan(same.factor)
    nearly = fed_back(lambda h: (4 * h - 4 * h * h) * (1 + 1e-4))
    blamed = growth_of(chaos, nearly, start(0.3, calls=20), {"h": "next"})
    found = first_beyond(blamed)
    assert found is not None
    assert found.call == 1
    assert first_beyond(growth_of(chaos, nearly, start(0.3, calls=20), {"h": "next"}, honest=nearly)) is None


def test_a_state_of_another_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be fed back"):
        growth_of(fed_back(lambda h: h[None]), fed_back(lambda h: h[None]), start(1.0, calls=1), {"h": "next"})


# h' = tanh(3 h W + x): the state is amplified before it is squashed.
LOOP = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x, float[1,32] h) => (float[1,32] y, float[1,32] next) {
  a = MatMul(h, w)
  b = Add(a, x)
  next = Tanh(b)
  y = Mul(next, next)
}"""


def diagnosed(line: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = exit_status("diagnose", *line, "--format", "json", "--quiet")
    printed = capfd.readouterr()
    return code, json.loads(printed.out) if printed.out.startswith("{") else {"stderr": printed.err}


def test_a_loop_from_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers = np.random.default_rng(5)
    built = onnx.parser.parse_model(LOOP)
    w = (3 * numbers.normal(size=(32, 32)) / np.sqrt(32)).astype(np.float32)
    built.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(built, tmp_path / "m.onnx")
    (tmp_path / "frames").mkdir()
    for frame in range(3):
        arrays = {name: numbers.normal(size=(1, 32)).astype(np.float32) for name in ("x", "h")}
        write_npz(tmp_path / "frames" / f"{frame}.npz", arrays)
    line = [str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "frames"), "--candidate", "sim:f16"]
    calls = ["--state", "next=h", "--steps", "30"]
    # Honest FP16: the error grows, and as an honest deployment's does.
    code, found = diagnosed([*line, *calls, "--study", str(tmp_path / "a")], capfd)
    assert code == 0
    (told,) = [one for one in found["findings"] if one["code"] == "SEQ001"]
    assert told["role"] == "information"
    assert len(told["details"]["errors"]) == 30
    assert told["details"]["errors"][-1] > 100 * told["details"]["errors"][0]
    # Every call is what FP16 makes of it, and FP32 was declared: beyond.
    code, found = diagnosed([*line, *calls, "--declared", "f32", "--study", str(tmp_path / "b")], capfd)
    assert code == 1
    # Without a state nothing is called again.
    code, found = diagnosed([*line, "--study", str(tmp_path / "c")], capfd)
    assert code == 0
    assert not [one for one in found["findings"] if one["code"] == "SEQ001"]
    for wrong, problem in (
        (["--state", "next"], "is not OUTPUT=INPUT"),
        (["--state", "next=q"], "the model has no input 'q'"),
        (["--state", "z=h"], "the model has no output 'z'"),
        (["--steps", "5"], "nothing says what is fed back"),
        (["--state", "next=h", "--state", "y=h"], "feeds 'h' twice"),
    ):
        code, found = diagnosed([*line, *wrong, "--study", str(tmp_path / "d")], capfd)
        assert code == 2
        assert problem in found["stderr"]


def test_an_error_that_the_loop_forgets_is_not_called_growing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # h' = 1 + x (h - 1) stays at 1, and the candidate adds e: e, then 8 e + e, then 0.1 of that and e again, ever smaller.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x, float[1,16] h) => (float[1,16] next) {
      a = Sub(h, one)  b = Mul(a, x)  next = Add(b, end) }"""
    one = np.ones(1, np.float32)
    model = write_network(tmp_path / "m.onnx", text, {"one": one, "end": one})
    other = write_network(tmp_path / "other.onnx", text, {"one": one, "end": one + np.float32(0.01)})
    (tmp_path / "frames").mkdir()
    for frame, factor in enumerate((1.0, 8.0, 0.1, 0.1, 0.1)):
        arrays = {"x": np.full((1, 16), factor, np.float32), "h": np.ones((1, 16), np.float32)}
        write_npz(tmp_path / "frames" / f"{frame}.npz", arrays)
    line = [str(model), "--inputs", str(tmp_path / "frames"), "--candidate", f"ort?model={other}"]
    code, found = diagnosed([*line, "--state", "next=h", "--steps", "5", "--study", str(tmp_path / "s")], capfd)
    assert code == 1
    study = read_study(tmp_path / "s")
    errors = [step["error"] for step in study["calls"]["steps"]]
    assert errors[1] == pytest.approx(9 * errors[0], rel=0.01)
    # The state is one value in all of its elements, in the reference too: that it is so in the candidate is no sign of age.
    assert not {"SEQ001", "BND003"} & {one["code"] for one in found["findings"]}
