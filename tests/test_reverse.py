"""Reverse mode: the adjoint of every operator by dot products, and sensitivities of nodes beside direct ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.recording import ignore_progress
from parityscope.case import load_inputs, load_model
from parityscope.evaluation.backward import Sweep
from parityscope.evaluation.evaluating import run_worlds
from parityscope.evaluation.program import Program, compile_program
from parityscope.evaluation.worlds import World
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask
from parityscope.repairs.search.preparing import prepare_search
from parityscope.repairs.search.reverse import PASSES, Estimate, cost_of_passes
from parityscope.repairs.search.sense import CHECKS, TRUSTED, sense_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.repairs.search.preparing import SearchWork

_STEP = 1e-2  # of the central differences: their error is of order 1e-4, that of rounding 1e-7 / 1e-2
_CLOSE = 5e-3  # relative to |J d| |u|

# operator -> (attributes, dimensions of the computed inputs, constants behind them by position, opset, where x may be)
Case = tuple[str, str, tuple[tuple[int, ...], ...], dict[int, np.ndarray], int]


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


_RANDOM = np.random.default_rng(7)


def _normal(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


_GRID = np.array([1.0, 1.0, 2.0, 1.5], np.float32)
_ASYMMETRIC = 'coordinate_transformation_mode="asymmetric"'
CASES: list[Case] = [
    *((name, "", ((3, 4),), {}, 20) for name in ("Abs", "Cos", "Elu", "Erf", "Exp", "Gelu", "HardSwish", "Identity")),
    *((name, "", ((3, 4),), {}, 20) for name in ("LeakyRelu", "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Sin")),
    *((name, "", ((3, 4),), {}, 20) for name in ("Softplus", "Softsign", "Tanh", "Dropout", "HardSigmoid")),
    ("Gelu", 'approximate="tanh"', ((3, 4),), {}, 20),
    ("Cast", "to=1", ((3, 4),), {}, 18),
    *((name, "", ((3, 4),), {}, 18) for name in ("Log", "Sqrt", "Reciprocal")),
    *((name, "", ((2, 3, 4), (3, 1)), {}, 18) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum")),
    ("Clip", "", ((3, 4),), {1: np.array(-0.4, np.float32), 2: np.array(0.9, np.float32)}, 18),
    ("Pow", "", ((3, 4),), {1: np.array(2, np.float32)}, 18),
    ("Pow", "", ((3, 4),), {1: np.array([1.0, 2, 3, 0.5], np.float32)}, 18),
    ("PRelu", "", ((2, 3, 4), (3, 1)), {}, 18),
    ("Where", "", ((2, 3), (2, 1)), {-1: np.array([[True, False, True]])}, 18),
    ("MatMul", "", ((2, 3, 4), (4, 5)), {}, 18),
    ("MatMul", "", ((4,), (2, 4, 5)), {}, 18),
    ("MatMul", "", ((2, 1, 3, 4), (5, 4, 2)), {}, 18),
    ("MatMul", "", ((3, 4), (4,)), {}, 18),
    ("Gemm", "alpha=0.7, beta=0.3", ((3, 4), (4, 5), (5,)), {}, 18),
    ("Gemm", "transA=1, transB=1", ((4, 3), (5, 4), (3, 5)), {}, 18),
    ("Gemm", "transA=1", ((4, 3), (4, 5)), {}, 18),
    ("Gemm", "transB=1", ((3, 4), (5, 4)), {}, 18),
    ("Einsum", 'equation="bij,bkj->bik"', ((2, 3, 4), (2, 5, 4)), {}, 18),
    ("Conv", "pads=[1,0,1,1]", ((2, 3, 6, 5),), {1: _normal(4, 3, 3, 2)}, 18),
    ("Conv", "strides=[2,3], pads=[1,1,0,1], group=2", ((1, 4, 7, 9),), {1: _normal(6, 2, 3, 3)}, 18),
    ("Conv", "dilations=[2,1], group=3", ((2, 3, 7, 6),), {1: _normal(3, 1, 3, 3)}, 18),
    ("Conv", 'auto_pad="SAME_UPPER", strides=[2,2]', ((1, 2, 7, 8),), {1: _normal(3, 2, 3, 3)}, 18),
    ("Conv", "strides=[2]", ((1, 2, 8),), {1: _normal(3, 2, 3)}, 18),
    (
        "ConvTranspose",
        "strides=[2,2], pads=[1,0,0,1], output_padding=[1,0]",
        ((1, 4, 4, 5),),
        {1: _normal(4, 3, 3, 3)},
        18,
    ),
    ("AveragePool", "kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]", ((1, 2, 7, 6),), {}, 18),
    ("AveragePool", "kernel_shape=[2,2], strides=[2,2], pads=[1,1,0,0], count_include_pad=1", ((1, 2, 5, 6),), {}, 18),
    ("AveragePool", "kernel_shape=[3,3], strides=[2,2], ceil_mode=1", ((1, 2, 6, 6),), {}, 18),
    ("MaxPool", "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]", ((1, 2, 7, 6),), {}, 18),
    ("MaxPool", "kernel_shape=[2,2], strides=[2,2], ceil_mode=1", ((2, 2, 5, 5),), {}, 18),
    *((name, "", ((2, 3, 4, 5),), {}, 18) for name in ("GlobalAveragePool", "GlobalMaxPool")),
    *(
        (f"Reduce{name}", "keepdims=0", ((2, 3, 4),), {1: _ints(-1, 0)}, 18)
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    ),
    ("ReduceMean", "axes=[1]", ((2, 3, 4),), {}, 13),
    ("CumSum", "reverse=1, exclusive=1", ((3, 4),), {1: _ints(1)}, 18),
    ("BatchNormalization", "", ((2, 3, 4),), {1: _normal(3), 2: _normal(3), 3: _normal(3), 4: _normal(3) ** 2}, 18),
    ("InstanceNormalization", "epsilon=0.01", ((2, 3, 4, 2),), {1: _normal(3), 2: _normal(3)}, 18),
    ("GroupNormalization", "num_groups=2", ((2, 4, 3),), {1: _normal(4), 2: _normal(4)}, 21),
    ("GroupNormalization", "num_groups=2", ((2, 4, 3),), {1: _normal(2), 2: _normal(2)}, 18),
    ("LayerNormalization", "axis=-2", ((2, 3, 4),), {1: _normal(3, 4), 2: _normal(3, 4)}, 18),
    ("RMSNormalization", "", ((2, 3, 4),), {1: _normal(4)}, 23),
    ("LpNormalization", "axis=1", ((2, 3, 4),), {}, 18),
    ("Softmax", "axis=1", ((2, 3, 4),), {}, 18),
    ("LogSoftmax", "", ((2, 3, 4),), {}, 18),
    ("Reshape", "", ((2, 3, 4),), {1: _ints(4, -1)}, 18),
    ("Flatten", "", ((2, 3, 4),), {}, 18),
    ("Squeeze", "", ((2, 1, 4),), {1: _ints(1)}, 18),
    ("Unsqueeze", "", ((2, 4),), {1: _ints(1)}, 18),
    ("Transpose", "perm=[2,0,1]", ((2, 3, 4),), {}, 18),
    ("Concat", "axis=1", ((2, 3), (2, 1)), {}, 18),
    ("Split", "axis=1, num_outputs=2", ((2, 6),), {}, 18),
    ("Slice", "", ((5, 6),), {1: _ints(1, -4), 2: _ints(4, 100), 3: _ints(0, 1)}, 18),
    ("Slice", "", ((5, 6),), {1: _ints(-1, 0), 2: _ints(-100, 6), 3: _ints(0, 1), 4: _ints(-2, 3)}, 18),
    ("Gather", "axis=1", ((3, 5, 2),), {1: np.array([[0, 4, 0], [2, -1, 2]], np.int64)}, 18),
    ("Pad", "", ((3, 4),), {1: _ints(1, -1, 0, 2)}, 18),
    *(("Pad", f'mode="{mode}"', ((3, 4),), {1: _ints(1, 2, 0, 3)}, 18) for mode in ("reflect", "edge")),
    ("Pad", 'mode="reflect", pads=[1,2,0,3]', ((3, 4),), {}, 9),
    ("Squeeze", "axes=[1]", ((2, 1, 4),), {}, 9),
    ("Unsqueeze", "axes=[0,2]", ((2, 4),), {}, 11),
    ("Split", "axis=1, split=[2,4]", ((2, 6),), {}, 9),
    ("Slice", "axes=[1], starts=[1], ends=[4]", ((3, 6),), {}, 9),
    ("ReduceSum", "axes=[1]", ((2, 3, 4),), {}, 11),
    ("Clip", "min=-0.4, max=0.9", ((3, 4),), {}, 6),
    ("Softmax", "axis=1", ((2, 3, 4),), {}, 9),
    ("Upsample", 'mode="nearest"', ((1, 2, 3, 4),), {1: np.array([1, 1, 2, 2], np.float32)}, 9),
    ("GatherElements", "axis=1", ((2, 3),), {1: np.array([[0, 0], [2, 1]], np.int64)}, 18),
    ("ScatterElements", "", ((3, 3), (1, 3)), {1: np.array([[1, 0, 2]], np.int64)}, 18),
    ("Expand", "", ((3, 1),), {1: _ints(2, 1, 4)}, 18),
    ("Tile", "", ((2, 3),), {1: _ints(2, 3)}, 18),
    ("DepthToSpace", "blocksize=2", ((1, 8, 2, 3),), {}, 18),
    ("DepthToSpace", 'blocksize=2, mode="CRD"', ((1, 8, 2, 3),), {}, 18),
    ("SpaceToDepth", "blocksize=2", ((1, 2, 4, 6),), {}, 18),
    ("Trilu", "upper=0", ((4, 4),), {}, 18),
    ("Resize", 'mode="linear"', ((1, 2, 4, 6),), {2: _GRID}, 18),
    (
        "Resize",
        'mode="cubic", coordinate_transformation_mode="align_corners"',
        ((1, 2, 4, 6),),
        {3: _ints(1, 2, 7, 5)},
        18,
    ),
    ("Resize", f'mode="nearest", {_ASYMMETRIC}, nearest_mode="floor"', ((1, 2, 4, 6),), {2: _GRID}, 18),
]


# What the library has no derivative of; nodes before them are measured one by one.
REFUSED: frozenset[object] = frozenset(
    {
        ("AveragePool", "kernel_shape=[2,2], strides=[2,2], pads=[1,1,0,0], count_include_pad=1"),
        ("AveragePool", "kernel_shape=[3,3], strides=[2,2], ceil_mode=1"),
    }
)


def graph_of(case: Case) -> ir.Model:
    """The operator behind an Identity each of its data: x0, x1, ... -> y0, y1, ..."""
    op_type, attributes, shapes, constants, opset = case
    inputs: list[onnx.ValueInfoProto] = []
    reads: list[str] = []
    data = iter(range(len(shapes)))
    first = [f"c{-1}"] if -1 in constants else []
    place = 0
    while len(reads) < len(shapes) + len([at for at in constants if at >= 0]) or place <= max(constants, default=0):
        if place in constants:
            reads.append(f"c{place}")
        else:
            number = next(data, None)
            reads.append("" if number is None else f"a{number}")
        place += 1
    for number, shape in enumerate(shapes):
        inputs.append(onnx.helper.make_tensor_value_info(f"x{number}", 1, shape))
    nodes = [onnx.helper.make_node("Identity", [f"x{number}"], [f"a{number}"]) for number in range(len(shapes))]
    count = 2 if op_type == "Split" else 1
    parsed = onnx.parser.parse_node(f"y = {op_type} <{attributes}> ()" if attributes else f"y = {op_type} ()")
    node = onnx.helper.make_node(op_type, [*first, *reads], [f"y{number}" for number in range(count)])
    node.attribute.extend(parsed.attribute)
    graph = onnx.helper.make_graph(
        [*nodes, node],
        "g",
        inputs,
        [onnx.helper.make_tensor_value_info(f"y{number}", 1, None) for number in range(count)],
        [onnx.numpy_helper.from_array(np.asarray(array), f"c{place}") for place, array in constants.items()],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    return ir.from_proto(proto)


def _positive(op_type: str) -> bool:
    return op_type in {"Log", "Sqrt", "Reciprocal", "Pow", "ReduceLogSum", "Div", "ReduceProd"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{len(case[2])}")
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_adjoint_dot_product(case: Case, seed: int) -> None:
    """<u, J d> = <J^T u, d> for any direction d and any u; J d by central differences."""
    model = graph_of(case)
    infer_types(model)
    random = np.random.default_rng(seed)
    # Apart from each other and from 0 by more than the step, so that nothing turns a corner on the way.
    sizes = [int(np.prod(shape)) for shape in case[2]]
    points = random.permutation((np.arange(sum(sizes)) - sum(sizes) / 2 + 0.25) * (3.0 / sum(sizes)))
    points = np.abs(points) + 0.7 if _positive(case[0]) else points
    flat = np.split(points.astype(np.float32), np.cumsum(sizes)[:-1])
    x = {f"x{number}": part.reshape(case[2][number]) for number, part in enumerate(flat)}
    step = min(_STEP, 0.2 * 3.0 / sum(sizes))
    d = {name: random.uniform(-1, 1, array.shape).astype(np.float32) for name, array in x.items()}
    outputs = [str(value.name) for value in model.graph.outputs]
    forward = open_session(graph_of(case), optimization="disabled")
    y = forward(x)
    up = forward({name: array + np.float32(step) * d[name] for name, array in x.items()})
    down = forward({name: array - np.float32(step) * d[name] for name, array in x.items()})
    u = {name: random.uniform(-1, 1, y[name].shape).astype(np.float32) for name in outputs}
    adjoints = adjoints_of(compile_program(model), x, u)
    if adjoints is None:
        assert (case[0], case[1]) in REFUSED
        return
    slope = {name: (up[name].astype(np.float64) - down[name]) / (2 * step) for name in outputs}
    forwards = sum(float(np.vdot(u[name], slope[name])) for name in outputs)
    backwards = sum(float(np.vdot(d[f"x{number}"].astype(np.float64), array)) for number, array in adjoints.items())
    size = sum(np.linalg.norm(u[name]) * np.linalg.norm(slope[name]) for name in outputs)
    assert abs(forwards - backwards) <= _CLOSE * size + 1e-5


# Steps of integers, which stand for products of floats: x is (2, 3, 8, 8) or (8, 24), read as that.
QUANTIZED = {
    "MatMulInteger": """q, s, z = DynamicQuantizeLinear(a0)
        p = MatMulInteger(q, w, z, wz)
        c = Cast<to = 1>(p)
        f = Mul(s, ws)
        y = Mul(c, f)""",
    "QLinearMatMul": """q = QuantizeLinear(a0, xs, xz)
        p = QLinearMatMul(q, xs, xz, w, ws, wz, ys, xz)
        y = DequantizeLinear(p, ys, xz)""",
    "MatMul between quantizers": """q = QuantizeLinear(a0, xs, xz)
        t = Transpose<perm = [1, 0]>(q)
        d = DequantizeLinear(t, xs, xz)
        v = DequantizeLinear(w, ws, wz)
        u = Transpose<perm = [1, 0]>(d)
        y = MatMul(u, v)""",
    "ConvInteger": """q, s, z = DynamicQuantizeLinear(a0)
        p = ConvInteger<pads = [1, 0, 1, 0]>(q, k, z)
        c = Cast<to = 1>(p)
        f = Mul(s, ws)
        y = Mul(c, f)""",
    "QLinearConv": """q = QuantizeLinear(a0, xs, xz)
        p = QLinearConv<strides = [2, 1]>(q, xs, xz, k, ks, kz, ys, xz)
        y = DequantizeLinear(p, ys, xz)""",
    "DynamicQuantizeLSTM": """y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 5>(
            a0, lw, lr, lb, , , , , ls, lz, ls, lz)""",
}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_what_stands_for_floats_has_their_slope(kind: str) -> None:
    """Over a step of many stairs."""
    draw = np.random.default_rng(4)
    shape = (2, 3, 8, 8) if "Conv" in kind else (6, 2, 24) if "LSTM" in kind else (8, 24)
    constants = {
        "w": draw.integers(-90, 90, (24, 6), np.int8),
        "k": draw.integers(-90, 90, (4, 3, 3, 3), np.int8),
        "lw": draw.integers(-90, 90, (1, 24, 20), np.int8),
        "lr": draw.integers(-90, 90, (1, 5, 20), np.int8),
        "lb": draw.normal(size=(1, 40)).astype(np.float32),
        "ls": np.array([0.005], np.float32),
        "lz": np.array([0], np.int8),
        "ws": np.array(0.02, np.float32),
        "wz": np.array(3, np.int8),
        "ks": np.array([0.02, 0.01, 0.03, 0.02], np.float32),
        "kz": np.zeros(4, np.int8),
        "xs": np.array(0.03, np.float32),
        "xz": np.array(120, np.uint8),
        "ys": np.array(0.25, np.float32),
    }
    used = {name: array for name, array in constants.items() if re.search(rf"\b{name}\b", QUANTIZED[kind])}
    inside = f"(float[{','.join(map(str, shape))}] x0) => (float[] y) {{\n a0 = Identity(x0)\n {QUANTIZED[kind]} }}"
    opsets = '"" : 17, "com.microsoft" : 1'
    proto = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> g {inside}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in used.items())
    model = ir.from_proto(proto)
    x = draw.uniform(-2.5, 2.5, shape).astype(np.float32)
    d = draw.uniform(-1, 1, shape).astype(np.float32)
    forward = open_session(model, optimization="disabled")
    step = 0.3
    y, up, down = (forward({"x0": x + np.float32(by) * d})["y"] for by in (0.0, step, -step))
    u = draw.uniform(-1, 1, y.shape).astype(np.float32)
    adjoints = adjoints_of(compile_program(model), {"x0": x}, {"y": u})
    assert adjoints is not None
    slope = (up.astype(np.float64) - down) / (2 * step)
    forwards, backwards = float(np.vdot(u, slope)), float(np.vdot(d.astype(np.float64), adjoints[0]))
    assert abs(forwards - backwards) <= 0.03 * np.linalg.norm(u) * np.linalg.norm(slope)


def adjoints_of(
    program: Program, x: Mapping[str, np.ndarray], u: Mapping[str, np.ndarray]
) -> dict[int, np.ndarray] | None:
    """J^T u for each data input; None where the operator is refused."""
    (values,) = run_worlds([World(name="plain", program=program)], x, list(program.steps_of))
    known = {**values, **program.constants}
    sweep = Sweep(program=program)
    found = {}
    for _step, adjoints, complete in sweep.run(known.get, {name: seed[..., None] for name, seed in u.items()}):
        if not complete:
            assert sweep.refused, "a node is given up without a reason"
            return None
        found.update(
            {int(name[1:]): adjoint[..., 0].astype(np.float64) for name, adjoint in adjoints.items() if name[0] == "a"}
        )
    assert len(found) == len(x)
    return found


def network(*, jump: bool = False) -> str:
    """Thirty pointwise nodes and products in a row, with a Round in the middle if `jump`."""
    lines, at = [], "x"
    for number in range(10):
        lines += [
            f"p{number} = MatMul({at}, w{number})",
            f"t{number} = Tanh(p{number})",
            f"s{number} = Mul(t{number}, c)",
        ]
        at = f"s{number}"
        if jump and number == 4:
            lines.append("jumped = Round(s4)")
            at = "jumped"
    body = "\n".join(lines)
    return f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[4, 8] x) => (float[4, 8] {at}) {{\n{body}\n}}'


def work_of(folder: Path, text: str) -> SearchWork:
    random = np.random.default_rng(3)
    proto = onnx.parser.parse_model(text)
    weights = {f"w{number}": random.standard_normal((8, 8)) / 2 for number in range(10)} | {"c": np.full(8, 1.3)}
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    for node in proto.graph.node:
        node.name = node.output[0]
    onnx.save(proto, folder / "model.onnx")
    data = folder / "data"
    data.mkdir()
    for number in range(6):
        np.savez(data / f"{number}.npz", x=random.standard_normal((4, 8)).astype(np.float32))
    model = load_model(folder / "model.onnx")
    task = RepairTask(
        model=model,
        inputs=load_inputs(model, data, spool=folder / "spool"),
        low="f16",
        policy=Policy(budgets=(Budget(output="", metric="rel_l2", limit=1e-3, reason="test"),)),
        search_samples=4,
        threads=1,
    )
    (folder / "work").mkdir()
    return prepare_search(task, folder / "work", ignore_progress)


def test_estimates_beside_direct_sensitivities(tmp_path: Path) -> None:
    """Sums over all nodes differ by the spread of 16 projections (a third) and by what is not additive; ranks agree."""
    work = work_of(tmp_path, network())
    oracle, reverse = work.finder.oracle, work.finder.reverse
    assert reverse is not None
    estimate = oracle.estimated(reverse)
    assert estimate is not None
    assert oracle.count == cost_of_passes(PASSES)
    found = np.array([estimate.squared[name] for name in oracle.names])
    direct = np.array([oracle.squared(oracle.only([place])) for place in range(len(oracle.names))])
    assert 1 / TRUSTED < found.sum() / direct.sum() < TRUSTED
    ratios = np.sqrt(found / direct)
    assert 0.7 < np.median(ratios) < 1.4
    assert ((ratios > 0.25) & (ratios < 4)).all()


def test_sensing_costs_less_than_groups_and_finds_every_node(tmp_path: Path) -> None:
    work = work_of(tmp_path, network())
    oracle = work.finder.oracle
    everything = list(range(len(oracle.names)))
    sensed = sense_nodes(oracle, everything, 1.0, len(everything), lambda _, __: None, work.finder.reverse)
    assert sensed.estimated == len(everything) == 30
    assert sensed.evaluations == cost_of_passes(PASSES) + CHECKS < 24
    assert np.unique(sensed.squared).size == 30  # single nodes, not groups


def test_what_lies_before_a_jump_is_measured_directly(tmp_path: Path) -> None:
    """Round has no derivative that means anything: the fifteen nodes before it are not estimated, those behind it are."""
    work = work_of(tmp_path, network(jump=True))
    oracle, reverse = work.finder.oracle, work.finder.reverse
    assert reverse is not None
    estimate = oracle.estimated(reverse)
    assert estimate is not None
    known = {f"{kind}{number}" for number in range(5, 10) for kind in "pts"} | {"jumped"}
    assert set(estimate.squared) == known
    assert oracle.estimated(reverse, len(known) + 1) is None


def test_estimates_that_measurements_contradict_are_thrown_away(tmp_path: Path) -> None:
    """A flat estimate of what is far from flat: groups that disagree are measured and split instead."""
    work = work_of(tmp_path, network())
    oracle = work.finder.oracle
    everything = list(range(len(oracle.names)))

    @dataclass(frozen=True)
    class Flat:
        passes: int = 1

        def asked(self) -> dict[str, int]:
            return {"passes": self.passes}

        def estimate(self, *_: object) -> Estimate:
            return Estimate(squared=dict.fromkeys(oracle.names, 1e9))

    flat: Any = Flat()
    sensed = sense_nodes(oracle, everything, 1.0, 60, lambda _, __: None, flat)
    assert sensed.estimated == 0
    assert np.isfinite(sensed.squared).all()
    assert sensed.squared.max() < 1e6
