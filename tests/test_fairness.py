"""Fair tests: outliers, made-up inputs, budgets below noise, references that are wrong, too few samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import exit_status, read_study
from examinations import examination_of
from pages import ROOT, work_through
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks import Example
from parityscope.checks.few_samples import upper_bound
from parityscope.checks.near_zero import outside_of
from parityscope.checks.outlier import outliers_of
from parityscope.checks.statistics import ks_distance, noise_of
from parityscope.records import Policy, Target, Tolerance
from parityscope.study.causes import second_run
from parityscope.study.neighbour_targets import peers_of, switched_of
from parityscope.testing.check_contract import findings_of
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path


def diagnosed(line: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    return exit_status("diagnose", *line, "--format", "json", "--quiet"), json.loads(capfd.readouterr().out)


def test_the_single_outlier_from_the_command_line(tmp_path: Path) -> None:
    # The founding case, as its page shows it: one element of 1 x 577 x 4096 = 2,363,392 is off by 251.31, all others are right.
    words = ("--study", "study", "--quiet")
    code = work_through(ROOT / "docs" / "fairness.md", tmp_path, "parityscope diagnose encoder.onnx ", *words)
    found = read_study(tmp_path / "study")
    assert code == 1
    first = found["findings"][0]
    assert (first["code"], first["role"]) == ("DAT007", "cause")
    assert first["details"]["elements"] == [[0, 77, 2526]]
    assert first["details"]["of"] == 2_363_392
    assert first["details"]["without"] == 0
    # One step of float32 at 251 is 2^-16.
    assert first["details"]["largest"] == pytest.approx(251.31, abs=2.0**-15)
    assert [one["code"] for one in found["findings"] if one["role"] == "cause"] == ["DAT007"]


def test_outliers_are_counted_from_the_largest() -> None:
    reference = np.zeros((2, 10_000), np.float32)
    reference[:] = 1.0
    candidate = reference.copy()
    candidate[0, 3], candidate[1, 9_999] = 5.0, -7.0
    assert outliers_of(reference, candidate, 1e-6) == ((1, 9_999), (0, 3))
    # Three of 20,000 are more than one in 10,000, and then it is a fault of something else.
    candidate[0, 7] = 5.0
    assert outliers_of(reference, candidate, 1e-6) == ()
    assert outliers_of(reference, reference, 1e-6) == ()


def test_elements_outside_that_are_nearly_zero() -> None:
    # Root mean square sqrt((1 + 1 + 1e-8) / 3) = 0.8165: of the two outside of rtol 0.1 one is below a hundredth of it.
    reference = np.array([1.0, 1.0, 1e-4], np.float64)
    candidate = np.array([1.2, 1.05, 2e-4], np.float64)
    assert outside_of(reference, candidate, Tolerance(atol=0.0, rtol=0.1)) == (2, 1)
    assert outside_of(reference, candidate, Tolerance(atol=0.3, rtol=0.1)) == (0, 0)


# Zeros around values below zero: ONNX Runtime pads in the pooling, where padding never wins.
POOLED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,6,6] x) => (float[1,2,4,4] y) <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, float nought = {0}> {
  p = Pad(x, pads, nought)
  y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(p)
}"""


@pytest.mark.parametrize("recorded", [False, True])
def test_an_optimizer_bug_that_both_sides_share(
    recorded: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_network(tmp_path / "m.onnx", POOLED)
    x = np.random.default_rng(0).uniform(-2, -1, (1, 2, 6, 6)).astype(np.float32)
    write_npz(tmp_path / "x.npz", {"x": x})
    write_npz(tmp_path / "y.npz", open_path(path, outputs=["y"])({"x": x}))
    line = [str(path), "--inputs", str(tmp_path / "x.npz")]
    line += ["--candidate", f"saved?path={tmp_path / 'y.npz'}" if recorded else "ort"]
    code, found = diagnosed([*line, "--study", str(tmp_path / "below")], capfd)
    assert (code, found["verdict"]) == (3, "incomplete")
    told = next(one for one in found["findings"] if one["code"] == "DAT009")
    assert told["role"] == "information"
    assert told["site"]["tensor"] == "y"
    assert told["repairs"][0]["command"] == "--reference 'ort?optimization=disabled'"
    # Zeros around what is above zero are no bug's business.
    write_npz(tmp_path / "x.npz", {"x": -x})
    write_npz(tmp_path / "y.npz", open_path(path, outputs=["y"])({"x": -x}))
    code, found = diagnosed([*line, "--study", str(tmp_path / "above")], capfd)
    assert (code, found["verdict"]) == (0, "within")
    assert "DAT009" not in {one["code"] for one in found["findings"]}


def test_another_reference_is_offered_only_where_the_candidate_agrees_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_network(tmp_path / "m.onnx", POOLED)
    x = np.random.default_rng(0).uniform(-2, -1, (1, 2, 6, 6)).astype(np.float32)
    write_npz(tmp_path / "x.npz", {"x": x})
    right = open_path(path, outputs=["y"], optimization="disabled")({"x": x})["y"]
    line = [str(path), "--inputs", str(tmp_path / "x.npz"), "--candidate", f"saved?path={tmp_path / 'y.npz'}"]
    for scale, role, offered in ((1.0, "cause", "--reference ort?optimization=disabled"), (3.0, "information", "")):
        write_npz(tmp_path / "y.npz", {"y": right * np.float32(scale)})
        _, found = diagnosed([*line, "--study", str(tmp_path / role)], capfd)
        told = next(one for one in found["findings"] if one["code"] == "DAT009")
        assert (told["role"], "".join(one["command"] for one in told["repairs"])) == (role, offered)


@pytest.mark.parametrize(("part", "told"), [(1e-4, False), (1e-2, True)])
def test_an_optimizer_bug_counts_beside_what_the_declared_arithmetic_costs(
    part: float, told: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # The bug moves a part of an output of size one; BF16 rounds that by 2^-9 at most, and the candidate errs by 1e-5 of it.
    text = POOLED.replace("y = MaxPool", "m = MaxPool").rstrip("}") + "  n = Mul(m, part)  y = Add(n, base)\n}"
    base = np.random.default_rng(1).uniform(1, 2, (1, 2, 4, 4)).astype(np.float32)
    path = write_network(tmp_path / "m.onnx", text, {"part": np.array(part, np.float32), "base": base})
    x = np.random.default_rng(0).uniform(-2, -1, (1, 2, 6, 6)).astype(np.float32)
    write_npz(tmp_path / "x.npz", {"x": x})
    y = open_path(path, outputs=["y"])({"x": x})["y"]
    write_npz(tmp_path / "y.npz", {"y": y * np.float32(1 + 1e-5)})
    line = [str(path), "--inputs", str(tmp_path / "x.npz"), "--candidate", f"saved:bf16?path={tmp_path / 'y.npz'}"]
    code, found = diagnosed([*line, "--study", str(tmp_path / "study")], capfd)
    assert (code, found["verdict"]) == ((3, "incomplete") if told else (0, "within"))
    assert ("DAT009" in {one["code"] for one in found["findings"]}) is told


@pytest.mark.parametrize(
    ("reference", "candidate", "asked"),
    [
        ("ort", "ort", True),
        ("ort", "command?run=x", True),
        ("ort?optimization=disabled", "ort", False),
        ("ort", "ort?optimization=disabled", False),
        ("ort", "openvino", False),
        ("saved?path=y", "ort", False),
    ],
)
def test_sides_that_may_share_an_optimizer(reference: str, candidate: str, asked: bool, tmp_path: Path) -> None:
    model = load_model(write_network(tmp_path / "m.onnx", POOLED))
    write_npz(tmp_path / "x.npz", {"x": np.ones((1, 2, 6, 6), np.float32)})
    inputs = load_inputs(model, tmp_path / "x.npz", spool=tmp_path / "spool")
    case = Case(name="m", model=model, inputs=inputs, policy=Policy())
    assert (second_run(examination_of(case, candidate, reference=reference)) is not None) is asked


def test_the_rule_of_three() -> None:
    # 1 - 0.05^(1/n): one sample bounds nothing (95 %), 59 are the first to bound the share at 5 %, and 300 at 1 %.
    assert upper_bound(1) == pytest.approx(0.95)
    assert upper_bound(58) > 0.05 >= upper_bound(59)
    assert upper_bound(300) == pytest.approx(3 / 300, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_generators_are_recognized_and_pictures_are_not(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    assert noise_of(numbers.random((1, 3, 40, 40))) == "uniform noise in [0, 1)"
    assert noise_of(numbers.normal(size=(1, 3, 40, 40))) == "standard normal noise"
    walk = np.cumsum(numbers.normal(size=(3, 1600)), axis=1)
    assert noise_of((walk - walk.mean()) / walk.std()) == ""
    # White, but of no generator's distribution; and too little to tell.
    assert noise_of(np.square(numbers.normal(size=(40, 40)))) == ""
    assert noise_of(numbers.random(100)) == ""


def test_what_a_softmax_gathers_in_two_elements_is_the_error_of_the_layer_before(tmp_path: Path) -> None:
    # Of 20,000 shares two hold all but e^-20; noise in every element of the layer before moves only these.
    numbers = np.random.default_rng(5)
    x = numbers.normal(size=(1, 20_000)).astype(np.float32)
    x[0, [7, 900]] = 20.0, 20.5
    noise = (0.05 * numbers.normal(size=x.shape)).astype(np.float32)
    example = Example(
        model="""<ir_version: 8, opset_import: ["" : 17]> g (float[1,20000] x) => (float[1,20000] y) {
            a = Mul(x, gain)
            y = Softmax<axis = 1>(a)
        }""",
        inputs={"x": x},
        constants={"gain": np.array([1.0], np.float32)},
        fault=("a", lambda value: value + noise),
    )
    roles = {one["code"]: one["role"] for one in findings_of(example, tmp_path / "example")}
    assert roles["DAT007"] == "information"
    assert roles["FUS003"] == "contributing"


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_distance_of_two_sets_is_a_distance(a: int, b: int) -> None:
    first, second = np.arange(a, dtype=np.float32), np.arange(b, dtype=np.float32)
    assert ks_distance(first, first) == 0.0
    assert ks_distance(first, second) == ks_distance(second, first) <= 1.0
    # {0 .. a-1} and {1000 ..} have nothing in common.
    assert ks_distance(first, second + 1000) == 1.0


HALF = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  h = Cast<to = 10>(x)
  a = Mul(h, w)
  y = Cast<to = 1>(a)
}"""


def test_who_is_held_against_the_reference(tmp_path: Path) -> None:
    plain = load_model(
        write_network(
            tmp_path / "p.onnx",
            '<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Tanh(x) }',
        )
    )
    half = load_model(write_network(tmp_path / "h.onnx", HALF, {"w": np.ones(8, np.float16)}))
    off = Target(backend="ort", options=(("optimization", "disabled"),))
    assert (plain.formats, half.formats) == ((), ("f16",))
    assert peers_of(plain, Target(backend="ort")) == (off,)
    assert peers_of(half, Target(backend="ort")) == (off, Target(backend="sim"))
    assert peers_of(plain, off) == ()
    assert peers_of(plain, Target(backend="openvino")) == ()
    on = Target(backend="ort", precision="tf32", options=(("device", "cuda"), ("tf32", "on")))
    assert Target(backend="ort", options=(("device", "cuda"), ("tf32", "off"))) in switched_of(on)
    assert Target(backend="openvino", precision="f32") in switched_of(Target(backend="openvino", precision="bf16"))
    assert switched_of(Target(backend="saved")) == ()


SUM = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,256] x) => (float[N,256] y) {
  a = Mul(x, x)
  y = Tanh(a)
}"""


@pytest.mark.search_of(0.1)
def test_real_samples_acquit_the_deployment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # The program saturates its inputs at 4, as an INT8 engine does that was calibrated on real data: no real sample is there.
    path = write_network(tmp_path / "m.onnx", SUM.replace("Tanh", "Sqrt"))
    program = tmp_path / "infer.py"
    program.write_text(
        "import sys, numpy as np\nfrom pathlib import Path\nsource, sink = map(Path, sys.argv[1:])\n"
        "for file in source.glob('*.npz'):\n    x = np.clip(np.load(file)['x'], -4, 4)\n"
        "    np.savez(sink / file.name, y=np.sqrt(x * x))\n",
        encoding="utf-8",
    )
    numbers = np.random.default_rng(1)
    (tmp_path / "real").mkdir()
    for place in range(2):
        write_npz(tmp_path / "real" / f"{place}.npz", {"x": numbers.uniform(-1, 1, size=(1, 256)).astype(np.float32)})
    write_npz(tmp_path / "wild.npz", {"x": (100 * numbers.normal(size=(1, 256))).astype(np.float32)})
    import sys

    line = [str(path), "--candidate", f"command?run={sys.executable} {program}", "--study", str(tmp_path / "study")]
    line += ["--inputs", str(tmp_path / "wild.npz"), "--real", str(tmp_path / "real")]
    code, found = diagnosed(line, capfd)
    assert code == 1
    told = [one for one in found["findings"] if one["code"] == "DAT004"]
    assert [one["role"] for one in told] == ["cause", "information"]
    assert "outside the real samples' range" in told[1]["claim"]
    assert found["findings"][0]["code"] == "DAT004"
    # That is the first sentence, whatever else was found.
    study = read_study(tmp_path / "study")
    assert study["headline"].startswith("On the real samples the candidate is within what was declared")
