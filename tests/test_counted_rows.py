"""Outputs with as many rows as values decide: one side may have more, what is missing counts, and its cause is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status, read_study
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison.rows import fill_rows
from parityscope.records import CountedOutput
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

# Boxes around points, as many as a suppression keeps.
DETECTOR = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[n,4] boxes, float[n] scores) {
  a = Gemm(x, weight, bias)
  o = Sigmoid(a)
  r = Reshape(o, rows)
  c, w, s = Split<axis = 1>(r, parts)
  e = Add(c, w)
  b = Concat<axis = 1>(c, e)
  bb = Unsqueeze(b, zero)
  st = Transpose<perm = [1, 0]>(s)
  ss = Unsqueeze(st, zero)
  kept = NonMaxSuppression(bb, ss, most, iou)
  place = Gather<axis = 1>(kept, two)
  boxes = Gather(b, place)
  column = Gather(s, place)
  scores = Squeeze(column, one)
}"""
# Rows whose sum is above a threshold.
FILTER = """<ir_version: 8, opset_import: ["" : 17]> g (float[64,40] x) => (float[n,8] kept, int64[1,n] places) {
  y = MatMul(x, weight)
  sums = ReduceSum<keepdims = 0>(y, one)
  above = Greater(sums, least)
  kept = Compress<axis = 0>(y, above)
  places = NonZero(above)
}"""
SUMS = """<ir_version: 8, opset_import: ["" : 17]> g (float[64,40] x) => (float[64] sums) {
  y = MatMul(x, weight)
  sums = ReduceSum<keepdims = 0>(y, one)
}"""
DRAW = np.random.default_rng(7)
CONSTANTS = {
    "weight": DRAW.normal(size=(20, 40)).astype(np.float32) / 4,
    "bias": DRAW.normal(size=40).astype(np.float32),
    "rows": np.array([-1, 5]),
    "parts": np.array([2, 2, 1]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.int64(2),
    "most": np.array([1000]),
    "iou": np.array([0.3], np.float32),
}
FILTERED = {
    "weight": DRAW.normal(size=(40, 8)).astype(np.float32),
    "one": np.array([1]),
    "least": np.float32(0),
}
SAMPLES = [DRAW.normal(size=(6, 20)).astype(np.float32) for _ in range(6)]
ROWS = [DRAW.normal(size=(64, 40)).astype(np.float32) for _ in range(6)]


def examine(
    verb: str,
    folder: Path,
    network: str,
    constants: dict[str, np.ndarray],
    samples: list[np.ndarray],
    candidate: str,
) -> tuple[int, dict[str, Any]]:
    """The exit status and the document of a network beside a candidate."""
    model = write_network(folder / "model.onnx", network, constants)
    (folder / "inputs").mkdir(exist_ok=True)
    for number, x in enumerate(samples):
        write_npz(folder / "inputs" / f"{number}.npz", {"x": x})
    words = (verb, str(model), "--inputs", str(folder / "inputs"), "--candidate", candidate, "--quiet")
    status = exit_status(*words, "--study", str(folder / "study"))
    return status, read_study(folder / "study")


def record(folder: Path, runs: list[dict[str, np.ndarray]]) -> str:
    """A candidate that gave these outputs."""
    (folder / "recorded").mkdir()
    for number, outputs in enumerate(runs):
        write_npz(folder / "recorded" / f"{number}.npz", outputs)
    return f"saved?path={folder / 'recorded'}"


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ours=st.integers(0, 6), theirs=st.integers(0, 6))
def test_rows_of_two_lengths_stand_beside_their_partners_and_the_missing_are_filled(
    seed: int, ours: int, theirs: int
) -> None:
    draw = np.random.default_rng(seed)
    every = {"boxes": draw.normal(size=(1, 6, 4)), "labels": draw.integers(0, 9, (6,))}
    mine, its = draw.permutation(6)[:ours], draw.permutation(6)[:theirs]
    reference = {"boxes": every["boxes"][:, mine], "labels": every["labels"][mine]}
    candidate = {"b": every["boxes"][:, its], "labels": every["labels"][its]}
    axes = {"boxes": (1,), "labels": (0,)}
    expected, found = fill_rows(axes, reference, candidate, {"boxes": "b"}, paired=axes)
    assert expected["boxes"].shape == found["b"].shape
    assert expected["boxes"].shape[1] == max(ours, theirs)
    np.testing.assert_array_equal(expected["boxes"][:, :ours], reference["boxes"])
    assert not expected["boxes"][:, ours:].any()
    np.testing.assert_array_equal(np.sort(found["b"][found["b"] != 0]), np.sort(candidate["b"].ravel()))
    shared = set(mine.tolist()) & set(its.tolist())
    if len(shared) == min(ours, theirs):  # what both have stands side by side
        places = [place for place, row in enumerate(mine) if row in shared]
        np.testing.assert_array_equal(expected["boxes"][:, places], found["b"][:, places])
        np.testing.assert_array_equal(expected["labels"][places], found["labels"][places])


def test_the_graph_says_which_outputs_are_counted(tmp_path: Path) -> None:
    detector = load_model(write_network(tmp_path / "detector.onnx", DETECTOR, CONSTANTS))
    assert detector.counted == tuple(CountedOutput(name=name, axes=(0,), sorted=True) for name in ("boxes", "scores"))
    rows = load_model(write_network(tmp_path / "filter.onnx", FILTER, FILTERED))
    assert [(one.name, one.axes, one.sorted) for one in rows.counted] == [
        ("kept", (0,), False),
        ("places", (1,), False),
    ]
    # As long as the batch, or of a length that is said, is nothing that values decide.
    batch = FILTER.replace("float[64,40] x", "float[N,40] x").replace(
        "float[n,8] kept, int64[1,n] places", "float[N,8] y"
    )
    assert not load_model(write_network(tmp_path / "batch.onnx", batch, FILTERED)).counted


def test_more_boxes_by_another_threshold_are_told_and_the_threshold_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:

    other = write_network(tmp_path / "other.onnx", DETECTOR, {**CONSTANTS, "iou": np.array([0.65], np.float32)})
    run = open_session(load_model(other).graph())
    candidate = record(tmp_path, [run({"x": x}) for x in SAMPLES])
    status, found = examine("diagnose", tmp_path, DETECTOR, CONSTANTS, SAMPLES, candidate)
    assert status == 1
    decided = next(one["decisions"] for one in found["outputs"] if one["name"] == "boxes")
    assert (decided["kind"], decided["changed"]) == ("rows", 0)
    assert decided["new"] > 0
    assert "rows more than the reference's" in " ".join(capfd.readouterr().out.split())
    first = found["findings"][0]
    assert first["role"] == "cause"
    assert all(words in first["claim"] for words in ("iou_threshold", "0.65"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("iou", np.array([0.65], np.float32), "0.3 became 0.65"),
        ("bias", CONSTANTS["bias"] * np.float32(1.5), "constant bias"),
        ("most", np.array([3]), "became 3"),
    ],
)
def test_a_file_that_keeps_other_boxes_is_told_by_what_differs_in_it(
    name: str, value: np.ndarray, said: str, tmp_path: Path
) -> None:
    other = write_network(tmp_path / "other.onnx", DETECTOR, {**CONSTANTS, name: value})
    status, found = examine("diagnose", tmp_path, DETECTOR, CONSTANTS, SAMPLES, f"ort?model={other}")
    assert status == 1
    first = found["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert said in str(first)
    assert first["repairs"][0]["trial"]["verdict"] == "within"


def exact(x: np.ndarray, least: float) -> dict[str, np.ndarray]:
    """What the filter gives of a sample in float64."""
    y = x.astype(np.float64) @ FILTERED["weight"].astype(np.float64)
    above = y.sum(1) > least
    return {"kept": y[above].astype(np.float32), "places": np.flatnonzero(above)[None]}


@pytest.mark.search_of(0.1)
def test_a_row_that_rounding_drops_is_no_fault(tmp_path: Path) -> None:
    """The threshold is one row's own sum as ONNX Runtime adds it up, which is a little more in float64."""
    sums = open_session(load_model(write_network(tmp_path / "sums.onnx", SUMS, FILTERED)).graph())({"x": ROWS[0]})[
        "sums"
    ]
    more = (ROWS[0].astype(np.float64) @ FILTERED["weight"].astype(np.float64)).sum(1) - sums
    assert 0 < more.max() < 1e-4
    constants = {**FILTERED, "least": sums[int(more.argmax())]}
    moved = [exact(x, float(constants["least"])) for x in ROWS]
    status, found = examine("diagnose", tmp_path, FILTER, constants, ROWS, record(tmp_path, moved))
    assert status == 0, found["headline"]
    assert next(one["decisions"]["new"] for one in found["outputs"] if one["name"] == "kept") >= 1


def test_rows_that_are_gone_are_beyond_and_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = [exact(x, 0.0) for x in ROWS]
    total = sum(len(one["kept"]) for one in runs)
    runs[3] = {"kept": runs[3]["kept"][1:], "places": runs[3]["places"][:, 1:]}
    status, found = examine("compare", tmp_path, FILTER, FILTERED, ROWS, record(tmp_path, runs))
    assert status == 1
    assert {one["name"]: one["decisions"]["changed"] for one in found["outputs"]} == {"kept": 1, "places": 1}
    assert f"lacks 1 of {total} rows" in " ".join(capfd.readouterr().out.split())


def test_rows_with_another_number_of_fields_are_no_rows_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = [exact(x, 0.0) for x in ROWS]
    wider = [{"kept": np.pad(one["kept"], ((0, 0), (0, 1))), "places": one["places"]} for one in runs]
    _, found = examine("compare", tmp_path, FILTER, FILTERED, ROWS, record(tmp_path, wider))
    assert [one["name"] for one in found["outputs"]] == ["places"]
    assert any(one["what"] == "output kept" and "shape" in one["reason"] for one in found["skipped"])


def test_nothing_found_at_all_is_beyond(tmp_path: Path) -> None:
    runs = [{"kept": np.zeros((0, 8), np.float32), "places": np.zeros((1, 0), np.int64)} for _ in ROWS]
    status, found = examine("diagnose", tmp_path, FILTER, FILTERED, ROWS, record(tmp_path, runs))
    assert status == 1
    assert all(one["decisions"]["changed"] == one["decisions"]["count"] > 0 for one in found["outputs"])


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("candidate", ["ort?optimization=disabled", "f16", "bf16"])
@pytest.mark.parametrize("network", ["detector", "filter"])
def test_right_deployments_are_not_blamed(candidate: str, network: str, tmp_path: Path) -> None:
    parts = (DETECTOR, CONSTANTS, SAMPLES) if network == "detector" else (FILTER, FILTERED, ROWS)
    status, found = examine("diagnose", tmp_path, *parts, candidate)
    assert status == 0, found["headline"]


def test_a_batch_of_another_size_is_still_one_that_cannot_be_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    network = (
        """<ir_version: 8, opset_import: ["" : 17]> g (float[N,40] x) => (float[N,8] y) { y = MatMul(x, weight) }"""
    )
    model = write_network(tmp_path / "model.onnx", network, {"weight": FILTERED["weight"]})
    write_npz(tmp_path / "x.npz", {"x": ROWS[0]})
    write_npz(tmp_path / "y.npz", {"y": np.zeros((1, 8), np.float32)})
    words = ("compare", str(model), "--inputs", str(tmp_path / "x.npz"), "--quiet")
    assert exit_status(*words, "--candidate", f"saved?path={tmp_path / 'y.npz'}") == 2
    assert "batch" in capfd.readouterr().err
