"""What a Constant node holds is read whichever of its attributes says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from parityscope.case.graph import constant_value


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
