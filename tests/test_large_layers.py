"""A layer whose result is too large for many trials: what comes near on a part of it is tried on the whole."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper

from parityscope.explanation import explain_region
from parityscope.explanation.records import ExplanationOptions

pytestmark = pytest.mark.search_of(1.0)
_SHAPE = (1, 4, 400, 400)
_GIVES = f"<ir_version: 8, opset_import: ['': 17]> g (float{list(_SHAPE)} x) => (float{list(_SHAPE)} y)".replace(
    "'", '"'
)
_FEW = ExplanationOptions(seconds=1.4)  # for a part of some 400 edits of the whole


def _layer(body: str, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{_GIVES} {{ y = {body} }}")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def _run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


_X = np.random.default_rng(0).normal(size=_SHAPE).astype(np.float32)
_W = np.random.default_rng(1).normal(size=(4, 1, 3, 3)).astype(np.float32)
_CONV = "Conv <group = 4, pads = [1, 1, 1, 1]> (x, w)"
_SOFTMAX = "Softmax <axis = 3> (x)"


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        (_layer("Relu(x)"), _layer("LeakyRelu <alpha = 0.03> (x)"), "LeakyRelu with alpha 0.03"),
        (_layer(_CONV, w=_W), _layer(_CONV, w=_W[:, :, ::-1].copy()), "reversed along axis 2"),
        (_layer(_SOFTMAX), _layer("LogSoftmax <axis = 3> (x)"), "Log"),
    ],
    ids=["pointwise", "with borders", "whole rows"],
)
def test_what_explains_a_part_is_tried_on_the_whole(
    reference: onnx.ModelProto, candidate: onnx.ModelProto, said: str
) -> None:
    found = explain_region(ir.from_proto(reference), {"x": _X}, _run(candidate, _X), _FEW)
    assert found.status == "explained"
    assert said in found.by[0].title


def test_what_explains_a_part_alone_is_no_cause() -> None:
    # The part with most of the error is wrong in one way, and what is left of the whole in another.
    reference = _layer("Relu(x)")
    wrong = _run(reference, _X)
    wrong[:, :, :200] = _run(_layer("LeakyRelu <alpha = 0.3> (x)"), _X)[:, :, :200]
    wrong[:, :, 200:] += 0.01 * np.random.default_rng(2).normal(size=wrong[:, :, 200:].shape).astype(np.float32)
    found = explain_region(ir.from_proto(reference), {"x": _X}, wrong, _FEW)
    assert not any("in place of Relu" in one.title for one in found.by)


def test_a_large_mask_is_searched_too() -> None:
    text = f"<ir_version: 8, opset_import: ['': 17]> g (float{list(_SHAPE)} x) => (bool{list(_SHAPE)} y)".replace(
        "'", '"'
    )
    zero = numpy_helper.from_array(np.float32(0), "zero")
    masks = [onnx.parser.parse_model(f"{text} {{ y = {name}(x, zero) }}") for name in ("Greater", "Less")]
    for model in masks:
        model.graph.initializer.append(zero)
    found = explain_region(ir.from_proto(masks[0]), {"x": _X}, _run(masks[1], _X), _FEW)
    assert found.status == "explained"
    assert not any("failed" in skip.reason or "Error" in skip.reason for skip in found.skipped)


def test_the_same_layer_is_not_blamed() -> None:
    reference = _layer(_CONV, w=_W)
    assert explain_region(ir.from_proto(reference), {"x": _X}, _run(reference, _X), _FEW).status in {
        "exact",
        "within floor",
    }
