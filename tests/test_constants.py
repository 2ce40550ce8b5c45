"""What a Constant node holds is read whichever of its attributes says it; constants of a file are those of no edited graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from parityscope.case import load_model
from parityscope.case.graph import constant_value
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path


def held(name: str, value: Any) -> ir.TensorProtocol | None:
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.append(helper.make_attribute(name, value))
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("c")])
    return constant_value(ir.from_proto(helper.make_model(graph)).graph.outputs[0])


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("value", onnx.numpy_helper.from_array(np.ones(2)), np.ones(2)),
        ("value_int", 3, np.int64(3)),
        ("value_floats", [0.5, 2.0], np.array([0.5, 2.0], np.float32)),
        ("value_string", "grün", np.array("grün".encode(), object)),
        ("value_strings", ["ä", "b\0"], np.array(["ä".encode(), b"b\0"], object)),
    ],
)
def test_a_constant_is_read(name: str, value: Any, kept: np.ndarray) -> None:
    found = held(name, value)
    assert found is not None
    assert found.numpy().dtype == kept.dtype
    np.testing.assert_array_equal(found.numpy(), kept)


def test_a_value_that_is_no_tensor_is_none() -> None:
    assert held("value", 1.0) is None


def test_graphs_of_one_file_that_are_edited_do_not_disturb_each_other(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
      { c = Constant<value = float[2] {1, 2}>() h = Add(x, c) y = Mul(h, w) }"""
    path = write_network(tmp_path / "model.onnx", text, {"w": np.array([3, 4], np.float32)})
    os.utime(path, (1, 1))  # it is not being written any more
    model = load_model(path)
    before = ir.to_proto(model.graph()).SerializeToString(deterministic=True)
    edited = model.graph()
    weight = edited.graph.initializers.pop("w")
    weight.name = "renamed"
    edited.graph.initializers["renamed"] = weight
    (held,) = (node.attributes["value"].as_tensor() for node in edited.graph if node.op_type == "Constant")
    held.name = "told"
    told = ir.to_proto(edited)
    assert [tensor.name for tensor in told.graph.initializer] == ["renamed"]
    np.testing.assert_array_equal(numpy_helper.to_array(told.graph.initializer[0]), np.array([3, 4], np.float32))
    assert told.graph.node[0].attribute[0].t.name == "told"
    assert ir.to_proto(model.graph()).SerializeToString(deterministic=True) == before
    onnx.save(told, path)  # another file now, with the same name
    os.utime(path, (2, 2))
    assert list(load_model(path).graph().graph.initializers) == ["renamed"]
