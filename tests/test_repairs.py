"""Folding a BatchNormalization keeps the function, by its formula in float64, and the names of outputs; advice is right."""

from __future__ import annotations

import ast
import shlex
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.records import Finding
from parityscope.repairs import known_advice, known_repairs
from parityscope.repairs.runtime_settings import SETTINGS
from parityscope.testing.networks import parse_network

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
    return known_repairs()["fold_batch_normalization"].apply(model, FINDING)


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


def details(**given: Any) -> Finding:
    return Finding(code="test", title="", role="cause", claim="", confidence=1.0, confidence_from="", details=given)


def written(text: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    proto = parse_network(f'<ir_version: 8, opset_import: ["" : 17]> g {text}', weights)
    onnx.checker.check_model(proto)
    return proto


def folded(text: str, weights: dict[str, np.ndarray], x: np.ndarray, node: str) -> list[str]:
    """The operators left; checks that the outputs stay."""
    model = ir.from_proto(written(text, weights))
    assert known_repairs()["fold_batch_normalization"].apply(model, details(node=node))
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    reference = open_session(ir.from_proto(written(text, weights)))({"x": x})
    candidate = open_session(model.clone())({"x": x})
    for name, array in reference.items():
        np.testing.assert_allclose(candidate[name], array, rtol=1e-4, atol=1e-4)
    return operators(model)


def of(channels: int) -> dict[str, np.ndarray]:
    return dict(zip("sbmv", normalization(channels).values(), strict=True))


def weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_behind_a_grouped_transposed_convolution() -> None:
    text = """(float[2,4,5,5] x) => (float[2,6,a,b] y) {
      h = ConvTranspose <group = 2> (x, w)
      y = BatchNormalization(h, s, b, m, v)
    }"""
    x = weight(2, 4, 5, 5)
    assert folded(text, {"w": weight(4, 3, 3, 3), **of(6)}, x, "BatchNormalization#1") == ["ConvTranspose"]


@pytest.mark.parametrize("turned", [0, 1])
def test_behind_and_before_a_gemm(turned: int) -> None:
    shape = (3, 4) if turned else (4, 3)
    weights, x = {"w": weight(*shape), "c": weight(3)}, weight(2, 4)
    after = f"""(float[2,4] x) => (float[2,3] y) {{
      h = Gemm <transB = {turned}, alpha = 0.5, beta = 2.0> (x, w, c)
      y = BatchNormalization(h, s, b, m, v)
    }}"""
    assert folded(after, {**weights, **of(3)}, x, "BatchNormalization#1") == ["Gemm"]
    before = f"""(float[2,4] x) => (float[2,3] y) {{
      h = BatchNormalization(x, s, b, m, v)
      y = Gemm <transB = {turned}, alpha = 0.5, beta = 2.0> (h, w, c)
    }}"""
    assert folded(before, {**weights, **of(4)}, x, "BatchNormalization#0") == ["Gemm"]


@pytest.mark.parametrize("groups", [1, 2])
def test_before_a_convolution_without_padding_it_goes_forward(groups: int) -> None:
    text = f"""(float[2,4,5,5] x) => (float[2,6,3,3] y) {{
      r = Relu(x)
      h = BatchNormalization(r, s, b, m, v)
      y = Conv <group = {groups}> (h, w)
    }}"""
    weights = {"w": weight(6, 4 // groups, 3, 3), **of(4)}
    assert folded(text, weights, weight(2, 4, 5, 5), "BatchNormalization#1") == ["Relu", "Conv"]


def test_before_padding_only_what_adds_nothing_goes_forward() -> None:
    text = """(float[2,4,5,5] x) => (float[2,6,5,5] y) {
      r = Relu(x)
      h = BatchNormalization(r, s, b, m, v)
      y = Conv <pads = [1,1,1,1]> (h, w)
    }"""
    weights, x = {"w": weight(6, 4, 3, 3), **of(4)}, weight(2, 4, 5, 5)
    assert folded(text, weights, x, "BatchNormalization#1") == ["Relu", "Mul", "Add", "Conv"]
    centred = {**weights, "b": np.zeros(4, np.float32), "m": np.zeros(4, np.float32)}
    assert folded(text, centred, x, "BatchNormalization#1") == ["Relu", "Conv"]


def test_the_rank_is_inferred_where_nothing_declares_it() -> None:
    text = """(float[2,4,5,5] x) => (float[2,4,5,5] y) {
      t = Tanh(x)
      h = BatchNormalization(t, s, b, m, v)
      y = Tanh(h)
    }"""
    left = folded(text, of(4), weight(2, 4, 5, 5), "BatchNormalization#1")
    assert left == ["Tanh", "Mul", "Add", "Tanh"]


RAW = RNG.integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
PREPARED: dict[str, dict[str, Any]] = {
    "everything": {
        "raw_layout": "NHWC",
        "layout": "NCHW",
        "channels": [2, 1, 0],
        "subtract": [123.675, 116.28, 103.53],
        "divide": [58.395, 57.12, 57.375],
    },
    "one number": {"raw_layout": "NHWC", "layout": "NCHW", "divide": 255},
    "channels": {"raw_layout": "NHWC", "layout": "NCHW", "channels": [1, 0, 2]},
    "float": {"raw_layout": "NHWC", "layout": "NCHW", "subtract": 0.5, "raw_dtype": "float32"},
}


@pytest.mark.parametrize("name", PREPARED)
def test_prepended_model_of_raw_is_model_of_prepared(name: str) -> None:
    text = "(float[n,3,h,w] x) => (float[n,2,a,b] y) { y = Conv(x, w0) }"
    proto = written(text, {"w0": weight(2, 3, 3, 3)})
    given = details(input="x", consents=["prepend_preprocessing"], **PREPARED[name])
    code = known_advice()["preprocess_in_code"].write(given)
    assert code is not None
    space: dict[str, Any] = {}
    exec(compile(code, "preprocess", "exec"), space)  # noqa: S102 - the code under test
    raw = RAW.astype(PREPARED[name].get("raw_dtype", "uint8"))
    prepared = space["preprocess"](raw)

    # By hand, in the words of the details: axes, channels, then (raw - subtract) / divide.
    order = PREPARED[name].get("channels", [0, 1, 2])
    wanted = raw.astype(np.float64).transpose(0, 3, 1, 2)[:, order]
    by = [np.reshape(PREPARED[name].get(key, neutral), (-1, 1, 1)) for key, neutral in (("subtract", 0), ("divide", 1))]
    np.testing.assert_allclose(prepared, (wanted - by[0]) / by[1], rtol=1e-5, atol=1e-5)
    assert prepared.dtype == np.float32

    model = ir.from_proto(written(text, {"w0": numpy_helper.to_array(proto.graph.initializer[0])}))
    assert known_repairs()["prepend_preprocessing"].apply(model, given)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [value.name for value in model.graph.inputs] == ["x"]
    expected = open_session(ir.from_proto(proto))({"x": prepared})["y"]
    np.testing.assert_array_equal(open_session(model)({"x": raw})["y"], expected)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"consents": []},
        {"input": "z"},
        {"channels": [0, 1]},
        {"subtract": [1.0, 2.0]},
        {"divide": 0.0},
        {"layout": "NCHW", "raw_layout": "NDHWC"},
    ],
)
def test_preprocessing_that_does_not_fit_is_not_prepended(spoiled: dict[str, Any]) -> None:
    proto = written("(float[n,3,h,w] x) => (float[n,2,a,b] y) { y = Conv(x, w0) }", {"w0": weight(2, 3, 3, 3)})
    model = ir.from_proto(proto)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    given = {"input": "x", "consents": ["prepend_preprocessing"], **PREPARED["everything"], **spoiled}
    assert known_repairs()["prepend_preprocessing"].apply(model, details(**given)) is None
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_bindings_go_by_name_whatever_the_engines_order(monkeypatch: pytest.MonkeyPatch) -> None:
    given = details(inputs=["ids", "mask"], outputs=["y"], given=["mask", "ids"])
    code = known_advice()["bind_by_name"].write(given)
    assert code is not None
    assert "'ids' gets the data of 'mask'" in code
    # TensorRT needs a GPU: an engine that only records what it is told, with the documented calls, stands in for it.
    trt = ModuleType("tensorrt")
    trt.TensorIOMode = SimpleNamespace(INPUT="in")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    space: dict[str, Any] = {}
    exec(compile(code, "bind", "exec"), space)  # noqa: S102 - the code under test
    names = ["mask", "y", "ids"]
    bound: dict[str, int] = {}
    engine = SimpleNamespace(
        num_io_tensors=3,
        get_tensor_name=names.__getitem__,
        # nptype of TensorRT raises TypeError for BF16: the code asks the type's name instead.
        get_tensor_dtype=lambda name: SimpleNamespace(name="BF16" if name == "y" else "INT64"),
        get_tensor_mode=lambda name: "out" if name == "y" else "in",
    )
    context = SimpleNamespace(
        set_input_shape=lambda name, shape: name != "y" and shape == (1, 8), set_tensor_address=bound.__setitem__
    )
    buffers = {"ids": (10, (1, 8), np.int64), "mask": (20, (1, 8), np.int64), "y": (30, (1, 2), "bfloat16")}
    space["bind"](engine, context, buffers)
    assert bound == {"ids": 10, "mask": 20, "y": 30}
    with pytest.raises(TypeError, match="mask"):
        space["bind"](engine, context, {**buffers, "mask": (20, (1, 8), np.int32)})
    with pytest.raises(ValueError, match="ids"):
        space["bind"](engine, context, {**buffers, "ids": (10, (1, 9), np.int64)})
    assert known_advice()["bind_by_name"].write(details(inputs=["ids"])) is None


def test_settings_are_code_or_a_command_line() -> None:
    write = known_advice()["runtime_settings"].write
    for runtime, change in SETTINGS:
        text = write(details(runtime=runtime, change=change))
        assert text is not None
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        if lines[0].startswith(("trtexec", "polygraphy", "NVIDIA_TF32_OVERRIDE")):
            assert len(shlex.split(lines[0], comments=True)) > 2
        else:
            ast.parse("\n".join(lines))
    assert write(details(runtime="trtexec", change="accuracy")) is None
    assert write(details()) is None


def test_settings_that_run_here_are_taken() -> None:
    onnxruntime, openvino = pytest.importorskip("onnxruntime"), pytest.importorskip("openvino")
    write = known_advice()["runtime_settings"].write
    text = write(details(runtime="onnxruntime-cpu", change="f32"))
    assert text is not None
    space: dict[str, Any] = {"onnxruntime": onnxruntime}
    exec(text, space)  # noqa: S102 - the code under test
    assert space["options"].get_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16") == "0"
    core = openvino.Core()
    proto = written("(float[1,3,5,5] x) => (float[1,2,3,3] y) { y = Conv(x, w0) }", {"w0": weight(2, 3, 3, 3)})
    model = core.read_model(proto.SerializeToString())
    for change, key, wanted in (
        ("f32", "INFERENCE_PRECISION_HINT", "float32"),
        ("accuracy", "EXECUTION_MODE_HINT", "ACC"),
    ):
        text = write(details(runtime="openvino", change=change))
        assert text is not None
        compiled = eval(text, {"core": core, "model": model})  # noqa: S307 - the code under test
        assert wanted in str(compiled.get_property(key))
