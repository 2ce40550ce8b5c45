"""`verify`: statistics against answers worked out by hand, verdicts on real runs, and refusals of bad input."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from command_line import exit_status, read_study
from parityscope.backends import Session
from parityscope.backends.targets import parse_target
from parityscope.case import Case, Sample, load_inputs, load_model
from parityscope.errors import ParityError
from parityscope.records import Budget, Finding, Policy
from parityscope.repairs import known_repairs
from parityscope.report.verification import FORMS, verification_document
from parityscope.verification import Targets, VerificationSettings, verify
from parityscope.verification.exact import compliance_bounds, mcnemar_p_value, samples_for_coverage
from parityscope.verification.intervals import bootstrap_interval, samples_needed
from parityscope.verification.judging import judge_verification
from parityscope.verification.latency import summarize_latency, take_turns
from parityscope.verification.output_errors import combiner_of_metric, pooler_of_metric
from parityscope.verification.records import BudgetCheck, OutputMeasurements, Quantity

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.verification.records import Outcome

SAMPLES = 60
NUMBERS = itertools.count()  # each run its own study
LIMIT = 65504.0  # the largest finite float16


# --- statistics


@pytest.mark.parametrize(
    ("only_before", "only_after", "p"),
    [
        (0, 0, 1.0),
        (0, 6, 2 / 64),  # 2 * C(6,0) / 2^6
        (1, 5, 14 / 64),  # 2 * (C(6,0) + C(6,1)) / 2^6
        (5, 1, 14 / 64),
        (2, 8, 112 / 1024),  # 2 * (1 + 10 + 45) / 2^10
        (3, 3, 1.0),  # 2 * (1 + 6 + 15 + 20) / 64 is above 1
    ],
)
def test_mcnemars_exact_p(only_before: int, only_after: int, p: float) -> None:
    assert mcnemar_p_value(only_before, only_after) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(
    ("misses", "share", "samples"),
    # Wilks' numbers as tables of tolerance intervals give them (order statistics 1, 2, 3; 95/95), and 90/90.
    [(0, 0.95, 59), (1, 0.95, 93), (2, 0.95, 124), (0, 0.90, 22)],
)
def test_wilks_numbers(misses: int, share: float, samples: int) -> None:
    assert samples_for_coverage(misses, share, share) == samples
    assert compliance_bounds(misses, samples, share)[0] >= share
    assert compliance_bounds(misses, samples - 1, share)[0] < share


def test_compliance_bounds_in_closed_form() -> None:
    # Without a miss the lower bound is 0.05^(1/n); with one, the upper bound solves 1 - p^n = 0.05. All missed: nothing.
    assert compliance_bounds(0, 59, 0.95) == pytest.approx((0.05 ** (1 / 59), 1.0), rel=1e-12)
    assert compliance_bounds(1, 20, 0.95)[1] == pytest.approx(0.95 ** (1 / 20), rel=1e-9)
    assert compliance_bounds(7, 7, 0.95)[0] == 0.0


def test_samples_needed_is_the_formula() -> None:
    # z(0.975) + z(0.8) = 1.959964 + 0.841621 = 2.801585; 10 * (2.801585 * 1 / 1)^2 = 78.49, rounded up.
    assert samples_needed(1.0, 1.0, 10) == 79
    assert samples_needed(0.0, 1.0, 10) is None


def _mean(rows: np.ndarray | list[object]) -> float:
    return float(np.mean(np.asarray(rows)))


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    # Differences of exponentials, skewed, true mean -0.5. A 95 % interval of 40 samples may miss a little more often
    # than 5 %; of 200 repetitions 95 % cover 190 +- 3.1 (binomial). Below 88 % or above 99 % it would be broken.
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        before, after = generator.exponential(1.5, 40), generator.exponential(1.0, 40)
        found = bootstrap_interval(before, after, _mean, seed=1, resamples=400)
        assert found.method == "bca"
        covered += found.low <= -0.5 <= found.high
    assert 176 <= covered <= 198


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.25, 2.0, 1024.0]))
def test_intervals_scale_with_their_data_and_repeat_with_their_seed(seed: int, factor: float) -> None:
    generator = np.random.default_rng(seed)
    before, after = generator.normal(size=12), generator.normal(size=12)
    one = bootstrap_interval(before, after, _mean, seed=3, resamples=50)
    assert bootstrap_interval(before, after, _mean, seed=3, resamples=50) == one
    other = bootstrap_interval(before * factor, after * factor, _mean, seed=3, resamples=50)  # a power of two: exact
    assert (other.low, other.high) == (one.low * factor, one.high * factor)


def test_infinities_keep_their_place_in_the_order() -> None:
    # Every draw of the first holds an infinite before: the difference is -inf throughout. One sample in ten infinite:
    # a share of about 0.9^10 = 35 % of draws lacks it, so the upper end is finite.
    ones = np.ones(10)
    assert bootstrap_interval(ones * math.inf, ones, _mean, seed=0, resamples=200).high == -math.inf
    some = np.ones(10)
    some[4] = math.inf
    found = bootstrap_interval(some, ones, _mean, seed=0, resamples=400)
    assert (found.low, found.high, found.method) == (-math.inf, 0.0, "percentile")
    assert math.isnan(found.error)


@given(
    st.integers(2, 30),
    st.sampled_from(["rel_l2", "mismatch_share"]),
    st.sampled_from([None, (0, 1), (1, 1), (2, 3)]),
    st.integers(0, 99),
)
def test_many_draws_at_once_are_what_they_are_one_by_one(
    samples: int, metric: str, odd: tuple[int, int] | None, seed: int
) -> None:
    before, after = np.random.default_rng(seed).random((2, samples, 3)) * (1.0, 1.0, 0.0)
    if odd is not None:  # a side whose error or size is nought, or that holds NaN
        before[:, odd[0]], after[0, odd[0]] = 0.0, odd[1]
    one = bootstrap_interval(before, after, combiner_of_metric(metric), seed=seed, resamples=40)
    several = bootstrap_interval(
        before, after, combiner_of_metric(metric), seed=seed, resamples=40, combine_draws=pooler_of_metric(metric)
    )
    assert repr(several) == repr(one)


def test_one_sample_has_no_interval() -> None:
    found = bootstrap_interval(np.ones(1), np.zeros(1), _mean, seed=0, resamples=100)
    assert (found.low, found.high, found.method) == (-math.inf, math.inf, "none")


# --- verdicts


def number(kind: Literal["output", "task"], outcome: Outcome, after: float, name: str = "y") -> Quantity:
    """Something that was 1 before, lower is better."""
    return Quantity(
        name=name,
        kind=kind,
        title=name,
        better="lower",
        against="reference",
        before=1.0,
        after=after,
        low=-1.0,
        high=1.0,
        confidence=0.95,
        method="bca",
        resamples=2000,
        improved=0,
        equal=0,
        worsened=0,
        p_value=1.0,
        outcome=outcome,
        needed=500 if outcome == "not proved" else None,
        per_sample_before=(1.0,) * 8,
        per_sample_after=(after,) * 8,
    )


def budget(verdict: Literal["within", "not proved", "beyond"]) -> BudgetCheck:
    return BudgetCheck(
        output="y",
        budget=Budget(output="y", metric="rel_l2", limit=2.0, reason="a test"),
        before=1.0,
        after=1.0,
        misses=0,
        samples=8,
        bound=0.69,
        coverage=0.95,
        confidence=0.95,
        needed=59,
        verdict=verdict,
    )


BETTER, WORSE = number("output", "improved", 0.1), number("output", "worse", 1.5)
SEEMS_WORSE, SEEMS_BETTER = number("task", "not proved", 1.1, "t"), number("task", "not proved", 0.9, "t")


@pytest.mark.parametrize(
    ("quantities", "budgets", "verdict", "needed"),
    [
        ([BETTER], [], "improved", None),
        ([BETTER, SEEMS_BETTER], [], "improved", None),
        ([BETTER, SEEMS_WORSE], [], "not proved", 500),
        ([SEEMS_BETTER], [], "not proved", 500),
        ([BETTER, number("task", "worse", 1.1, "t")], [], "worse", None),
        ([WORSE], [], "worse", None),
        ([WORSE], [budget("within")], "within", None),  # the budget allows it
        ([BETTER], [budget("within")], "improved", None),
        ([BETTER], [budget("not proved")], "not proved", 59),
        ([BETTER], [budget("beyond")], "beyond", None),
        ([WORSE, SEEMS_WORSE], [budget("within")], "not proved", 500),
        ([number("output", "same", 1.0)], [], "not proved", None),
    ],
)
def test_the_verdict(quantities: list[Quantity], budgets: list[BudgetCheck], verdict: str, needed: int | None) -> None:
    found = judge_verification(quantities, budgets, ())
    assert (found.verdict, found.needed) == (verdict, needed)
    assert found.because


def test_new_nan_refutes_whatever_became_better() -> None:
    lost = OutputMeasurements(
        output="y", dtype="float32", before={}, after={}, nonfinite_before=9, nonfinite_after=1, decisions=None
    )
    assert judge_verification([BETTER], (), [lost]).verdict == "beyond"
    assert "1 NaN or Inf" in judge_verification([BETTER], (), [lost]).because[0]


# --- latency: the order of runs, with a clock of our own


def test_runs_take_turns_and_change_sides() -> None:
    order: list[str] = []
    ticks = iter(range(10_000))

    def session(name: str) -> Session:
        def run(sample: Sample) -> dict[str, np.ndarray]:
            order.append(f"{name}{sample.index}")
            return {}

        return Session(run=run)

    samples = [Sample(index=index, name=str(index), arrays={}) for index in range(2)]
    seconds = take_turns(session("b"), session("a"), samples, budget=0.0, clock=lambda: float(next(ticks)))
    assert order[:6] == ["b0", "b1", "b0", "a0", "a1", "a0"]  # warm-up, three each
    assert order[6:14] == ["b0", "a0", "a1", "b1", "b0", "a0", "a1", "b1"]
    assert [len(side) for side in seconds] == [10, 10]
    assert {*seconds[0], *seconds[1]} == {1.0}  # one tick between the clock's two readings


def test_the_summary_of_latencies() -> None:
    # 1..19 and one of 100: median 10.5, deviations from it 0.5, 0.5, 1.5, 1.5, ... have median 5, the 95th percentile
    # (the next run above) of 20 runs is the 20th.
    before = [*map(float, range(1, 20)), 100.0]
    found = summarize_latency((before, [one / 2 for one in before]), seed=0)
    assert (found.before.median, found.before.mad, found.before.p95) == (10.5, 5.0, 100.0)
    assert found.speedup == 2.0
    assert found.low == found.high == 2.0  # rounds are drawn in pairs, and every pair has this ratio


# --- a network whose BatchNormalization holds a variance beyond float16, and the folded copy


def overflowing(path: Path) -> Path:
    """y = scale (x - mean) / sqrt(variance): the first channel's variance is 1e8, its scale 1e4."""
    parameters = {
        "scale": np.array([1e4, 1.0], np.float32),
        "bias": np.array([0.5, -0.5], np.float32),
        "mean": np.zeros(2, np.float32),
        "variance": np.array([1e8, 1.0], np.float32),
    }
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", *parameters], ["y"], name="norm")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert parameters["variance"].max() > LIMIT
    return path


def folded(source: Path, path: Path) -> Path:
    model = load_model(source).graph()
    assert fold(model, "norm")
    ir.save(model, path)
    return path


def fold(model: ir.Model, node: str) -> str | None:
    finding = Finding(
        code="test", title="", role="cause", claim="", confidence=1.0, confidence_from="", details={"node": node}
    )
    return known_repairs()["fold_batch_normalization"].apply(model, finding)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.onnx, fixed.onnx and data.npz of 60 samples."""
    folded(overflowing(tmp_path / "model.onnx"), tmp_path / "fixed.onnx")
    x = np.random.default_rng(2).normal(size=(SAMPLES, 2, 4, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, before: str = "sim:f16", after: str = "sim:f16?model=fixed.onnx") -> int:
    """`parityscope verify`'s exit code."""
    line = [
        "verify",
        "model.onnx",
        "--before",
        before,
        "--after",
        after,
        "--inputs",
        "data.npz",
        "--stacked",
        "--quiet",
    ]
    study = () if "--study" in words else ("--study", f"study-{next(NUMBERS)}")
    return exit_status(*line, *words, *study)


def test_a_repair_that_holds(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--budget", "rel_l2=1e-2", "--study", "proof", "--format", "json") == 0
    held = json.loads(capfd.readouterr().out)
    assert (held["schema"], held["kind"], held["verdict"], held["refuted"]) == (
        "parityscope/1",
        "verification",
        "improved",
        False,
    )
    [error] = held["quantities"]
    # Before, the first channel is its bias: sqrt(sum x0^2 / sum r^2) with r0 = x0 + 0.5 and r1 = x1 - 0.5.
    x = np.load("data.npz")["x"].astype(np.float64)
    r = x + np.array([0.5, -0.5]).reshape(1, 2, 1, 1)
    assert error["before"] == pytest.approx(math.sqrt((x[:, 0] ** 2).sum() / (r**2).sum()), rel=1e-3)
    # After, three roundings to float16 (unit roundoff 2^-11) of values of about one.
    assert 0 < error["after"] < 3 * 2**-11
    assert error["high"] < -0.3
    assert (error["improved"], error["worsened"]) == (SAMPLES, 0)
    assert held["budgets"][0]["bound"] == pytest.approx(0.05 ** (1 / SAMPLES))
    assert held["after"]["nbytes"] == (bench / "fixed.onnx").stat().st_size
    assert json.loads((bench / "proof/study.json").read_text(encoding="utf-8")) == held
    assert "Improved" in (bench / "proof/report.html").read_text(encoding="utf-8")
    assert run("--study", "proof") == 2  # never overwritten
    assert "exists already" in capfd.readouterr().err


def test_workers_come_to_what_one_process_finds(bench: Path) -> None:
    found = []
    for workers in ("", "2"):
        name = f"by-{workers or 1}"
        assert run("--budget", "rel_l2=1e-2", "--study", name, *(("--workers", workers) if workers else ())) == 0
        held = read_study(bench / name)
        for key in ("created", "command", "seconds", "timings"):
            held.pop(key, None)
        for side in ("reference", "before", "after"):
            del held[side]["seconds"]
        found.append(held)
    assert found[0] == found[1]


def test_the_same_the_other_way_round_is_refuted(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(before="sim:f16?model=fixed.onnx", after="sim:f16") == 1
    said = capfd.readouterr().out
    assert "refuted" in said
    assert "Samples that got worse" in said


def test_an_output_that_is_nearly_nought_is_judged_by_the_floor(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """y is x - 0.5 in the second channel and x + 0.5 in the first: at x = (-0.5, 0.5) it is 0, and FP16 is exact there."""
    x = np.load("data.npz")["x"]
    # 0.5 and 2^-20 more: FP16 rounds the input to 0.5, so that the output becomes 0, a relative error of 1 (of 2^-20).
    x[7] = np.array([-0.5, 0.5], np.float32).reshape(2, 1, 1) + np.float32(2.0**-20)
    np.savez("data.npz", x=x)
    assert run("--budget", "rel_l2=1e-2", "--format", "json") == 0
    held = json.loads(capfd.readouterr().out)["budgets"][0]
    # Root mean squares of 16 + 16 numbers around 1.1, the largest about 1.5: a thousandth of it.
    assert (held["misses"], held["floor"]) == (0, pytest.approx(1.4e-3, abs=4e-4))
    run("--budget", "rel_l2=1e-2", "--floor", "0", "--format", "json")
    held = json.loads(capfd.readouterr().out)["budgets"][0]
    assert (held["misses"], held["floor"]) == (1, 0.0)


def test_no_change_is_not_proved(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(after="sim:f16", before="sim:f16") == 3
    assert "do not differ" in capfd.readouterr().out


def test_success_on_every_sample_is_told_as_success(
    bench: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # so that no cell of the table is wrapped
    assert run("--samples", "10", "--budget", "rel_l2=1e-2") == 0
    text, said = capfd.readouterr()
    assert text.startswith("✓ Within budget on 10 of 10 samples")
    assert "kept on every sample tried" in " ".join(text.split())
    assert "not proved" not in said
    assert "49 more samples would certify it for 95.0 % of samples like these, with 95.0 % confidence." in " ".join(
        text.split()
    )
    assert "not proved" not in text.partition("Before and after")[0].lower()
    assert run("--samples", "3") == 0
    text, said = capfd.readouterr()
    assert text.startswith("✓ Better on 3 of 3 samples")
    assert "better on every sample tried" in " ".join(text.split())
    assert "not proved" not in (text + said).lower()
    assert "3 more samples would certify it." in text


def test_too_few_samples_say_how_many_would_do(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--samples", "10", "--budget", "rel_l2=1e-2", "--format", "json") == 0
    held = json.loads(capfd.readouterr().out)
    assert (held["verdict"], held["needed"]) == ("not proved", 59)
    assert run("--samples", "3", "--format", "json") == 0
    held = json.loads(capfd.readouterr().out)
    assert (held["verdict"], held["needed"]) == ("not proved", 6)


def test_a_missed_budget_refutes_even_an_improvement(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--budget", "rel_l2=1e-6", "--format", "json") == 1
    held = json.loads(capfd.readouterr().out)
    assert (held["verdict"], held["refuted"], held["budgets"][0]["misses"]) == ("beyond", True, SAMPLES)


def test_latency_is_measured_on_a_runtime_and_not_on_a_simulation(
    bench: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("--time", "0.1s", "--format", "json", before="ort", after="ort?model=fixed.onnx")
    latency = json.loads(capfd.readouterr().out)["latency"]
    assert latency["rounds"] == len(latency["before"]["seconds"]) >= 10
    assert latency["before"]["median"] > 0
    run("--format", "json")
    held = json.loads(capfd.readouterr().out)
    assert held["latency"] is None
    assert [skip["what"] for skip in held["skipped"]] == ["latency"]


# --- metrics and labels of the user's

METRICS = """
import numpy as np

def whole(outputs, labels):
    return float((outputs["y"][:, 0].mean(axis=(1, 2)) > 0.5).mean() == 2)

def each(outputs, labels):
    right = (outputs["y"][:, 0].mean(axis=(1, 2)) > 0.5) == labels["up"]
    return right.astype(float)

def broken(outputs, labels):
    raise KeyError("nothing here")

def unsure(outputs, labels):
    values = np.ones(len(outputs["y"]))
    values[7] = np.nan
    return values
"""


@pytest.fixture
def labelled(bench: Path) -> Path:
    x = np.load("data.npz")["x"]
    np.savez("labels.npz", up=(x[:, 0] + 0.5).mean(axis=(1, 2)) > 0.5)
    (bench / "own.py").write_text(METRICS, encoding="utf-8")
    return bench


def test_a_function_with_one_value_a_sample(labelled: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--metric", "own.py:each", "--labels", "labels.npz", "--format", "json") == 0
    task = json.loads(capfd.readouterr().out)["quantities"][0]
    up = np.load("labels.npz")["up"]
    # Before, the first channel is 0.5 everywhere, which is not above 0.5: right is whoever is not up.
    assert task["before"] == pytest.approx((~up).mean())
    assert task["after"] == 1.0
    table = task["decisions"]
    assert (table["only_before"], table["only_after"]) == (0, int(up.sum()))
    assert table["p_value"] == pytest.approx(2 * 0.5 ** int(up.sum()))
    assert task["against"] == "labels"


def test_copies_of_a_sample_prove_nothing(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """60 rows of which 55 are copies of five: five samples are too few for anything."""
    x = np.load("data.npz")["x"]
    np.savez("data.npz", x=x[np.arange(SAMPLES) % 5])
    assert run("--budget", "rel_l2=1e-2", "--no-timing", "--format", "json") == 0  # kept on all five
    held = json.loads(capfd.readouterr().out)
    assert held["verdict"] == "not proved"
    assert held["needed"] == 59
    assert any(skip["what"] == "55 samples" for skip in held["skipped"])


def test_labels_that_contradict_each_other_are_named(labelled: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The last sample is the first one again, with the other label: both are judged, and one of them is wrong for sure."""
    x, up = np.load("data.npz")["x"], np.load("labels.npz")["up"]
    x[-1], up[-1] = x[0], not up[0]
    np.savez("data.npz", x=x)
    np.savez("labels.npz", up=up)
    run("--metric", "own.py:each", "--labels", "labels.npz", "--no-timing", "--format", "json")
    held = json.loads(capfd.readouterr().out)
    assert held["quantities"][0]["after"] == pytest.approx(1 - 1 / SAMPLES)
    [torn] = [skip for skip in held["skipped"] if "labels are not" in skip["reason"]]
    assert torn["what"] == "whether 1 sample can be right"


def test_a_function_of_all_samples(labelled: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run("--metric", "own.py:whole?better=lower", "--format", "json")
    task = json.loads(capfd.readouterr().out)["quantities"][0]
    assert (task["before"], task["after"], task["outcome"], task["better"]) == (0.0, 0.0, "same", "lower")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "own.py:broken"], "KeyError: 'nothing here'"),
        (["--metric", "own.py:unsure"], "gave NaN at place 7"),
        (["--metric", "own.py:missing"], "has no function 'missing'"),
        (["--metric", "top9"], "there is no task metric 'top9'"),
        (["--metric", "top1?colour=red"], "has no option 'colour'"),
        (["--metric", "map"], "there is no output 'boxes'"),
        (["--metric", "own.py:each", "--labels", "short.npz"], "have 59 rows, and there are 60 samples"),
        (["--labels", "data.onnx"], "there are no labels at data.onnx"),
        (["--format", "node-data"], "has no format 'node-data'"),
    ],
)
def test_bad_input_is_one_error_with_a_fix(
    labelled: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    np.savez("short.npz", up=np.ones(SAMPLES - 1, bool))
    assert run(*words) == 2
    error = capfd.readouterr().err
    assert said in error
    assert "fix:" in error
    assert "Traceback" not in error


def test_other_outputs_are_refused(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = onnx.load("fixed.onnx")
    text = onnx.load("fixed.onnx")
    for node in text.graph.node:
        node.output[:] = ["z" if name == "y" else name for name in node.output]
    text.graph.output[0].name = "z"
    onnx.save(text, "renamed.onnx")
    assert run(after="sim:f16?model=renamed.onnx") == 2
    assert "gives no output 'y'" in capfd.readouterr().err
    model.graph.node.append(helper.make_node("Flatten", ["y"], ["flat"]))
    model.graph.output[0].name = "flat"
    for node in model.graph.node:
        node.output[:] = ["inner" if name == "y" else "y" if name == "flat" else name for name in node.output]
        node.input[:] = ["inner" if name == "y" else name for name in node.input]
    model.graph.output[0].name = "y"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, "flat.onnx")
    assert run(after="sim:f16?model=flat.onnx") == 2
    assert "[1, 2, 4, 4] in the reference and [1, 32] after" in capfd.readouterr().err


def test_labels_in_a_folder_go_by_name(bench: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x = np.load("data.npz")["x"]
    (bench / "labels").mkdir()
    (bench / "samples").mkdir()
    for index in (7, 3, 0, 5, 6, 1, 4, 2):
        np.savez(f"samples/s{index}.npz", x=x[index : index + 1])
        np.savez(f"labels/s{index}.npz", mean=x[index, 1].mean())
    # The second channel loses 0.5; nothing overflows there, on either side.
    (bench / "own.py").write_text(
        "def near(outputs, labels):\n"
        "    return abs(outputs['y'][:, 1].mean(axis=(1, 2)) + 0.5 - labels['mean']) < 0.01\n",
        encoding="utf-8",
    )
    arguments = ["--metric", "own.py:near", "--labels", "labels", "--format", "json"]
    line = ["verify", "model.onnx", "--before", "sim:f16", "--after", "sim:f16?model=fixed.onnx", "--inputs", "samples"]
    exit_status(*line, "--quiet", *arguments, "--study", f"study-{next(NUMBERS)}")
    task = json.loads(capfd.readouterr().out)["quantities"][0]
    assert (task["before"], task["after"], task["against"]) == (1.0, 1.0, "labels")
    (bench / "labels/s3.npz").unlink()
    assert exit_status(*line, "--quiet", *arguments, "--study", f"study-{next(NUMBERS)}") == 2
    assert "there are none for s3" in capfd.readouterr().err


# --- the report


def _verified(folder: Path, samples: int = 8) -> dict[str, object]:
    model = load_model(folder / "model.onnx")
    inputs = load_inputs(model, folder / "data.npz", spool=folder / "spool", stacked=True, samples=samples)
    case = Case(name="<script>alert(1)</script>", model=model, inputs=inputs, policy=Policy())
    targets = Targets(
        reference=parse_target("ort"),
        before=parse_target("sim:f16"),
        after=parse_target(f"sim:f16?model={folder / 'fixed.onnx'}"),
    )
    found = verify(case, targets, VerificationSettings(), folder=folder / "tensors", progress=lambda *_: None)
    return verification_document(found, case)


def test_the_page_stands_alone_and_escapes_names(bench: Path) -> None:
    page = FORMS.as_html(_verified(bench))
    assert "<script>alert" not in page
    assert "http" not in page
    assert page.count("<svg") == 1
    assert page.index("Improved") < page.index("Before and after</h2>")


def test_the_text_says_the_verdict_first(bench: Path) -> None:
    first, second, *_ = FORMS.as_text(_verified(bench), width=100).splitlines()
    assert first.endswith("Improved: the repair holds")
    assert second.startswith("The error of y went from")


def test_a_document_is_strict_json(bench: Path) -> None:
    held = _verified(bench, samples=1)
    assert json.loads(json.dumps(held, allow_nan=False)) == held
    assert held["quantities"][0]["low"] == "-Infinity"  # type: ignore[index]


# --- the detector


def test_pages_are_the_same_every_time() -> None:
    from proving.models.fetching import require
    from proving.models.pages import COUNT, pages

    for identity in ("page-image", "camera", "coffee", "chelsea", "astronaut"):
        require(identity)
    once, again = list(pages()), list(pages())
    # The first scans are the same picture at different sizes.
    assert len({(page.image.tobytes(), page.size) for page in once}) == COUNT
    assert all(
        (one.image == two.image).all() and one.origin == two.origin for one, two in zip(once, again, strict=True)
    )


def test_more_pages_than_there_are() -> None:
    from proving.models.pages import pages

    with pytest.raises(ParityError, match="there are 64 pages"):
        list(pages(65))
