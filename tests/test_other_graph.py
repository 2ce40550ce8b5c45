"""Causes from the candidate's own graph: what differs is told in words, what matters is told from what does not.

The twins are made by script: tensors renamed, normalizations folded, nodes fused by ONNX Runtime, types and opsets converted.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, version_converter

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph import (
    Compared,
    SideOutputs,
    compare_graphs,
    put_back,
    transplant_differences,
)
from parityscope.hypotheses.from_other_graph.constants import change_of
from parityscope.report.as_html import render_html
from parityscope.report.as_text import render_first_screen
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Edit = Callable[[onnx.ModelProto], None]

_RNG = np.random.default_rng(70)
X = [{"x": _RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,5] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  n = BatchNormalization<epsilon = 0.001>(c, scale, shift, mean, variance)
  r = Relu(n)
  d = Conv<pads = [1, 1, 1, 1]>(r, w2, b2)
  e = Sub(d, r)
  s = Sigmoid(e)
  p = GlobalAveragePool(s)
  f = Flatten<axis = 1>(p)
  m = MatMul(f, w3)
  a = Add(m, b3)
  y = Softmax<axis = 1>(a)
}"""


def _weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(71)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "shift": (8,), "mean": (8,), "w2": (8, 8, 3, 3), "b2": (8,)}
    shapes |= {"w3": (8, 5), "b3": (5,)}
    found = {name: (0.4 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    found["w3"] *= 5
    for name in ("scale", "variance"):
        found[name] = rng.uniform(0.5, 2, 8).astype(np.float32)
    return found


WEIGHTS = _weights()
VECTORS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x) => (float[4,8] y) {
  a = MatMul(x, w1)
  r = Tanh(a)
  m = MatMul(r, w2)
  y = Sub(m, r)
}"""


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write_network(tmp_path / "reference.onnx", NETWORK, WEIGHTS)


def _edited(reference: Path, *edits: Edit) -> Path:
    model = onnx.load(reference)
    for edit in edits:
        edit(model)
    path = reference.with_name("candidate.onnx")
    onnx.save(model, path)
    return path


def _renamed(model: onnx.ModelProto) -> None:
    """No tensor but inputs and outputs keeps its name, and no node has one."""
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {}
    for node in model.graph.node:
        node.name = ""
        for field in (node.input, node.output):
            field[:] = [one if one in kept or not one else names.setdefault(one, f"v{len(names)}") for one in field]
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    del model.graph.value_info[:]


def _constant(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        tensor = next(one for one in model.graph.initializer if one.name == name)
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(array.copy()), array.dtype), name))

    return edit


def _exchanged(array: np.ndarray) -> np.ndarray:
    array[[5, 6]] = array[[6, 5]]
    return array


def _attribute(output: str, name: str, value: object) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = next(one for one in model.graph.node if one.output[0] == output)
        kept = [one for one in node.attribute if one.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return edit


def _operator(output: str, op_type: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        next(one for one in model.graph.node if one.output[0] == output).op_type = op_type

    return edit


def _read_instead(output: str, name: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        next(one for one in model.graph.node if one.output[0] == output).input[0] = name

    return edit


def _handed_on(output: str, place: int) -> Edit:
    """A node that passes one of its inputs on."""

    def edit(model: onnx.ModelProto) -> None:
        node = next(one for one in model.graph.node if one.output[0] == output)
        node.CopyFrom(onnx.helper.make_node("Identity", [node.input[place]], [output]))

    return edit


def _behind(output: str, op_type: str, number: float) -> Edit:
    """A node of one number behind another one's result."""

    def edit(model: onnx.ModelProto) -> None:
        place, node = next((place, one) for place, one in enumerate(model.graph.node) if one.output[0] == output)
        node.output[0] = f"{output}_before"
        model.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), "number"))
        model.graph.node.insert(place + 1, onnx.helper.make_node(op_type, [node.output[0], "number"], [output]))

    return edit


def _cut_and_misread(model: onnx.ModelProto) -> None:
    """A bound behind a result, and another value beside it for the step that reads it."""
    _behind("d", "Min", 0.25)(model)
    next(one for one in model.graph.node if one.output[0] == "e").input[1] = "n"


def _inputs_exchanged(output: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = next(one for one in model.graph.node if one.output[0] == output)
        node.input[:] = [node.input[1], node.input[0], *node.input[2:]]

    return edit


def _optimized(path: Path, level: str) -> Path:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path.with_name("optimized.onnx"))
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return path.with_name("optimized.onnx")


def _compared(reference: Path, candidate: Path, inputs: Sequence[dict[str, np.ndarray]] = X) -> Compared:
    runs = [open_path(path, outputs=["y"], optimization="disabled") for path in (reference, candidate)]
    samples = [SideOutputs(inputs=x, reference=dict(runs[0](x)), candidate=dict(runs[1](x))) for x in inputs]
    return compare_graphs(load_model(reference), load_model(candidate), samples)


def _told(found: Compared) -> list[str]:
    return ["; ".join(one.words for one in unit.differences) for unit, _ in found.decision.causes]


FAULTS: dict[str, tuple[Edit, str]] = {
    "channels": (_constant("w2", _exchanged), "channel 5 and 6 exchanged"),
    "scale": (_constant("w1", lambda array: array * 1.5), "times 1.5"),
    "rolled": (_constant("w2", lambda array: np.roll(array, 1, 0)), "rolled by 1"),
    "axis": (_attribute("y", "axis", 0), "attribute axis of Softmax y: 1 became 0"),
    "pads": (_attribute("d", "pads", [2, 2, 0, 0]), "attribute pads of Conv d: [1, 1, 1, 1] became [2, 2, 0, 0]"),
    "operator": (_operator("s", "Tanh"), "Tanh s in place of Sigmoid s"),
    "gone": (_operator("r", "Identity"), "Relu r is left out"),
    "inputs": (_inputs_exchanged("e"), "Sub e takes its inputs exchanged"),
    "left out": (_read_instead("s", "d"), "Sub e is left out: Sigmoid s reads d in place of e"),
    "handed on": (_handed_on("e", 1), "Sub e is left out: r is handed on"),
    "cut off": (_behind("e", "Min", 0.25), "is added behind e: its result cut off at 0.25"),
    "misread beside it": (_cut_and_misread, "Sub e reads n in place of r"),
    "cut off at the end": (_behind("y", "Min", 0.05), "is added behind y: its result cut off at 0.05"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_is_told_in_words(name: str, reference: Path) -> None:
    edit, words = FAULTS[name]
    found = _compared(reference, _edited(reference, edit))
    (told,) = _told(found)
    assert words in told
    assert found.decision.explained == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("name", "words"), [("channels", "channel 5 and 6 exchanged"), ("inputs", "inputs exchanged")])
def test_a_fault_in_a_fused_and_renamed_graph_is_told_and_the_rest_is_harmless(
    name: str, words: str, reference: Path
) -> None:
    candidate = _optimized(_edited(reference, FAULTS[name][0], _renamed), "EXTENDED")
    found = _compared(reference, candidate)
    (told,) = _told(found)
    assert words in told
    assert found.decision.rest
    assert found.decision.rest_share < 1e-6


def _on_a_grid(bits: int, part: float, axis: int | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """Rounded to symmetric integers whose range ends at a part of the largest element."""

    def change(array: np.ndarray) -> np.ndarray:
        others = None if axis is None else tuple(each for each in range(array.ndim) if each != axis)
        most = 2 ** (bits - 1) - 1
        step = np.abs(array).max(others, keepdims=True) * part / most
        return (np.clip(np.round(array / step), -most - 1, most) * step).astype(np.float32)

    return change


_FACTORS = np.linspace(0.5, 2, 16, dtype=np.float32).reshape(-1, 1, 1, 1)
CHANGES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str, str]] = {
    "square": (lambda array: array.transpose(1, 0, 2, 3), "transposed [1, 0, 2, 3]", ""),
    "square and scaled": (lambda array: 2 * array.transpose(1, 0, 2, 3), "transposed [1, 0, 2, 3]; then times 2", ""),
    "turned and narrowed": (
        lambda array: np.float32(np.float16(array[:, ::-1])),
        "reversed along axis 1; then rounded to float16",
        "",
    ),
    "reversed": (lambda array: array[::-1], "reversed along its channels", ""),
    "gates": (
        lambda array: array.reshape(4, -1)[[1, 0, 2, 3]].reshape(array.shape),
        "4 blocks in the order 1, 0, 2, 3",
        "",
    ),
    "clipped int8": (_on_a_grid(8, 0.5), "quantized to 8 bits as a whole, the step", "grid 8 as a whole"),
    "clipped int4 of channels": (_on_a_grid(4, 0.6, 0), "quantized to 4 bits at each index of axis 0", "grid 4"),
    "offsets of channels": (lambda array: array + _FACTORS, "shifted along its channels by offsets from 0.5 to 2", ""),
    "scaled and shifted channels": (
        lambda array: array * _FACTORS + _FACTORS[::-1],
        "scaled along its channels by factors from 0.5 to 2 and shifted by offsets from 0.5 to 2",
        "",
    ),
    "pruned": (lambda array: np.where(np.abs(array) < 0.1, 0, array), "all that are below 0.1", ""),
    "squares": (np.square, "its square", ""),
    "scaled and trained": (
        lambda array: array * np.random.default_rng(5).normal(1.4, 1e-3, array.shape).astype(np.float32),
        "about times 1.4; then every element differs a little",
        "",
    ),
    "trained": (
        lambda array: array * np.random.default_rng(5).normal(1, 1e-3, array.shape).astype(np.float32),
        "every element differs a little",
        "retrained",
    ),
    "another": (lambda array: np.random.default_rng(6).normal(size=array.shape).astype(np.float32), "replaced", ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_shortest_description_of_a_constant_is_told(name: str) -> None:
    before = (0.4 * np.random.default_rng(4).normal(size=(16, 16, 3, 3))).astype(np.float32)
    change, words, group = CHANGES[name]
    found = change_of(before, np.ascontiguousarray(change(before), np.float32))
    assert words in found.words
    assert found.group.startswith(group) if group else not found.group
    assert not found.declared


def test_a_constant_of_another_layer_is_told_by_its_name(reference: Path) -> None:
    other = WEIGHTS["b1"].copy()
    (told,) = _told(_compared(reference, _edited(reference, _constant("b2", lambda _: other), _renamed)))
    assert "constant b2 of Conv d: that of b1 in its place" in told


def test_three_causes_at_once_are_told_with_their_shares(reference: Path) -> None:
    edits = [FAULTS[name][0] for name in ("channels", "operator", "scale")]
    harmless = _constant("b2", lambda array: array * np.float32(1 + 1e-6))
    found = _compared(reference, _edited(reference, *edits, harmless, _renamed))
    told = _told(found)
    assert len(told) == 3
    for words in ("channel 5 and 6 exchanged", "in place of Sigmoid", "times 1.5"):
        assert any(words in one for one in told)
    shares = [share for _, share in found.decision.causes]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    assert min(shares) > 0


def test_a_fusion_and_the_node_that_it_took_in_are_harmless_beside_a_cause(tmp_path: Path) -> None:
    """Neither goes without the other, which does not make them causes."""
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,6,8] x) => (float[1,6,8] y) {
      q = MatMul(x, w)
      r = Relu(q)
      s = MatMul(r, v)
      k = Transpose<perm = [0, 2, 1]>(x)
      m = MatMul(s, k)
      n = Softmax<axis = -1>(m)
      t = Transpose<perm = [0, 2, 1]>(n)
      y = MatMul(t, s)
    }"""
    rng = np.random.default_rng(72)
    weights = {name: rng.normal(size=(8, 8)).astype(np.float32) for name in "wv"}
    plain = write_network(tmp_path / "reference.onnx", network, weights)
    cut = write_network(
        tmp_path / "candidate.onnx", network.replace("r = Relu(q)", "p = Relu(q) r = Clip(p, low, high)"),
        {**weights, "low": np.float32(0), "high": np.float32(4)},
    )  # fmt: skip
    candidate = _edited(_optimized(cut, "EXTENDED"), _renamed)
    assert "FusedMatMul" in {node.op_type for node in onnx.load(candidate).graph.node}
    found = _compared(plain, candidate, [{"x": rng.normal(size=(1, 6, 8)).astype(np.float32)} for _ in range(2)])
    (told,) = _told(found)
    assert "Clip" in told
    assert [share for _, share in found.decision.causes] == pytest.approx([1.0], abs=1e-3)


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
def test_another_optimizer_level_has_no_cause(level: str, reference: Path) -> None:
    found = _compared(reference, _optimized(_edited(reference, _renamed), level))
    assert all(stretch.error < 1e-5 for stretch in found.stretches.values())
    assert all(unit.group == "rewritten" for unit, _ in found.decision.causes)


def test_another_opset_that_was_converted_right_computes_the_same(reference: Path) -> None:
    path = reference.with_name("converted.onnx")
    onnx.save(version_converter.convert_version(onnx.load(reference), 20), path)
    with pytest.raises(ParityError, match="compute the same"):
        _compared(reference, path)


def test_a_bias_behind_a_folded_normalization_is_told_by_its_weight(reference: Path) -> None:
    candidate = _optimized(_edited(reference, _constant("shift", lambda array: array + 1), _renamed), "BASIC")
    (told,) = _told(_compared(reference, candidate))
    assert "the bias of w1, with what is folded into it" in told


def test_more_training_is_one_unit(reference: Path) -> None:
    rng = np.random.default_rng(3)
    edits = [
        _constant(name, lambda array: array * (1 + 2e-3 * rng.normal(size=array.shape)))
        for name in ("w1", "w2", "w3", "b1", "b2", "b3")
    ]
    found = _compared(reference, _edited(reference, *edits))
    ((unit, share),) = found.decision.causes
    assert unit.group == "retrained"
    assert len(unit.differences) >= 5
    assert share > 0.99


def _in_halves(model: onnx.ModelProto) -> None:
    """Computes in float16 between a Cast of the input and one of the output."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for node in model.graph.node:
        node.input[:] = ["x16" if one == "x" else one for one in node.input]
        node.output[:] = ["y16" if one == "y" else one for one in node.output]
    casts = [("x", "x16", onnx.TensorProto.FLOAT16), ("y16", "y", onnx.TensorProto.FLOAT)]
    first, last = (onnx.helper.make_node("Cast", [one], [other], to=kind) for one, other, kind in casts)
    model.graph.node.insert(0, first)
    model.graph.node.append(last)


@pytest.mark.search_of(0.1)
def test_types_that_the_file_declares_are_no_fault_and_one_beside_them_is(reference: Path) -> None:
    right = _compared(reference, _edited(reference, _in_halves, _renamed))
    assert all(unit.declared or unit.group == "rewritten" for unit, _ in right.decision.causes)
    wrong = _compared(reference, _edited(reference, FAULTS["channels"][0], _in_halves, _renamed))
    blamed = [unit for unit, _ in wrong.decision.causes if not unit.declared]
    assert len(blamed) == 1
    assert "channel 5 and 6 exchanged" in blamed[0].differences[0].words


@pytest.mark.parametrize("form", ["qdq", "qoperator", "dynamic"])
def test_a_quantized_file_does_what_it_declares(form: str, tmp_path: Path) -> None:
    reference, made, samples = _quantized(form, tmp_path)
    decision = _compared(reference, made, samples).decision
    assert decision.explained > 0.9
    assert [unit.group for unit, share in decision.causes if share > 0.01 and not unit.declared] == []


def test_a_quantizer_whose_scale_is_too_small_is_told_by_its_range(tmp_path: Path) -> None:
    reference, made, samples = _quantized("qdq", tmp_path)
    model = onnx.load(made)
    scale = next(one for one in model.graph.initializer if one.name == "r_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) / np.float32(4), "r_scale"))
    onnx.save(model, made)
    (unit, share), *_ = _compared(reference, made, samples).decision.causes
    assert share > 0.5
    assert not unit.declared
    assert "QuantizeLinear r_QuantizeLinear: its range ends at " in unit.differences[0].words


def _quantized(form: str, tmp_path: Path) -> tuple[Path, Path, list[dict[str, np.ndarray]]]:
    """A network, its quantized file, and the samples of both."""
    from onnxruntime import quantization

    rng = np.random.default_rng(72)
    weights = {name: (rng.normal(size=(32, 32)) / 4).astype(np.float32) for name in ("w1", "w2")}
    text = VECTORS.replace("4,6", "8,32").replace("4,8", "8,32")
    reference, made = write_network(tmp_path / "reference.onnx", text, weights), tmp_path / "quantized.onnx"
    samples = [{"x": rng.normal(size=(8, 32)).astype(np.float32)} for _ in range(2)]
    if form == "dynamic":
        quantization.quantize_dynamic(reference, made, per_channel=True, reduce_range=True)
    else:

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # its base class is not typed
            """All samples, once."""

            def __init__(self) -> None:
                self.left = iter(samples)

            def get_next(self) -> Any:
                """The next sample, None behind the last."""
                return next(self.left, None)

        kind = quantization.QuantFormat.QDQ if form == "qdq" else quantization.QuantFormat.QOperator
        quantization.quantize_static(reference, made, Reader(), quant_format=kind, reduce_range=True)
    return reference, made, samples


def _diagnosed(
    reference: Path,
    candidate: str,
    capfd: pytest.CaptureFixture[str],
    *words: str,
    samples: list[dict[str, np.ndarray]] = X,
) -> dict[str, Any]:
    for number, arrays in enumerate(samples):
        write_npz(reference.parent / "samples" / f"{number}.npz", arrays)
    line = ["diagnose", str(reference), "--inputs", str(reference.parent / "samples"), "--candidate", candidate]
    line += ["--format", "json", "--quiet", "--study", str(reference.parent / "study"), *words]
    assert exit_status(*line) == 1
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_the_first_finding_names_the_constant(reference: Path, capfd: pytest.CaptureFixture[str]) -> None:
    candidate = _edited(reference, FAULTS["channels"][0], _renamed)
    first = _diagnosed(reference, f"ort?model={candidate}", capfd)["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("EXP005", "cause", "d")
    assert "constant w2 of Conv d: channel 5 and 6 exchanged" in first["claim"]


def test_what_the_file_says_of_the_first_layer_is_read_and_not_fitted_and_its_inputs_are_asked_about(
    reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate = _edited(reference, *(_attribute(name, "pads", [2, 2, 0, 0]) for name in "cd"))
    document = _diagnosed(reference, f"ort?model={candidate}", capfd)
    (cause,) = (one for one in document["findings"] if one["role"] == "cause")
    assert cause["code"] == "EXP005"
    assert "pads of Conv c: [1, 1, 1, 1] became [2, 2, 0, 0] (and likewise at another place" in cause["claim"]
    assert "what else these layers may compute" in {one["what"] for one in document["skipped"]}
    assert {"PRE001", "BND002"} <= {one["experiment"]["check"] for one in document["refuted"]}


@pytest.mark.search_of(0.1)
def test_a_change_of_the_file_as_large_as_rounding_is_no_rounding(
    reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate = _edited(reference, _attribute("n", "epsilon", 0.0005))
    document = _diagnosed(reference, f"ort?model={candidate}", capfd)
    first, *others = document["findings"]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert not [one for one in others if one["code"] == "ACC001" and (one["role"] != "information" or one["repairs"])]
    told = render_first_screen(document)
    assert "[EXP005, cause proved]" in told
    assert "meant, declare it" not in told + render_html(document)


def test_a_change_that_makes_little_beside_another_contributes(
    reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate = _edited(reference, _constant("b3", lambda array: -array), _constant("b2", lambda array: 1.004 * array))
    document = _diagnosed(reference, f"ort?model={candidate}", capfd)
    first, second = (one for one in document["findings"] if one["code"] == "EXP005")
    assert (first["role"], second["role"]) == ("cause", "contributing")
    assert "b3" in first["claim"]
    assert "b2" in second["claim"]
    assert 0 < second["share"] < 0.01
    assert "\n  and     constant b2 of Conv d" in render_first_screen(document)


def test_an_attribute_is_told_and_not_the_other_operator_behind_it_that_it_takes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Decibels are cut off below the loudest one of all; the candidate takes the loudest of each row, which no Clip takes."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x) => (float[4,6] y) {
      a = Tanh(x)
      m = ReduceMax<keepdims = 0>(a)
      low = Sub(m, span)
      y = Clip(a, low)
    }"""
    reference = write_network(tmp_path / "reference.onnx", text, {"span": np.array(0.25, np.float32)})

    def per_row(model: onnx.ModelProto) -> None:
        loudest, cut = model.graph.node[1], model.graph.node[3]
        del loudest.attribute[:]
        loudest.attribute.extend([onnx.helper.make_attribute("axes", [-1]), onnx.helper.make_attribute("keepdims", 1)])
        cut.op_type = "Max"

    samples = [{"x": np.random.default_rng(seed).normal(size=(4, 6)).astype(np.float32)} for seed in (75, 76)]
    document = _diagnosed(reference, f"ort?model={_edited(reference, per_row)}", capfd, samples=samples)
    first = document["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("EXP005", "cause", "m")
    assert "attribute axes of ReduceMax m: nothing became [-1]" in first["claim"]
    assert [one["trial"]["verdict"] for one in first["repairs"] if one["repair"] == "put_back"] == ["within"]


def test_an_arithmetic_behind_two_changes_of_the_file_is_a_cause_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(72)
    weights = {"w1": rng.normal(size=(6, 8)).astype(np.float32), "w2": rng.normal(size=(8, 8)).astype(np.float32)}
    reference = write_network(tmp_path / "reference.onnx", VECTORS, weights)
    candidate = _edited(reference, _constant("w2", _exchanged), _inputs_exchanged("y"), _renamed)
    samples = [{"x": rng.normal(size=(4, 6)).astype(np.float32)} for _ in range(2)]
    target = f"sim:bf16?model={candidate}"
    document = _diagnosed(reference, target, capfd, "--declared", "f32", samples=samples)
    causes = [(one["code"], one["claim"]) for one in document["findings"] if one["role"] == "cause"]
    assert [code for code, _ in causes] == ["EXP005", "EXP005", "ACC001"]
    assert "Sub y takes its inputs exchanged" in causes[0][1]
    assert "channel 5 and 6 exchanged" in causes[1][1]
    sequence = document["sequence"]
    assert sequence["verdict"] == "within"
    assert [step["code"] for step in sequence["steps"]] == ["EXP005", "EXP005", "ACC001"]
    assert sum(step["share"] for step in sequence["steps"]) + sequence["unexplained"] == pytest.approx(1.0)
    for before, after in itertools.pairwise(sequence["steps"]):
        assert after["before"] == before["after"]


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_copy_of_the_reference_with_the_difference_in_it_is_the_candidate(
    name: str, *, optimized: bool, reference: Path
) -> None:
    candidate = _edited(reference, FAULTS[name][0], _renamed)
    candidate = _optimized(candidate, "EXTENDED") if optimized else candidate
    found = _compared(reference, candidate)
    chosen = [one for unit, _ in found.decision.causes for one in unit.differences]
    graph = load_model(reference).graph()
    names = [value.name for node in graph.graph for value in node.outputs]
    transplant_differences(found.alignment, found.stretches, chosen)(graph)
    assert set(names) <= {value.name for node in graph.graph for value in node.outputs}
    ir.save(graph, reference.with_name("copy.onnx"))
    runs = [
        open_path(path, outputs=["y"], optimization="disabled")
        for path in (reference.with_name("copy.onnx"), candidate)
    ]
    for x in X:
        mine, its = (run(x)["y"] for run in runs)
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_copy_of_the_candidate_with_the_difference_put_back_is_the_reference(
    name: str, *, optimized: bool, reference: Path
) -> None:
    candidate = _edited(reference, FAULTS[name][0], _renamed)
    candidate = _optimized(candidate, "EXTENDED") if optimized else candidate
    found = _compared(reference, candidate)
    graph = load_model(candidate).graph()
    put_back(found.alignment, found.stretches, [one for unit, _ in found.decision.causes for one in unit.differences])(
        graph
    )
    ir.save(graph, reference.with_name("copy.onnx"))
    runs = [
        open_path(path, outputs=["y"], optimization="disabled")
        for path in (reference.with_name("copy.onnx"), reference)
    ]
    for x in X:
        mine, its = (run(x)["y"] for run in runs)
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-6)


def _multiplied(name: str) -> Edit:
    """The result of a node under its name, times a mask behind it."""

    def edit(model: onnx.ModelProto) -> None:
        place, node = next((place, one) for place, one in enumerate(model.graph.node) if one.output[0] == name)
        node.output[0] = f"{name}_whole"
        mask = np.where(np.arange(64).reshape(1, 1, 8, 8) % 3 == 0, 0, 1.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
        model.graph.node.insert(
            place + 1, onnx.helper.make_node("Mul", [f"{name}_whole", "mask"], [name], name="dropout")
        )

    return edit


def _frozen(name: str, array: np.ndarray) -> Edit:
    """A constant in the place of a node."""

    def edit(model: onnx.ModelProto) -> None:
        node = next(one for one in model.graph.node if one.output[0] == name)
        node.CopyFrom(onnx.helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))

    return edit


def test_a_node_that_was_added_is_told_where_its_input_is_made_and_taking_it_out_repairs(
    reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate = _edited(reference, _multiplied("r"))
    first = _diagnosed(reference, f"ort?model={candidate}", capfd)["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("EXP005", "cause", "r")
    assert "Mul dropout is added behind r" in first["claim"]
    offered = first["repairs"][0]
    assert (offered["repair"], offered["trial"]["verdict"]) == ("put_back", "within")
    assert offered["trial"]["after"] < 1e-5 < offered["trial"]["before"]
    copy = open_path(reference.parent / "study" / "repaired.onnx", outputs=["y"], optimization="disabled")
    original = open_path(reference, outputs=["y"], optimization="disabled")
    for x in X:
        np.testing.assert_allclose(copy(x)["y"], original(x)["y"], rtol=1e-4, atol=1e-6)


def test_a_constant_for_what_is_computed_is_told_as_that_and_computed_again_in_the_copy(
    reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traced = np.random.default_rng(74).normal(size=(1, 8, 8, 8)).astype(np.float32)
    candidate = _edited(reference, _frozen("d", traced))
    first = _diagnosed(reference, f"ort?model={candidate}", capfd)["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("EXP005", "cause", "d")
    assert "d is a constant here, and is computed from the inputs in the reference" in first["claim"]
    assert [one["trial"]["verdict"] for one in first["repairs"] if one["repair"] == "put_back"] == ["within"]


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x, float[4,6] state) => (float[4,6] y) {
  s = Mul(state, half)
  total = ReduceSum<keepdims = 0>(x)
  more = Greater(total, nought)
  z = If(more) <
    then_branch = then () => (float[4,6] a) { a = Add(x, s) },
    else_branch = other () => (float[4,6] b) { b = Sub(x, s) }
  >
  y = Tanh(z)
}"""


def test_what_branches_read_through_another_type_is_declared_and_no_other_body(tmp_path: Path) -> None:
    weights = {"half": np.full(1, 0.5, np.float32), "nought": np.zeros((), np.float32)}
    reference = write_network(tmp_path / "reference.onnx", BRANCHES, weights)
    cast = "k = Cast<to = 10>(s)  kept = Cast<to = 1>(k)  total ="
    other = BRANCHES.replace("total =", cast).replace("(x, s)", "(x, kept)")
    candidate = write_network(tmp_path / "candidate.onnx", other, weights)
    rng = np.random.default_rng(73)
    inputs = [{name: rng.normal(size=(4, 6)).astype(np.float32) for name in ("x", "state")}]
    ((unit, _),) = _compared(reference, candidate, inputs).decision.causes
    assert unit.declared
    assert "another type (FLOAT and FLOAT16) on the way" in unit.differences[0].words


def test_what_the_file_does_is_told_where_most_of_the_error_comes_from_elsewhere(reference: Path) -> None:
    candidate = _edited(reference, FAULTS["operator"][0], _renamed)
    runs = [open_path(path, outputs=["y"], optimization="disabled") for path in (reference, candidate)]
    given = [{"x": x["x"] + np.float32(2)} for x in X]  # what the candidate's model was given
    samples = [
        SideOutputs(inputs=x, reference=dict(runs[0](x)), candidate=dict(runs[1](its)))
        for x, its in zip(X, given, strict=True)
    ]
    decision = compare_graphs(load_model(reference), load_model(candidate), samples).decision
    assert not decision.alone
    ((unit, share),) = decision.causes
    assert "in place of Sigmoid" in unit.differences[0].words
    assert 0 < share < 0.5


def _exported(folder: Path, *, training: bool) -> tuple[Path, Path]:
    """A network as an exporter writes it in eval mode, its normalization folded into the convolution, and as it is, in a mode."""
    gain = WEIGHTS["scale"] / np.sqrt(WEIGHTS["variance"] + 0.001)
    folded = {
        "w1": WEIGHTS["w1"] * gain[:, None, None, None],
        "b1": WEIGHTS["shift"] + (WEIGHTS["b1"] - WEIGHTS["mean"]) * gain,
    }
    plain = NETWORK.replace("  n = BatchNormalization<epsilon = 0.001>(c, scale, shift, mean, variance)\n", "")
    left = {name: array for name, array in WEIGHTS.items() if name not in {"scale", "shift", "mean", "variance"}}
    reference = write_network(folder / "reference.onnx", plain.replace("Relu(n)", "Relu(c)"), left | folded)
    mode = "n, m2, v2 = BatchNormalization<epsilon = 0.001, training_mode = 1>"
    text = NETWORK.replace("n = BatchNormalization<epsilon = 0.001>", mode) if training else NETWORK
    return reference, write_network(folder / "candidate.onnx", text, WEIGHTS)


def test_a_normalization_in_training_mode_is_named_and_no_weight_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reference, candidate = _exported(tmp_path, training=True)
    first = _diagnosed(reference, str(candidate), capfd)["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert "is in training mode, with the statistics of the batch at hand" in first["claim"]
    assert "model.eval()" in first["repairs"][0]["text"]


@pytest.mark.search_of(1.0)
def test_a_normalization_that_is_folded_on_one_side_alone_is_not_blamed(tmp_path: Path) -> None:
    reference, candidate = _exported(tmp_path, training=False)
    write_npz(tmp_path / "samples" / "0.npz", X[0])
    line = ["diagnose", str(reference), "--inputs", str(tmp_path / "samples"), "--candidate", str(candidate)]
    assert exit_status(*line, "--study", str(tmp_path / "study"), "--quiet") == 0
