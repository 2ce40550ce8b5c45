"""Which nodes engines run as one kernel, and the simulated graphs that follow from it, against numpy by hand."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.arithmetic import FORMATS, round_to
from parityscope.arithmetic.fusion import FusedKernel, GraphFusion, known_profiles, profile_named
from parityscope.arithmetic.fusion.following import follow_executed
from parityscope.arithmetic.fusion.matching import order_of
from parityscope.arithmetic.fusion.onnxruntime_cuda import cut_and_merged
from parityscope.arithmetic.fusion.patterns import find_regions, known_patterns
from parityscope.arithmetic.fusion.static import fold_moved_constants
from parityscope.arithmetic.opsets import prepare_copy
from parityscope.backends import Capture
from parityscope.backends.onnxruntime_executed import executed_by_onnxruntime
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample
from parityscope.case.graph import constant_value
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.records import ExecutedGraph, ExecutedLayer
from proving.models.fetching import require
from simulated import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEADER = '<ir_version: 9, opset_import: ["": 19]>'
# ONNX Runtime's optimizer for CPUs, which the profile for CUDA shares all but this with.
CPU_ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"})

HARD_SWISH = "t = Add(x, three) c = Clip(t, zero, six) m = Mul(x, c) y = Div(m, six)"
SCALARS = {"zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "root": 2.0**0.5, "small": 1e-5}
LAYER = (
    "u = ReduceMean<keepdims=1>(x, axis) d = Sub(x, u) s = Pow(d, two) v = ReduceMean<keepdims=1>(s, axis) "
    "w = Add(v, small) r = Sqrt(w) y = Div(d, r)"
)
RMS = "s = Mul(x, x) v = ReduceMean<keepdims=1>(s, axis) w = Add(v, small) r = Sqrt(w) q = Reciprocal(r) y = Mul(x, q)"
ATTENTION = "k = MatMul(x, x) l = Mul(k, half) p = Softmax(l) y = MatMul(p, x)"
DECOMPOSED = {
    "HardSwish": (HARD_SWISH, 4),
    "Silu": ("g = Sigmoid(x) y = Mul(x, g)", 2),
    "HardSigmoid": ("t = Add(x, three) c = Clip(t, zero, six) y = Div(c, six)", 3),
    "Gelu": ("d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)", 5),
    "GeluInner": ("d = Div(x, root) e = Erf(d) a = Add(e, one) h = Mul(a, half) y = Mul(x, h)", 5),
    "GeluOfProducts": (
        (
            "a = Mul(x, small) b = Mul(x, a) c = Mul(x, b) d = Add(x, c) e = Mul(d, root) f = Tanh(e) g = Add(f, one) "
            "h = Mul(g, half) y = Mul(x, h)"
        ),
        9,
    ),
    "Mish": ("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", 3),
    "Softmax": ("e = Exp(x) s = ReduceSum<keepdims=1>(e, axis) y = Div(e, s)", 3),
    "LayerNormalization": (LAYER, 7),
    "RMSNormalization": (RMS, 6),
    "Attention": (ATTENTION, 4),
    "GuardedAttention": (
        ATTENTION.replace(" y = MatMul(p, x)", " n = IsNaN(p) g = Where(n, zero, p) y = MatMul(g, x)"),
        6,
    ),
}


def parse(body: str, weights: Mapping[str, Any] = MappingProxyType({}), outputs: str = "float[n,m] y") -> ir.Model:
    """A model of one input `x` with the scalars above and `weights` as initializers."""
    proto = onnx.parser.parse_model(f"{HEADER} g (float[n,m] x) => ({outputs}) {{ {body} }}")
    constants = (
        {name: np.float32(number) for name, number in SCALARS.items()} | {"axis": np.array([-1])} | dict(weights)
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in constants.items())
    return ir.from_proto(proto)


def found(body: str, kind: str, outputs: str = "float[n,m] y") -> list[int]:
    """How many nodes the regions of `kind` in a graph have."""
    return [len(region.nodes) for region in find_regions(order_of(parse(body, outputs=outputs)), [kind])]


@pytest.mark.parametrize("kind", DECOMPOSED)
def test_a_decomposition_is_one_region(kind: str) -> None:
    body, count = DECOMPOSED[kind]
    assert found(body, kind) == [count]


def test_every_pattern_is_tested() -> None:
    assert set(DECOMPOSED) == set(known_patterns())


@pytest.mark.parametrize("kind", DECOMPOSED)
def test_an_intermediate_that_is_given_back_keeps_a_decomposition_apart(kind: str) -> None:
    body, _ = DECOMPOSED[kind]
    inner = body.split()[0]  # what the first node computes
    assert found(body, kind, outputs=f"float[n,m] y, float[n,m] {inner}") == []


@pytest.mark.parametrize("kind", DECOMPOSED)
def test_an_intermediate_that_others_read_keeps_a_decomposition_apart(kind: str) -> None:
    body, _ = DECOMPOSED[kind]
    inner = body.split()[0]
    assert found(f"{body} other = Abs({inner})", kind, outputs="float[n,m] y, float[n,m] other") == []


def groups(fusion: GraphFusion | None) -> set[frozenset[str]]:
    """The kernels as sets of names."""
    assert fusion is not None
    return {frozenset(kernel.values) for kernel in fusion.kernels}


CONVOLUTION = {
    "kernel": np.array([[[[1.01]]]], np.float32),
    "bias": np.array([0.3], np.float32),
    "gamma": np.array([3.0], np.float32),
    "beta": np.array([0.7], np.float32),
    "mean": np.array([0.1], np.float32),
    "variance": np.array([2.0], np.float32),
    "last": np.ones((1, 1, 1, 1), np.float32),
}
NORMALIZED = "a = Conv(x, kernel, bias) b = BatchNormalization(a, gamma, beta, mean, variance)"


def image(body: str, outputs: str = "y") -> ir.Model:
    """A model of one input `x` of one channel."""
    declared = ", ".join(f"float[1,1,h,w] {name}" for name in outputs.split())
    proto = onnx.parser.parse_model(f"{HEADER} g (float[1,1,h,w] x) => ({declared}) {{ {body} }}")
    constants = {name: np.float32(number) for name, number in SCALARS.items()} | CONVOLUTION
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in constants.items())
    return ir.from_proto(proto)


@pytest.mark.parametrize("engine", ["openvino", "tensorrt"])
def test_a_convolution_takes_what_follows(engine: str) -> None:
    body = f"{NORMALIZED} t = Add(b, three) c = Clip(t, zero, six) m = Mul(b, c) s = Div(m, six) y = Conv(s, last)"
    predicted = groups(profile_named(engine).predict(image(body), "bf16"))
    assert predicted == {frozenset("abtcms"), frozenset("y")}


def test_a_tensor_that_is_given_back_ends_the_kernel() -> None:
    body = f"{NORMALIZED} r = Relu(b) y = Conv(r, last)"
    for engine in ("openvino", "tensorrt", "onnxruntime-cuda"):
        assert groups(profile_named(engine).predict(image(body), "f16")) == {frozenset("abr"), frozenset("y")}
        apart = groups(profile_named(engine).predict(image(body, outputs="y b"), "f16"))
        assert apart == {frozenset("ab"), frozenset("r"), frozenset("y")}


def test_a_residual_goes_into_a_bare_convolution_alone() -> None:
    bare = "a = Conv(x, kernel) s = Add(a, x) r = Relu(s) y = Conv(r, last)"
    other = "p = Abs(x) a = Conv(p, kernel) s = Add(a, x) r = Relu(s) y = Conv(r, last)"
    busy = "p = Abs(x) a = Conv(p, kernel) t = Tanh(a) s = Add(t, x) r = Relu(s) y = Conv(r, last)"
    predict = profile_named("openvino").predict
    # The same tensor as input and as residual cannot be overwritten in place.
    assert frozenset("asr") not in groups(predict(image(bare), "bf16"))
    assert frozenset("asr") in groups(predict(image(other), "bf16"))
    assert {frozenset("at"), frozenset("sr")} <= groups(predict(image(busy), "bf16"))


def test_pointwise_layers_that_read_the_same_tensor_stay_apart_in_openvino() -> None:
    predict = profile_named("openvino").predict
    assert frozenset("ab") in groups(predict(parse("a = Mul(x, half) b = Abs(a) y = MatMul(b, b)"), "bf16"))
    assert frozenset("ab") not in groups(predict(parse("a = Mul(x, half) b = Add(a, x) y = MatMul(b, b)"), "bf16"))


def test_openvino_runs_the_tail_in_float32_for_bfloat16() -> None:
    fusion = profile_named("openvino").predict(parse("a = MatMul(x, x) t = Softmax(a) y = Reciprocal(t)"), "bf16")
    assert fusion is not None
    by_value = {kernel.values[-1]: (kernel.precision, kernel.stored) for kernel in fusion.kernels}
    assert by_value == {"a": ("bf16", "bf16"), "t": ("f32", "f32"), "y": ("f32", "f32")}


def test_openvino_computes_constants_in_float32_and_rounds_them_for_products_alone() -> None:
    # Dequantized weights as exporters write them: added they stay FP32, multiplied they are a product's bfloat16.
    weights = {"q": np.arange(1, 17, dtype=np.int8).reshape(4, 4), "scale": np.float32(0.3)}
    dequantized = "f = Cast<to=1>(q) w = Mul(f, scale)"
    w = weights["q"].astype(np.float32) * weights["scale"]
    assert not np.array_equal(bf16(w), w)
    x = numbers(16).reshape(4, 4)
    added = run(parse(f"{dequantized} a = Add(x, w) y = MatMul(a, a)", weights), x, "openvino")["y"]
    np.testing.assert_array_equal(added, bf16(bf16(x + w) @ bf16(x + w)))
    assert not np.array_equal(added, bf16(bf16(x + bf16(w)) @ bf16(x + bf16(w))))
    multiplied = run(parse(f"{dequantized} y = MatMul(x, w)", weights), x, "openvino")["y"]
    np.testing.assert_array_equal(multiplied, bf16(bf16(x) @ bf16(w)))


def test_openvino_keeps_normalizations_and_their_neighbours_in_float32_for_float16() -> None:
    body = (
        "h = MatMul(x, x) x2 = Add(h, x) " + LAYER.replace("(x", "(x2").replace(" y = ", " n = ") + " y = MatMul(n, n)"
    )
    fusion = profile_named("openvino").predict(parse(body), "f16")
    assert fusion is not None
    by_value = {name: kernel.precision for kernel in fusion.kernels for name in kernel.values}
    assert (by_value["h"], by_value["x2"], by_value["n"], by_value["y"]) == ("f16", "f32", "f32", "f16")


def run(model: ir.Model, x: np.ndarray, profile: Any, precision: str = "bf16", **options: Any) -> dict[str, np.ndarray]:
    """All outputs of the simulated network."""
    return simulate(model, precision, profile=profile, **options)({"x": x})


def bf16(array: Any) -> np.ndarray:
    """Rounded to bfloat16."""
    return round_to(np.asarray(array, np.float32), FORMATS["bf16"])


def numbers(count: int) -> np.ndarray:
    """Float32 numbers of both signs around 1, none of them a bfloat16 number."""
    return np.random.default_rng(0).normal(size=count).astype(np.float32)


def test_a_kernel_rounds_what_leaves_it_and_nothing_else() -> None:
    # One channel and one tap: every product is exact in float32 (8 bits times 8), every sum has one order.
    body = "a = Conv(x, kernel, bias) r = Relu(a) m = Mul(r, half) y = Conv(m, last)"
    x = numbers(500).reshape(1, 1, 20, 25)
    three, half = np.float32(3), np.float32(0.5)
    assert three * half == 1.5
    inside = bf16(x) * bf16(1.01) + bf16(0.3)
    expected = bf16(np.maximum(inside, np.float32(0)) * half)
    np.testing.assert_array_equal(run(image(body), x, "openvino")["y"], expected)  # the last weight is one
    every = bf16(np.maximum(bf16(inside), np.float32(0)) * half)
    np.testing.assert_array_equal(run(image(body), x, "none")["y"], every)


def test_an_inner_tensor_is_not_called_stored() -> None:
    body = "a = Conv(x, kernel, bias) r = Relu(a) m = Tanh(r) y = Conv(m, last)"
    simulation = simulate(image(body), "bf16", profile="openvino")
    assert set(simulation.tensors) == {"x", "m", "y"}
    assert set(simulate(image(body), "bf16").tensors) == {"x", "a", "r", "m", "y"}


def test_a_tail_reads_rounded_numbers_and_rounds_none() -> None:
    body = "a = Conv(x, kernel) t = Mul(a, three) s = Abs(t) y = Mul(t, s)"
    x = numbers(60).reshape(1, 1, 6, 10)
    # Mul(a, three) is folded into the weight, the convolution writes BF16, and what follows is the tail.
    product = bf16((bf16(x) * bf16(np.float32(1.01) * np.float32(3))).astype(np.float32))
    y = run(image(body), x, "openvino")["y"]
    np.testing.assert_allclose(y, product * np.abs(product), rtol=4e-7)


def test_scales_are_folded_before_weights_are_rounded() -> None:
    body = f"{NORMALIZED} r = Relu(b) y = Conv(r, last)"
    x = np.abs(numbers(60)).reshape(1, 1, 6, 10)
    scale = 3.0 / np.sqrt(2.0 + 1e-5)
    weight = bf16(1.01 * scale).astype(np.float64)
    shift = bf16(0.3 * scale + 0.7 - 0.1 * scale).astype(np.float64)
    exact = bf16(x).astype(np.float64) * weight + shift
    y = run(image(body), x, "openvino")["y"]
    # FP32 noise may carry a number over a rounding boundary of the last rounding; that happens to few.
    same = y == bf16(np.maximum(exact, 0.0))
    assert same.mean() > 0.95
    assert not (run(image(body), x, "none")["y"] == bf16(np.maximum(exact, 0.0))).all()


def test_probabilities_are_rounded_for_the_second_product_of_attention() -> None:
    x = numbers(16).reshape(4, 4)
    read = bf16(x)
    scores = (read @ read) * np.float32(0.5)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    found_here = run(parse(ATTENTION.replace(" y = ", " o = ") + " y = MatMul(o, x)"), x, "tensorrt")["y"]
    expected = bf16(bf16(bf16(weights) @ read) @ read)
    # Softmax and sums of four products differ by FP32 noise between numpy and the runtime: at most one step of bfloat16.
    np.testing.assert_allclose(found_here, expected, rtol=2.0**-7, atol=2.0**-7)


def test_constants_beyond_range_follow_the_engine() -> None:
    body = "a = Mul(x, scale) y = MatMul(a, a)"
    model = parse(body, {"scale": np.array([97_903_600.0], np.float32)})
    x = np.full((2, 2), 1e-4, np.float32)
    scale = np.float32(65504)
    a = round_to(round_to(x, FORMATS["f16"]) * scale, FORMATS["f16"])
    np.testing.assert_array_equal(run(model, x, "openvino", "f16")["y"], round_to(a @ a, FORMATS["f16"]))
    assert np.isinf(run(model, x, "onnxruntime-cuda", "f16")["y"]).all()
    np.testing.assert_array_equal(
        run(model, x, "onnxruntime-cuda", "f16", overflow="saturate")["y"], round_to(a @ a, FORMATS["f16"])
    )


def test_a_fusion_can_be_given_as_it_is() -> None:
    kernels = (
        FusedKernel(values=("a", "b"), precision="bf16", stored="bf16"),
        FusedKernel(values=("y",), precision="f32", stored="f32"),
    )
    x = numbers(40).reshape(5, 8)
    model = parse("a = Mul(x, x) b = Add(a, x) y = Mul(b, b)")
    y = run(model, x, GraphFusion(kernels=kernels, default="bf16"))["y"]
    read = bf16(x)
    stored = bf16(read * read + read)
    np.testing.assert_array_equal(y, stored * stored)


def test_fusion_changes_nothing_in_tf32_and_an_unknown_profile_is_refused() -> None:
    model = parse("a = MatMul(x, x) y = Relu(a)")
    assert simulate(model, "tf32", profile="openvino").operands == simulate(model, "tf32").operands
    with pytest.raises(ParityError, match="no fusion profile"):
        simulate(model, "f16", profile="nvidia")
    assert set(known_profiles()) == {"none", "openvino", "onnxruntime-cuda", "tensorrt"}


def test_follow_ends_layers_where_the_engine_says() -> None:
    model = parse("a = MatMul(x, x) b = Add(a, one) c = Relu(b) y = MatMul(c, c)")
    names = {str(node.outputs[0].name): str(node.outputs[0].name) for node in model.graph}
    for node in model.graph:
        node.name = names[str(node.outputs[0].name)]
    executed = ExecutedGraph(
        layers=(
            ExecutedLayer(name="a", layer_type="MatMul", nodes=("a",), precision="bf16"),
            ExecutedLayer(name="c", layer_type="Eltwise", nodes=("b", "c"), precision="f32"),
            ExecutedLayer(name="y", layer_type="MatMul", nodes=("y",), precision="bf16"),
        ),
        requested="bf16",
        executed="bf16",
    )
    fusion = follow_executed(executed, model)
    assert [(kernel.values, kernel.precision) for kernel in fusion.kernels] == [
        (("a",), "bf16"),
        (("b", "c"), "f32"),
        (("y",), "bf16"),
    ]


def borders(model: ir.Model, fusion: GraphFusion | None) -> dict[str, str]:
    """What leaves a kernel, by the format in which it is stored."""
    assert fusion is not None
    owner = {name: kernel for kernel in fusion.kernels for name in kernel.values}
    return {
        str(value.name): owner[str(value.name)].stored
        for node in model.graph
        for value in node.outputs
        if value.name in owner
        and (
            value.is_graph_output()
            or any(owner.get(str(u.outputs[0].name)) is not owner[value.name] for u, _ in value.uses())
        )
    }


def test_the_openvino_profile_predicts_the_executed_graph_of_a_trained_model() -> None:
    pytest.importorskip("openvino")
    model = load_model(require("ocr-cls"))
    with open_target(model, parse_target("openvino:bf16"), Capture()) as session:
        executed = session.executed
    assert executed is not None
    if executed.executed != "bf16":
        pytest.skip("this CPU executes bfloat16 as float32")
    plain = fold_moved_constants(prepare_copy(model.graph(), 7))
    followed, predicted = (
        borders(plain, fusion)
        for fusion in (follow_executed(executed, model.graph()), profile_named("openvino").predict(plain, "bf16"))
    )
    floats = {name for name in followed if followed[name] in FORMATS}
    assert len(floats) > 80  # of 155 nodes, 53 convolutions among them
    assert {name: followed[name] for name in floats} == {name: predicted.get(name) for name in floats}
    # Predicted besides: integers and shapes, and the Identity behind the output that the engine dropped.
    assert not [name for name in predicted if name not in followed and "conv" in name]


def test_onnxruntime_fuses_what_is_predicted_where_its_providers_agree(tmp_path: Path) -> None:
    body = f"{NORMALIZED} r = Relu(b) c = Conv(r, last) k = Sigmoid(c) g = Sigmoid(k) y = Mul(k, g)"
    path = tmp_path / "model.onnx"
    ir.save(image(body), path)
    model = load_model(path)
    executed = executed_by_onnxruntime(model, optimization="extended")
    members = {frozenset(site for site in layer.nodes) for layer in executed.layers}
    predicted = {
        frozenset(f"{node.op_type}#{index}" for index, node in enumerate(plain.graph) if node in layer.nodes)
        for plain in [prepare_copy(model.graph(), 7)]
        for layer in cut_and_merged(plain, CPU_ACTIVATIONS).each()
    }
    assert members == predicted
    assert {layer.precision for layer in executed.layers} == {"f32"}


def test_the_backend_takes_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ir.save(image("a = Conv(x, kernel, bias) r = Relu(a) m = Mul(r, half) y = Conv(m, last)"), path)
    model = load_model(path)
    sample = Sample(index=0, name="x", arrays={"x": numbers(60).reshape(1, 1, 6, 10)})
    results = {}
    for text in ("sim:bf16", "sim:bf16?profile=none", "sim:bf16?profile=openvino"):
        with open_target(model, parse_target(text), Capture(tensors=("r",))) as session:
            results[text] = session.run(sample)
    np.testing.assert_array_equal(results["sim:bf16"]["y"], results["sim:bf16?profile=none"]["y"])
    inner = results["sim:bf16?profile=openvino"]["r"]
    assert (inner != bf16(inner)).any()  # a register is not rounded
    for text, problem in (
        ("sim:bf16?profile=mine", "no fusion profile"),
        ("sim?profile=openvino", "needs a precision"),
    ):
        with (
            pytest.raises(ParityError, match=problem),
            open_target(model, parse_target(text), Capture()),
        ):
            pass


def test_constants_that_are_only_moved_become_constants() -> None:
    body = "b = Reshape(flat, shape) w = Transpose(square) c = Add(x, b) y = MatMul(c, w)"
    flat, square = np.arange(3, dtype=np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)
    model = fold_moved_constants(parse(body, {"flat": flat, "shape": np.array([1, -1]), "square": square}))
    assert [node.op_type for node in model.graph] == ["Add", "MatMul"]
    held = {name: constant_value(value) for name, value in model.graph.initializers.items()}
    for name, expected in (("b", flat.reshape(1, 3)), ("w", square.T)):
        tensor = held[name]
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), expected)


def kernels(body: str, weights: Mapping[str, Any], precision: str) -> dict[str, FusedKernel]:
    """OpenVINO's predicted kernels by the values that they compute."""
    fusion = profile_named("openvino").predict(fold_moved_constants(prepare_copy(parse(body, weights), 7)), precision)
    assert fusion is not None
    return {value: kernel for kernel in fusion.kernels for value in kernel.values}


def test_float16_islands_of_openvino_are_marked_before_anything_is_fused() -> None:
    # Seen in OpenVINO's executed graph of a network like this: the bias in front of a decomposed normalization is
    # pointwise, so that it stays in FP32 with it, and the product above is alone in float16.
    normalized = LAYER.replace("(x,", "(h,").replace("y =", "n =")
    body = f"p = MatMul(x, k) h = Add(p, b) {normalized} q = MatMul(n, k) y = Add(q, b)"
    weights = {"k": np.eye(4, dtype=np.float32), "b": np.ones(4, np.float32)}
    found = kernels(body, weights, "f16")
    assert (found["p"].values, found["p"].precision) == (("p",), "f16")
    assert {found[name].precision for name in ("h", "d", "n")} == {"f32"}
    assert found["q"].values == ("q", "y")  # nothing there divides: the bias goes into the product
    assert kernels(body, weights, "bf16")["p"].values == ("p", "h")


def test_exponentials_that_are_summed_stay_in_fp32_and_what_is_given_back_does_not() -> None:
    body = """m = ReduceMax<keepdims=1>(x, axis) c = Max(m, low) s = Sub(x, c) e = Exp(s)
        t = ReduceSum<keepdims=0>(e, axis) v = Unsqueeze(t, axis) y = Div(e, v)"""  # the runtime sees no Softmax in this
    found = kernels(body, {"low": np.float32(-1e4)}, "f16")
    assert found["m"].precision == "f16"
    assert {found[name].precision for name in "csetvy"} == {"f32"}
    assert (found["e"].stored, found["y"].stored) == ("f32", "f16")
    assert kernels("e = Exp(x) y = Abs(e)", {}, "f16")["e"].precision == "f16"
