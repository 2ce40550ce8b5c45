"""What ONNX Runtime really runs, read from the graph that it saves: every node once, its precision, and its provider."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from examinations import examination_of
from one_sample import one_sample
from parityscope.backends import Capture
from parityscope.backends.onnxruntime_executed import executed_by_onnxruntime
from parityscope.backends.opening import open_target
from parityscope.backends.recording import observable_tensors
from parityscope.backends.targets import parse_target
from parityscope.case import Case, Sample, load_model
from parityscope.records import Policy
from parityscope.study import examine_request
from proving.models.fetching import require

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.records import ExecutedGraph

CHANNELS = 16  # the blocked layout wants a multiple of the vector's length: 8 or 16 floats


def test_what_a_wrong_rewrite_does_is_told_from_the_executed_graph(tmp_path: Path) -> None:
    """ONNX Runtime takes a Pad into the MaxPool behind it, whose border is not zero."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,6,6] x) => (float[1,2,4,4] y)
    <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, float nought = {0}> {
      p = Pad(x, pads, nought)
      y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(p)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    inputs = one_sample({"x": -1 - np.random.default_rng(6).random((1, 2, 6, 6)).astype(np.float32)})
    case = Case(name="pooled", model=load_model(tmp_path / "m.onnx"), inputs=inputs, policy=Policy())
    document = examine_request(
        examination_of(case, "ort", reference="ort?optimization=disabled", folder=tmp_path / "study")
    )
    first = document["findings"][0]
    assert (first["code"], first["role"]) == ("FUS011", "cause")
    assert "In the graph that it runs: Pad p (0) is left out." in first["claim"]
    assert "that makes 100 % of the error" in first["claim"]


def convolutions(folder: Path) -> Model:
    """Conv, BatchNormalization and Relu in a row, which are fused; Exp, Add and Conv, which are not; Clip, fused again."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,{CHANNELS},8,8] x) => (float[1,{CHANNELS},8,8] y) {{
      a = Conv <pads = [1, 1, 1, 1]> (x, w)
      b = BatchNormalization (a, one, one, one, one)
      c = Relu (b)
      d = Exp (c)
      e = Add (d, x)
      f = Conv <pads = [1, 1, 1, 1]> (e, w)
      y = Clip (f, low, high)
    }}"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(3).normal(0, 0.05, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
    arrays = {
        "w": weights,
        "one": np.ones(CHANNELS, np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(model, folder / "m.onnx")
    return load_model(folder / "m.onnx")


def computing(executed: ExecutedGraph) -> set[tuple[str, tuple[str, ...], str, str]]:
    """The layers that stand for nodes; those of the runtime's own have other names and places in each session."""
    return {(each.layer_type, each.nodes, each.precision, each.provider) for each in executed.layers if each.nodes}


X = np.random.default_rng(4).normal(0, 1, (1, CHANNELS, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("optimization", ["disabled", "basic", "extended", "all"])
def test_every_node_is_run_once_and_on_the_cpu(optimization: str, tmp_path: Path) -> None:
    model = convolutions(tmp_path)
    executed = executed_by_onnxruntime(model, optimization=optimization)
    names = [name for layer in executed.layers for name in layer.nodes]
    assert Counter(names) == dict.fromkeys((site.node for site in model.sites.values()), 1)
    assert {layer.provider for layer in executed.layers} == {"CPUExecutionProvider"}
    assert {layer.precision for layer in executed.layers} == {"f32"}
    assert executed.executed == "f32"
    members = {frozenset(name.partition("#")[0] for name in layer.nodes) for layer in executed.layers}
    # What may be fused is documented: constants into Conv from "basic" on, activations from "extended" on.
    fused = {
        "disabled": {"BatchNormalization"},
        "basic": {"Conv", "BatchNormalization"},
        "extended": {"Conv", "BatchNormalization", "Relu"},
        "all": {"Conv", "BatchNormalization", "Relu"},
    }
    assert frozenset(fused[optimization]) in members


@pytest.mark.model
def test_every_node_of_a_trained_model_is_run_once() -> None:
    model = load_model(require("ocr-cls"))
    executed = executed_by_onnxruntime(model)
    names = Counter(name for layer in executed.layers for name in layer.nodes)
    assert names == dict.fromkeys((site.node for site in model.sites.values()), 1)
    assert any("nchwc" in layer.kernel for layer in executed.layers)


def test_floats_of_16_bits_are_computed_in_32_on_the_cpu(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, [4, 4]) for name in "xy")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Sin", ["h"], ["y"])]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float16), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "half.onnx"
    )
    executed = executed_by_onnxruntime(load_model(tmp_path / "half.onnx"))
    precisions = {layer.layer_type: layer.precision for layer in executed.layers}
    assert precisions["MatMul"] == precisions["Sin"] == "f32"
    # Neither the one nor the other: the weights are rounded, the sums are not.
    assert executed.executed == ""


def test_the_borders_of_fused_nodes_leave_the_fusion_as_it_is(tmp_path: Path) -> None:
    model = convolutions(tmp_path)
    asked = Capture(tensors=tuple(observable_tensors(model)))
    sample = Sample(index=0, name="x", arrays={"x": X})
    with open_target(model, parse_target("ort"), Capture()) as plain:
        expected = plain.run(sample)["y"]
        assert plain.executed is None  # it would cost a session
        assert plain.inspect is not None
        inspected = plain.inspect()
    with open_target(model, parse_target("ort?observe=layers"), asked) as session:
        found = session.run(sample)
        assert session.executed is not None
        assert computing(session.executed) == computing(inspected)
        assert {skip.what for skip in session.absent} == {"tensor a", "tensor b", "tensor f"}
        assert all(skip.fix for skip in session.absent)
    assert list(found) == ["y", "c", "d", "e"]
    np.testing.assert_array_equal(found["y"], expected)
    with open_target(model, parse_target("ort"), asked) as session:
        assert set(session.run(sample)) == {"a", "b", "c", "d", "e", "f", "y"}


def test_a_child_process_tells_the_same(tmp_path: Path) -> None:
    model = convolutions(tmp_path)
    with (
        open_target(model, parse_target("ort"), Capture()) as plain,
        open_target(model, parse_target("ort?isolate=on"), Capture()) as isolated,
    ):
        assert plain.inspect is not None
        assert isolated.inspect is not None
        assert computing(plain.inspect()) == computing(isolated.inspect())


def test_regions_of_fused_nodes_are_localized(tmp_path: Path) -> None:
    """The candidate's weights are twice the reference's: each convolution introduces, with what is fused behind it.

    The leading one is then observed inside; what is fused behind the other one stays a region.
    """
    model = convolutions(tmp_path)
    wrong = onnx.load(tmp_path / "m.onnx")
    (weight,) = (tensor for tensor in wrong.graph.initializer if tensor.name == "w")
    weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), "w"))
    onnx.save(wrong, tmp_path / "wrong.onnx")
    inputs = one_sample({"x": X})
    case = Case(name="m", model=model, inputs=inputs, policy=Policy())
    candidate = f"ort?observe=layers&model={tmp_path / 'wrong.onnx'}"
    told = examine_request(examination_of(case, candidate, folder=tmp_path / "study", depth="layers"))
    assert told["candidate"]["executed"] == "f32"
    assert {layer["provider"] for layer in told["candidate"]["executed_layers"]} == {"CPUExecutionProvider"}
    suspects = {suspect["site"]["tensor"]: suspect for suspect in told["suspects"]}
    assert told["localization"]["method"].endswith("the leading region observed inside")
    assert {name for name, suspect in suspects.items() if suspect["introduced"] > 1e-3} == {"a", "y"}
    assert [name.partition("#")[0] for name in suspects["y"]["region"]] == ["Conv", "Clip"]
    assert suspects["d"]["introduced"] <= 2.0**-22  # Exp of the same number: two ulps
