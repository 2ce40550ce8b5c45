"""Changed decisions through `compare`: a clear one counts, however small the error; what arithmetic explains is not blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import parityscope
from command_line import exit_status, read_study
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.records import Budget, Policy
from parityscope.repairs.search.judging import make_yardstick, worst_excess
from parityscope.report.as_text import render_first_screen
from parityscope.report.offered import proof_command
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Outputs = dict[str, np.ndarray]
    Fault = Callable[[int, Outputs], Outputs]

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => '
_SCORES = _HEAD + "(float[N,1000] y) { y = MatMul(x, w) }"
_SIDES = _HEAD + "(float[N,1000] y) { h = MatMul(x, w)\n y = Sigmoid(h) }"
_STEPS = _HEAD + "(float[1,N,1000] y) { h = MatMul(x, w)\n z = Constant<value = int64[1] {0}>()\n y = Unsqueeze(h, z) }"
_BEST = _HEAD + "(int64[N] y) { h = MatMul(x, w)\n y = ArgMax<axis = 1, keepdims = 0>(h) }"
_TOP = (
    _HEAD
    + """(float[N,8] v, int64[N,8] y) {
  h = MatMul(x, w)
  k = Constant<value = int64[1] {8}>()
  v, y = TopK(h, k)
}"""
)
_SAMPLES, _ROWS = 4, 8  # too few rows for an expectation of each class


def draw_weights(classes: int, apart: float = 1.0) -> dict[str, np.ndarray]:
    """Weights of classes of which each of the second half differs from its like in the first by `apart` of its size."""
    draw = np.random.default_rng(7)
    weights = 0.2 * draw.normal(size=(64, classes)).astype(np.float32)
    half = classes // 2
    weights[:, half:] = weights[:, :half] + np.float32(apart) * (weights[:, half:] - weights[:, :half])
    return {"w": weights}


def compare(
    folder: Path,
    text: str,
    weights: Mapping[str, np.ndarray],
    fault: Fault,
    *options: str,
    honest: str = "sim:f16",
    declared: str = "f16",
) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and first screen; the candidate is a recording of an honest run, with a fault on each sample."""
    path = write_network(folder / "m.onnx", text, dict(weights))
    model = load_model(path)
    data, recorded = folder / "x", folder / "y"
    data.mkdir()
    recorded.mkdir()
    draw = np.random.default_rng(1)
    with open_target(model, parse_target(honest), Capture()) as theirs:
        for index in range(_SAMPLES):
            x = {"x": draw.normal(size=(_ROWS, 64)).astype(np.float32)}
            write_npz(data / f"{index:05}.npz", x)
            write_npz(
                recorded / f"{index:05}.npz", fault(index, dict(theirs.run(Sample(index=index, name="", arrays=x))))
            )
    study = folder / "s"
    line = [str(path), "--inputs", str(data), "--candidate", f"saved?path={recorded}", "--declared", declared, *options]
    code = exit_status("compare", *line, "--study", str(study), "--quiet")
    document = read_study(study)
    return code, document, " ".join(render_first_screen(document, width=400).split())


def as_it_is(_: int, outputs: Outputs) -> Outputs:
    return outputs


def turn_nearest(least: float) -> Fault:
    """On sample 2 the best class of the row of least lead above `least` falls just below the second."""

    def fault(index: int, outputs: Outputs) -> Outputs:
        if index != 2:
            return outputs
        turned = outputs["y"].copy()
        rows = turned.reshape(-1, turned.shape[-1])
        two = np.sort(rows, axis=1)[:, -2:]
        leads = two[:, 1] - two[:, 0]
        row = int(np.argmin(np.where(leads > least, leads, np.inf)))
        rows[row, rows[row].argmax()] = np.nextafter(two[row, 0], np.float32(-1e9))
        return {**outputs, "y": turned}

    return fault


def only_output(found: Mapping[str, Any], name: str = "y") -> dict[str, Any]:
    return next(one for one in found["outputs"] if one["name"] == name)


def move_across(at: float, least: float) -> Fault:
    """On sample 2 the number nearest to `at` that is off by `least` or more comes to lie as far on the other side."""

    def fault(index: int, outputs: Outputs) -> Outputs:
        if index != 2:
            return outputs
        moved = outputs["y"].copy()
        off = np.abs(moved - at)
        place = np.unravel_index(np.argmin(np.where(off > least, off, np.inf)), off.shape)
        moved[place] = 2 * at - moved[place]
        return {**outputs, "y": moved}

    return fault


def exchange_two_places(index: int, outputs: Outputs) -> Outputs:
    """On sample 2 the first two places of row 3 are exchanged: which is the best is another one."""
    if index != 2:
        return outputs
    places = outputs["y"].copy()
    places[3, :2] = places[3, 1::-1]
    return {**outputs, "y": places}


def exchange_behind_the_best(index: int, outputs: Outputs) -> Outputs:
    """On sample 2 the second and the third class of the row where they are nearest, from 0.02 on, are exchanged."""
    if index != 2:
        return outputs
    scores = outputs["y"].copy()
    order = np.argsort(-scores, axis=1)
    gaps = np.take_along_axis(scores, order[:, 1:2], 1) - np.take_along_axis(scores, order[:, 2:3], 1)
    row = int(np.argmin(np.where(gaps[:, 0] > 0.02, gaps[:, 0], np.inf)))
    first, second = order[row, 1:3]
    scores[row, first] = np.nextafter(scores[row, second], np.float32(-1e9))
    return {**outputs, "y": scores}


_TOLD = {"f16": "FP16", "bf16": "BF16"}
_FAR = "where FP16 explains"


@pytest.mark.parametrize(
    ("text", "fault", "options", "kind", "said"),
    [
        (
            _SCORES,
            turn_nearest(0.02),
            ("--decide", "y=classes"),
            "classes",
            "top-1 of 'y' changed in 1 of 32 rows (sample 2",
        ),
        (
            _SCORES,
            exchange_behind_the_best,
            ("--decide", "y=classes"),
            "classes",
            "the order of the best of 'y' changed in 1 of",
        ),
        (
            _STEPS,
            turn_nearest(0.02),
            ("--decide", "y=ctc"),
            "positions",
            "changed at 1 of 32 positions, in 1 of 4 sequences (sample 2",
        ),
        (_SIDES, move_across(0.5, 4e-3), (), "sides", "are on the other side of 0.5"),
        (_SIDES, move_across(0.3, 4e-3), ("--decide", "y=0.3"), "sides", "are on the other side of 0.3"),
        (_TOP, exchange_two_places, (), "order", "the order of 'y' changed at"),
    ],
    ids=["best", "order", "text", "a half", "a threshold", "places"],
)
def test_one_clear_decision_counts_however_small_the_error(
    tmp_path: Path, text: str, fault: Fault, options: tuple[str, ...], kind: str, said: str
) -> None:
    code, found, screen = compare(tmp_path, text, draw_weights(1000), fault, *options)
    output = only_output(found)
    assert (code, output["verdict"], output["decisions"]["kind"]) == (1, "beyond", kind), output["reason"]
    if kind != "order":  # places have no size
        assert output["rel_l2"] <= 2 * output["expected"]["f16"]  # nothing is wrong but the one decision
    flip = output["decisions"]["flip"]
    assert (flip["sample"], flip["explained"]) == (2, False)
    assert flip["gap"] > flip["allowed"]
    assert "sample 2" in output["reason"]
    assert said in screen
    assert _FAR in screen


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("text", "options"),
    [(_SCORES, ("--decide", "y=classes")), (_STEPS, ("--decide", "y=ctc")), (_SIDES, ()), (_TOP, ()), (_BEST, ())],
    ids=["best", "text", "sides", "places", "choice"],
)
def test_what_rounding_decides_otherwise_is_told_and_not_blamed(
    tmp_path: Path, text: str, options: tuple[str, ...], precision: str
) -> None:
    code, found, screen = compare(
        tmp_path, text, draw_weights(1000, 1e-4), as_it_is, *options, honest=f"sim:{precision}", declared=precision
    )
    output = only_output(found)
    assert code == 0, output["reason"]
    decided = output["decisions"]
    assert decided["changed"]
    assert decided["flip"]["explained"]
    told = _TOLD[precision]
    assert f"(rounding in {told} explains it)" in screen or f"({told} itself changes" in screen


def test_a_choice_between_scores_that_are_apart_counts(tmp_path: Path) -> None:
    def choose_another(index: int, outputs: Outputs) -> Outputs:
        chosen = outputs["y"].copy()
        chosen[3] = (chosen[3] + 1) % 1000 if index == 2 else chosen[3]
        return {"y": chosen}

    code, found, screen = compare(tmp_path, _BEST, draw_weights(1000), choose_another)
    flip = only_output(found)["decisions"]["flip"]
    assert (code, flip["sample"], flip["index"], flip["became"]) == (1, 2, [3], (flip["was"] + 1) % 1000)
    assert "top-1 of 'y' changed in 1 of 32 rows" in screen


def test_a_choice_among_equal_scores_is_nobodys_mistake(tmp_path: Path) -> None:
    weights = draw_weights(1000)
    weights["w"][:, 500:] = weights["w"][:, :500]  # each score is there twice

    def choose_the_other(_: int, outputs: Outputs) -> Outputs:
        return {"y": (outputs["y"] + 500) % 1000}

    code, found, screen = compare(
        tmp_path, _BEST, weights, choose_the_other, honest="ort?optimization=disabled", declared="f32"
    )
    output = only_output(found)
    assert (code, output["verdict"], output["decisions"]["changed"]) == (0, "within", 32)
    assert "between scores that f32 rounding does not tell apart" in output["reason"]
    assert "cannot be used" not in screen


def test_python_and_a_policy_say_what_is_decided(tmp_path: Path) -> None:
    path = write_network(tmp_path / "m.onnx", _SCORES, draw_weights(10))
    data = [{"x": np.random.default_rng(3).normal(size=(8, 64)).astype(np.float32)}]
    policy = tmp_path / "policy.toml"
    policy.write_text("[decide]\ny = 0.25\n")
    for asked in ({"decide": {"y": 0.25}}, {"policy": policy}):
        found = parityscope.compare(path, candidate="ort?optimization=disabled", inputs=data, **asked).document[
            "outputs"
        ][0]
        assert (found["decisions"]["kind"], found["decisions"]["at"]) == ("sides", 0.25)
    found = parityscope.compare(
        path, candidate="ort?optimization=disabled", inputs=data, decide={"y": "none"}
    ).document["outputs"][0]
    assert found["decisions"] is None


def test_verify_counts_what_is_decided_and_its_command_repeats_it(tmp_path: Path) -> None:
    code, document, _ = compare(tmp_path, _SCORES, draw_weights(10), turn_nearest(0.05), "--decide", "y=classes")
    assert code == 1
    assert "--decide y=classes" in proof_command(document, "")
    sides = ("--before", f"saved?path={tmp_path / 'y'}", "--after", "sim:f16", "--decide", "y=classes")
    line = ("verify", str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "x"), *sides, "--no-timing", "--quiet")
    exit_status(*line, "--study", str(tmp_path / "verified"))
    found = read_study(tmp_path / "verified")
    told = next(one for one in found["quantities"] if one["name"] == "decisions of y")
    # One of 4 x 8 rows was turned; FP16 by itself turns none of these.
    assert (told["before"], told["after"]) == (pytest.approx(1 / 32), 0.0)


@pytest.mark.parametrize(("lead", "kept"), [(0.03, True), (0.1, False)])
def test_a_repair_keeps_what_is_decided_as_far_as_the_budget_does_not_explain_it(lead: float, kept: bool) -> None:
    reference = np.zeros((1, 102), np.float32)
    reference[0, :2] = 1.0, 1.0 - lead
    candidate = reference.copy()
    candidate[0, :2] = candidate[0, 1::-1]
    budget = Budget(output="", metric="rel_l2", limit=0.2, reason="")
    sides = {"y": reference}, {"y": candidate}
    # Of a norm of 1.4 over 102 numbers a fifth is an RMS of 0.028, sqrt(2) times which is 0.039: it explains 0.03, not 0.1.
    policies = (Policy(budgets=(budget,), decides=told) for told in ((), (("y", "classes"),)))
    plain, asked = (make_yardstick(policy, {}, sides[:1], None) for policy in policies)
    assert worst_excess(plain, *sides) < 1
    assert (worst_excess(asked, *sides) < 1) is kept


@pytest.mark.parametrize("verb", ["verify", "repair"])
def test_every_verb_says_which_output_decides_nothing(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_network(tmp_path / "m.onnx", _SCORES, draw_weights(10))
    sides = ("--before", "ort", "--after", "ort") if verb == "verify" else ("-o", str(tmp_path / "f.onnx"))
    assert exit_status(verb, str(path), *sides, "--decide", "z=0.3") == 2
    assert "the model has no such output" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("y=", "is not OUTPUT=WHAT"),
        ("y=maybe", "is nothing that an output can decide"),
        ("z=0.3", "the model has no such output"),
    ],
)
def test_what_cannot_be_decided_is_told(
    tmp_path: Path, words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_network(tmp_path / "m.onnx", _SCORES, draw_weights(10))
    assert exit_status("compare", str(path), "--candidate", "ort", "--decide", words) == 2
    assert told in " ".join(capsys.readouterr().err.split())
