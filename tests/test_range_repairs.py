"""Repairs of range: lost in FP16 before, finite and right within FP16's rounding after, the same function in FP32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic import FORMATS
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.graph import constant_value
from parityscope.records import Finding
from parityscope.repairs import known_repairs
from parityscope.repairs.saturate_activation import saturation_proof
from parityscope.testing.networks import parse_network
from parityscope.testing.repair_contract import check_repair
from proving.models.fetching import require
from proving.models.samples import sample_of
from simulated import detype, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RNG = np.random.default_rng(5)
F16 = FORMATS["f16"]
# Relative L2 of a handful of roundings to FP16 (2^-11 = 4.9e-4 each) in a row, in tests with well-scaled numbers.
ROUNDED = 1e-2


def f32(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def model_of(text: str, constants: Mapping[str, np.ndarray], opset: int = 17) -> onnx.ModelProto:
    proto = parse_network(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}', constants)
    onnx.checker.check_model(proto)
    return proto


def fresh(proto: onnx.ModelProto) -> ir.Model:
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(proto.SerializeToString()))
    return model


def weight_of(node: ir.Node, position: int = 1) -> np.ndarray:
    read = node.inputs[position]
    assert read is not None
    tensor = constant_value(read)
    assert tensor is not None
    return np.asarray(tensor.numpy())


def finding(**details: Any) -> Finding:
    return Finding(code="test", title="", role="cause", claim="", confidence=1.0, confidence_from="", details=details)


def outputs(model: ir.Model, x: np.ndarray, optimization: str = "disabled") -> np.ndarray:
    name = str(model.graph.inputs[0].name)
    return next(iter(open_session(model.clone(), optimization=optimization)({name: x}).values()))


def in_f16(model: ir.Model, x: np.ndarray) -> np.ndarray:
    return next(iter(simulate(model.clone(), "f16")({str(model.graph.inputs[0].name): x}).values()))


def distance(reference: np.ndarray, candidate: np.ndarray) -> float:
    r, c = (array.astype(np.float64) for array in (reference, candidate))
    return math.inf if not np.isfinite(c).all() else float(np.linalg.norm(c - r) / np.linalg.norm(r))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def repaired(name: str, proto: onnx.ModelProto, **details: Any) -> ir.Model | None:
    """The repaired model, valid; None where the repair does nothing, and then really nothing has changed."""
    model = fresh(proto)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    note = known_repairs()[name].apply(model, finding(**details))
    if note is None:
        assert ir.to_proto(model).SerializeToString(deterministic=True) == before
        return None
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    return model


def cured(name: str, proto: onnx.ModelProto, x: np.ndarray, **details: Any) -> ir.Model:
    """Checks that the output is lost in FP16 before and right after; gives the repaired model."""
    reference = outputs(fresh(proto), x)
    assert distance(reference, in_f16(fresh(proto), x)) > 10 * ROUNDED
    model = repaired(name, proto, **details)
    assert model is not None
    assert distance(reference, in_f16(model, x)) < ROUNDED
    return model


IMAGE = f32(1, 3, 8, 8)
CONVOLUTIONS = """(float[1,3,8,8] x) => (float[1,2,4,4] y) {
  h = Conv <pads = [1,1,1,1]> (x, w1, b1)
  r = Relu(h)
  p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
  l = LeakyRelu <alpha = 0.1> (p)
  y = Conv(l, w2, b2)
}"""
WEIGHTS = {"w1": f32(4, 3, 3, 3, scale=3e4), "b1": f32(4), "w2": f32(2, 4, 1, 1, scale=1e-3), "b2": f32(2)}
OVERFLOW = {"node": "Conv#0", "tensor": "h", "reaches": 5e5}


class TestScaleIntoRange:
    def test_an_activation_returns_into_range(self) -> None:
        proto = model_of(CONVOLUTIONS, WEIGHTS)
        model = cured("scale_into_range", proto, IMAGE, **OVERFLOW)
        assert operators(model) == operators(fresh(proto))
        np.testing.assert_array_equal(outputs(model, IMAGE), outputs(fresh(proto), IMAGE))

    def test_the_exponent_is_the_least_with_two_bits_to_spare(self) -> None:
        # 5e5 * 4 / 65504 = 30.5, and 2^5 = 32 is the next power of two: weights fall by 2^5, those behind grow by it.
        model = repaired("scale_into_range", model_of(CONVOLUTIONS, WEIGHTS), **OVERFLOW)
        assert model is not None
        arrays = {node.outputs[0].name: weight_of(node) for node in model.graph if node.op_type == "Conv"}
        np.testing.assert_array_equal(arrays["h"], WEIGHTS["w1"] / 32)
        np.testing.assert_array_equal(arrays["y"], WEIGHTS["w2"] * 32)

    def test_small_weights_behind_are_made_normal_numbers_too(self) -> None:
        # 2^19 * 4 / 65504 asks for 2^-6 at least, where the weights behind reach 2^-18 only, all subnormal. Further down
        # the first to end is the weight in front: 2^16 * 2^-6 * 2^-24 = 2^-14, the smallest normal number. Half of these 24
        # steps more is 2^-18: the weight in front reaches 2^-2, that behind 2^-6.
        text = "(float[1,64] x) => (float[1,64] y) { h = MatMul(x, w1) y = MatMul(h, w2) }"
        shapes = {name: f32(64, 64) for name in ("w1", "w2")}
        units = {name: np.sign(array) * 2.0 ** np.clip(-np.abs(array), -3, 0) for name, array in shapes.items()}
        sized = {name: array / np.abs(array).max() for name, array in units.items()}
        constants = {"w1": np.float32(sized["w1"] * 2.0**16), "w2": np.float32(sized["w2"] * 2.0**-24)}
        model = cured("scale_into_range", model_of(text, constants), f32(1, 64), node="MatMul#0", reaches=2.0**19)
        arrays = {node.outputs[0].name: weight_of(node) for node in model.graph}
        np.testing.assert_array_equal(arrays["h"], constants["w1"] / 2**18)
        np.testing.assert_array_equal(arrays["y"], constants["w2"] * 2**18)
        # Without balance it is the least exponent, whatever stands behind.
        text, details = (
            "h = MatMul(x, w1) y = MatMul(h, w2)",
            {"node": "MatMul#0", "reaches": 2.0**19, "balance": False},
        )
        proto = model_of(f"(float[1,64] x) => (float[1,64] y) {{ {text} }}", constants)
        least = repaired("scale_into_range", proto, **details)
        assert least is not None
        arrays = {node.outputs[0].name: weight_of(node) for node in least.graph}
        np.testing.assert_array_equal(arrays["h"], constants["w1"] / 2**6)

    def test_squares_that_follow_keep_exponents_whole(self) -> None:
        # As above, 2^-6 at least; the square's 2^-12 with weights that reach 2^-34 behind it. The square, taken for
        # (2^19)^2, ends first: 2^38 * 2^-12 * 2^-40 = 2^-14, after 20 steps. Ten more are 2^-16, and 2^-32 for the square.
        text = "(float[1,8] x) => (float[1,4] y) { h = MatMul(x, w1) s = Mul(h, h) y = MatMul(s, w2) }"
        constants = {"w1": np.full((8, 8), 2.0**16, np.float32), "w2": np.full((8, 4), 2.0**-46, np.float32)}
        model = repaired("scale_into_range", model_of(text, constants), node="MatMul#0", reaches=2.0**19)
        assert model is not None
        weights = {node.outputs[0].name: weight_of(node) for node in model.graph if node.op_type == "MatMul"}
        np.testing.assert_array_equal(weights["h"], constants["w1"] / 2**16)
        np.testing.assert_array_equal(weights["y"], constants["w2"] * 2.0**32)

    def test_a_weight_returns_into_range(self) -> None:
        text = "(float[1,8] x) => (float[1,2] y) { h = MatMul(x, w1) r = Relu(h) y = Gemm(r, w2, b2) }"
        constants = {"w1": f32(8, 4, scale=1e5), "w2": f32(4, 2, scale=1e-3), "b2": f32(2)}
        worst = float(np.abs(constants["w1"]).max())
        x = f32(1, 8, scale=1e-2)
        cured("scale_into_range", model_of(text, constants), x, node="MatMul#0", parameter="w1", value=worst)

    def test_a_residual_stream_is_scaled_as_a_whole(self) -> None:
        text = """(float[1,4,8] x) => (float[1,4,8] y) {
          a = MatMul(x, w1)
          h = Add(a, b1)
          mean = ReduceMean <axes = [-1]> (h)
          centred = Sub(h, mean)
          squared = Pow(centred, two)
          variance = ReduceMean <axes = [-1]> (squared)
          safe = Add(variance, epsilon)
          root = Sqrt(safe)
          normal = Div(centred, root)
          f = MatMul(normal, w2)
          z = Add(f, h)
          y = LayerNormalization <axis = -1> (z, g, b)
        }"""
        constants = {
            "w1": f32(8, 8, scale=1e3),
            "b1": f32(8),
            "two": number(2),
            "epsilon": number(1e-3),
            "w2": f32(8, 8, scale=300),
            "g": np.ones(8, np.float32),
            "b": np.zeros(8, np.float32),
        }
        proto, x = model_of(text, constants), f32(1, 4, 8)
        model = cured("scale_into_range", proto, x, node="Pow#4", tensor="squared", reaches=3e7)
        assert operators(model) == operators(fresh(proto))
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))
        # 3e7 * 4 / 65504 = 1832, so 2^-11 at least, and 2^-12 under the root: 1e-5 * 2^-12 = 2.4e-9 is zero in FP16.
        small = model_of(text, {**constants, "epsilon": number(1e-5)})
        assert repaired("scale_into_range", small, node="Pow#4", tensor="squared", reaches=3e7) is None

    def test_bounds_of_clip_are_scaled_with_it(self) -> None:
        text = "(float[1,8] x) => (float[1,8] y) { h = Mul(x, big) c = Clip(h, zero, top) y = Mul(c, small) }"
        constants = {"big": number(1e5), "zero": number(0), "top": number(1e5), "small": number(1e-5)}
        proto, x = model_of(text, constants), f32(1, 8)
        model = cured("scale_into_range", proto, x, node="Mul#0", reaches=2e5)
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))

    def test_a_constant_that_others_read_is_copied(self) -> None:
        text = """(float[1,8] x) => (float[1,8] y) {
          h = MatMul(x, w) r = Relu(h) s = MatMul(r, small) t = MatMul(x, w) u = Tanh(t) y = Add(s, u)
        }"""
        proto = model_of(text, {"w": f32(8, 8, scale=1e4), "small": f32(8, 8, scale=1e-2)})
        model, x = repaired("scale_into_range", proto, node="MatMul#0", reaches=1e5), f32(1, 8)
        assert model is not None
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))
        assert "w" in model.graph.initializers

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("(float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) y = Sigmoid(h) }", "not homogeneous"),
            (
                "(float[1,8] x) => (float[1,8] y, float[1,8] h) { h = MatMul(x, w) y = MatMul(h, v) }",
                "an output inside",
            ),
            ("(float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) a = Add(h, x) y = MatMul(a, v) }", "an input inside"),
            (
                "(float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) s = Tanh(h) t = MatMul(h, v) y = Add(s, t) }",
                "a consumer outside the segment",
            ),
            (
                """(float[1,8] x) => (float[1,8] y) {
                  h = MatMul(x, w)
                  t = MatMul(h, v)
                  yes = Constant <value = bool[1] {1}> ()
                  s = If (yes) <
                    then_branch = then () => (float[1,8] a) { a = Identity(h) },
                    else_branch = other () => (float[1,8] b) { b = Neg(h) }
                  >
                  y = Add(s, t)
                }""",
                "the body of an If reads it",
            ),
        ],
    )
    def test_where_the_scale_cannot_end_nothing_is_done(self, text: str, why: str) -> None:
        proto = model_of(text, {"w": f32(8, 8, scale=1e5), "v": f32(8, 8)})
        assert repaired("scale_into_range", proto, node="MatMul#0", tensor="h", reaches=1e6) is None, why

    def test_weights_that_would_leave_the_range_pass_the_scale_on(self) -> None:
        text = "(float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) g = MatMul(h, v) y = MatMul(g, u) }"
        constants = {"w": f32(8, 8, scale=1e5), "v": f32(8, 8, scale=6e3), "u": f32(8, 8, scale=1e-5)}
        model = repaired("scale_into_range", model_of(text, constants), node="MatMul#0", reaches=2e6)
        assert model is not None  # 2e6 * 4 / 65504 = 122: 2^7 times 6e3 does not fit
        kept = [weight_of(node) for node in model.graph]
        np.testing.assert_array_equal(kept[1], constants["v"])
        np.testing.assert_array_equal(kept[2], constants["u"] * 128)

    def test_a_weight_that_vanishes_is_made_larger(self) -> None:
        text = "(float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }"
        proto = model_of(text, {"w": f32(8, 8, scale=1e-8), "v": f32(8, 8, scale=1e4)})
        x = f32(1, 8)
        model = cured("scale_into_range", proto, x, node="MatMul#0", parameter="w", vanished=60)
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))

    def test_what_is_in_range_is_left_alone(self) -> None:
        proto = model_of(CONVOLUTIONS, WEIGHTS)
        assert repaired("scale_into_range", proto, node="Conv#0", tensor="h", reaches=6e4) is None
        assert repaired("scale_into_range", proto, node="Conv#0", tensor="h", reaches=5e5, format="bf16") is None


STEPS = {
    "relu": "Relu({})",
    "leaky": "LeakyRelu <alpha = 0.3> ({})",
    "abs": "Abs({})",
    "neg": "Neg({})",
    "transpose": "Transpose <perm = [0,2,1]> ({})",
    "flat": "Reshape({}, shape)",
    "bias": "Add({}, bias)",
    "product": "Mul({}, row)",
    "double": "Add({0}, {0})",
    "most": "Max({}, bias)",
    "bounded": "Clip({}, low, high)",
    "square_root": "Sqrt(Mul({0}, {0}))",
    "average": "ReduceMean <axes = [1], keepdims = 1> ({})",
}


def written(steps: list[str]) -> str:
    """A chain of nodes: a matrix product, the steps, another matrix product."""
    lines, last = ["h0 = MatMul(x, w)"], "h0"
    for index, step in enumerate(steps):
        name = f"h{index + 1}"
        if step == "square_root":
            lines += [f"{name}q = Mul({last}, {last})", f"{name} = Sqrt({name}q)"]
        elif step == "average":
            lines += [f"{name}m = ReduceMean <axes = [1]> ({last})", f"{name} = Sub({last}, {name}m)"]
        else:
            lines.append(f"{name} = {STEPS[step].format(last)}")
        last = name
    return "(float[1,4,4] x) => (float[1,4,4] y) { " + " ".join([*lines, f"y = MatMul({last}, v)"]) + " }"


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=6),
    exponent=st.integers(-12, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_law_a_power_of_two_changes_no_bit(steps: list[str], exponent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    constants = {
        "w": rng.standard_normal((4, 4)),
        "v": rng.standard_normal((4, 4)),
        "row": rng.standard_normal(4),
        "bias": rng.standard_normal(4),
        "low": np.array(-3.0),
        "high": np.array(3.0),
    }
    arrays = {name: array.astype(np.float32) for name, array in constants.items()}
    proto = model_of(written(steps), {**arrays, "shape": np.array([1, 4, 4], np.int64)})
    model = fresh(proto)
    # FP32 as the format, so that only FP32's own range could be in the way, which these numbers stay far from.
    note = known_repairs()["scale_into_range"].apply(model, finding(node="MatMul#0", exponent=exponent, format="f32"))
    x = rng.standard_normal((1, 4, 4)).astype(np.float32)
    assert (note is not None) == (exponent != 0)
    np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))
    if note is not None:
        both = [outputs(_only(each, "h0"), x) for each in (fresh(proto), model)]
        np.testing.assert_array_equal(np.ldexp(both[0], exponent), both[1])


# What stands between two convolutions, h and g, of (1, 4, 6, 6) tensors.
BETWEEN = {
    "AveragePool": "g = AveragePool <kernel_shape = [2,2]> (h)",
    "GlobalMaxPool": "p = GlobalMaxPool(h) g = Expand(p, shape)",
    "Concat": "n = Neg(h) c = Concat <axis = 1> (h, n) g = Slice(c, two, six, one)",
    "Split": "a, b = Split <axis = 1, num_outputs = 2> (h) g = Concat <axis = 1> (b, a)",
    "Pad": "g = Pad(h, pads, fill)",
    "Resize": 'g = Resize <mode = "linear"> (h, , scales)',
    "ReduceL2": "p = ReduceL2(h, two) g = Mul(h, p)",
    "ReduceSumSquare": "p = ReduceSumSquare(h, two) r = Sqrt(p) g = Add(h, r)",
    "Where": "q = Greater(h, fill) g = Where(q, h, fill)",
    "PRelu": "g = PRelu(h, slope)",
    "ThresholdedRelu": "g = ThresholdedRelu <alpha = 0.5> (h)",
    "CumSum": "g = CumSum(h, axis)",
    "Gather": "g = Gather <axis = 1> (h, order)",
    "TopK": "g, i = TopK <axis = 1> (h, four)",
    "Reciprocal": "q = Mul(h, h) o = Add(q, fill) r = Reciprocal(o) c = Mul(q, r) g = Mul(h, c)",
    "Pow": "q = Pow(h, three) g = Div(q, slope)",
    "Min": "g = Min(h, fill)",
    "Swish": "z = Tanh(x) k = Conv(z, v) s = Sigmoid(k) g = Mul(h, s)",
    "BatchNormalization": "g = BatchNormalization(h, gain, bias, bias, gain)",
    "InstanceNormalization": "g = InstanceNormalization(h, gain, bias)",
    "LayerNormalization": "g = LayerNormalization <axis = -1> (h, six_gains)",
}
BETWEEN_CONSTANTS = {
    "w": f32(4, 4, 1, 1),
    "v": f32(4, 4, 1, 1),
    "shape": np.array([1, 4, 6, 6]),
    "one": np.array([1]),
    "two": np.array([2]),
    "four": np.array([4]),
    "six": np.array([6]),
    "axis": np.array(1),
    "order": np.array([3, 1, 0, 2]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "scales": np.array([1, 1, 1.5, 1.5], np.float32),
    "fill": number(0.25),
    "three": number(3),
    "slope": f32(4, 1, 1),
    "gain": np.abs(f32(4)) + 1,
    "bias": f32(4),
    "six_gains": f32(6),
}


@pytest.mark.parametrize("exponent", [-6, 6])
@pytest.mark.parametrize("name", sorted(BETWEEN))
def test_law_every_operator_that_commutes_with_a_scale_keeps_every_bit(name: str, exponent: int) -> None:
    text = f"(float[1,4,6,6] x) => (float[n,c,a,b] y) {{ h = Conv(x, w) {BETWEEN[name]} y = Conv(g, v) }}"
    proto = model_of(text, BETWEEN_CONSTANTS, 18)
    # Even, because a square root asks for that.
    model = repaired("scale_into_range", proto, node="Conv#0", exponent=exponent, format="f32")
    assert model is not None
    x = f32(1, 4, 6, 6)
    np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))
    both = [outputs(_only(each, "h"), x) for each in (fresh(proto), model)]
    np.testing.assert_array_equal(np.ldexp(both[0], exponent), both[1])


def _only(model: ir.Model, name: str) -> ir.Model:
    value = next(value for node in model.graph for value in node.outputs if value.name == name)
    model.graph.outputs[0] = value
    return model


LAYER_NORM = """(float[1,4,8] x) => (float[1,4,8] y) {
  mean = ReduceMean <axes = [-1]> (x)
  centred = Sub(x, mean)
  squared = Pow(centred, two)
  variance = ReduceMean <axes = [-1]> (squared)
  safe = Add(variance, epsilon)
  root = Sqrt(safe)
  normal = Div(centred, root)
  scaled = Mul(normal, g)
  y = Add(b, scaled)
}"""
RMS_NORM = """(float[1,4,8] x) => (float[1,4,8] y) {
  squared = Mul(x, x)
  mean = ReduceMean <axes = [-1]> (squared)
  safe = Add(epsilon, mean)
  root = Sqrt(safe)
  inverse = Reciprocal(root)
  y = Mul(inverse, x)
}"""
TANH_GELU = """(float[1,4,8] x) => (float[1,4,8] y) {
  cube = Pow(x, three)
  small = Mul(cube, k)
  both = Add(x, small)
  scaled = Mul(both, t)
  curve = Tanh(scaled)
  bracket = Add(curve, one)
  half_x = Mul(x, half)
  y = Mul(half_x, bracket)
}"""
# The cube as products, with the constant outside, and innermost as JAX writes it.
CUBES = (
    TANH_GELU.replace("cube = Pow(x, three)", "square = Mul(x, x) cube = Mul(square, x)"),
    TANH_GELU.replace("cube = Pow(x, three)", "a = Mul(k, x) b = Mul(x, a)").replace("Mul(cube, k)", "Mul(x, b)"),
)
ERF_GELU = """(float[1,4,8] x) => (float[1,4,8] y) {
  z = Div(x, root2)
  curve = Erf(z)
  bracket = Add(one, curve)
  product = Mul(x, bracket)
  y = Mul(product, half)
}"""
SOFTMAX = """(float[1,4,8] x) => (float[1,4,8] y) {
  power = Exp(x)
  total = ReduceSum <axes = [2]> (power)
  y = Div(power, total)
}"""
NORM = {"two": number(2), "epsilon": number(1e-5), "g": f32(8), "b": f32(8)}
GELU = {
    "three": number(3),
    "k": number(0.044715),
    "t": number(math.sqrt(2 / math.pi)),
    "one": number(1),
    "half": number(0.5),
    "root2": number(math.sqrt(2)),
}
ROWS = f32(1, 4, 8)


class TestFusedOperator:
    @pytest.mark.parametrize(
        ("text", "constants", "opset", "node", "operator", "needed"),
        [
            (LAYER_NORM, NORM, 13, "Pow#2", "LayerNormalization", 17),
            (LAYER_NORM, NORM, 17, "Sqrt#5", "LayerNormalization", 17),
            (RMS_NORM, {"epsilon": number(1e-6)}, 17, "Mul#0", "RMSNormalization", 23),
            (TANH_GELU, GELU, 17, "Pow#0", "Gelu", 20),
            (CUBES[0], GELU, 17, "Mul#0", "Gelu", 20),
            (CUBES[1], GELU, 17, "Mul#1", "Gelu", 20),
            (ERF_GELU, GELU, 20, "Erf#1", "Gelu", 20),
            (SOFTMAX, {}, 12, "Exp#0", "Softmax", 13),
        ],
    )
    def test_one_operator_takes_the_place_of_all(
        self, text: str, constants: dict[str, np.ndarray], opset: int, node: str, operator: str, needed: int
    ) -> None:
        proto = model_of(text, constants, opset)
        model = repaired("fused_operator", proto, node=node)
        assert model is not None
        assert operators(model) == [operator]
        assert model.opset_imports[""] == needed
        assert [value.name for value in model.graph.outputs] == ["y"]
        # Rounding to FP32 (6e-8), ten times in a row.
        assert distance(outputs(fresh(proto), ROWS), outputs(model, ROWS)) < 1e-6

    def test_a_large_activation_survives_float16(self) -> None:
        cured("fused_operator", model_of(LAYER_NORM, NORM), ROWS * 1000, node="Pow#2")

    def test_every_form_that_a_finding_names_is_replaced(self) -> None:
        second = SOFTMAX.replace("power", "p").replace("total", "t").replace("y = ", "s = ").split("{")[1].rstrip("}")
        text = SOFTMAX.replace("y = Div(power, total)", "z = Div(power, total)").rstrip("}")
        proto = model_of(text + second.replace("Exp(x)", "Exp(z)") + " y = Identity(s) }", {}, 12)
        model = repaired("fused_operator", proto, nodes=["Exp#0", "Exp#3"])
        assert model is not None
        assert operators(model) == ["Softmax", "Softmax", "Identity"]

    @pytest.mark.parametrize(
        ("text", "node"),
        [
            (LAYER_NORM.replace("ReduceMean <axes = [-1]>", "ReduceMean <axes = [1]>"), "Pow#2"),  # not the last axis
            (LAYER_NORM.replace("Div(centred, root)", "Div(x, root)"), "Pow#2"),  # another value is divided
            (TANH_GELU.replace("Mul(cube, k)", "Mul(cube, one)"), "Pow#0"),  # another constant
            (SOFTMAX.replace("<axes = [2]>", "<axes = [1,2]>"), "Exp#0"),  # two axes
            (LAYER_NORM, "Sub#1000"),
        ],
    )
    def test_what_computes_something_else_is_left_alone(self, text: str, node: str) -> None:
        assert repaired("fused_operator", model_of(text, {**NORM, **GELU}, 12), node=node) is None

    def test_values_that_others_read_stay(self) -> None:
        text = LAYER_NORM.replace("=> (float[1,4,8] y)", "=> (float[1,4,8] y, float[1,4,8] squared)")
        model = repaired("fused_operator", model_of(text, NORM), node="Pow#2")
        assert model is not None
        assert operators(model) == ["ReduceMean", "Sub", "Pow", "LayerNormalization"]


class TestRescale:
    def test_divides_before_squaring(self) -> None:
        proto = model_of(LAYER_NORM, NORM)
        x = ROWS * 400
        model = cured("rescale", proto, x, node="Pow#2", reaches=float(np.square(x).max()))
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))

    @pytest.mark.parametrize(("text", "node"), [(LAYER_NORM, "Pow#2"), (RMS_NORM, "Mul#0")])
    @pytest.mark.parametrize("scale", [3e3, 1.0, 0.0])
    def test_divides_by_the_largest_where_nothing_was_measured(self, text: str, node: str, scale: float) -> None:
        constants = {name: NORM[name] for name in ("two", "epsilon", "g", "b") if name in text}
        proto, x = model_of(text, constants), ROWS * np.float32(scale)
        model = repaired("rescale", proto, node=node)
        assert model is not None
        reference = outputs(fresh(proto), x)
        np.testing.assert_allclose(outputs(model, x), reference, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(in_f16(model, x), reference, rtol=ROWS.size * 2e-3, atol=2e-2)

    def test_an_epsilon_that_would_vanish_asks_for_the_largest_instead(self) -> None:
        x = ROWS * 3000  # squares reach 8e7: 2^-13 in all, and 1e-5 * 2^-14 = 6e-10 is zero in FP16
        model = cured("rescale", model_of(LAYER_NORM, NORM), x, node="Pow#2", reaches=8e7)
        assert "ReduceMax" in operators(model)

    def test_subtracts_the_maximum(self) -> None:
        x = ROWS * 8
        x[0, 0, 0] = 20.0  # exp(20) = 4.9e8
        model = cured("rescale", model_of(SOFTMAX, {}, 12), x, node="Exp#0")
        assert operators(model) == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
        assert repaired("rescale", ir.to_proto(model), node="Exp#2") is None  # once is enough

    def test_in_range_nothing_is_done(self) -> None:
        assert repaired("rescale", model_of(LAYER_NORM, NORM), node="Pow#2", reaches=6e4) is None


class TestFiniteMask:
    TABLE = np.where(np.tri(4, dtype=bool), 0, -1e9).astype(np.float32)
    SCORES = f32(1, 4, 4)
    CAUSAL = "(float[1,4,4] x) => (float[1,4,4] y) { s = Add(x, mask) y = Softmax <axis = -1> (s) }"
    MULTIPLIED = """(float[1,4,4] x) => (float[1,4,4] y) {
      zero = Constant <value = float {0}> ()
      keep = Greater(x, zero)
      k = Cast <to = 1> (keep)
      off = Sub(one, k)
      m = Mul(off, big)
      s = Add(x, m)
      y = Softmax <axis = -1> (s)
    }"""

    def test_a_mask_by_multiplication_gives_no_nan(self) -> None:
        proto = model_of(self.MULTIPLIED, {"one": number(1), "big": number(-1e9)})
        x = self.SCORES.copy()
        x[:, :, 0] = 1.0  # no row is masked as a whole
        model = cured("finite_mask", proto, x, node="Mul#3")
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))

    @pytest.mark.parametrize("huge", [-1e9, -np.inf, float(np.finfo(np.float32).min)])
    def test_a_table_is_clamped_and_softmax_stays_the_same(self, huge: float) -> None:
        mask = np.where(self.TABLE < 0, np.float32(huge), np.float32(0))
        proto = model_of(self.CAUSAL, {"mask": mask})
        model = repaired("finite_mask", proto, node="Add#0", parameter="mask")
        assert model is not None
        np.testing.assert_array_equal(outputs(model, self.SCORES), outputs(fresh(proto), self.SCORES))
        np.testing.assert_array_equal(np.unique(weight_of(model.graph[0])), [-1e4, 0])

    def test_constant_of_shape_and_where(self) -> None:
        text = """(float[1,4,4] x) => (float[1,4,4] y) {
          size = Shape(x)
          low = ConstantOfShape <value = float[1] {-1000000000.0}> (size)
          zero = Constant <value = float {0}> ()
          keep = Greater(x, zero)
          s = Where(keep, x, low)
          y = Softmax <axis = -1> (s)
        }"""
        proto, x = model_of(text, {}), np.abs(self.SCORES)
        x[0, 1, 1:] *= -1
        model = repaired("finite_mask", proto, node="ConstantOfShape#1")
        assert model is not None
        node = next(node for node in model.graph if node.op_type == "ConstantOfShape")
        assert node.attributes["value"].as_tensor().numpy().tolist() == [-1e4]
        np.testing.assert_array_equal(outputs(model, x), outputs(fresh(proto), x))

    def test_a_mask_that_is_moved_on_the_way_is_found(self) -> None:
        text = """(float[1,4,4] x) => (float[1,4,4] y) {
          axes = Constant <value = int64[1] {0}> ()
          batched = Unsqueeze(mask, axes)
          s = Add(x, batched)
          y = Softmax <axis = -1> (s)
        }"""
        proto = model_of(text, {"mask": self.TABLE})
        model = repaired("finite_mask", proto, nodes=["Add#1"], parameter="mask")
        assert model is not None
        np.testing.assert_array_equal(outputs(model, self.SCORES), outputs(fresh(proto), self.SCORES))

    def test_a_row_that_is_masked_as_a_whole_gives_weights_in_float16(self) -> None:
        proto = model_of(self.CAUSAL, {"mask": np.full((4, 4), -1e9, np.float32)})
        assert np.isnan(in_f16(fresh(proto), self.SCORES)).all()
        model = repaired("finite_mask", proto, node="Add#0")
        assert model is not None
        np.testing.assert_allclose(in_f16(model, self.SCORES).sum(axis=-1), 1.0, rtol=ROUNDED)

    def test_what_is_no_mask_is_left_alone(self) -> None:
        summed = self.CAUSAL.replace("Softmax <axis = -1> (s)", "Tanh(s)")
        assert repaired("finite_mask", model_of(summed, {"mask": self.TABLE}), node="Add#0") is None
        mixed = self.TABLE + np.float32(3.5)
        assert repaired("finite_mask", model_of(self.CAUSAL, {"mask": mixed}), node="Add#0") is None
        assert repaired("finite_mask", model_of(self.CAUSAL, {"mask": self.TABLE / 1e5}), node="Add#0") is None


class TestLogOfNorm:
    SILENT = "(float[1,8] x) => (float[1,8] y) { q = Mul(x, x) s = Add(q, epsilon) y = Log(s) }"
    POWER = "(float[1,8] x) => (float[1,8] y) { q = Pow(x, two) s = Add(epsilon, q) y = Log(s) }"
    # Silence, what vanishes when it is squared, what is as large as the root of the epsilon, and what is large.
    LEVELS = np.array([[0, 1e-30, -1e-6, 1e-5, -1e-3, 0.1, 3, -60]], np.float32)

    @pytest.mark.parametrize(("text", "node"), [(SILENT, "Mul#0"), (SILENT, "Add#1"), (POWER, "Log#2")])
    def test_the_logarithm_of_silence_is_finite(self, text: str, node: str) -> None:
        proto = model_of(text, {"epsilon": number(1e-10)} | ({"two": number(2)} if "two" in text else {}))
        model = cured("log_of_norm", proto, self.LEVELS, node=node)
        # ln 1e-10 = -23.026; FP16 rounds its root by at most half of 2^-24 in 1e-5, 0.3 %, the logarithm's double by 0.006,
        # and numbers from 16 to 32 by at most 2^-7.
        np.testing.assert_allclose(in_f16(model, self.LEVELS)[0, :2], math.log(1e-10), atol=0.006 + 2**-7)
        assert "Pow" not in operators(model)

    @given(st.lists(st.floats(-200, 200, width=32), min_size=8, max_size=8), st.sampled_from([1e-12, 1e-10, 3e-8]))
    @settings(max_examples=40, deadline=None)
    def test_law_it_is_the_same_function(self, values: list[float], epsilon: float) -> None:
        """Against float64; a dozen roundings to FP32 of relative 2^-24 in the norm are absolute ones in its logarithm."""
        model = repaired("log_of_norm", model_of(self.SILENT, {"epsilon": number(epsilon)}), node="Log#2")
        assert model is not None
        x = np.array([values], np.float32)
        right = np.log(x.astype(np.float64) ** 2 + float(number(epsilon)))
        np.testing.assert_allclose(outputs(model, x), right, rtol=1e-6, atol=24 * 2.0**-24)

    @pytest.mark.parametrize("epsilon", [1e-3, 1e-14, 0.0, -1e-10])
    def test_an_epsilon_that_survives_or_is_lost_all_the_same_is_left(self, epsilon: float) -> None:
        assert repaired("log_of_norm", model_of(self.SILENT, {"epsilon": number(epsilon)}), node="Log#2") is None

    @pytest.mark.parametrize("last", ["s = Add(q, x) y = Log(s)", "s = Add(q, epsilon) y = Sqrt(s)"])
    def test_other_forms_are_left_alone(self, last: str) -> None:
        text = f"(float[1,8] x) => (float[1,8] y) {{ q = Mul(x, x) {last} }}"
        assert repaired("log_of_norm", model_of(text, {"epsilon": number(1e-10)}), node="Mul#0") is None

    def test_who_else_reads_the_square_keeps_it(self) -> None:
        text = "(float[1,8] x) => (float[1,8] y, float[1,8] q) { q = Mul(x, x) s = Add(q, epsilon) y = Log(s) }"
        model = repaired("log_of_norm", model_of(text, {"epsilon": number(1e-10)}), node="Log#2")
        assert model is not None
        assert [value.name for value in model.graph.outputs] == ["y", "q"]


class TestScaledNorm:
    KEPT = "(float[2,3,4] x) => (float[2,3,1] y) { q = Mul(x, x) s = ReduceSum <keepdims = 1> (q, last) y = Sqrt(s) }"
    DROPPED = (
        "(float[2,3,4] x) => (float[2,3] y) { q = Pow(x, two) s = ReduceSum <keepdims = 0> (q, last) y = Sqrt(s) }"
    )
    CONSTANTS: ClassVar = {"last": np.array([-1], np.int64)}
    # Rows of very different sizes: 1e-6 squared vanishes in FP16, and 2e4 squared overflows.
    ROWS = f32(2, 3, 4) * np.float32([[[1e-6], [1e-4], [1e-2]], [[1], [300], [2e4]]])

    @pytest.mark.parametrize(("text", "node"), [(KEPT, "Sqrt#2"), (DROPPED, "Pow#0"), (DROPPED, "ReduceSum#1")])
    def test_every_row_keeps_its_norm(self, text: str, node: str) -> None:
        constants = self.CONSTANTS | ({"two": number(2)} if "two" in text else {})
        model = cured("scaled_norm", model_of(text, constants), self.ROWS, node=node)
        reference, candidate = outputs(fresh(model_of(text, constants)), self.ROWS), in_f16(model, self.ROWS)
        assert candidate.shape == reference.shape
        # A dozen roundings of 2^-11; the row at 1e-6 is one of subnormal numbers, whose steps are 6e-8: 3 % of it each.
        errors = np.abs(candidate / reference - 1).reshape(-1)
        assert errors[1:].max() < 12 * 2.0**-11
        assert errors[0] < 0.06

    def test_zero_and_what_is_smaller_than_the_format_stay_finite(self) -> None:
        model = repaired("scaled_norm", model_of(self.KEPT, self.CONSTANTS), node="Sqrt#2")
        assert model is not None
        x = np.zeros((2, 3, 4), np.float32)
        x[0, 0] = 1e-15
        np.testing.assert_allclose(outputs(model, x)[0, 0], 2e-15, rtol=1e-5)  # the root of four squares of 1e-15
        assert (in_f16(model, x) == 0).all()

    @pytest.mark.parametrize(
        "spoiled",
        ["q = Mul(x, x) s = ReduceMean(q) y = Sqrt(s)", "q = Mul(x, w) s = ReduceSum(q, last) y = Sqrt(s)"],
    )
    def test_other_forms_are_left_alone(self, spoiled: str) -> None:
        text = f"(float[2,3,4] x) => (float[a,b,c] y) {{ {spoiled} }}"
        assert repaired("scaled_norm", model_of(text, self.CONSTANTS | {"w": f32(4)}), node="Sqrt#2") is None

    def test_at_an_opset_with_axes_as_attributes(self) -> None:
        text = "(float[2,3,4] x) => (float[2,3] y) { q = Mul(x, x) s = ReduceSum <axes = [2], keepdims = 0> (q) y = Sqrt(s) }"
        cured("scaled_norm", model_of(text, {}, opset=12), self.ROWS, node="Sqrt#2")


class TestOthers:
    LOG = "(float[1,8] x) => (float[1,8] y) { p = Relu(x) s = Add(p, epsilon) y = Log(s) }"
    AXIS = np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 8)

    def test_an_epsilon_is_raised_only_with_consent(self) -> None:
        proto = model_of(self.LOG, {"epsilon": number(1e-10)})
        assert repaired("raise_epsilon", proto, node="Add#1") is None
        model = repaired("raise_epsilon", proto, node="Add#1", consents=["raise_epsilon"])
        assert model is not None
        assert not np.isfinite(in_f16(fresh(proto), self.AXIS)).all()
        # The smallest normal number of FP16 is 2^-14.
        np.testing.assert_allclose(in_f16(model, self.AXIS)[0, 0], -14 * math.log(2), rtol=1e-3)
        large = model_of(self.LOG, {"epsilon": number(1e-3)})
        assert repaired("raise_epsilon", large, node="Add#1", consents=["raise_epsilon"]) is None

    # inf - inf is NaN in FP16; the largest number minus itself is 0, and Tanh cannot tell 1e6 from 65504.
    SATURATING = """(float[1,8] x) => (float[1,8] y) {
      h = Mul(x, big) t = Tanh(h) zero = Mul(h, none) y = Add(t, zero)
    }"""
    LINEAR = "(float[1,8] x) => (float[1,8] y) { h = Mul(x, big) y = Mul(h, small) }"

    def test_a_clip_is_put_in_where_it_is_proved_harmless(self) -> None:
        proto = model_of(self.SATURATING, {"big": number(1e6), "none": number(0)})
        x = self.AXIS
        proof = saturation_proof(fresh(proto), "h", [{"x": x}, {"x": 2 * x}], limit=1e-6)
        assert (proof["samples"], proof["worst"]) == (2, 0.0)
        model = cured("saturate_activation", proto, x, node="Mul#0", tensor="h", proof=proof)
        assert operators(model) == ["Mul", "Clip", "Tanh", "Mul", "Add"]

    def test_a_clip_that_changes_the_output_is_not(self) -> None:
        proto = model_of(self.LINEAR, {"big": number(1e6), "small": number(1e-6)})
        proof = saturation_proof(fresh(proto), "h", [{"x": self.AXIS}], limit=1e-3)
        assert proof["worst"] > 0.9  # 2e6 became 65504
        assert repaired("saturate_activation", proto, node="Mul#0", tensor="h", proof=proof) is None

    @pytest.mark.parametrize(
        "spoiled", [{"samples": 0}, {"tensor": "y"}, {"format": "f8e4m3"}, {"worst": math.nan}, {"worst": math.inf}]
    )
    def test_a_proof_of_something_else_counts_for_nothing(self, spoiled: dict[str, Any]) -> None:
        proto = model_of(self.SATURATING, {"big": number(1e6), "none": number(0)})
        proof = {"tensor": "h", "format": "f16", "samples": 3, "worst": 0.0, "limit": 1e-3}
        assert repaired("saturate_activation", proto, node="Mul#0", tensor="h", proof=proof) is not None
        assert repaired("saturate_activation", proto, node="Mul#0", tensor="h", proof={**proof, **spoiled}) is None
        assert repaired("saturate_activation", proto, node="Mul#0", tensor="h") is None

    @pytest.mark.parametrize("opset", [13, 15, 17])
    def test_statistics_stay_in_float32(self, opset: int) -> None:
        text = "(float[1,4,3,3] x) => (float[1,4,3,3] y) { h = Relu(x) y = BatchNormalization(h, s, b, m, v) }"
        constants = {"s": f32(4, scale=1e4), "b": f32(4), "m": f32(4), "v": np.full(4, 1e8, np.float32)}
        proto, x = model_of(text, constants, opset), f32(1, 4, 3, 3)
        model = repaired("keep_statistics_in_fp32", proto, node="BatchNormalization#1")
        assert model is not None
        assert operators(model) == ["Relu", "Cast", "BatchNormalization", "Cast"]
        kinds = [value.dtype.name for value in model.graph[2].inputs if value is not None and value.dtype is not None]
        assert kinds == ["FLOAT16", "FLOAT16", "FLOAT16", "FLOAT", "FLOAT"]
        # As it is typed, with every FP16 value really rounded.
        (typed,) = detype(model.clone())({str(model.graph.inputs[0].name): x}).values()
        assert distance(outputs(fresh(proto), x), typed) < 1e-3

    def test_parameters_that_do_not_fit_stay_where_they_are(self) -> None:
        text = "(float[1,4,3,3] x) => (float[1,4,3,3] y) { y = BatchNormalization(x, s, b, m, v) }"
        constants = {"s": f32(4, scale=1e7), "b": f32(4), "m": f32(4), "v": np.full(4, 1e8, np.float32)}
        assert repaired("keep_statistics_in_fp32", model_of(text, constants), node="BatchNormalization#0") is None


BN = "(float[1,4,3,3] x) => (float[1,4,3,3] y) { h = Relu(x) y = BatchNormalization(h, s, b, m, v) }"
BN_CONSTANTS = {"s": f32(4), "b": f32(4), "m": f32(4), "v": np.full(4, 1e8, np.float32)}
CASES: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], np.ndarray, float]] = {
    "scale_into_range": (CONVOLUTIONS, WEIGHTS, OVERFLOW, IMAGE, 1e-5),
    "fused_operator": (LAYER_NORM, NORM, {"node": "Pow#2"}, ROWS, 1e-5),
    "rescale": (LAYER_NORM, NORM, {"node": "Pow#2"}, ROWS, 1e-5),
    "finite_mask": (
        TestFiniteMask.CAUSAL,
        {"mask": TestFiniteMask.TABLE},
        {"node": "Add#0"},
        TestFiniteMask.SCORES,
        1e-5,
    ),
    "raise_epsilon": (
        TestOthers.LOG.replace("Relu(x)", "Exp(x)"),
        {"epsilon": number(1e-10)},
        {"node": "Add#1", "consents": ["raise_epsilon"]},
        np.full((1, 8), 5, np.float32),  # exp(5) = 148, beside which 6e-5 is 4e-7
        1e-5,
    ),
    "log_of_norm": (
        TestLogOfNorm.SILENT,
        {"epsilon": number(1e-10)},
        {"node": "Add#1"},
        TestLogOfNorm.LEVELS,
        1e-5,
    ),
    "scaled_norm": (TestScaledNorm.KEPT, TestScaledNorm.CONSTANTS, {"node": "Mul#0"}, TestScaledNorm.ROWS, 1e-5),
    "saturate_activation": (
        TestOthers.SATURATING,
        {"big": number(1e6), "none": number(0)},
        {"node": "Mul#0", "proof": {"tensor": "h", "format": "f16", "samples": 1, "worst": 0.0, "limit": 0.0}},
        TestOthers.AXIS,
        1e-5,
    ),
    "keep_statistics_in_fp32": (BN, BN_CONSTANTS, {"node": "BatchNormalization#1"}, f32(1, 4, 3, 3), 1e-3),
    "fold_batch_normalization": (BN, BN_CONSTANTS, {"node": "BatchNormalization#1"}, f32(1, 4, 3, 3), 1e-5),
}


@pytest.mark.parametrize("name", sorted(set(known_repairs()) - {"prepend_preprocessing"}))
def test_every_repair_keeps_the_contract(name: str, tmp_path: Path) -> None:
    # prepend_preprocessing changes what the model reads, on purpose: test_repairs.py.
    if name not in CASES:
        pytest.skip(f"{name} has its own tests")
    text, constants, details, x, relative = CASES[name]
    path = tmp_path / "model.onnx"
    onnx.save(model_of(text, constants), path)
    check_repair(known_repairs()[name], load_model(path), finding(**details), {"x": x}, tmp_path, relative=relative)


def test_every_repair_says_what_it_costs_and_how_to_undo_it() -> None:
    for repair in known_repairs().values():
        assert repair.title
        assert repair.risk
        assert repair.cost
        assert repair.undo


def _lost_and_found(identity: str, name: str, **details: Any) -> tuple[float, float, float]:
    """Relative L2 of the outputs: FP16 before, FP16 after, FP32 after."""
    path = require(identity)
    model, x = load_model(path), sample_of(identity)
    changed = model.graph()
    assert known_repairs()[name].apply(changed, finding(**details))
    reference = open_session(model.graph())(x)
    found = []
    for run in (simulate(model.graph(), "f16"), simulate(changed.clone(), "f16"), open_session(changed)):
        candidate = run(x)
        found.append(max(distance(array, candidate[name]) for name, array in reference.items()))
    return found[0], found[1], found[2]


@pytest.mark.model
@pytest.mark.story
def test_the_detector_needs_no_node_in_float32() -> None:
    before, after, exact = _lost_and_found("ocr-det", "fold_batch_normalization", node="p2o.BatchNormalization.1")
    assert before > 0.5
    assert after < 1e-2
    assert exact < 1e-6


@pytest.mark.model
def test_magika_needs_no_node_in_float32() -> None:
    node = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/LayerNorm_1/Sum_1"
    # The sum of squares in its decomposed LayerNorm: 195,587 in FP32 on this sample, three times FP16's largest number.
    before, after, exact = _lost_and_found("magika", "scale_into_range", node=node, reaches=195_587)
    assert before > 0.5
    assert after < 1e-3
    assert exact == 0.0
