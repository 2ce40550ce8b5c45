"""The error model against real sums, its graphs against its formulae, and the noise floor against real evaluations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.arithmetic.rounding import round_to
from parityscope.backends import Capture
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.opening import open_target
from parityscope.backends.recording import observable_tensors
from parityscope.backends.targets import parse_target
from parityscope.case import Inputs, Model, Sample, load_model
from parityscope.comparison import measure_pair
from parityscope.evaluation.evaluating import run_world, run_worlds
from parityscope.evaluation.program import compile_program
from parityscope.evaluation.reordering import reordered_world
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.expectation.disturbing import disturbed_world, expected_variance
from parityscope.expectation.error_model import (
    ROUNDING,
    chain_error,
    repeated_terms_error,
)
from parityscope.expectation.expecting import ErrorQuestion, expect_error, run_reference
from parityscope.expectation.grades import EXACT, FLOAT32_ROUNDING, SUMS, ULPS, grade_of
from parityscope.expectation.variances import SUMMED
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.evaluation.program import ProgramStep
    from parityscope.expectation.records import Expectation

U = 2.0**-24
ROWS = 2000
KINDS = ("mixed", "relu", "positive")


def factors(kind: str, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Two float32 (ROWS, terms); the rows' scales fill an octave, so that sums have significands of every size."""
    generator = np.random.default_rng(terms)
    left = generator.standard_normal((ROWS, terms)) * np.exp2(generator.random((ROWS, 1)))
    right = generator.standard_normal((ROWS, terms))
    if kind == "relu":
        left = np.maximum(left, 0)
    if kind == "positive":
        left, right = np.abs(left), np.abs(right)
    return left.astype(np.float32), right.astype(np.float32)


def rounding_variance(square: np.ndarray | float, roundoff: float) -> np.ndarray:
    """Expected squared error of rounding numbers of these squares to a format of this unit roundoff."""
    return np.asarray(square, np.float64) * (ROUNDING * roundoff) ** 2


def lanes_chain(total: np.ndarray, squares: np.ndarray, terms: float, lanes: int) -> np.ndarray:
    """`chain_error` for `lanes` accumulators of n / lanes terms each, which are added up one by one at the end."""
    length = terms / lanes
    # The sum over the lanes of the expected squared sum of each.
    parts = ((length - 1.0) * total + (terms - length) * squares) / (terms - 1.0)
    # The first lane is added to nothing.
    return chain_error(parts, squares, length) + chain_error(total, parts, lanes) - parts / lanes


def ratio(error: np.ndarray, variance: np.ndarray) -> float:
    """rms(actual) / rms(predicted)."""
    return float(np.sqrt(np.mean(np.square(error)) / np.mean(variance)))


@pytest.mark.parametrize("terms", [27, 576, 4608])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_in_sequence_err_as_predicted(kind: str, terms: int) -> None:
    left, right = factors(kind, terms)
    products = left.astype(np.float64) * right
    total, squares = products.sum(1) ** 2, np.square(products).sum(1)
    present = np.count_nonzero(products, axis=1)
    summed = np.cumsum(left * right, axis=1, dtype=np.float32)[:, -1]
    # Products round too; the first addition, to zero, is exact.
    sums = chain_error(total, squares, present) + squares * (1.0 - 1.0 / np.maximum(present, 1.0))
    predicted = rounding_variance(sums, U)
    assert 0.9 < ratio(summed - products.sum(1), predicted) < 1.1


@pytest.mark.parametrize("terms", [576, 4608])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_in_lanes_err_less_and_as_predicted(kind: str, terms: int) -> None:
    lanes = 16
    left, right = factors(kind, terms)
    products = left.astype(np.float64) * right
    total, squares = products.sum(1) ** 2, np.square(products).sum(1)
    present = np.count_nonzero(products) / ROWS
    parts = np.cumsum((left * right).reshape(ROWS, -1, lanes), axis=1, dtype=np.float32)[:, -1]
    summed = np.cumsum(parts, axis=1, dtype=np.float32)[:, -1]
    predicted = rounding_variance(lanes_chain(total, squares, present, lanes) + squares, U)  # the products round too
    assert 0.9 < ratio(summed - products.sum(1), predicted) < 1.1
    assert np.mean(lanes_chain(total, squares, present, lanes)) < np.mean(chain_error(total, squares, present)) / 4


@pytest.mark.parametrize("name", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_rounded_inputs_err_as_predicted(kind: str, name: str) -> None:
    left, right = (each.astype(np.float64) for each in factors(kind, 576))
    low = [round_to(each, FORMATS[name]) for each in (left, right)]
    error = (low[0] * low[1] - left * right).sum(1)
    predicted = 2 * rounding_variance(np.square(left * right).sum(1), FORMATS[name].unit_roundoff)
    assert 0.9 < ratio(error, predicted) < 1.1


def test_equal_terms_make_errors_that_add_up() -> None:
    # n equal numbers a row, of every significand: the error grows with n and not with its root.
    terms = 1000
    numbers = np.exp2(np.random.default_rng(1).random(ROWS)).astype(np.float32)
    summed = np.cumsum(np.repeat(numbers[:, None], terms, axis=1), axis=1, dtype=np.float32)[:, -1]
    total = np.square(terms * numbers.astype(np.float64))
    assert (
        0.85
        < ratio(summed - terms * numbers.astype(np.float64), rounding_variance(repeated_terms_error(total, terms), U))
        < 1.15
    )


def test_numbers_derived_by_hand() -> None:
    # One term is rounded once; n equal terms of 1 have S_k = k and Σ k² = n (n + 1) (2 n + 1) / 6.
    assert chain_error(9.0, 9.0, 1) == 9.0
    assert chain_error(100.0, 10.0, 10) == 385.0
    # Two lanes of 2 ones: 1 + 4 in each, then 2 + 2 = 4, whose first step is exact: 1 + 4 + 1 + 4 + 16.
    assert lanes_chain(np.array(16.0), np.array(4.0), 4, 2) == pytest.approx(26.0, rel=1e-12)
    assert pytest.approx(0.4247, abs=1e-4) == ROUNDING


# Node text, shapes of x and w, and (n, kind) of the formula.
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w)": ((2, 6, 9, 8), (5, 6, 3, 3), 54),
    "Conv<group=3>(x, w)": ((1, 6, 7), (9, 2, 3), 6),
    "ConvTranspose<strides=[2, 2]>(x, w)": ((1, 6, 4, 4), (6, 3, 2, 2), 6),
    "ConvTranspose<group=2>(x, w)": ((1, 6, 4, 4), (6, 3, 2, 2), 12),
    "MatMul(x, w)": ((3, 4, 20), (20, 5), 20),
    "Gemm<transA=1, transB=1, alpha=0.5>(x, w)": ((20, 4), (5, 20), 20),
    'Einsum<equation="bij,bkj->bik">(x, w)': ((2, 4, 20), (2, 3, 20), 20),
    'Einsum<equation="...ij,...jk">(x, w)': ((2, 4, 20), (2, 20, 3), 20),
    'Einsum<equation="ab,cd->ac">(x, w)': ((4, 3), (2, 5), 15),
}


def parsed(body: str, inputs: str = "float[] x", opset: int = 17) -> ir.Model:
    """A model of one output y; inputs declared without a size have any shape."""
    text = f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    for value in (*proto.graph.input, *proto.graph.output):
        if not value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    return ir.from_proto(proto)


def exactly(model: ir.Model, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output in float64."""
    found: Any
    (found,) = ReferenceEvaluator(ir.to_proto(model)).run(
        None, {name: each.astype(np.float64) for name, each in arrays.items()}
    )
    result: np.ndarray = found
    return result


def computed(model: ir.Model, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output, by ONNX Runtime in float32."""
    (found,) = open_session(model)(arrays).values()
    return found


def summed(model: ir.Model, arrays: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """What is expected of y: Σ variance / (0.4247 u)² · 0.4247², and Σ y²."""
    program = compile_program(model)
    step, sessions = program.steps[-1], Sessions()
    known = run_world(World(name="plain", program=program), arrays, [*filter(None, step.inputs), "y"], sessions)
    inputs = [known[name] if name else None for name in step.inputs]
    found = expected_variance(step, program, inputs, known["y"], sessions)
    assert found is not None
    squares = np.square(known["y"], dtype=np.float64)
    return float(ROUNDING**2 * np.broadcast_to(found, squares.shape).sum()), float(squares.sum())


def disturbed(model: ir.Model, arrays: Mapping[str, np.ndarray], gain: float) -> dict[str, np.ndarray]:
    """Every output of the network, with its noise."""
    sessions = Sessions()
    plain = World(name="plain", program=compile_program(model))
    names = [str(value.name) for value in model.graph.outputs]
    return run_world(disturbed_world(plain, model, gain, sessions), arrays, names, sessions)


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [generator.standard_normal(shape).astype(np.float32) + np.float32(0.25) for shape in shapes]


FLOAT32_SUM = 1e-5  # relative; a sum of a few hundred float32 numbers, squared


@pytest.mark.parametrize("node", PRODUCTS)
def test_the_graph_of_a_product_is_its_formula(node: str) -> None:
    data, weights, terms = PRODUCTS[node]
    x, w = drawn(data, weights)
    model = parsed(f"y = {node}", "float[] x, float[] w")
    total = np.square(computed(model, {"x": x, "w": w}).astype(np.float64))
    squared = parsed(f"y = {node}".replace("alpha=0.5", "alpha=0.25"), "float[] x, float[] w")
    squares = computed(squared, {"x": x * x, "w": w * w}).astype(np.float64)
    variance, square = summed(model, {"x": x, "w": w})
    assert variance == pytest.approx(rounding_variance(chain_error(total, squares, terms), 1.0).sum(), rel=FLOAT32_SUM)
    assert square == pytest.approx(total.sum(), rel=FLOAT32_SUM)


MEANS = {
    "axes = Constant<value = int64[1] {-1}>() y = ReduceSum(x, axes)": 7,
    "y = ReduceMean<axes=[1, 3]>(x)": 28,
    "y = GlobalAveragePool(x)": 35,
    "y = AveragePool<kernel_shape=[2, 3]>(x)": 6,
}


@pytest.mark.parametrize("body", MEANS)
@pytest.mark.parametrize("blank", [False, True])
def test_the_graph_of_a_reduction_is_its_formula(body: str, *, blank: bool) -> None:
    (x,) = drawn((2, 4, 5, 7))
    if blank:
        x[:, :, 1:] = 3.0
    terms = MEANS[body]
    model = parsed(body)
    result, squares = exactly(model, {"x": x}), exactly(model, {"x": x.astype(np.float64) ** 2})
    equal = np.count_nonzero(x[..., 1:] == x[..., :-1]) / x.size
    total, own = (result**2, 0.0) if "ReduceSum" in body else ((terms * result) ** 2, result**2)
    sums = chain_error(total, squares if "ReduceSum" in body else terms * squares, terms) + repeated_terms_error(
        total, equal * terms
    )
    # A mean is the sum divided by n, and rounded once more.
    expected = rounding_variance(sums if "ReduceSum" in body else sums / terms**2 + own, 1.0)
    variance, _ = summed(model, {"x": x})
    assert variance == pytest.approx(expected.sum(), rel=FLOAT32_SUM)


@pytest.mark.parametrize(
    ("body", "ulps"), [("y = Add(x, x)", 0.5), ("y = Exp(x)", 3.0), ("y = Erf(x)", 16.0), ("y = Mul(x, x)", 0.5)]
)
def test_the_graph_of_an_elementwise_operator_is_its_bound(body: str, ulps: float) -> None:
    (x,) = drawn((4, 30))
    model = parsed(body)
    variance, square = summed(model, {"x": x})
    assert variance == pytest.approx(float(rounding_variance(square, 2.0 * ulps)), rel=FLOAT32_SUM)


NORMALIZATIONS: dict[str, list[tuple[int, ...]]] = {
    "y = Softmax(x)": [],
    "y = LogSoftmax(x)": [],
    "y = LayerNormalization<axis=-1>(x, w)": [(40,)],
    "y = LayerNormalization<axis=1>(x, w)": [(8, 5, 40)],
    "y = BatchNormalization(x, w, b, m, v)": [(8,)] * 4,
    "y = InstanceNormalization(x, w, b)": [(8,)] * 2,
    "y = GroupNormalization<num_groups=2>(x, w, b)": [(8,)] * 2,
    "y = RMSNormalization(x, w)": [(40,)],
}
NEWER = {"GroupNormalization": 21, "RMSNormalization": 23}  # the opset that has it as it is here; 17 for the others


@pytest.mark.parametrize("body", NORMALIZATIONS)
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_normalizations_err_as_predicted(body: str, shift: float) -> None:
    # ONNX Runtime's float32 against float64. The formulae add ulp bounds where a real library does better, and know of
    # fewer lanes than it has: it may err by up to twelve times less, and by no more than twice as much.
    shapes = NORMALIZATIONS[body]
    x = drawn((2, 8, 5, 40))[0] + np.float32(shift)
    names = ("w", "b", "m", "v")[: len(shapes)]
    arrays = {"x": x, **dict(zip(names, (np.abs(each) for each in drawn(*shapes)), strict=True))}
    if "m" in arrays:
        arrays["m"] += np.float32(shift)
    opset = NEWER.get(body.removeprefix("y = ").partition("<")[0].partition("(")[0], 17)
    model = parsed(body, ", ".join(f"float{list(each.shape)} {name}" for name, each in arrays.items()), opset)
    expected = exactly(model, arrays)
    found = computed(model.clone(), arrays)
    variance, square = summed(model, arrays)
    measured = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    predicted = U * np.sqrt(variance / square)
    assert predicted / 12 < measured < 2 * predicted


def test_every_sum_has_a_formula() -> None:
    assert SUMMED == SUMS
    assert not SUMS & set(ULPS)
    assert not (SUMS | set(ULPS)) & EXACT


def test_tensors_without_an_error_of_their_own_are_not_disturbed() -> None:
    (x,) = drawn((3, 4))
    model = parsed("r = Relu(x) s = Shape(r) t = Reshape(r, s) y = Neg(t)", "float[3,4] x")
    assert disturbed(model, {"x": x}, 256.0)["y"].tobytes() == computed(model, {"x": x}).tobytes()


# A small network of every kind: convolutions with repeated inputs, a gate, a matrix product, a normalization.
NETWORK = """<ir_version: 9, opset_import: ["": 17]> network (float[1, 3, 24, 24] x) => (float[1, 10] y) {
  c = Conv<pads=[1, 1, 1, 1]>(x, w1, b1)  r = Relu(c)
  d = Conv<pads=[1, 1, 1, 1], group=16>(r, w2)  p = GlobalAveragePool(r)  g = Conv(p, w3)  s = Sigmoid(g)
  m = Mul(d, s)  e = Conv<strides=[2, 2]>(m, w4)  f = Flatten(e)  z = MatMul(f, w5)  y = Softmax(z)
}"""
SHAPES = {
    "w1": (16, 3, 3, 3),
    "b1": (16,),
    "w2": (16, 1, 3, 3),
    "w3": (16, 16, 1, 1),
    "w4": (8, 16, 3, 3),
    "w5": (968, 10),
}


def saved(folder: Path, text: str, weights: Mapping[str, np.ndarray]) -> Model:
    write_network(folder / "model.onnx", text, weights)
    return load_model(folder / "model.onnx")


def network(folder: Path) -> Model:
    generator = np.random.default_rng(11)
    weights = {
        name: (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    weights["w5"] = (generator.standard_normal(SHAPES["w5"]) / np.sqrt(SHAPES["w5"][0])).astype(np.float32)
    return saved(folder, NETWORK, weights)


def given(*arrays: Mapping[str, np.ndarray]) -> Inputs:
    samples = [Sample(index=index, name=str(index), arrays=each) for index, each in enumerate(arrays)]
    return Inputs(
        origin="drawn", names=tuple(arrays[0]), sha256="", indices=tuple(range(len(samples))), read=samples.__getitem__
    )


def page(seed: int) -> np.ndarray:
    """Noise in a white frame, which a network computes the same numbers for again and again."""
    image = np.ones((1, 3, 24, 24), np.float32)
    image[:, :, 6:18, 6:18] = np.random.default_rng(seed).standard_normal((1, 3, 12, 12))
    return image


def evaluated(model: Model, inputs: Inputs, target: str) -> dict[str, np.ndarray]:
    names = tuple(observable_tensors(model))
    with open_target(model, parse_target(target), Capture(tensors=names)) as session:
        return dict(session.run(inputs.sample(0)))


def floor_of(model: Model, inputs: Inputs, samples: list[int], names: list[str]) -> Expectation:
    """The noise floor, against what ONNX Runtime gives at the outputs."""
    plain = run_reference(model, inputs, samples)
    return expect_error(
        ErrorQuestion(
            model=model,
            inputs=inputs,
            samples=samples,
            tensors=names,
            formats=(),
            reference=lambda index, name: plain.get(index, {}).get(name),
        )
    )


def test_real_evaluations_lie_within_the_floor_and_tf32_far_beyond(tmp_path: Path) -> None:
    model, inputs = network(tmp_path), given({"x": page(0)})
    names = [*observable_tensors(model), "y"]
    expectation = floor_of(model, inputs, [0], names)
    floor = expectation.errors["f32"]
    assert set(floor) == set(names)
    assert not expectation.skipped
    reference = evaluated(model, inputs, "ort")
    for target in ("openvino:f32", "ort?optimization=disabled"):
        found = evaluated(model, inputs, target)
        for name in set(found) & set(names):
            error = measure_pair(reference[name], found[name], channel_axis=None).rel_l2
            assert grade_of(error, {"f32": floor[name]}) == "f32", (target, name, error, floor[name])
    found = evaluated(model, inputs, "sim:tf32")
    for name in ("c", "r", "d", "g", "e", "z"):
        error = measure_pair(reference[name], found[name], channel_axis=None).rel_l2
        assert grade_of(error, {"f32": floor[name], "tf32": error}) == "tf32"


def test_the_floor_is_near_the_error_against_float64(tmp_path: Path) -> None:
    # Half of floor² is one evaluation's. ONNX Runtime sums in blocks and fuses: up to eight times better than the model.
    model, inputs = network(tmp_path), given({"x": page(0)})
    proto = ir.to_proto(model.graph())
    for each in proto.graph.initializer:
        each.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(each).astype(np.float64), each.name))
    exact = ReferenceEvaluator(proto).run(["c", "e", "z"], {"x": page(0).astype(np.float64)})
    floor = floor_of(model, inputs, [0], ["c", "e", "z"]).errors["f32"]
    reference = evaluated(model, inputs, "ort")
    for name, expected in zip(("c", "e", "z"), exact, strict=True):
        error = np.linalg.norm(reference[name] - expected) / np.linalg.norm(expected)
        assert floor[name] / 8 < error < floor[name] * 2


def test_the_least_of_the_floor_is_most_of_it_and_runs_each_product_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = network(tmp_path), given({"x": page(0)})
    whole = floor_of(model, inputs, [0], ["y"]).errors["f32"]["y"]
    plain = run_reference(model, inputs, [0])
    ran: Counter[str] = Counter()
    run = Sessions.run

    def counted(sessions: Sessions, step: ProgramStep, *rest: Any) -> Any:
        ran[step.key] += step.op_type in {"Conv", "MatMul"}
        return run(sessions, step, *rest)

    monkeypatch.setattr(Sessions, "run", counted)
    shown: list[float] = []

    def is_enough(least: Expectation) -> bool:
        shown.append(least.errors["f32"]["y"])
        return True

    expect_error(
        ErrorQuestion(
            model=model,
            inputs=inputs,
            samples=[0],
            tensors=["y"],
            formats=(),
            floor_on=[0],
            reference=lambda index, name: plain[index].get(name),
            enough=is_enough,
        )
    )
    assert set(ran.values()) == {0, 1}
    assert whole / 2 < shown[0] <= whole


def test_samples_make_no_difference_that_matters(tmp_path: Path) -> None:
    model = network(tmp_path)
    names = [*observable_tensors(model), "y"]
    inputs = given({"x": page(0)}, {"x": page(1)})
    one, other = (floor_of(model, inputs, [index], names).errors["f32"] for index in (0, 1))
    for name in names:
        assert 0.4 < other[name] / one[name] < 2.5


def test_masks_and_infinities_leave_the_floor_finite(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> masked (float[1, 8, 8] x, float[1, 8, 8] m) => (float[1, 8, 8] y) {
      lowest = Constant<value = float {-3.4028234e38}>()  far = Mul(m, lowest)
      s = MatMul(x, w)  t = Add(s, far)  p = Softmax<axis=-1>(t)  y = MatMul(p, x)
    }"""
    generator = np.random.default_rng(2)
    model = saved(tmp_path, text, {"w": generator.standard_normal((8, 8)).astype(np.float32)})
    mask = np.triu(np.ones((1, 8, 8), np.float32), 1)
    floor = floor_of(
        model, given({"x": generator.standard_normal((1, 8, 8)).astype(np.float32), "m": mask}), [0], ["s", "p", "y"]
    ).errors["f32"]
    assert all(FLOAT32_ROUNDING <= floor[name] < 1e-5 for name in ("s", "p", "y"))


def test_shape_arithmetic_is_not_disturbed() -> None:
    # 6 / 2 is 3, and Floor of a disturbed 3 may be 2.
    (x,) = drawn((6, 6))
    model = parsed(
        "s = Shape(x) f = Cast<to=1>(s) two = Constant<value = float {2.0}>() h = Div(f, two) l = Floor(h)"
        "i = Cast<to=7>(l) z = ConstantOfShape<value = float[1] {0.5}>(i) y = Exp(z)"
    )
    found = disturbed(model, {"x": x}, 2.0**20)["y"]
    assert found.shape == (3, 3)
    assert not np.array_equal(found, np.full((3, 3), np.exp(np.float32(0.5))))


def test_a_disturbance_is_what_the_model_says_it_is() -> None:
    x, w = drawn((64, 256), (256, 64))
    arrays = {"x": x, "w": w}
    gain = 256.0
    model = parsed("y = MatMul(x, w)", "float[] x, float[] w")
    found = disturbed(model, arrays, gain)["y"]
    expected = exactly(model, arrays)
    variance, _ = summed(model, arrays)
    assert np.linalg.norm(found - expected) == pytest.approx(gain * U * np.sqrt(variance), rel=0.02)


def test_another_order_changes_the_bits_and_not_the_sums(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> sums (float[1, 64, 6, 6] x) => (float[1, 8] y) {
      c = Conv(x, w1)  f = Flatten(c)  g = Gemm<transB=1>(f, w2)  y = MatMul(g, w3)
    }"""
    generator = np.random.default_rng(4)
    shapes: dict[str, Any] = {"w1": (16, 64, 3, 3), "w2": (12, 256), "w3": (12, 8)}
    whole = {name: generator.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    x = generator.integers(-2, 3, (1, 64, 6, 6)).astype(np.float32)
    model = saved(tmp_path, text, whole)
    before, after = _in_both_orders(model, x)
    np.testing.assert_array_equal(before, after)  # whole numbers below 2^24: no sum is rounded
    fractions = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    model = saved(tmp_path, text, fractions)
    before, after = _in_both_orders(model, x)
    assert 0 < np.linalg.norm(before - after) / np.linalg.norm(before) < 1e-5


def _in_both_orders(model: Model, x: np.ndarray) -> list[np.ndarray]:
    program = compile_program(prepare_copy(model.graph(), OLDEST))
    plain = World(name="plain", program=program)
    other = reordered_world(replace(plain, name="other"), np.random.default_rng(3))
    return [found["y"] for found in run_worlds([plain, other], {"x": x}, ["y"])]


def test_predictions_carry_the_floor(tmp_path: Path) -> None:
    model, inputs = network(tmp_path), given({"x": page(0)})
    plain = run_reference(model, inputs, [0])
    expectation = expect_error(
        ErrorQuestion(
            model=model,
            inputs=inputs,
            samples=[0],
            tensors=["y"],
            formats=("tf32",),
            reference=lambda index, name: plain[index][name],
        )
    )
    floor = floor_of(model, inputs, [0], ["y"]).errors["f32"]
    assert expectation.errors["f32"]["y"] == pytest.approx(floor["y"], rel=1e-6)
    assert expectation.errors["tf32"]["y"] > 100 * floor["y"]


def test_what_a_branch_rounds_counts_in_the_floor_of_an_output(tmp_path: Path) -> None:
    """The chain of products inside a branch has the floor of the same chain without one; the branch not taken has none."""
    chain = "u = MatMul(x, w1)  v = MatMul(u, w2)  w = MatMul(v, w1)  s = MatMul(w, w2)  t = MatMul(s, w1)"
    header = '<ir_version: 8, opset_import: ["": 17]> g (bool go, float[1, 64] x) => (float[1, 64] y, float[1, 64] z)'
    weights = "<float[64, 64] w1, float[64, 64] w2>"
    inside = f"""{header} {weights} {{
      y = If(go) <then_branch = a () => (float[1, 64] t) {{ {chain} }},
                  else_branch = b () => (float[1, 64] i) {{ i = Identity(x) }}>
      z = Exp(y) }}"""
    outside = f"{header} {weights} {{ {chain}  y = Where(go, t, x)  z = Exp(y) }}"
    draw = np.random.default_rng(1)
    arrays = {name: draw.standard_normal((64, 64)).astype(np.float32) / 64 for name in ("w1", "w2")}
    x = draw.standard_normal((1, 64)).astype(np.float32)
    floors = {}
    for name, text in (("inside", inside), ("outside", outside)):
        (tmp_path / name).mkdir()
        model = saved(tmp_path / name, text, arrays)
        for go in (True, False):
            found = floor_of(model, given({"go": np.asarray(go), "x": x}), [0], ["y", "z"])
            floors[name, go] = found.errors["f32"]
    for output in ("y", "z"):
        # Reordered sums are measured in the main graph alone, so that the floor inside a branch is the lower one.
        assert floors["outside", True][output] / 3 < floors["inside", True][output] <= floors["outside", True][output]
        assert floors["inside", False][output] < 1.5 * FLOAT32_ROUNDING
    assert floors["inside", True]["y"] > 1.5 * FLOAT32_ROUNDING


def test_an_opset_that_cannot_be_converted_has_a_floor_too(tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["": 8]> old (float[1, 2, 3] x) => (float[1, 2, 3] y) {
      y = Scan<num_scan_inputs=1, body = step (float[3] i) => (float[3] o) { o = Exp(i) }>("", x)
    }"""
    model = saved(tmp_path, text, {})
    floor = floor_of(model, given({"x": np.ones((1, 2, 3), np.float32)}), [0], ["y"])
    assert not floor.skipped
    assert floor.errors["f32"]["y"] == FLOAT32_ROUNDING
