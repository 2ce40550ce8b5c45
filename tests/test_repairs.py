"""Folding a BatchNormalization keeps the function, by its formula in float64, and the names of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from parityscope.backends._onnxruntime import open_session
from parityscope.records import Finding
from parityscope.repairs import repairs

if TYPE_CHECKING:
    from collections.abc import Sequence

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 5, 5)).astype(np.float32)
EPSILON = 1e-3
FINDING = Finding(
    code="test", title="", role="cause", claim="", confidence=1.0, confidence_from="", details={"node": "norm"}
)


def normalization(channels: int) -> dict[str, np.ndarray]:
    """Scale, bias, mean and variance; one variance is beyond float16's range."""
    found = {name: RNG.standard_normal(channels).astype(np.float32) for name in ("scale", "bias", "mean")}
    variance = RNG.uniform(0.5, 2.0, channels).astype(np.float32)
    variance[0] = 1e8
    return {**found, "variance": variance}


def built(
    before: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray], outputs: Sequence[str], **computed: str
) -> ir.Model:
    """`before` makes h; y = BatchNormalization(h); `computed` inputs of the node are other values than constants."""
    names = [computed.get(name, name) for name in ("scale", "bias", "mean", "variance")]
    norm = helper.make_node("BatchNormalization", ["h", *names], ["y"], name="norm", epsilon=EPSILON)
    shape = ["a", "b", "c", "d"]
    graph = helper.make_graph(
        [*before, norm],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 5, 5])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return ir.from_proto(model)


def formula(h: np.ndarray, parameters: dict[str, np.ndarray]) -> np.ndarray:
    """The operator's definition in float64."""
    scale, bias, mean, variance = (
        parameters[name].astype(np.float64).reshape(1, -1, 1, 1) for name in ("scale", "bias", "mean", "variance")
    )
    return scale * (h.astype(np.float64) - mean) / np.sqrt(variance + EPSILON) + bias


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def fold(model: ir.Model) -> str | None:
    return repairs()["fold_batch_normalization"].apply(model, FINDING)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("biased", [True, False])
def test_behind_a_convolution_the_node_disappears(kind: str, biased: bool) -> None:
    parameters = normalization(4)
    shape = (4, 3, 3, 3) if kind == "Conv" else (3, 4, 3, 3)
    weights = {**parameters, "w": RNG.standard_normal(shape).astype(np.float32)}
    if biased:
        weights["b"] = RNG.standard_normal(4).astype(np.float32)
    node = helper.make_node(kind, ["x", "w", "b"][: 3 if biased else 2], ["h"])
    h = open_session(built([node], weights, ["y"]), outputs=["h"])({"x": X})["h"]
    model = built([node], weights, ["y"])
    assert fold(model)
    assert operators(model) == [kind]
    found = open_session(model)({"x": X})
    assert list(found) == ["y"]
    np.testing.assert_allclose(found["y"], formula(h, parameters), rtol=1e-4, atol=1e-5)


def test_elsewhere_it_becomes_mul_and_add() -> None:
    parameters = normalization(3)
    model = built([helper.make_node("Tanh", ["x"], ["h"])], parameters, ["y"])
    assert fold(model)
    assert operators(model) == ["Tanh", "Mul", "Add"]
    found = open_session(model)({"x": X})
    assert list(found) == ["y"]
    np.testing.assert_allclose(found["y"], formula(np.tanh(X.astype(np.float64)), parameters), rtol=1e-5, atol=1e-5)


def test_a_convolution_that_others_read_is_left_alone() -> None:
    parameters = normalization(4)
    weights = {**parameters, "w": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    model = built([helper.make_node("Conv", ["x", "w"], ["h"])], weights, ["y", "h"])
    assert fold(model)
    assert operators(model) == ["Conv", "Mul", "Add"]
    found = open_session(model)({"x": X})
    assert list(found) == ["y", "h"]
    np.testing.assert_allclose(found["y"], formula(found["h"], parameters), rtol=1e-5, atol=1e-5)


def test_computed_parameters_are_not_folded() -> None:
    parameters = normalization(3)
    before = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Abs", ["scale"], ["moving"])]
    model = built(before, parameters, ["y"], scale="moving")
    untouched = ir.to_proto(model).SerializeToString()
    assert fold(model) is None
    assert ir.to_proto(model).SerializeToString() == untouched
