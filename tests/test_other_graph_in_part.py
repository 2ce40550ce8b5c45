"""A candidate's file of which some nodes cannot be read or run: everything else is compared, and what is left out is named.

The deployment's outputs are recorded; what runs it knows operators, constants or files that are not here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from command_line import exit_status, read_study
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Edit = Callable[[onnx.ModelProto], None]

_RNG = np.random.default_rng(80)
X = [{"x": _RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,5] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  r = Relu(c)
  d = Conv<pads = [1, 1, 1, 1]>(r, w2, b2)
  e = Sub(d, r)
  s = Sigmoid(e)
  p = GlobalAveragePool(s)
  f = Flatten<axis = 1>(p)
  m = MatMul(f, w3)
  a = Add(m, b3)
  y = Softmax<axis = 1>(a)
}"""
SHAPES = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (8, 5), "b3": (5,)}
WEIGHTS = {name: (0.6 * _RNG.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}
OWN = helper.make_opsetid("my.company", 1)


def _node(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(one for one in model.graph.node if one.output[0] == output)


def _tensor(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(one for one in model.graph.initializer if one.name == name)


def _louder_bias(model: onnx.ModelProto) -> None:
    tensor = _tensor(model, "b3")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(3), "b3"))


def _own_operator(output: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = _node(model, output)
        node.domain, node.op_type = OWN.domain, f"Fast{node.op_type}"
        model.opset_import.append(OWN)

    return edit


def _own_fusion(model: onnx.ModelProto) -> None:
    """Two nodes are one of an operator that nobody here has."""
    first, second = _node(model, "d"), _node(model, "e")
    place = list(model.graph.node).index(first)
    for node in (first, second):
        model.graph.node.remove(node)
    fused = helper.make_node("ConvSub", [*first.input], ["e"], domain=OWN.domain)
    model.graph.node.insert(place, fused)
    model.opset_import.append(OWN)


def _packed_weight(model: onnx.ModelProto) -> None:
    _tensor(model, "w2").name = "w2_packed"
    model.graph.node.insert(0, helper.make_node("Unpack", ["w2_packed"], ["w2"], domain=OWN.domain))
    model.opset_import.append(OWN)


def _unknown_operator(model: onnx.ModelProto) -> None:
    _node(model, "s").op_type = "Sigmoidal"


def _unknown_attribute(model: onnx.ModelProto) -> None:
    _node(model, "r").attribute.append(helper.make_attribute("slope_of_nothing", 3))


def _weight_of_other_shape(model: onnx.ModelProto) -> None:
    tensor = _tensor(model, "w1")
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.concatenate([array, array]), "w1"))


def _renamed(model: onnx.ModelProto) -> None:
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {}
    for node in model.graph.node:
        for field in (node.input, node.output):
            field[:] = [one if one in kept else names.setdefault(one, f"v{len(names)}") for one in field]
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]


def _names_of_others(model: onnx.ModelProto) -> None:
    """Numbers as exporters give, which are other values' names in the reference."""
    taken = dict(zip(("c", "r", "d", "e", "s", "p"), ("p", "s", "c", "d", "r", "e"), strict=True))
    for node in model.graph.node:
        for field in (node.input, node.output):
            field[:] = [taken.get(one, one) for one in field]


UNREADABLE: dict[str, tuple[list[Edit], str, str]] = {
    "own operator": ([_own_operator("r")], "FastRelu r", "1 of 10"),
    "own operator, last": ([_own_operator("y")], "FastSoftmax y", "1 of 10"),
    "own operators, renamed": ([_own_operator("r"), _own_operator("s"), _renamed], "FastSigmoid", "2 of 10"),
    "own operators, others' names": ([_own_operator("r"), _own_operator("d"), _names_of_others], "FastConv", "2 of 10"),
    "own fusion": ([_own_fusion], "ConvSub e", "1 of 9"),
    "own fusion, renamed": ([_own_fusion, _renamed], "ConvSub v", "1 of 9"),
    "own packing": ([_packed_weight], "Unpack w2, and 1 that read what these give", "2 of 11"),
    "unknown operator": ([_unknown_operator], "Sigmoidal s", "1 of 10"),
    "unknown attribute": ([_unknown_attribute], "Relu r", "1 of 10"),
    "weight of another shape": ([_weight_of_other_shape], "Conv c", "1 of 10"),
}


class _Deployment:
    """A reference, and a candidate of which outputs were recorded before its file was spoilt."""

    def __init__(self, folder: Path, *faults: Edit) -> None:
        self.folder = folder
        self.reference = write_network(folder / "reference.onnx", NETWORK, WEIGHTS)
        self.model = onnx.load(self.reference)
        for fault in faults:
            fault(self.model)
        session = ort.InferenceSession(self.model.SerializeToString())
        for number, arrays in enumerate(X):
            write_npz(folder / "samples" / f"{number}.npz", arrays)
            write_npz(folder / "outputs" / f"{number}.npz", {"y": session.run(None, arrays)[0]})

    def diagnosed(self, *edits: Edit, status: int = 1) -> dict[str, Any]:
        for edit in edits:
            edit(self.model)
        (self.folder / "candidate.onnx").write_bytes(self.model.SerializeToString())
        return self.asked(status=status)

    def asked(self, *, status: int = 1) -> dict[str, Any]:
        target = f"saved?path={self.folder / 'outputs'}&model={self.folder / 'candidate.onnx'}"
        line = ["diagnose", str(self.reference), "--inputs", str(self.folder / "samples"), "--candidate", target]
        assert exit_status(*line, "--quiet", "--study", str(self.folder / "study")) == status
        return read_study(self.folder / "study")


def _unfound_data(model: onnx.ModelProto) -> None:
    tensor = _tensor(model, "w1")
    nbytes = len(numpy_helper.to_array(tensor).tobytes())
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "gone.bin"), ("length", str(nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def _wrong_size(model: onnx.ModelProto) -> None:
    _tensor(model, "w1").dims[0] += 1


def _version_of_tomorrow(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99
    model.ir_version = 99


def _no_such_input(model: onnx.ModelProto) -> None:
    _node(model, "d").input[0] = "nowhere"


def _circle(model: onnx.ModelProto) -> None:
    _node(model, "r").input[0] = "s"


def _given_twice(model: onnx.ModelProto) -> None:
    model.graph.node.add().CopyFrom(_node(model, "s"))


def _endless_function(model: onnx.ModelProto) -> None:
    """The activation is a function of the file's own, which calls itself."""
    inner = helper.make_node("Activate", ["a"], ["b"], domain=OWN.domain)
    model.functions.append(helper.make_function(OWN.domain, "Activate", ["a"], ["b"], [inner], [OWN]))
    _node(model, "r").domain, _node(model, "r").op_type = OWN.domain, "Activate"
    model.opset_import.append(OWN)


BROKEN: dict[str, tuple[list[Edit], str]] = {
    "external data is missing": ([_unfound_data], "the external data of initializer 'w1' is missing"),
    "a weight of another size": ([_wrong_size], "the constant 'w1' has the shape"),
    "versions of tomorrow": ([_version_of_tomorrow], "opset 99 is read as"),
    "an input that nothing gives": ([_no_such_input], "nothing in the file gives 'nowhere'"),
    "a circle": ([_circle], "depends on its own output"),
    "a name that is given twice": ([_given_twice], "gives 's', which is there already"),
    "a function that calls itself": ([_endless_function], "calls itself"),
    "several": ([_unfound_data, _no_such_input, _unknown_operator], "nothing in the file gives 'nowhere'"),
    "several, renamed": (
        [_own_operator("r"), _renamed, lambda model: model.graph.initializer.pop(0)],
        "nothing in the file",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_broken_somewhere_still_tells_what_differs_elsewhere(name: str, tmp_path: Path) -> None:
    edits, told = BROKEN[name]
    document = _Deployment(tmp_path, _louder_bias).diagnosed(*edits)
    first = document["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert "constant b3 of Add a: times 3" in first["claim"]
    (left_out,) = [one for one in document["skipped"] if one["what"].startswith("a part of the candidate's file")]
    assert told in left_out["reason"]
    assert left_out["fix"]


@pytest.mark.search_of(1.0)
def test_a_right_deployment_whose_file_lost_its_data_is_not_blamed(tmp_path: Path) -> None:
    document = _Deployment(tmp_path).diagnosed(_unfound_data, status=0)
    assert document["verdict"] == "within"
    assert "'w1' is missing" in json.dumps(document["skipped"])


@pytest.mark.parametrize("spoil", ["cut", "text", "gone", "folder"])
def test_a_file_that_cannot_be_read_is_one_skip(spoil: str, tmp_path: Path) -> None:
    deployment = _Deployment(tmp_path)
    path = tmp_path / "candidate.onnx"
    if spoil == "folder":
        path.mkdir()
    elif spoil != "gone":
        path.write_bytes(deployment.model.SerializeToString()[:700] if spoil == "cut" else b"no model at all")
    _assert_unread(deployment.asked(status=0))


def _assert_unread(document: dict[str, Any]) -> None:
    (left_out,) = [one for one in document["skipped"] if one["what"].startswith("the candidate's file")]
    assert left_out["reason"]
    assert left_out["fix"]


def test_behind_a_file_that_cannot_be_read_the_cause_is_found_from_the_outputs(tmp_path: Path) -> None:
    deployment = _Deployment(tmp_path, _louder_bias)
    (tmp_path / "candidate.onnx").write_bytes(b"no model at all")
    document = deployment.asked()
    _assert_unread(document)
    assert document["verdict"] == "beyond"
    first = document["findings"][0]
    assert first["role"] == "cause"
    assert "Add" in first["claim"]


def test_a_broken_file_that_is_to_be_run_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    deployment = _Deployment(tmp_path, _louder_bias)
    _unfound_data(deployment.model)
    (tmp_path / "candidate.onnx").write_bytes(deployment.model.SerializeToString())
    line = ["diagnose", str(deployment.reference), "--inputs", str(tmp_path / "samples")]
    assert exit_status(*line, "--candidate", f"ort?model={tmp_path / 'candidate.onnx'}", "--quiet") == 2
    assert "'w1' is missing" in capfd.readouterr().err


def _skip_of_nodes(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in document["skipped"] if one["what"].endswith("nodes of the candidate's file")]
    return dict(found)


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_run_is_named_and_the_cause_elsewhere_is_proved(name: str, tmp_path: Path) -> None:
    edits, told, count = UNREADABLE[name]
    document = _Deployment(tmp_path, _louder_bias).diagnosed(*edits)
    first = document["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert "constant b3 of Add a: times 3" in first["claim"]
    assert first["share"] > 0.999
    left_out = _skip_of_nodes(document)
    assert told in left_out["reason"]
    assert left_out["what"].startswith(count)
    assert left_out["fix"]


def test_a_fault_in_front_of_what_cannot_be_run_is_told_too(tmp_path: Path) -> None:
    def exchanged(model: onnx.ModelProto) -> None:
        tensor = _tensor(model, "w1")
        array = numpy_helper.to_array(tensor).copy()
        array[[2, 6]] = array[[6, 2]]
        tensor.CopyFrom(numpy_helper.from_array(array, "w1"))

    document = _Deployment(tmp_path, exchanged, _louder_bias).diagnosed(_own_operator("r"), _own_operator("s"))
    told = " ".join(one["claim"] for one in document["findings"] if one["code"] == "EXP005" and one["role"] == "cause")
    assert "constant w1 of Conv c: channel 2 and 6 exchanged" in told
    assert "constant b3 of Add a: times 3" in told


def test_an_attribute_beside_a_weight_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    def unpadded(model: onnx.ModelProto) -> None:
        node = _node(model, "d")
        del node.attribute[:]
        node.attribute.extend([helper.make_attribute("pads", [2, 2, 2, 2]), helper.make_attribute("dilations", [2, 2])])

    document = _Deployment(tmp_path, unpadded).diagnosed(_packed_weight)
    first = document["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert "attribute dilations of Conv d: nothing became [2, 2]" in json.dumps(document["findings"])
    assert "Unpack w2" in json.dumps(document["skipped"])


@pytest.mark.search_of(1.0)
def test_a_right_deployment_with_operators_of_its_own_is_not_blamed(tmp_path: Path) -> None:
    document = _Deployment(tmp_path).diagnosed(_own_operator("r"), _packed_weight, status=0)
    assert document["verdict"] == "within"
    assert not [one for one in document["findings"] if one["role"] == "cause"]


@pytest.mark.search_of(0.1)
def test_a_cause_inside_what_cannot_be_run_is_not_laid_on_what_can(tmp_path: Path) -> None:
    """The error is made by the operator that is not here; a harmless difference elsewhere takes no blame."""

    def leaky(model: onnx.ModelProto) -> None:
        node = _node(model, "r")
        node.op_type = "LeakyRelu"
        node.attribute.append(helper.make_attribute("alpha", 0.3))

    def rounded(model: onnx.ModelProto) -> None:
        tensor = _tensor(model, "b3")
        array = numpy_helper.to_array(tensor) * np.float32(1 + 1e-6)
        tensor.CopyFrom(numpy_helper.from_array(array, "b3"))

    document = _Deployment(tmp_path, leaky, rounded).diagnosed(_own_operator("r"))
    blamed = [one for one in document["findings"] if one["role"] == "cause" and "b3" in one["claim"]]
    assert not blamed
    assert "FastLeakyRelu r" in json.dumps(document["skipped"])


def _swapped_sub(model: onnx.ModelProto) -> None:
    _node(model, "e").op_type = "Add"


def _swapped_weight(model: onnx.ModelProto) -> None:
    tensor = _tensor(model, "w1")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[[1, 0, *range(2, 8)]], "w1"))


FAULTS: dict[str, tuple[Edit, str]] = {
    "behind": (_louder_bias, "constant b3 of Add a: times 3"),
    "around": (_swapped_sub, "in place of Sub e"),
    "in front": (_swapped_weight, "constant w1 of Conv c: channel 0 and 1 exchanged"),
}


def _sides(
    folder: Path, own: str, fault: Edit | None, *edits: Edit, watch: bool = False
) -> tuple[Any, Any, list[SideOutputs]]:
    """A reference with a node that nothing here runs, and outputs of both from before that was put in."""
    reference = onnx.load(write_network(folder / "plain.onnx", NETWORK, WEIGHTS))
    candidate = onnx.ModelProto()
    candidate.CopyFrom(reference)
    if fault is not None:
        fault(candidate)
    seen = onnx.ModelProto()
    seen.CopyFrom(reference)
    seen.graph.output.extend([helper.make_tensor_value_info(own, 1, None)] if own != "y" else [])
    inside, its = (ort.InferenceSession(one.SerializeToString()) for one in (seen, candidate))
    samples = [
        SideOutputs(
            inputs=arrays,
            reference={"y": inside.run(["y"], arrays)[0]},
            candidate={"y": its.run(["y"], arrays)[0]},
            watch=(lambda names, arrays=arrays: dict(zip(names, inside.run(list(names), arrays), strict=True)))
            if watch
            else None,
        )
        for arrays in X
    ]
    _own_operator(own)(reference)
    for edit in edits:
        edit(candidate)
    paths = folder / "reference.onnx", folder / "candidate.onnx"
    for path, model in zip(paths, (reference, candidate), strict=True):
        path.write_bytes(model.SerializeToString())
    return load_model(paths[0]), load_model(paths[1]), samples


@pytest.mark.parametrize("where", FAULTS)
@pytest.mark.parametrize("own", ["r", "s", "y"])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_node_of_the_reference_that_nothing_runs_is_taken_from_the_candidate(
    own: str, where: str, renamed: bool, tmp_path: Path
) -> None:
    fault, words = FAULTS[where]
    compared = compare_graphs(*_sides(tmp_path, own, fault, *([_renamed] if renamed else [])))
    [(unit, share)] = compared.decision.causes
    assert words in unit.differences[0].words
    assert share > 0.99
    assert compared.decision.alone
    assert [one.what for one in compared.unread] == ["1 of 10 nodes of the reference's file"]
    assert (
        f"they cannot be run alone: Fast{ {'r': 'Relu', 's': 'Sigmoid', 'y': 'Softmax'}[own] } {own}"
        in compared.unread[0].reason
    )


@pytest.mark.parametrize("where", FAULTS)
@pytest.mark.parametrize("own", ["r", "s", "y"])
def test_what_differs_around_a_node_that_neither_side_can_run_is_told_and_not_proved(
    own: str, where: str, tmp_path: Path
) -> None:
    fault, words = FAULTS[where]
    compared = compare_graphs(*_sides(tmp_path, own, fault, _own_operator(own)))
    assert not compared.decision.causes
    [unit] = compared.decision.unproved
    assert words in unit.differences[0].words


def test_what_was_recorded_inside_stands_for_a_node_that_neither_side_can_run(tmp_path: Path) -> None:
    compared = compare_graphs(*_sides(tmp_path, "r", _louder_bias, _own_operator("r"), watch=True))
    [(unit, share)] = compared.decision.causes
    assert unit.differences[0].words == "constant b3 of Add a: times 3"
    assert share > 0.99


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize(("own", "both"), [("r", False), ("r", True), ("y", True)])
def test_a_right_candidate_is_not_blamed_for_a_node_that_nothing_runs(own: str, both: bool, tmp_path: Path) -> None:
    sides = _sides(tmp_path, own, None, *([_own_operator(own)] if both else []))
    with pytest.raises(
        ParityError, match="compute the same step by step, without 1 of 10 nodes of the reference's file"
    ):
        compare_graphs(*sides)


def test_a_recorded_reference_with_an_operator_of_its_own_is_compared_from_the_command(tmp_path: Path) -> None:
    made = _Deployment(tmp_path, _louder_bias)
    reference = onnx.load(made.reference)
    session = ort.InferenceSession(reference.SerializeToString())
    for number, arrays in enumerate(X):
        write_npz(tmp_path / "recorded" / f"{number}.npz", {"y": session.run(None, arrays)[0]})
    _own_operator("r")(reference)
    made.reference.write_bytes(reference.SerializeToString())
    (tmp_path / "candidate.onnx").write_bytes(made.model.SerializeToString())
    target = f"saved?path={tmp_path / 'outputs'}&model={tmp_path / 'candidate.onnx'}"
    line = ["diagnose", str(made.reference), "--inputs", str(tmp_path / "samples"), "--candidate", target]
    line += ["--reference", f"saved?path={tmp_path / 'recorded'}", "--budget", "rel_l2=1e-3"]
    assert exit_status(*line, "--quiet", "--study", str(tmp_path / "study")) == 1
    document = read_study(tmp_path / "study")
    first = document["findings"][0]
    assert first["code"] == "EXP005"
    assert first["role"] == "cause"
    assert "constant b3 of Add a: times 3" in json.dumps(first)
    assert any("nodes of the reference's file" in one["what"] for one in document["skipped"])
