"""The engine's order: cheap and decisive first, under a budget of time; outcomes change it, and refuted claims are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status, read_study
from examinations import examination_of
from parityscope import diagnosis
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks import Check, Claim, Prediction, Shown
from parityscope.diagnosis import SPENT, TimeSpentError, run_experiments
from parityscope.records import Policy
from parityscope.study import examine_request
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from parityscope.examination import Examination
    from parityscope.records import Diagnosis, Runs

_RNG = np.random.default_rng(6)
_CONV = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,64,64] x) => (float[1,8,64,64] y) {
  a = Conv<pads = [1, 1, 1, 1]>(x, w)
  r = Relu(a)
  y = Conv<pads = [1, 1, 1, 1]>(r, v)
}"""
_CONSTANTS = {
    "w": _RNG.normal(size=(16, 3, 3, 3)).astype(np.float32),
    "v": _RNG.normal(size=(8, 16, 3, 3)).astype(np.float32),
}


class _Clock:
    """A clock that moves when an experiment says how long it took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _check(
    code: str,
    experiments: Iterable[tuple[Runs, float]],
    ran: list[str],
    clock: _Clock,
    *,
    share: float | None = None,
    fails: bool = False,
) -> Check:
    """A check whose experiments take as long as they say; they are supported, with that share, if there is one."""

    def claim(runs: Runs, cost_s: float) -> Claim:
        words = f"{code} {runs} {cost_s}"

        def test() -> Shown:
            ran.append(words)
            clock.now += cost_s
            if fails:
                raise TimeSpentError(SPENT)
            return Shown(because="", outcome="refutes" if share is None else "supports", before=1.0, share=share)

        predicts = Prediction(measure="", if_true="", if_false="")
        return Claim(words=words, predicts=predicts, test=test, cost_s=cost_s, runs=runs)

    return Check(
        code=code,
        title=code,
        propose=lambda: [claim(runs, cost_s) for runs, cost_s in experiments],
        holds=(),
        holds_not=(),
    )


@pytest.fixture
def known(tmp_path: Path) -> Examination:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    onnx.save(model, tmp_path / "model.onnx")
    write_npz(tmp_path / "x.npz", {"x": np.ones(2, np.float32)})
    held = load_model(tmp_path / "model.onnx")
    inputs = load_inputs(held, tmp_path / "x.npz", spool=tmp_path)
    case = Case(name="negated", model=held, inputs=inputs, policy=Policy(declared="f32"))
    return replace(examination_of(case, "ort"), verdict="beyond")


@pytest.fixture
def tested(known: Examination, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Diagnosis]:
    def run(*checks: Check, seconds: float = 1e9, clock: _Clock) -> Diagnosis:
        monkeypatch.setattr(diagnosis, "known_checks", lambda: {check.code: check for check in checks})
        return run_experiments(replace(known, end=clock() + seconds), clock=clock).diagnosis

    return run


def test_what_runs_nothing_comes_first_and_what_builds_again_last(tested: Callable[..., Diagnosis]) -> None:
    ran: list[str] = []
    clock = _Clock()
    mixed = _check("AAA001", [("rebuild", 0.1), ("candidate", 0.2), ("", 0.3), ("nothing", 9.0)], ran, clock)
    other = _check("BBB001", [("candidate", 0.1), ("reference", 0.1), ("", 0.0)], ran, clock)
    tested(mixed, other, clock=clock)
    assert ran == [
        "BBB001  0.0",
        "AAA001 nothing 9.0",
        "BBB001 reference 0.1",
        "AAA001  0.3",
        "BBB001 candidate 0.1",
        "AAA001 candidate 0.2",
        "AAA001 rebuild 0.1",
    ]


def test_what_the_time_does_not_allow_is_listed(tested: Callable[..., Diagnosis]) -> None:
    ran: list[str] = []
    clock = _Clock()
    found = tested(
        _check("AAA001", [("reference", 4.0), ("reference", 5.0), ("candidate", 1.0)], ran, clock),
        seconds=8.0,
        clock=clock,
    )
    # The second begins in time and ends after it; nothing begins after that.
    assert ran == ["AAA001 reference 4.0", "AAA001 reference 5.0"]
    assert [(skip.what, skip.reason, skip.asked) for skip in found.skipped] == [
        ("experiment AAA001-3: AAA001 candidate 1.0", SPENT, True)
    ]


def test_an_experiment_that_is_cut_off_has_no_outcome(tested: Callable[..., Diagnosis]) -> None:
    ran: list[str] = []
    clock = _Clock()
    found = tested(_check("AAA001", [("reference", 4.0)], ran, clock, fails=True), clock=clock)
    assert (found.findings, found.refuted) == ((), ())
    assert found.skipped[0].reason == SPENT


def test_a_claim_that_explains_all_sends_the_others_to_the_end(tested: Callable[..., Diagnosis]) -> None:
    ran: list[str] = []
    clock = _Clock()
    whole = _check("MMM001", [("reference", 1.0), ("rebuild", 3.0)], ran, clock, share=1.0)
    found = tested(_check("AAA001", [("reference", 2.0)], ran, clock), whole, clock=clock)
    assert ran == ["MMM001 reference 1.0", "MMM001 rebuild 3.0", "AAA001 reference 2.0"]
    assert [one.code for one in found.findings][:1] == ["MMM001"]
    ran.clear()
    part = _check("MMM001", [("reference", 1.0), ("rebuild", 3.0)], ran, clock, share=0.5)
    tested(_check("AAA001", [("reference", 2.0)], ran, clock), part, clock=clock)
    assert ran == ["MMM001 reference 1.0", "AAA001 reference 2.0", "MMM001 rebuild 3.0"]


@pytest.mark.parametrize(
    ("announced", "thorough", "searched"), [("bf16", False, False), ("", False, True), ("bf16", True, True)]
)
def test_no_long_search_beside_an_arithmetic_that_was_announced_and_explains_the_size(
    known: Examination, monkeypatch: pytest.MonkeyPatch, announced: str, thorough: bool, searched: bool
) -> None:
    ran: list[str] = []
    clock = _Clock()
    shown = Shown(because="", outcome="supports", before=1.0, role="cause", details={"grade": "bf16"})
    predicts = Prediction(measure="", if_true="", if_false="")
    by_size = Claim(words="computes in bf16", predicts=predicts, test=lambda: shown)
    size = Check(code="ACC001", title="", propose=lambda: [by_size], holds=(), holds_not=())
    search = _check("ZZZ001", [("reference", 30.0), ("candidate", 1.0)], ran, clock)
    monkeypatch.setattr(diagnosis, "known_checks", lambda: {check.code: check for check in (size, search)})
    asked = replace(
        known,
        candidate=replace(known.candidate, precision=announced),
        request=replace(known.request, thorough=thorough),
        end=1e9,
    )
    found = run_experiments(asked, clock=clock).diagnosis
    assert ran == ["ZZZ001 candidate 1.0", *(["ZZZ001 reference 30.0"] if searched else [])]
    assert [skip.what for skip in found.skipped] == ([] if searched else ["experiment ZZZ001-1: ZZZ001 reference 30.0"])


def test_refuted_claims_are_kept_with_their_identity(tested: Callable[..., Diagnosis]) -> None:
    clock = _Clock()
    found = tested(_check("AAA001", [("reference", 1.0), ("nothing", 0.0)], [], clock), clock=clock)
    # Identities follow the order in which the check proposes, not that in which they were run.
    assert [one.experiment.identity for one in found.refuted] == ["AAA001-2", "AAA001-1"]


def _conv(folder: Path) -> list[str]:
    write_network(folder / "model.onnx", _CONV, _CONSTANTS)
    inputs = [_RNG.random((1, 3, 64, 64)).astype(np.float32) for _ in range(2)]
    for number, array in enumerate(inputs):
        write_npz(folder / "inputs" / f"{number:06d}.npz", {"x": array})
        # Noise: nothing explains it, and every transformation of the input is tried.
        noise = np.random.default_rng(number).normal(size=(1, 8, 64, 64)).astype(np.float32)
        write_npz(folder / "recorded" / f"{number:06d}.npz", {"y": noise})
    candidate = f"saved?path={folder / 'recorded'}"
    return [
        "diagnose",
        str(folder / "model.onnx"),
        "--candidate",
        candidate,
        "--inputs",
        str(folder / "inputs"),
        "--quiet",
    ]


def test_an_experiment_of_many_runs_ends_with_the_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = _conv(tmp_path)
    # What is loaded and compiled once in a process is not what the time is for; hundreds of runs of this network take 0.2 s.
    assert exit_status(*words, "--time", "0.05s", "--study", str(tmp_path / "first"), "--format", "json") == 1
    capfd.readouterr()
    assert exit_status(*words, "--time", "0.05s", "--study", str(tmp_path / "short"), "--format", "json") == 1
    document = json.loads(capfd.readouterr().out)
    study = read_study(tmp_path / "short")
    spent = [skip["what"] for skip in document["skipped"] if skip["reason"] == SPENT]
    assert any(what.startswith("experiment PRE001-1:") for what in spent)
    assert not [one for one in document["refuted"] if one["experiment"]["check"] == "PRE001"]
    # One run of the reference is the most that is begun in time and ends after it; the rest is this machine's other work.
    assert study["timings"]["causes"] < 5.0


def test_no_time_at_all_still_gives_the_verdict(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*_conv(tmp_path), "--time", "1e-9s", "--study", str(tmp_path / "none"), "--all") == 1
    text = capfd.readouterr().out
    assert "Differs more than FP32 explains" in text
    assert SPENT in " ".join(text.split())  # wherever its line is broken
    assert "raise --time" in text


def test_trials_of_repairs_obey_the_time_too(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
      two = Constant<value_float = 2.0>()
      big = Mul(x, scale)
      square = Pow(big, two)
      mean = ReduceMean(square)
      root = Sqrt(mean)
      y = Div(big, root)
    }"""
    write_network(tmp_path / "model.onnx", text, {"scale": np.array(800.0, np.float32)})
    write_npz(tmp_path / "x.npz", {"x": np.linspace(0.5, 1, 8, dtype=np.float32).reshape(1, 8)})
    held = load_model(tmp_path / "model.onnx")
    case = Case(
        name="pow",
        model=held,
        inputs=load_inputs(held, tmp_path / "x.npz", spool=tmp_path),
        policy=Policy(declared="f16"),
    )
    whole = examine_request(examination_of(case, "sim:f16", folder=tmp_path / "a"))
    assert any(offer["trial"] for one in whole["findings"] for offer in one["repairs"])
    none = examine_request(examination_of(case, "sim:f16", folder=tmp_path / "b", seconds=1e-9))
    assert not any(offer["trial"] for one in none["findings"] for offer in one["repairs"])
    assert {skip["reason"] for skip in none["skipped"]} >= {SPENT}
