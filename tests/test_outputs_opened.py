"""Outputs that are lists of maps, sequences or optionals are compared element by element, by every verb and renderer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command_line import exit_status, read_study
from parityscope import compare
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz

if TYPE_CHECKING:
    from pathlib import Path

_RNG = np.random.default_rng(12)
X = _RNG.normal(size=(40, 6)).astype(np.float32)
WEIGHT = _RNG.normal(size=(6, 3)).astype(np.float32)
CLASSES = ["cat", "dog", "eel"]
ML = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]


def _value(name: str, kind: onnx.TypeProto) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=kind)


def _save(
    path: Path, nodes: list[onnx.NodeProto], output: onnx.TypeProto, weights: dict[str, np.ndarray], ml: bool
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 6])],
        [_value("y", output)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=ML if ml else ML[:1], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _classifier(path: Path, classes: list[str] = CLASSES, weight: np.ndarray = WEIGHT) -> Path:
    """Probabilities as scikit-learn's and LightGBM's exports give them: a map for each row."""
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=1),
        helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", classlabels_strings=classes),
    ]
    return _save(path, nodes, kind, {"w": weight}, ml=True)


def _tensors(path: Path, way: str, sizes: list[int] | None = None, factor: float = 1.0) -> Path:
    """Two tensors in a sequence, put together or split, or one in an optional."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    weights = {"w": WEIGHT, "factor": np.array(factor, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "factor"], ["b"])]
    kind = helper.make_sequence_type_proto(tensor)
    if way == "put together":
        nodes += [helper.make_node("Tanh", ["x"], ["c"]), helper.make_node("SequenceConstruct", ["c", "b"], ["y"])]
    elif way == "split":
        weights["sizes"] = np.array(sizes or [10, 30], np.int64)
        nodes.append(helper.make_node("SplitToSequence", ["b", "sizes"], ["y"], axis=0))
    else:
        kind = helper.make_optional_type_proto(tensor)
        nodes.append(helper.make_node("Optional", ["b"], ["y"]))
    return _save(path, nodes, kind, weights, ml=False)


def _diagnosed(folder: Path, reference: Path, candidate: Path, status: int) -> dict[str, Any]:
    write_npz(folder / "inputs.npz", {"x": X})
    line = ["diagnose", str(reference), "--inputs", str(folder / "inputs.npz"), "--candidate", f"ort?model={candidate}"]
    kinds = ("html", "junit", "sarif", "markdown")
    assert exit_status(*line, "--quiet", "--study", str(folder / "study")) == status
    for kind in kinds:
        written = folder / f"report.{kind}"
        assert exit_status("report", str(folder / "study"), "--format", kind, "--output", str(written)) == 0
        assert written.stat().st_size
    document = read_study(folder / "study")
    assert document["model"]["path"] == str(reference)
    return document


def test_maps_are_compared_by_their_keys_whatever_order_these_have(tmp_path: Path) -> None:
    order = [2, 0, 1]
    reference = _classifier(tmp_path / "a.onnx")
    candidate = _classifier(tmp_path / "b.onnx", [CLASSES[one] for one in order], WEIGHT[:, order])
    document = _diagnosed(tmp_path, reference, candidate, 0)
    assert {one["tensor"] if "tensor" in one else one["name"] for one in document["outputs"]} == {"y", "y[keys]"}


def test_a_fault_in_front_of_maps_is_found_and_named(tmp_path: Path) -> None:
    wrong = WEIGHT.copy()
    wrong[:, [0, 1]] = wrong[:, [1, 0]]
    document = _diagnosed(tmp_path, _classifier(tmp_path / "a.onnx"), _classifier(tmp_path / "b.onnx", weight=wrong), 1)
    first = document["findings"][0]
    assert first["code"] == "EXP005"
    assert "exchanged" in json.dumps(first)


def test_values_under_the_wrong_keys_are_beyond(tmp_path: Path) -> None:
    candidate = _classifier(tmp_path / "b.onnx", [CLASSES[1], CLASSES[0], CLASSES[2]])
    assert _diagnosed(tmp_path, _classifier(tmp_path / "a.onnx"), candidate, 1)["verdict"] == "beyond"


def test_another_key_is_beyond(tmp_path: Path) -> None:
    candidate = _classifier(tmp_path / "b.onnx", [*CLASSES[:2], "elk"])
    document = _diagnosed(tmp_path, _classifier(tmp_path / "a.onnx"), candidate, 1)
    wrong = [one["name"] for one in document["outputs"] if one["verdict"] == "beyond"]
    assert wrong == ["y[keys]"]


@pytest.mark.parametrize("way", ["put together", "split", "optional"])
@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1.01, 1)])
def test_every_tensor_of_a_sequence_or_an_optional_is_compared(
    way: str, factor: float, status: int, tmp_path: Path
) -> None:
    document = _diagnosed(
        tmp_path, _tensors(tmp_path / "a.onnx", way), _tensors(tmp_path / "b.onnx", way, factor=factor), status
    )
    wrong = [one["name"] for one in document["outputs"] if one["verdict"] == "beyond"]
    assert wrong == ([] if status == 0 else ["y[1]" if way == "put together" else "y[values]"])


def test_tensors_that_are_cut_elsewhere_are_beyond(tmp_path: Path) -> None:
    reference, candidate = (_tensors(tmp_path / f"{one}.onnx", "split", [one, 40 - one]) for one in (10, 12))
    document = _diagnosed(tmp_path, reference, candidate, 1)
    wrong = [one["name"] for one in document["outputs"] if one["verdict"] == "beyond"]
    assert wrong == ["y[shapes]"]


def test_the_model_is_known_by_the_file_that_was_named(tmp_path: Path) -> None:
    path = _classifier(tmp_path / "a.onnx")
    model = load_model(path)
    assert model.named == path
    assert [(one.name, one.dtype) for one in model.outputs] == [("y", "float32"), ("y[keys]", "str")]


def _rows_of_maps(arrays: dict[str, np.ndarray]) -> list[Any]:
    scores = np.exp(arrays["x"].astype(np.float64) @ WEIGHT)
    rows = scores / scores.sum(axis=1, keepdims=True)
    return [[dict(zip(reversed(CLASSES), map(float, row[::-1]), strict=True)) for row in rows]]


def test_a_program_may_give_a_map_for_each_row(tmp_path: Path) -> None:
    study = compare(_classifier(tmp_path / "a.onnx"), inputs={"x": X}, candidate=_rows_of_maps)
    assert study.document["verdict"] == "within"
    wrong = compare(
        _classifier(tmp_path / "b.onnx"),
        inputs={"x": X},
        candidate=lambda arrays: [[{**row, "cat": row["dog"]} for row in _rows_of_maps(arrays)[0]]],
    )
    assert wrong.verdict == "beyond"
