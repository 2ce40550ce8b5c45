"""Simulated networks against numpy with `round_to` behind every operation."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from parityscope.arithmetic import FORMATS, round_to
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import OLDEST
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.case.graph import constant_value
from parityscope.errors import ParityError
from parityscope.testing.networks import parse_network
from simulated import Simulation, detype, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STORED = ("f16", "bf16", "f8e4m3", "f8e5m2")
HEADER = '<ir_version: 9, opset_import: ["": {opset}]>'


def parse(text: str, weights: Mapping[str, Any] = MappingProxyType({}), *, opset: int = 19) -> ir.Model:
    """A model from ONNX text; `weights` become initializers of the main graph."""
    return ir.from_proto(parse_network(HEADER.format(opset=opset) + text, weights))


def run(simulation: Simulation, feeds: Mapping[str, Any], capture: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The outputs, and the values named in `capture`, of the simulated network."""
    outputs = [str(value.name) for value in simulation.model.graph.outputs]
    return simulation(feeds, [*outputs, *(name for name in capture if name not in outputs)])


def floats(count: int, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    """Float32 numbers of both signs over some decades."""
    generator = np.random.default_rng(seed)
    return (generator.normal(size=count) * 10 ** generator.uniform(-spread, spread, count)).astype(np.float32)


@pytest.mark.parametrize("precision", STORED)
def test_every_result_is_rounded(precision: str) -> None:
    # Mul, Add, Sub, Div and Sqrt are correctly rounded in FP32 here and in numpy, so that every bit is determined.
    text = """g (float[n] x) => (float[n] out) {
        square = Mul(x, x)  sum = Add(square, x)  root = Sqrt(square)  one = Constant<value_float=1.3>()
        ratio = Div(sum, one)  kept = Relu(ratio)  out = Sub(kept, root) }"""
    number_format = FORMATS[precision]
    x = floats(4000)

    def stored(array: np.ndarray) -> np.ndarray:
        return round_to(array, number_format, overflow="saturate" if number_format.saturating else "infinity")

    simulation = simulate(parse(text), precision, overflow="saturate" if number_format.saturating else "infinity")
    found = run(simulation, {"x": x}, ("square", "sum", "root", "ratio", "kept"))
    rounded = stored(x)
    square = stored(rounded * rounded)
    with np.errstate(invalid="ignore", over="ignore"):
        total = stored(square + rounded)
        root = stored(np.sqrt(square))
        ratio = stored(total / stored(np.array(1.3, np.float32)))
        kept = np.maximum(ratio, np.float32(0))
        expected = {"square": square, "sum": total, "root": root, "ratio": ratio, "kept": kept}
        expected["out"] = stored(kept - root)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("spread", [3.0, 30.0])
def test_float16_without_its_range_rounds_float64_to_eleven_bits_too(spread: float) -> None:
    # Positions counted in float64 beside float32 data, as exporters write them; both types are split in one graph.
    text = """g (double[n] x, float[n] z) => (double[n] y, float[n] w, double[k] places) {
        y = Mul(x, x)  w = Mul(z, z)
        zero = Constant<value = double {0.0}>() end = Constant<value = double {5000.0}>()
        one = Constant<value = double {1.0}>()  places = Range(zero, end, one) }"""
    x = floats(4000, spread=spread).astype(np.float64) * (1 + 2.0**-40)
    z = floats(4000)
    found = run(simulate(parse(text), "f16", bounded=False), {"x": x, "z": z})
    assert {name: found[name].dtype for name in found} == {"y": np.float64, "w": np.float32, "places": np.float64}
    for name, array in (("y", x), ("w", z), ("places", np.arange(5000.0))):
        stored = eleven_bits(array)
        expected = stored if name == "places" else eleven_bits(stored * stored)
        inside = (np.abs(expected) < 2.0**113) & (
            np.abs(expected) >= 2.0**-126
        )  # FP32's range, and where it is not scarce
        np.testing.assert_array_equal(found[name][inside], expected[inside], err_msg=name)
    # 2,049 is the first whole number of twelve bits: halfway between 2,048 and 2,050, to even.
    assert found["places"][2047:2052].tolist() == [2047, 2048, 2048, 2050, 2052]


def eleven_bits(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of eleven significant bits, ties to even, whatever their exponent."""
    fraction, exponent = np.frexp(array)
    return np.ldexp(np.round(fraction * 2.0**11), exponent - 11).astype(array.dtype)


def test_a_square_that_overflows_float16_is_infinite() -> None:
    # 300^2 = 90,000 > 65,504: what LayerNormalization written as Pow and ReduceMean does in FP16.
    text = "g (float[n] x) => (float[n] y) { two = Constant<value_float=2.0>() p = Pow(x, two) y = ReduceMean(p) }"
    assert run(simulate(parse(text), "f16"), {"x": np.full(4, 300, np.float32)})["y"] == [np.inf]
    assert run(simulate(parse(text), "bf16"), {"x": np.full(4, 300, np.float32)})["y"] == [90112]  # 11 · 2^13


NORMALIZATION = "g (float[1,2,n] x) => (float[1,2,n] y) { %s y = BatchNormalization(x, scale, bias, mean, variance) }"
STATISTICS = {
    "scale": np.array([2.0, 3.0], np.float32),
    "bias": np.array([0.5, 0.25], np.float32),
    "mean": np.zeros(2, np.float32),
}
VARIANCE = np.array([4.0, 97_903_600.0], np.float32)


def test_a_weight_beyond_the_range_is_infinite_or_saturated() -> None:
    model = parse(NORMALIZATION % "", {"variance": VARIANCE, **STATISTICS})
    x = np.ones((1, 2, 1), np.float32)
    infinite = simulate(model, "f16")
    assert infinite.weights["variance"] == "f16"
    found = run(infinite, {"x": x}, ["variance"])
    np.testing.assert_array_equal(found["variance"], [4.0, np.inf])
    np.testing.assert_array_equal(found["y"].ravel()[1], 0.25)  # 3 · 1/sqrt(inf) + 0.25
    saturated = run(simulate(model, "f16", overflow="saturate"), {"x": x}, ["variance"])
    np.testing.assert_array_equal(saturated["variance"], [4.0, 65504.0])
    assert model.graph.initializers["variance"].const_value is not None
    np.testing.assert_array_equal(model.graph.initializers["variance"].const_value.numpy(), VARIANCE)


def test_constant_nodes_are_weights() -> None:
    constant = "variance = Constant<value = float[2] {4.0, 97903600.0}>()"
    found = run(simulate(parse(NORMALIZATION % constant, STATISTICS), "f16"), {"x": np.ones((1, 2, 1), np.float32)})
    np.testing.assert_array_equal(found["y"].ravel()[1], 0.25)


def test_names_and_types_of_the_border_stay() -> None:
    text = "g (float[n] x, int64[n] i) => (float[n] y, int64[n] j) { s = Add(x, x) y = Exp(s) j = Add(i, i) }"
    simulation = simulate(parse(text), "bf16")
    graph = simulation.model.graph
    assert [(value.name, value.dtype) for value in graph.inputs] == [
        ("x", ir.DataType.FLOAT),
        ("i", ir.DataType.INT64),
    ]
    assert [(value.name, value.dtype) for value in graph.outputs] == [
        ("y", ir.DataType.FLOAT),
        ("j", ir.DataType.INT64),
    ]
    assert simulation.tensors == {"x": "bf16", "s": "bf16", "y": "bf16"}
    i = np.array([2**40 + 1])
    found = run(simulation, {"x": np.array([1.01], np.float32), "i": i}, ["s"])
    np.testing.assert_array_equal(found["j"], i + i)
    np.testing.assert_array_equal(found["s"], 2 * round_to(np.array([1.01], np.float32), FORMATS["bf16"]))


def test_compute_nodes_stay_float32() -> None:
    text = "g (float[n,n] x) => (float[n,n] y) { a = MatMul(x, x) b = Softmax(a) y = Mul(a, b) }"
    for precision in PRECISIONS:
        model = simulate(parse(text), precision).model
        infer_types(model)
        for node in model.graph:
            if node.op_type != "Cast":
                assert {value.dtype for value in node.outputs} == {ir.DataType.FLOAT}, (precision, node.op_type)


def test_both_branches_of_if_are_rounded() -> None:
    text = """g (float[n] x, bool c) => (float[n] y) {
        y = If (c) <then_branch = t () => (float[n] a) { a = Mul(x, x) },
                    else_branch = e () => (float[n] b) { b = Constant<value = float[1] {97903600.0}>() }> }"""
    simulation = simulate(parse(text), "f16")
    assert {"a", "y", "x"} <= set(simulation.tensors)
    assert simulation.weights["b"] == "f16"
    x = np.array([300.0], np.float32)
    assert run(simulation, {"x": x, "c": True})["y"] == [np.inf]
    simulation = simulate(parse(text), "f16", overflow="saturate")
    assert run(simulation, {"x": x, "c": False})["y"] == [65504.0]


def test_the_state_of_a_loop_is_rounded_in_every_iteration() -> None:
    text = """g (int64 n, float[k] x) => (float[k] y, float[m, k] all) {
        go = Constant<value = bool {1}>()
        y, all = Loop (n, go, x) <body = b (int64 i, bool ci, float[k] s) => (bool co, float[k] t, float[k] u) {
            co = Identity(ci)  t = Mul(s, factor)  u = Add(t, t) }> }"""
    factor, x = np.array([1.0101], np.float32), floats(500, spread=1)
    found = run(simulate(parse(text, {"factor": factor}), "f16"), {"n": np.array(6), "x": x})
    state, scanned = round_to(x, FORMATS["f16"]), []
    for _ in range(6):
        state = round_to(state * round_to(factor, FORMATS["f16"]), FORMATS["f16"])
        scanned.append(round_to(state + state, FORMATS["f16"]))
    np.testing.assert_array_equal(found["y"], state)
    np.testing.assert_array_equal(found["all"], scanned)


def test_a_scan_is_rounded_inside() -> None:
    text = """g (float[k] start, float[n, k] rows) => (float[k] total, float[n, k] sums) {
        total, sums = Scan <num_scan_inputs = 1,
            body = b (float[k] s, float[k] row) => (float[k] t, float[k] u) { t = Add(s, row) u = Identity(t) }>
            (start, rows) }"""
    rows = floats(60, spread=1).reshape(20, 3)
    found = run(simulate(parse(text), "bf16"), {"start": np.zeros(3, np.float32), "rows": rows})
    total, sums = np.zeros(3, np.float32), []
    for row in round_to(rows, FORMATS["bf16"]):
        total = round_to(total + row, FORMATS["bf16"])
        sums.append(total)
    np.testing.assert_array_equal(found["sums"], sums)
    np.testing.assert_array_equal(found["total"], total)


def test_a_float16_model_is_evaluated_faithfully() -> None:
    # 300 · 300 = 90,000 overflows float16; ONNX Runtime computes the chain in FP32 and gives a finite number.
    text = """g (float16[n] x) => (float16[n] y) {
        square = Mul(x, x)  y = Mul(square, c) }"""
    weights = {"c": np.array([0.001], np.float16)}
    x = np.array([300, 7], np.float16)
    proto = ir.to_proto(parse(text, weights)).SerializeToString()
    (plain,) = ort.InferenceSession(proto, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert np.isfinite(plain).all(), "ONNX Runtime has changed: it now rounds float16 tensors itself"
    simulation = detype(parse(text, weights))
    found = run(simulation, {"x": x}, ["square"])
    assert found["y"].dtype == np.float16
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found["square"], (x * x).astype(np.float32))
        np.testing.assert_array_equal(found["y"], x * x * np.float16(0.001))
    assert found["y"][0] == np.inf
    assert simulation.tensors.keys() >= {"square"}


def test_islands_of_float32_in_a_float16_model_are_left_alone() -> None:
    text = """g (float16[n] x) => (float16[n] y) {
        wide = Cast<to=1>(x)  square = Mul(wide, wide)  root = Sqrt(square)  y = Cast<to=10>(root) }"""
    x = np.array([300], np.float16)
    assert run(detype(parse(text)), {"x": x})["y"] == [300]
    assert run(simulate(parse(text), "f16"), {"x": x})["y"] == [np.inf]


def test_a_bfloat16_model_runs() -> None:
    text = "g (float[n] x) => (float[n] y) { low = Cast<to=16>(x)  sum = Add(low, low)  y = Cast<to=1>(sum) }"
    x = floats(100)
    expected = round_to(2 * round_to(x, FORMATS["bf16"]), FORMATS["bf16"])
    np.testing.assert_array_equal(run(detype(parse(text)), {"x": x})["y"], expected)


def test_what_is_typed_float16_is_that_for_shape_arithmetic_too() -> None:
    # 6002 is no float16: the one nearest is 6000, whoever reads it.
    text = """g (float[n] x) => (float[m] y) {
        shape = Shape(x)  low = Cast<to=10>(shape)  half = Mul(low, factor)  whole = Cast<to=7>(half)
        y = Expand(one, whole) }"""
    weights = {"factor": np.array([0.5], np.float16), "one": np.ones(1, np.float32)}
    for simulation in (detype(parse(text, weights)), simulate(parse(text, weights), "bf16")):
        assert run(simulation, {"x": np.ones(6002, np.float32)})["y"].shape == (3000,)


def test_nodes_in_any_order_are_taken() -> None:
    # Float16 converters append their Casts at the end of the graph.
    proto = ir.to_proto(parse("g (float16[n] x) => (float16[n] y) { a = Mul(x, x) y = Mul(a, a) }"))
    proto.graph.node.reverse()
    with np.errstate(over="ignore"):
        expected = np.array([20.0, 1.1], np.float16) ** 2
        found = run(detype(ir.from_proto(proto)), {"x": np.array([20.0, 1.1], np.float16)})["y"]
        np.testing.assert_array_equal(found, expected * expected)


def test_types_in_attributes_are_rewritten() -> None:
    text = """g (float16[n,n] x, int64[1] shape) => (float16[m] y, float16[n,n] z) {
        fill = ConstantOfShape(shape)  y = Mul(fill, fill)  eye = EyeLike<dtype=10>(x)  z = Add(eye, x) }"""
    model = parse(text)
    tenth = np.array([0.1], np.float16)
    model.graph[0].attributes["value"] = ir.AttrTensor("value", ir.tensor(tenth))
    x = np.full((1, 1), 2.5, np.float16)
    found = run(detype(model), {"x": x, "shape": np.array([3])})
    np.testing.assert_array_equal(found["y"], np.repeat(tenth * tenth, 3))
    np.testing.assert_array_equal(found["z"], x + np.float16(1))


def test_tf32_rounds_what_products_take() -> None:
    # Rounded operands have 11 bits, their products 22: FP32 accumulation alone is left, within n·u/(1 - n·u) of
    # sum |a||b| (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1), u = 2^-24.
    generator = np.random.default_rng(1)
    x, w = (generator.normal(size=shape).astype(np.float32) for shape in ((8, 576), (576, 16)))
    model = parse("g (float[8,576] x) => (float[8,16] y) { y = MatMul(x, w) }", {"w": w})
    simulation = simulate(model, "tf32")
    found = run(simulation, {"x": x})["y"]
    exact, rounded = ((a.astype(np.float64), b.astype(np.float64)) for a, b in ((x, w), map(_tf32, (x, w))))
    bound = 576 * 2.0**-24 / (1 - 576 * 2.0**-24) * (np.abs(rounded[0]) @ np.abs(rounded[1]))
    assert np.all(np.abs(found - rounded[0] @ rounded[1]) <= bound)
    assert np.linalg.norm(found - exact[0] @ exact[1]) > 100 * np.linalg.norm(found - rounded[0] @ rounded[1])
    assert simulation.weights == {"w": "tf32"}
    assert simulation.operands == {"x": "tf32"}
    assert not simulation.tensors


def _tf32(array: np.ndarray) -> np.ndarray:
    return round_to(array, FORMATS["tf32"])


@pytest.mark.parametrize(
    "product",
    [
        "y = Gemm(x, w, tiny)",
        "p = MatMul(x, w)  y = Add(p, tiny)",
        'p = Einsum<equation="ij,jk->ik">(x, w)  y = Add(p, tiny)',
        "i = Reshape(x, four)  k = Reshape(w, four)  p = Conv(i, k, bias)  y = Reshape(p, two)",
        "i = Reshape(x, four)  k = Reshape(w, four)  p = ConvTranspose(i, k, bias)  y = Reshape(p, two)",
    ],
)
def test_tf32_leaves_the_bias_and_the_result_alone(product: str) -> None:
    # 1 + 2^-12 rounds to 1 in TF32, 1 + 2^-20 is kept by the addition in FP32.
    model = parse(
        f"g (float[1,1] x, float[1,1] w) => (float[1,1] y) {{ {product} }}",
        {
            "tiny": np.full((1, 1), 2.0**-20, np.float32),
            "bias": np.full(1, 2.0**-20, np.float32),
            "four": np.ones(4, np.int64),
            "two": np.ones(2, np.int64),
        },
    )
    ones = np.full((1, 1), 1 + 2.0**-12, np.float32)
    assert run(simulate(model, "tf32"), {"x": ones, "w": ones})["y"] == np.float32(1 + 2.0**-20)


def test_a_weight_that_is_not_only_multiplied_keeps_its_numbers_in_tf32() -> None:
    w = np.array([[1 + 2.0**-12]], np.float32)
    model = parse("g (float[1,1] x) => (float[1,1] y) { p = MatMul(x, w) y = Add(p, w) }", {"w": w})
    found = run(simulate(model, "tf32"), {"x": np.ones((1, 1), np.float32)}, ["w"])
    np.testing.assert_array_equal(found["w"], w)
    np.testing.assert_array_equal(found["y"], 1.0 + w)


def test_shape_arithmetic_keeps_full_precision() -> None:
    # 6002 is no float16 (they lie 4 apart there): rounded it is 6000, and half of it 3000.
    text = """g (float[n] x) => (float[m] y, float[n] z) {
        shape = Shape(x)  number = Cast<to=1>(shape)  half = Mul(number, factor)  floor = Floor(half)
        whole = Cast<to=7>(floor)  y = Expand(factor, whole)  z = Div(x, number) }"""
    x = np.full(6002, 2.0, np.float32)
    simulation = simulate(parse(text, {"factor": np.array([0.5], np.float32)}), "f16")
    found = run(simulation, {"x": x})
    assert found["y"].shape == (3001,)
    # The same number is data to Div, and rounded there.
    np.testing.assert_array_equal(found["z"], round_to(np.full(6002, 2.0 / 6000, np.float32), FORMATS["f16"]))
    assert "number" in simulation.tensors
    assert not {"half", "floor"} & set(simulation.tensors)


def test_the_scales_of_resize_keep_full_precision() -> None:
    # floor(1000 · 1.001) = 1001, with 1.001 rounded to float16 (1.0009765625) it is 1000.
    model = parse(
        'g (float[1,1,1,n] x) => (float[a,b,c,d] y) { y = Resize<mode="nearest">(x, , scales) }',
        {"scales": np.array([1, 1, 1, 1.001], np.float32)},
    )
    simulation = simulate(model, "f16")
    assert run(simulation, {"x": np.ones((1, 1, 1, 1000), np.float32)})["y"].shape == (1, 1, 1, 1001)
    assert not simulation.weights


def test_a_weight_used_as_data_and_as_a_limit_is_both() -> None:
    text = "g (float[1] x) => (float[n] r, float[1] y) { r = Range(zero, top, one)  y = Mul(x, top) }"
    weights = {"zero": np.float32(0), "one": np.float32(1), "top": np.float32(2049)}
    found = run(simulate(parse(text, weights), "f16"), {"x": np.ones(1, np.float32)})
    assert found["r"].shape == (2049,)
    assert found["y"] == [2048]


MOVEMENT = """g (float[2,4,6,6] x) => (float[a,b] y) {
    i = Identity(x)  t = Transpose<perm=[0,2,3,1]>(i)  r = Reshape(t, shape)  f = Flatten(t)
    g = Gather<axis=1>(r, index)  s1, s2 = Split<axis=1, num_outputs=2>(g)  c = Concat<axis=1>(s1, s2, g)
    p = Pad(c, pads, fill)  n = Neg(p)  w = Where(mask, n, fill)  m = Max(w, fill)  k = Clip(m, low, high)
    d = DepthToSpace<blocksize=2>(x)  v = MaxPool<kernel_shape=[2,2]>(d)  a = Abs(v)  b = ReduceMax(a, axes)
    e = Expand(b, wide)  u = Slice(e, start, end)  q = Add(u, k)  y = Mul(q, q) }"""
MOVEMENT_WEIGHTS: dict[str, Any] = {
    "shape": np.array([2, -1]),
    "index": np.array([3, 1, 0, 7]),
    "pads": np.array([0, 1, 0, 1]),
    "fill": np.float32(0.1),
    "mask": np.array([[True], [False]]),
    "low": np.float32(-0.3),
    "high": np.float32(1.1),
    "axes": np.array([1, 2, 3]),
    "wide": np.array([2, 1, 1, 10]),
    "start": np.array([0]),
    "end": np.array([2]),
}


@pytest.mark.parametrize("precision", STORED)
def test_tensors_that_only_move_numbers_hold_rounded_ones(precision: str) -> None:
    simulation = simulate(parse(MOVEMENT, MOVEMENT_WEIGHTS), precision)
    names = [name for name in simulation.tensors if name not in {"x", "y"}]
    x = floats(2 * 4 * 36, spread=0.5).reshape(2, 4, 6, 6)
    found = run(simulation, {"x": x}, names)
    for name in names:
        np.testing.assert_array_equal(found[name], round_to(found[name], FORMATS[precision]), err_msg=name)
    # Input, q and y alone are rounded; every other tensor holds rounded numbers anyway.
    plan = simulation.found.plan
    computed = {str(value.name) for value in plan.storage if constant_value(value) is None}
    assert computed - {str(value.name) for value in simulation.found.settled} == {"x", "q", "y"}


def test_the_bound_of_an_old_clip_is_rounded() -> None:
    # Before opset 11 Clip's bounds are attributes: 6.1 is 6.1015625 in float16.
    text = "g (float[n] x) => (float[n] y) { y = Clip<min=0.0, max=6.1>(x) }"
    assert run(simulate(parse(text, opset=7), "f16"), {"x": np.array([9.0], np.float32)})["y"] == [6.1015625]


@pytest.mark.parametrize("precision", ["bf16", "tf32", "f8e5m2"])
def test_old_opsets_are_converted_up_with_their_weights(precision: str) -> None:
    w = floats(32 * 32, spread=0.3).reshape(32, 32)  # 4 KiB: such weights step aside during the conversion
    text = "g (float[1,32,1] x) => (float[1,32] y) { s = Squeeze<axes=[2]>(x) y = MatMul(s, w) }"
    x = floats(32, seed=1, spread=0.3).reshape(1, 32, 1)
    simulation = simulate(parse(text, {"w": w}, opset=5), precision)
    assert simulation.model.opset_imports[""] == OLDEST
    assert simulation.weights == {"w": precision}
    found = run(simulation, {"x": x}, ["y"])["y"]
    exact = round_to(x, FORMATS[precision])[:, :, 0].astype(np.float64) @ round_to(w, FORMATS[precision])
    np.testing.assert_allclose(found, exact, rtol=0, atol=FORMATS[precision].unit_roundoff * np.abs(exact).max())


def test_float64_is_rounded_too() -> None:
    text = "g (double[n] x) => (double[n] y) { y = Mul(x, w) }"
    x, w = floats(100, spread=0.5).astype(np.float64) + 1e-12, np.array([1.2345678901])
    found = run(simulate(parse(text, {"w": w}), "f16"), {"x": x})["y"]
    f16 = FORMATS["f16"]
    np.testing.assert_array_equal(found, round_to(round_to(x, f16) * round_to(w, f16), f16))
    assert found.dtype == np.float64


def test_what_lies_inside_an_operator_is_a_skip() -> None:
    text = """g (float[3,1,2] x) => (float[3,1,1,2] y) { y = LSTM<hidden_size=2, layout=1>(x, w, r) }"""
    weights = {"w": np.ones((1, 8, 2), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    for precision in ("f16", "tf32"):
        (note,) = simulate(parse(text, weights), precision).notes
        assert note.what == "rounding inside 1 LSTM node"
        assert "batch comes first" in note.reason
    attention = """g (float[1,2,4] x) => (float[1,2,4] y) { y = Attention<q_num_heads=2, kv_num_heads=2>(x, x, x) }"""
    (note,) = simulate(parse(attention, opset=23), "tf32").notes
    assert "the inputs of the products" in note.reason


FOREIGN = '<ir_version: 9, opset_import: ["": 19, "example": 1]> g (float16[n] x) => (float16[n] y) {{ {} }}'


def test_unknown_operators_keep_their_types_and_become_skips() -> None:
    model = onnx.parser.parse_model(FOREIGN.format("a = Add(x, x)  b = example.Mystery(a)  y = Add(b, b)"))
    del model.graph.value_info[:]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT16, None))
    simulation = detype(ir.from_proto(model))
    (mystery,) = (node for node in simulation.model.graph if node.op_type == "Mystery")
    assert [value.dtype for value in (*mystery.inputs, *mystery.outputs) if value] == [ir.DataType.FLOAT16] * 2
    assert any("example.Mystery" in note.reason for note in simulation.notes)


def test_a_value_of_unknown_type_is_a_skip() -> None:
    text = '<ir_version: 9, opset_import: ["": 19, "example": 1]> g (float[n] x) => (float[n] y) { %s }'
    model = onnx.parser.parse_model(text % "b = example.Mystery(x)  c = Neg(b)  y = Add(x, x)")
    (note,) = simulate(ir.from_proto(model), "f16").notes
    assert note.what == "rounding of 2 tensors: b, c"


def test_what_cannot_be_simulated_is_an_error() -> None:
    model = parse("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    with pytest.raises(ParityError, match="f32 cannot be simulated"):
        simulate(model, "f32")
    with pytest.raises(ParityError, match="no number format"):
        simulate(model, "fp17")
    with pytest.raises(ParityError, match="opset 5 cannot be converted"):
        simulate(parse("g (float[n] x) => (float[n] y) { y = Mystery(x) }", opset=5), "bf16")


def test_graphs_without_floats_or_nodes_stay() -> None:
    text = "g (int64[n] x) => (int64[n] y) { y = Neg(x) }"
    simulation = simulate(parse(text), "f16")
    assert not simulation.tensors
    assert run(simulation, {"x": np.array([3])})["y"] == [-3]


MAXIMA = {
    "ReduceMax": "ReduceMax<axes=[2,3]>(t)",
    "ReduceMin": "ReduceMin<axes=[2,3]>(t)",
    "GlobalMaxPool": "GlobalMaxPool(t)",
    "MaxPool": "MaxPool<kernel_shape=[4,4]>(t)",
}


@pytest.mark.parametrize("name", MAXIMA)
@pytest.mark.parametrize("profile", ["none", "onnxruntime-cuda"])
def test_a_nan_goes_through_a_maximum_wherever_it_stands(name: str, profile: str) -> None:
    # 16 planes of 4x4 numbers, with one NaN in each at another place; then planes of one number, infinite ones too.
    x = floats(18 * 16, spread=0.5).reshape(1, 18, 4, 4)
    x[0, np.arange(16), np.arange(16) // 4, np.arange(16) % 4] = np.nan
    x[0, 16], x[0, 17] = -np.inf, 2
    text = f"g (float[1,18,4,4] x) => (float[1,18,1,1] y) {{ t = Neg(x)  y = {MAXIMA[name]} }}"
    model = parse(text, opset=17)
    found = run(simulate(model, "f16", profile=profile), {"x": x}, ["y"])["y"].reshape(18)
    assert np.isnan(found[:16]).all()
    np.testing.assert_array_equal(found[16:], [np.inf, -2])


@pytest.mark.parametrize(("precision", "rounded"), [("f16", False), ("bf16", False), ("f8e4m3", True)])
def test_weights_of_eight_bits_are_exact_where_they_fit(precision: str, rounded: bool) -> None:
    # 8 bits of precision hold every integer from -128 to 255; four do not hold 17.
    weights = np.arange(-128, 128).astype(np.int8)
    model = parse("g (float[256] x) => (float[256] y) { w = Cast<to=1>(q)  y = Mul(x, w) }", {"q": weights})
    simulation = simulate(model, precision)
    found = run(simulation, {"x": np.ones(256, np.float32)}, ["w", "y"])
    expected = round_to(weights.astype(np.float32), FORMATS[precision])
    np.testing.assert_array_equal(found["w"], expected)
    np.testing.assert_array_equal(found["y"], expected)
    assert np.array_equal(expected, weights) != rounded
