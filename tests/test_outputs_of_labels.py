"""Classifiers that give labels as strings beside probabilities, many rows at once: what one answer to all rows proves."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import parityscope as ps

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((12, 5)).astype(np.float32)
MEAN = np.linspace(100, 900, 5, dtype=np.float32)
# The last class wins on large inputs, from either end.
WEIGHTS = RANDOM.standard_normal((3, 5)).astype(np.float32) + np.float32([[0] * 5, [0] * 5, [5, 4, 3, 2, 1]])


def classifier(mean: np.ndarray) -> onnx.ModelProto:
    attributes = {
        "coefficients": WEIGHTS.ravel().tolist(),
        "intercepts": [0.1, 0.0, -0.1],
        "classlabels_strings": ["a", "bb", "cccc"],
        "post_transform": "SOFTMAX",
    }
    ml = "ai.onnx.ml"
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain=ml, offset=mean.tolist(), scale=[1.0] * 5)
    linear = helper.make_node("LinearClassifier", ["s"], ["label", "p"], domain=ml, **attributes)
    graph = helper.make_graph(
        [scaler, linear],
        "classifier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 5])],
        [
            helper.make_tensor_value_info("label", onnx.TensorProto.STRING, ["N"]),
            helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, ["N", 3]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ml, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    label, p = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    # As numpy holds strings: as wide as the longest of them.
    return {"label": np.asarray(label).astype(str), "p": np.asarray(p)}


def failed(found: ps.Result) -> list[str]:
    return [one["reason"] for one in found.document["skipped"] if "Error: " in one["reason"]]


@pytest.mark.parametrize("rows", [len(X), 1])
def test_one_answer_to_all_rows_proves_nothing_of_the_inputs(rows: int) -> None:
    model = classifier(MEAN)
    samples = [{"x": X[start : start + rows] + MEAN} for start in range(0, len(X), rows)]
    # Without its scaler it is sure of one class; so it is of inputs that were read backwards.
    wrong = [run(classifier(0 * MEAN), one["x"]) for one in samples]
    assert all(np.array_equal(one["p"], np.repeat(wrong[0]["p"][:1], rows, axis=0)) for one in wrong)
    found = ps.diagnose(model, candidate=wrong, inputs=samples)
    assert found.verdict == "beyond"
    assert [one["code"] for one in found.document["findings"] if one["role"] == "cause"] == []
    assert failed(found) == []
    told = [one["claim"] for one in found.document["findings"] if one["code"] == "BND002"]
    # Of one row, nonsense is as sure as well.
    why = (
        "the outputs are the same in every row"
        if rows > 1
        else "nonsense in place of the inputs gives these outputs too"
    )
    assert any(f"One possibility of several ({why}" in one for one in told)


@pytest.mark.parametrize("change", ["backwards", "zero"])
def test_what_an_input_held_is_proved_where_the_answers_tell(change: str) -> None:
    model = classifier(0 * MEAN)

    def infer(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return run(model, np.ascontiguousarray(arrays["x"][:, ::-1]) if change == "backwards" else 0 * arrays["x"])

    found = ps.diagnose(model, candidate=infer, inputs={"x": X})
    # An input that is zero in all rows has one answer by right.
    assert next(one["code"] for one in found.document["findings"] if one["role"] == "cause") == "BND002"
    assert failed(found) == []


def test_labels_of_any_width_are_compared_in_all_samples() -> None:
    model = classifier(0 * MEAN)
    samples = [{"x": X[start : start + 1]} for start in range(len(X))]
    answers = [run(model, one["x"]) for one in samples]
    assert len({one["label"].dtype for one in answers}) > 1
    assert ps.compare(model, candidate=answers, inputs=samples).verdict == "within"
    other = [{**one, "label": np.asarray(["?"])} for one in answers]
    assert ps.compare(model, candidate=other, inputs=samples).verdict == "beyond"


def test_every_check_copes_with_labels_that_are_wrong() -> None:
    model = classifier(0 * MEAN)
    right = run(model, X)
    moved = {name: np.roll(array, 1, axis=0) for name, array in right.items()}
    for candidate in (lambda _: moved, [moved], lambda arrays: run(model, arrays["x"] / 255)):
        found = ps.diagnose(model, candidate=candidate, inputs=[{"x": X}])
        assert found.verdict == "beyond"
        assert failed(found) == []
