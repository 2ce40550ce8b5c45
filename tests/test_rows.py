"""Rows without an order of their own are paired before they are compared; nothing else is changed by that."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.policy import fit_policy
from parityscope.case.policy_file import read_policy
from parityscope.comparison.rows import align_as_given, make_aligner, match_outputs, match_rows, row_axis
from parityscope.errors import ParityError
from parityscope.records import Policy
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(1, 60, 10), (1, 60, 4)], 1),
        ([(2, 300), (2, 300, 4)], 1),
        ([(1, 300)], 1),
        ([(300, 4), (300,)], 0),
        ([(2, 300)], 0),
        ([(1, 60, 10), (1, 50, 4)], 0),
        ([(3, 2), (4, 2)], None),
        ([()], None),
    ],
)
def test_where_the_rows_lie(shapes: list[tuple[int, ...]], axis: int | None) -> None:
    assert row_axis(shapes) == axis


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 6))
def test_the_pairing_has_the_least_sum_of_all(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    mine, its = rng.normal(size=(2, size, 3))
    orders = match_rows([mine], [its])
    assert orders is not None
    cost = np.square((mine[:, None] - its[None]) / mine.std()).mean(axis=2)
    least = min(sum(cost[i, p[i]] for i in range(size)) for p in itertools.permutations(range(size)))
    assert cost[np.arange(size), orders[0]].sum() == pytest.approx(least)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_permutation_is_undone_for_all_outputs_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference = {
        "boxes": rng.normal(size=(2, 7, 4)),
        "labels": rng.integers(0, 3, size=(2, 7)),
        "other": rng.normal(size=(2, 5)),
    }
    orders = [rng.permutation(7) for _ in range(2)]
    candidate = {
        "b": np.stack([each[order] for each, order in zip(reference["boxes"], orders, strict=True)]),
        "labels": np.stack([each[order] for each, order in zip(reference["labels"], orders, strict=True)]),
        "other": reference["other"][:, ::-1],
    }
    found = match_outputs(["boxes", "labels"], reference, candidate, {"boxes": "b"})
    np.testing.assert_array_equal(found["b"], reference["boxes"])
    np.testing.assert_array_equal(found["labels"], reference["labels"])
    np.testing.assert_array_equal(found["other"], candidate["other"])  # what is not named stays


def test_a_lost_row_stays_an_error_and_nan_finds_nan() -> None:
    reference = {"y": np.array([[1.0, 1.0], [2.0, 2.0], [np.nan, 3.0]])}
    candidate = {"y": np.array([[np.nan, 3.0], [1.0, 1.0], [1.0, 1.0]])}
    found = match_outputs(["y"], reference, candidate)["y"]
    np.testing.assert_array_equal(found, [[1.0, 1.0], [1.0, 1.0], [np.nan, 3.0]])


def test_nothing_is_matched_where_nothing_is_asked_or_shapes_differ() -> None:
    candidate = {"y": np.ones((3, 2))}
    assert make_aligner(None) is make_aligner(Policy()) is align_as_given
    assert align_as_given({"y": np.zeros((3, 2))}, candidate)[1] is candidate
    assert match_outputs(["y"], {"y": np.zeros((4, 2))}, candidate)["y"] is candidate["y"]
    with pytest.raises(ParityError, match="share no rows"):
        match_outputs(["y", "z"], {"y": np.zeros((3, 2)), "z": np.zeros(5)}, {"y": np.zeros((3, 2)), "z": np.zeros(5)})


TOP = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,40] x) => (float[1,8] scores, int64[1,8] places) {
  k = Constant<value = int64[1] {8}>()
  scores, places = TopK(x, k)
}"""


def test_rows_in_another_order_are_proposed_to_be_matched_and_are_within_when_matched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(TOP), tmp_path / "top.onnx")
    x = np.random.default_rng(3).normal(size=(1, 40)).astype(np.float32)
    order = np.argsort(-x[0])[:8]
    turned = order[[1, 0, 2, 3, 5, 4, 7, 6]]
    write_npz(tmp_path / "x.npz", {"x": x})
    write_npz(tmp_path / "y.npz", {"scores": x[:, turned], "places": turned[None]})
    command = ["diagnose", str(tmp_path / "top.onnx"), "--inputs", str(tmp_path / "x.npz"), "--quiet"]
    command += ["--candidate", f"saved?path={tmp_path / 'y.npz'}", "--format", "json"]
    assert exit_status(*command, "--study", str(tmp_path / "by-position")) == 1
    found = json.loads(capfd.readouterr().out)
    assert [(one["code"], one["role"]) for one in found["findings"]][:1] == [("DAT010", "cause")]
    assert found["findings"][0]["repairs"][0]["command"] == "--match scores,places"
    assert exit_status(*command, "--match", "scores,places", "--study", str(tmp_path / "by-row")) == 0
    found = json.loads(capfd.readouterr().out)
    assert [one["rel_l2"] for one in found["outputs"] if one["name"] == "scores"] == [0.0]
    assert exit_status(*command, "--match", "score", "--study", str(tmp_path / "none")) == 2
    assert "write scores" in capfd.readouterr().err


@pytest.mark.parametrize(("apart", "status"), [(0.0, 0), (0.25, 1)])
def test_rows_whose_scores_tie_may_come_in_any_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], apart: float, status: int
) -> None:
    onnx.save(onnx.parser.parse_model(TOP), tmp_path / "top.onnx")
    x = np.repeat(np.linspace(2.0, 1.0, 20), 2)[None].astype(np.float32)
    x[0, 1::2] -= np.float32(apart / 20)
    write_npz(tmp_path / "x.npz", {"x": x})
    # Each second row comes before its neighbour; of the scores only the order by place is told.
    write_npz(tmp_path / "y.npz", {"scores": x[:, :8], "places": np.array([[1, 0, 3, 2, 5, 4, 7, 6]])})
    command = ["compare", str(tmp_path / "top.onnx"), "--inputs", str(tmp_path / "x.npz"), "--quiet"]
    command += ["--candidate", f"saved?path={tmp_path / 'y.npz'}", "--format", "json", "--study", str(tmp_path / "s")]
    assert exit_status(*command) == status
    found = json.loads(capfd.readouterr().out)
    said = next(one["reason"] for one in found["outputs"] if one["name"] == "places")
    assert ("between scores that f32 rounding does not tell apart" in said) == (status == 0)


KEPT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,40,4] boxes, float[1,40,1] raw) => (int64[M,3] kept, float[M,1] score, float[M,4] box) {
  scores = Transpose<perm = [0, 2, 1]>(raw)
  kept = NonMaxSuppression(boxes, scores, most, iou, least)
  score_at = Gather<axis = 1>(kept, two)
  flat = Reshape(raw, column)
  score = Gather(flat, score_at)
  table = Reshape(boxes, corners)
  box = Gather(table, score_at)
}"""


@pytest.mark.parametrize(("apart", "status"), [(0.0, 0), (0.25, 1)])
def test_what_a_suppression_kept_may_come_in_any_order_where_scores_tie(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], apart: float, status: int
) -> None:
    constants = {
        "most": np.array([8]),
        "iou": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
        "two": np.array(2),
        "column": np.array([-1, 1]),
        "corners": np.array([-1, 4]),
    }
    model = write_network(tmp_path / "kept.onnx", KEPT, constants)
    starts = np.arange(40, dtype=np.float32)[:, None] * 20 * np.ones(4, np.float32)
    boxes = (starts + np.array([0, 0, 10, 10], np.float32))[None]
    raw = np.repeat(np.linspace(0.9, 0.5, 20), 2).astype(np.float32)
    raw[1::2] -= np.float32(apart / 20)
    write_npz(tmp_path / "x.npz", {"boxes": boxes, "raw": raw[None, :, None]})
    # Each second box comes before its neighbour; of the scores only the order by place is told.
    turned = np.array([1, 0, 3, 2, 5, 4, 7, 6])
    kept = np.stack([0 * turned, 0 * turned, turned], 1)
    write_npz(tmp_path / "y.npz", {"kept": kept, "score": raw[:8, None], "box": boxes[0, turned]})
    command = ["compare", str(model), "--inputs", str(tmp_path / "x.npz"), "--quiet", "--format", "json"]
    command += ["--candidate", f"saved?path={tmp_path / 'y.npz'}", "--study", str(tmp_path / "s")]
    assert exit_status(*command) == status
    found = json.loads(capfd.readouterr().out)
    told = "rows that stand in another order have the same scores"
    assert any(one["reason"] == told for one in found["skipped"]) == (status == 0)


CHOSEN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,40] x) => (float[1,8,4] box) {
  k = Constant<value = int64[1] {8}>()
  raw = Mul(x, gain)
  score, places = TopK(raw, k)
  flat = Squeeze(places)
  table_at = Gather(table, flat)
  first = Constant<value = int64[1] {0}>()
  box = Unsqueeze(table_at, first)
}"""


@pytest.mark.parametrize(
    ("apart", "declared", "status"),
    # Rows that tie, rows that FP16's spacing of 2^-10 below 2 does not tell apart and FP32's does, and rows far apart.
    [(0.0, "f32", 0), (2.0**-11, "f16", 0), (2.0**-11, "f32", 1), (0.0125, "f16", 1)],
)
def test_ties_of_scores_that_are_no_output_are_found_inside_the_reference(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], apart: float, declared: str, status: int
) -> None:
    table = np.random.default_rng(4).integers(0, 100, (40, 4)).astype(np.float32)
    model = write_network(
        tmp_path / "chosen.onnx", CHOSEN, {"table": table, "gain": np.float32(1.1) * np.ones(1, np.float32)}
    )
    x = np.repeat(np.linspace(1.8, 1.0, 20), 2)[None].astype(np.float32)
    x[0, 1::2] -= np.float32(apart)
    write_npz(tmp_path / "x.npz", {"x": x})
    write_npz(tmp_path / "y.npz", {"box": table[[1, 0, 2, 3, 5, 4, 6, 7]][None]})
    command = ["compare", str(model), "--inputs", str(tmp_path / "x.npz"), "--quiet", "--format", "json"]
    command += [
        "--candidate",
        f"saved?path={tmp_path / 'y.npz'}",
        "--declared",
        declared,
        "--study",
        str(tmp_path / "s"),
    ]
    assert exit_status(*command) == status
    found = json.loads(capfd.readouterr().out)
    told = "rows that stand in another order have the same scores"
    assert any(one["reason"] == told for one in found["skipped"]) == (status == 0)


def test_another_row_is_no_tie_however_even_the_scores_are(tmp_path: Path) -> None:
    table = np.random.default_rng(4).integers(0, 100, (40, 4)).astype(np.float32)
    model = write_network(tmp_path / "chosen.onnx", CHOSEN, {"table": table, "gain": np.ones(1, np.float32)})
    write_npz(tmp_path / "x.npz", {"x": np.repeat(np.linspace(1.8, 1.0, 20), 2)[None].astype(np.float32)})
    write_npz(tmp_path / "y.npz", {"box": table[[1, 0, 2, 3, 5, 4, 6, 30]][None]})
    command = ["compare", str(model), "--inputs", str(tmp_path / "x.npz"), "--study", str(tmp_path / "s")]
    assert exit_status(*command, "--candidate", f"saved?path={tmp_path / 'y.npz'}") == 1


def test_rows_to_be_matched_are_told_from_their_fields() -> None:
    align = make_aligner(Policy(matched=("y",)))
    fewer, wider = {"y": np.ones((3, 4))}, {"y": np.ones((5, 6))}
    assert align({"y": np.ones((5, 4))}, fewer)[1]["y"].shape == (5, 4)
    assert align({"y": np.ones((5, 4))}, wider)[0]["y"].shape == (5, 4)


def test_a_policy_says_what_is_matched(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('match = ["logits", "boxes"]\n', encoding="utf-8")
    assert read_policy(path, {"rel_l2": "lower"}).policy.matched == ("logits", "boxes")
    path.write_text("match = 3\n", encoding="utf-8")
    with pytest.raises(ParityError, match="not a list"):
        read_policy(path, {"rel_l2": "lower"})
    onnx.save(onnx.parser.parse_model(TOP), tmp_path / "top.onnx")
    with pytest.raises(ParityError, match="no such output"):
        fit_policy(Policy(matched=("y",)), load_model(tmp_path / "top.onnx"))


NMS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,40,4] boxes, float[1,3,40] scores) => (int64[M,3] kept) {
  kept = NonMaxSuppression(boxes, scores, most, iou, least)
}"""


@pytest.mark.parametrize("seed", range(3))
def test_another_threshold_of_a_suppression_is_no_other_order(
    seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(seed)
    corners = draw.uniform(0, 60, (1, 40, 2))
    boxes = np.concatenate([corners, corners + draw.uniform(15, 40, (1, 40, 2))], axis=-1).astype(np.float32)
    write_npz(tmp_path / "x.npz", {"boxes": boxes, "scores": draw.random((1, 3, 40)).astype(np.float32)})
    constants = {"most": np.array([10]), "least": np.array([0.3], np.float32)}
    paths = [
        write_network(tmp_path / f"{iou}.onnx", NMS, {**constants, "iou": np.array([iou], np.float32)})
        for iou in (0.5, 0.7)
    ]
    line = [str(paths[0]), "--inputs", str(tmp_path / "x.npz"), "--candidate", f"ort?model={paths[1]}"]
    exit_status("diagnose", *line, "--quiet", "--format", "json", "--study", str(tmp_path / "study"))
    found = json.loads(capfd.readouterr().out)
    causes = [one for one in found["findings"] if one["role"] == "cause"]
    said = {"FUS002": "iou_threshold", "EXP005": "constant iou"}
    assert all(said.get(one["code"], "nothing") in one["claim"] for one in causes), causes
