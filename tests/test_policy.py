"""Policy files: what they say, what is refused, and that every budget is really judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import parityscope
from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.case.policy import budgets_for, override_policy
from parityscope.case.policy_file import read_policy
from parityscope.comparison.tolerance import count_outside, merge_outside
from parityscope.errors import ParityError
from parityscope.records import Budget, Policy, Target, Tolerance
from parityscope.study import known_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y, float[1,4] double, int64[1,1] best) {
  y = Relu(x)
  double = Add(x, x)
  best = ArgMax<axis = 1>(x)
}"""
X = np.array([[1.0, 2.0, 4.0, -1.0]], np.float32)
REFERENCE = {"y": np.array([[1, 2, 4, 0]], np.float32), "double": 2 * X, "best": np.array([[2]])}
METRICS = {"rel_l2": "lower", "max_abs": "lower", "cosine": "higher"}

FULL = """
declared = "f16"
declared_reason = "built with --fp16"
samples = 3

[[budget]]
metric = "rel_l2"
limit = 0.01
reason = "boxes move by less than a pixel"

[[budget]]
output = "y"
atol = 0.5
rtol = 0
reason = "half a pixel"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def examined(folder: Path, candidate: Mapping[str, np.ndarray], **words: Any) -> dict[str, Any]:
    """Outputs of the comparison by name, with `verdict` of the whole."""
    onnx.save(onnx.parser.parse_model(MODEL), folder / "model.onnx")
    write_npz(folder / "x.npz", {"x": X})
    write_npz(folder / "candidate.npz", {**REFERENCE, **candidate})
    study = parityscope.compare(
        folder / "model.onnx", candidate=f"saved?path={folder / 'candidate.npz'}", inputs=folder / "x.npz", **words
    )
    return {one["name"]: one for one in study.document["outputs"]} | {"verdict": study.verdict}


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    found = read_policy(written(tmp_path, FULL), METRICS)
    assert found.samples == 3
    assert found.policy == Policy(
        declared="f16",
        declared_reason="built with --fp16",
        budgets=(
            Budget(output="", metric="rel_l2", limit=0.01, reason="boxes move by less than a pixel"),
            Budget(output="y", metric="outside", limit=0, reason="half a pixel", tolerance=Tolerance(atol=0.5, rtol=0)),
        ),
    )


B = "[[budget]]\n"
WHY = 'reason = "r"\n'


@pytest.mark.parametrize(
    ("text", "named", "fix"),
    [
        ("declared = ", "TOML", "[tables]"),
        ('declarde = "f16"', "declarde", "declared"),
        ('declared = "fp16"', "fp16", "f16"),
        ("declared = 16", "declared", "f16"),
        ('declared_reason = "why"', "declared_reason", "declared ="),
        ("samples = 0", "samples", "100"),
        ("samples = true", "samples", "100"),
        ("budget = 3", "budget", "[[budget]]"),
        ('[budget]\nmetric = "rel_l2"', "budget", "[[budget]]"),
        (B + 'metric = "rel_l2"\nlimit = 1\n', "reason", "say why"),
        (B + 'metric = "rel_l2"\nlimit = 1\nreason = " "', "reason", "say why"),
        (B + WHY + 'metric = "rel_l2"', "limit", "limit"),
        (B + WHY + "limit = 1", "metric", "rel_l2"),
        (B + WHY + 'metric = "rel_l3"\nlimit = 1', "rel_l3", "rel_l2"),
        (B + WHY + 'metric = "rel_l2"\nlimit = "1"', "limit", "limit"),
        (B + WHY + 'metric = "rel_l2"\nlimit = nan', "limit", "limit"),
        (B + WHY + 'metric = "rel_l2"\nlimit = -1', "can never be met", "limit"),
        (B + WHY + 'metric = "rel_l2"\nlimit = 1\ntol = 2', "tol", "rtol"),
        (B + WHY + "atol = 1", "rtol", "rtol = 0.0"),
        (B + WHY + "rtol = 0.1", "atol", "atol = 0.0"),
        (B + WHY + "atol = 1\nrtol = 0\nlimit = 1", "limit", "two [[budget]]"),
        (B + WHY + "atol = -1\nrtol = 0", "atol = -1", "at least 0"),
        (B + WHY + "atol = 0\nrtol = 1", "rtol = 1", "below 1"),
        (B + WHY + "output = 3\natol = 0\nrtol = 0", "output", "every output"),
        (2 * (B + WHY + 'metric = "rel_l2"\nlimit = 1\n'), "two budgets", "one of them"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, text: str, named: str, fix: str) -> None:
    with pytest.raises(ParityError) as refusal:
        read_policy(written(tmp_path, text), METRICS)
    assert named in refusal.value.problem
    assert fix in refusal.value.fix
    assert "policy.toml" in refusal.value.where


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="there is no policy at"):
        read_policy(tmp_path / "none.toml", METRICS)


def test_a_budget_of_an_output_takes_the_place_of_the_general_one() -> None:
    general, other = budget("rel_l2", 0.1), budget("cosine", 0.9)
    own = budget("rel_l2", 0.5, output="y")
    policy = Policy(budgets=(general, other, own))
    assert budgets_for(policy, "y") == (own, other)
    assert budgets_for(policy, "z") == (general, other)


def budget(metric: str, limit: float, output: str = "") -> Budget:
    return Budget(output=output, metric=metric, limit=limit, reason="r")


def test_options_take_the_place_of_the_file() -> None:
    file = Policy(
        declared="f16",
        declared_reason="file",
        budgets=(budget("rel_l2", 0.1), budget("rel_l2", 0.2, "y"), budget("cosine", 0.9)),
    )
    target = Target(backend="openvino", precision="bf16")
    assert override_policy(file, "", target, ()) == file
    assert override_policy(file, "tf32", target, ()).declared == "tf32"
    assert override_policy(Policy(declared=""), "", target, ()).declared == "bf16"
    # An option for every output is about every output; one for y leaves the rest of the file alone.
    given_all, given_y = budget("rel_l2", 1.0), budget("rel_l2", 1.0, "y")
    assert override_policy(file, "", target, [given_all]).budgets == (file.budgets[2], given_all)
    assert override_policy(file, "", target, [given_y]).budgets == (file.budgets[0], file.budgets[2], given_y)


def test_a_tolerance_is_judged_element_by_element(tmp_path: Path) -> None:
    # |c - r| is 0.5, 0, 0.75, 0 at r = 1, 2, 4, 0; allowed is 0.25 + 0.125 |r| = 0.375, 0.5, 0.75, 0.25: the third
    # stands exactly on the border, and only the first, 0.125 over it, is outside. All numbers are exact in binary.
    found = examined(
        tmp_path,
        {"y": np.array([[1.5, 2, 4.75, 0]], np.float32)},
        policy=written(tmp_path, B + WHY + 'output = "y"\natol = 0.25\nrtol = 0.125\n'),
    )
    assert found["verdict"] == "beyond"
    assert found["y"]["verdict"] == "beyond"
    assert found["y"]["reason"] == (
        "1 of 4 elements outside atol 0.25 + rtol 0.125 |reference|, the worst by 0.125 at [0, 0] (r)"
    )
    assert found["double"]["verdict"] == "within"


def test_a_tolerance_that_holds(tmp_path: Path) -> None:
    tolerances = Policy(
        budgets=(Budget(output="", metric="outside", limit=0.0, reason="r", tolerance=Tolerance(atol=0.5, rtol=0.0)),)
    )
    found = examined(tmp_path, {"y": REFERENCE["y"] + np.float32(0.5)}, policy=tolerances)
    assert {found[name]["verdict"] for name in REFERENCE} == {"within"}
    assert found["y"]["reason"] == "all 4 elements within atol 0.5 + rtol 0 |reference| (r)"


def test_a_general_budget_does_not_judge_what_its_metric_does_not_apply_to(tmp_path: Path) -> None:
    policy = Policy(budgets=(budget("rel_l2", 0.5),))
    found = examined(tmp_path, {"y": 1.25 * REFERENCE["y"]}, policy=policy)
    assert found["y"]["verdict"] == "within"
    assert found["best"]["verdict"] == "within"  # equal integers, judged by their grade
    wrong = examined(tmp_path, {"best": np.array([[1]])}, policy=policy)
    assert wrong["best"]["verdict"] == "beyond"


def test_a_budget_of_an_output_that_its_metric_does_not_apply_to_is_not_passed_over(tmp_path: Path) -> None:
    found = examined(tmp_path, {}, policy=Policy(budgets=(budget("rel_l2", 0.5, "best"),)))
    assert found["best"]["verdict"] == found["verdict"] == "incomplete"
    assert "does not apply to int64" in found["best"]["reason"]


@pytest.mark.parametrize(
    ("metric", "limit", "verdict"),
    [
        # y is twice the reference: rel_l2 = 1, cosine = 1, norm_ratio = 2, mean error = 7/4; halved in the second case.
        ("rel_l2", 1.0, "within"),
        ("rel_l2", 0.99, "beyond"),
        ("cosine", 0.999, "within"),
        ("norm_ratio", 0.5, "beyond"),
        ("norm_ratio", 1.0, "within"),
        ("mean_error", 1.75, "within"),
        ("mean_error", 1.5, "beyond"),
    ],
)
def test_each_metric_is_held_against_its_limit_on_the_right_side(
    tmp_path: Path, metric: str, limit: float, verdict: str
) -> None:
    found = examined(tmp_path, {"y": 2 * REFERENCE["y"]}, policy=Policy(budgets=(budget(metric, limit, "y"),)))
    assert found["y"]["verdict"] == verdict


def test_a_negative_mean_error_is_an_error(tmp_path: Path) -> None:
    policy = Policy(budgets=(budget("mean_error", 0.5, "y"),))
    assert examined(tmp_path, {"y": REFERENCE["y"] - 1}, policy=policy)["y"]["verdict"] == "beyond"


def test_a_budget_for_no_output_of_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="'doubel'") as refusal:
        examined(tmp_path, {}, policy=Policy(budgets=(budget("rel_l2", 1.0, "doubel"),)))
    assert refusal.value.fix == "write double"


def test_the_file_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    monkeypatch.chdir(tmp_path)
    examined(tmp_path, {"y": 1.25 * REFERENCE["y"]})
    written(tmp_path, 'declared = "f16"\n' + B + 'metric = "rel_l2"\nlimit = 0.3\nreason = "the reason"\n')

    def run(study: str, *words: str) -> tuple[int, dict[str, Any]]:
        line = ["compare", "model.onnx", "--candidate", "saved?path=candidate.npz", "--inputs", "x.npz"]
        return exit_status(*line, "--study", study, "--format", "json", "--policy", "policy.toml", *words), json.loads(
            capsys.readouterr().out
        )

    status, document = run("one")
    assert (status, document["verdict"], document["candidate"]["declared"]) == (0, "within", "f16")
    assert "(the reason)" in document["outputs"][0]["reason"]
    status, document = run("two", "--budget", "rel_l2=0.1", "--declared", "bf16")
    assert (status, document["verdict"], document["candidate"]["declared"]) == (1, "beyond", "bf16")
    assert "given with --budget" in document["outputs"][0]["reason"]


def test_samples_of_the_file_are_the_most_that_are_taken(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL.replace("[1,", "[N,")), tmp_path / "m.onnx")
    write_npz(tmp_path / "x.npz", {"x": np.repeat(X, 5, axis=0)})
    for place in range(5):
        write_npz(tmp_path / "many" / f"{place}.npz", {"x": X})
    policy = written(tmp_path, "samples = 2")
    study = parityscope.compare(
        tmp_path / "m.onnx", candidate="ort?optimization=disabled", inputs=tmp_path / "many", policy=policy
    )
    assert study.document["inputs"]["samples"] == 2


def test_every_number_of_a_metric_can_be_a_budget() -> None:
    known = known_metrics()
    assert {"rel_l2", "top5_agreement", "worst_channel_ratio", "mismatch_share", "kl_max"} <= set(known)
    assert known["top5_agreement"] == known["snr_db"] == "higher"
    assert known["max_abs_finite"] == "lower"


# Tolerances against numpy.allclose, whose differences from ours (infinities, overflow) stay out of the strategy.
FINITE = st.floats(-1e6, 1e6, width=32)


@given(
    hnp.arrays(np.float32, 7, elements=FINITE),
    hnp.arrays(np.float32, 7, elements=FINITE),
    st.floats(0, 10),
    st.floats(0, 0.99),
)
def test_a_tolerance_is_allclose(r: np.ndarray, c: np.ndarray, atol: float, rtol: float) -> None:
    wide_r, wide_c = r.astype(np.float64), c.astype(np.float64)
    found = count_outside(r, c, Tolerance(atol=atol, rtol=rtol))
    assert found.count == 7 - int(np.isclose(wide_c, wide_r, atol=atol, rtol=rtol).sum())
    assert (found.excess > 0) == (found.count > 0)


NON_FINITE = [
    # reference, candidate, elements outside of any tolerance
    ([np.inf], [1.0], 1),
    ([1.0], [np.inf], 1),
    ([np.inf], [-np.inf], 1),
    ([np.nan], [np.inf], 1),
    ([np.inf, np.nan, -np.inf], [np.inf, np.nan, -np.inf], 0),
    ([np.finfo(np.float64).max], [-np.finfo(np.float64).max], 1),
    ([-0.0], [0.0], 0),
    ([], [], 0),
]


@pytest.mark.parametrize(("reference", "candidate", "count"), NON_FINITE)
def test_what_is_not_finite_is_never_within_unless_equal(
    reference: list[float], candidate: list[float], count: int
) -> None:
    found = count_outside(np.array(reference), np.array(candidate), Tolerance(atol=1e300, rtol=0.5))
    assert found.count == count


def test_integers_beyond_the_digits_of_float64_are_subtracted_exactly() -> None:
    big = 2**53
    reference, candidate = np.array([big, -(2**63), 3]), np.array([big + 1, 2**63 - 1, 3])
    found = count_outside(reference, candidate, Tolerance(atol=0.5, rtol=0.0))
    assert (found.count, found.index) == (2, (1,))
    assert found.excess == 2.0**64
    assert count_outside(reference[:1], candidate[:1], Tolerance(atol=1.0, rtol=0.0)).count == 0
    unsigned = np.array([2**64 - 1], np.uint64)
    assert count_outside(unsigned, unsigned - np.uint64(2), Tolerance(atol=1.0, rtol=0.0)).count == 1


def test_booleans_and_strings_are_equal_or_not() -> None:
    wide = Tolerance(atol=100.0, rtol=0.0)
    assert count_outside(np.array([True, False]), np.array([True, True]), wide).count == 1
    assert count_outside(np.array(["a", "b"]), np.array([b"a", b"c"], object), wide).count == 1


def test_samples_merge() -> None:
    tolerance = Tolerance(atol=0.5, rtol=0.0)
    zeros = np.zeros((2, 2))
    first = count_outside(zeros, zeros, tolerance)
    second = count_outside(zeros, np.array([[0.0, 0], [1, 3]]), tolerance)
    assert (first.count, first.excess) == (0, -0.5)
    merged = merge_outside(first, second)
    assert (merged.count, merged.elements, merged.excess, merged.index) == (2, 8, 2.5, (1, 1))
