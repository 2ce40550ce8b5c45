"""Switchable graphs against the simulation (all low), the plain model (none low) and numpy (any assignment)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic import FORMATS, round_to
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.arithmetic.switchable import make_switchable
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import Sample
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.evaluation.simulating import open_simulation
from parityscope.evaluation.switching import Switchboard
from parityscope.testing.networks import parse_network
from proving.models.fetching import require

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_WEIGHTS: Mapping[str, Any] = MappingProxyType({})
GENERATOR = np.random.default_rng(7)


def parse(text: str, weights: Mapping[str, Any] = _NO_WEIGHTS) -> ir.Model:
    return ir.from_proto(parse_network('<ir_version: 9, opset_import: ["": 19]>' + text, weights))


def sample(feeds: Mapping[str, Any]) -> Sample:
    return Sample(index=0, name="", arrays={name: np.asarray(array) for name, array in feeds.items()}, original=None)


def plain(model: ir.Model, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return open_session(model, optimization="disabled", threads=1)({k: np.asarray(v) for k, v in feeds.items()})


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


# name -> (graph, weights, inputs)
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "convolutions": (
        """g (float[1,3,8,8] x) => (float[1,8] y) {
            a = Conv<pads=[1,1,1,1]>(x, w, b)  n = BatchNormalization(a, s, h, m, v)  r = Relu(n)
            d = Conv<pads=[1,1,1,1]>(r, w2)  e = Add(d, r)  c = Clip(e, low, high)  j = Concat<axis=1>(c, x)
            p = GlobalAveragePool(j)  f = Flatten(p)  y = Gemm(f, g1, g2) }""",
        {
            "w": normal(4, 3, 3, 3),
            "b": normal(4),
            "s": normal(4),
            "h": normal(4),
            "m": normal(4),
            "v": np.abs(normal(4)) + 1,
            "w2": normal(4, 4, 3, 3),
            "low": np.float32(-1.2345),
            "high": np.float32(2.34567),
            "g1": normal(7, 8),
            "g2": normal(8),
        },
        {"x": normal(1, 3, 8, 8)},
    ),
    "transformer": (
        """g (int64[5] ids) => (float[5,6] y, int64[5] best) {
            e = Gather(table, ids)  n = LayerNormalization(e, one, zero)  q = MatMul(n, wq)  k = MatMul(n, wk)
            t = Transpose<perm=[1,0]>(k)  s = MatMul(q, t)  p = Softmax(s)  v = MatMul(p, e)  y = Add(v, e)
            best = ArgMax<axis=1, keepdims=0>(y) }""",
        {
            "table": normal(10, 6),
            "one": normal(6),
            "zero": normal(6),
            "wq": normal(6, 6),
            "wk": normal(6, 6),
        },
        {"ids": np.array([1, 2, 3, 9, 0])},
    ),
    "inputs compared and moved": (
        """g (float[n] x, float[n] z) => (float[n] y, float[n] moved, bool[n] b) {
            b = Greater(x, third)  w = Where(b, x, z)  t = Mul(w, x)  y = Max(t, third)  moved = Neg(z) }""",
        {"third": np.float32(1 / 3)},
        {"x": normal(50), "z": normal(50)},
    ),
    "a branch": (
        """g (float[n] x, bool c) => (float[n] y) {
            s = Exp(x)
            i = If (c) <then_branch = t () => (float[n] a) { u = Mul(s, third) a = Add(u, x) },
                        else_branch = e () => (float[n] o) { o = Sqrt(s) }>
            y = Mul(i, s) }""",
        {"third": np.float32([1 / 3])},
        {"x": normal(30), "c": True},
    ),
    "a loop and a scan": (
        """g (int64 m, float[k] x) => (float[k] y, float[q, k] all, float[q, k] sums) {
            go = Constant<value = bool {1}>()
            y, all = Loop (m, go, x) <body = b (int64 i, bool ci, float[k] s) => (bool co, float[k] t, float[k] u) {
                co = Identity(ci)  t = Mul(s, factor)  u = Add(t, x) }>
            total, sums = Scan <num_scan_inputs = 1,
                body = d (float[k] before, float[k] row) => (float[k] after, float[k] out) {
                    after = Add(before, row) out = Identity(after) }> (x, all) }""",
        {"factor": np.float32([1.0101])},
        {"m": np.array(4), "x": normal(9)},
    ),
    "two names for one": (
        "g (float[n] x) => (float[n] a, float[n] b) { a = Exp(x) b = Identity(a) }",
        {},
        {"x": normal(20)},
    ),
    "scales that are computed": (
        """g (float[1,1,4,4] x, float[4] f) => (float[1,1,a,b] y) {
            s = Mul(f, third)  r = Resize<mode="nearest">(x, , s)  w = Add(s, s)  q = ReduceMax<keepdims=0>(w)
            y = Mul(r, q) }""",
        {"third": np.float32([1, 1, 2 / 3, 2 / 3])},
        {"x": normal(1, 1, 4, 4), "f": np.float32([1, 1, 3, 3])},
    ),
    "already float16 in part": (
        """g (float[n] x) => (float[n] y) {
            e = Exp(x)  low = Cast<to=10>(e)  s = Mul(low, low)  up = Cast<to=1>(s)  y = Mul(up, e) }""",
        {},
        {"x": normal(40)},
    ),
    "nothing to round": (
        "g (int64[n] x) => (int64[n] y) { y = Add(x, x) }",
        {},
        {"x": np.arange(4)},
    ),
}


@pytest.mark.parametrize("precision", ["f16", "bf16", "tf32", "f8e4m3"])
@pytest.mark.parametrize("name", MODELS)
def test_the_ends_are_the_plain_model_and_the_simulation(name: str, precision: str) -> None:
    text, weights, feeds = MODELS[name]
    board = Switchboard(parse(text, weights), precision, threads=1)
    count = len(board.graph.nodes)
    off = board.run(sample(feeds), np.zeros(count, np.bool_))
    on = board.run(sample(feeds), np.ones(count, np.bool_))
    unrounded = open_simulation(arrange_precision(parse(text, weights), None), threads=1)(feeds)
    simulated = open_simulation(arrange_precision(parse(text, weights), precision), threads=1)(feeds)
    for output, array in off.items():
        np.testing.assert_array_equal(array, unrounded[output], err_msg=output)
        np.testing.assert_array_equal(on[output], simulated[output], err_msg=output)
    assert count or name == "nothing to round" or precision == "tf32"


def test_products_are_what_tf32_switches() -> None:
    text, weights, _ = MODELS["convolutions"]
    graph = make_switchable(parse(text, weights), "tf32")
    assert [node.op_type for node in graph.nodes] == ["Conv", "Conv", "Gemm"]


def test_operators_that_move_numbers_follow_and_are_no_nodes_of_their_own() -> None:
    text, weights, _ = MODELS["convolutions"]
    kinds = [node.op_type for node in make_switchable(parse(text, weights), "f16").nodes]
    assert kinds == ["Conv", "BatchNormalization", "Conv", "Add", "GlobalAveragePool", "Gemm"]


CHAIN = (
    "g (float[n] x) => (float[n] y, float[n] a, float[n] b) { a = Mul(x, u) k = Neg(a) b = Mul(k, v) y = Mul(b, k) }"
)


@pytest.mark.parametrize("precision", ["f16", "bf16", "f8e5m2"])
def test_what_each_node_reads_and_stores(precision: str) -> None:
    # One product of FP32 numbers is correctly rounded in numpy and in ONNX Runtime, so every bit is determined.
    x, u, v = normal(200), normal(200), normal(200)
    weights = {"u": u, "v": v}
    board = Switchboard(parse(CHAIN, weights), precision)
    names = [node.name for node in board.graph.nodes]
    assert [node.tensor for node in board.graph.nodes] == ["a", "b", "y"]

    def low(array: np.ndarray) -> np.ndarray:
        return round_to(array, FORMATS[precision])

    first = board.run(sample({"x": x}), {names[0]})
    a = low(low(x) * low(u))
    np.testing.assert_array_equal(first["a"], a)
    np.testing.assert_array_equal(first["b"], -a * v)  # reads what is stored, its weight is exact
    second = board.run(sample({"x": x}), {names[1]})
    np.testing.assert_array_equal(second["a"], x * u)
    np.testing.assert_array_equal(second["b"], low(low(-(x * u)) * low(v)))
    np.testing.assert_array_equal(second["y"], second["b"] * -(x * u))  # the other reader of k sees it unrounded
    both = board.run(sample({"x": x}), {names[0], names[2]})
    np.testing.assert_array_equal(both["b"], -a * v)
    np.testing.assert_array_equal(both["y"], low(low(-a * v) * -a))


_TERMS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["Mul", "Add", "Concat"])), min_size=1, max_size=9
)


@settings(deadline=None, max_examples=25)
@given(terms=_TERMS, seed=st.integers(0, 2**16))
def test_any_assignment_of_any_graph_is_what_the_definition_says(terms: list[tuple[int, int, str]], seed: int) -> None:
    """A graph of sums, products and concatenations (cut back to their length) against the definition in numpy."""
    generator = np.random.default_rng(seed)
    x, w = generator.normal(size=(2, 6)).astype(np.float32)
    lines, values = [], ["x", "w"]
    for number, (one, two, op_type) in enumerate(terms):
        first, second = values[one % len(values)], values[two % len(values)]
        if op_type == "Concat":
            lines.append(f"c{number} = Concat<axis=0>({first}, {second})  v{number} = Slice(c{number}, from, to)")
        else:
            lines.append(f"v{number} = {op_type}({first}, {second})")
        values.append(f"v{number}")
    outputs = ", ".join(f"float[q{number}] {name}" for number, name in enumerate(values[2:]))
    model = parse(
        f"g (float[6] x) => ({outputs}) {{ {' '.join(lines)} }}",
        {"w": w, "from": np.array([3]), "to": np.array([9])},
    )
    board = Switchboard(model, "f16")
    low = generator.random(len(board.graph.nodes)) < 0.5
    chosen = {node.tensor for node, is_low in zip(board.graph.nodes, low, strict=True) if is_low}
    deciding = {node.tensor for node in board.graph.nodes}

    def rounded(array: np.ndarray) -> np.ndarray:
        return round_to(array, FORMATS["f16"])

    known = {"x": x, "w": w}
    makers: dict[str, frozenset[str]] = {"x": frozenset(), "w": frozenset()}
    for number, (one, two, op_type) in enumerate(terms):
        names = [values[one % (number + 2)], values[two % (number + 2)]]
        arrays = [known[name] for name in names]
        own = f"c{number}" if op_type == "Concat" else f"v{number}"
        makers[f"v{number}"] = frozenset({own}) if own in deciding else frozenset().union(*(makers[n] for n in names))
        is_low = bool(makers[f"v{number}"]) and makers[f"v{number}"] <= chosen
        if is_low:
            arrays = [rounded(array) for array in arrays]
        if op_type == "Concat":
            known[f"v{number}"] = np.concatenate(arrays)[3:9]
        else:
            result = arrays[0] * arrays[1] if op_type == "Mul" else arrays[0] + arrays[1]
            known[f"v{number}"] = rounded(result) if is_low else result
    for name, array in board.run(sample({"x": x}), low).items():
        np.testing.assert_array_equal(array, known[name], err_msg=name)


def test_weights_beyond_the_range_follow_the_switch() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Mul(x, big) y = Mul(a, small) }"
    weights = {"big": np.float32([1e6]), "small": np.float32([1e-6])}
    feeds = {"x": np.float32([0.5])}
    board = Switchboard(parse(text, weights), "f16")
    a, y = (node.name for node in board.graph.nodes)
    assert board.run(sample(feeds), {a})["y"] == [np.inf]
    # 5e5 is beyond FP16 as what a low node reads.
    assert board.run(sample(feeds), {y})["y"] == [np.inf]
    assert board.run(sample(feeds), set())["y"] == [np.float32(1e6) * np.float32(0.5) * np.float32(1e-6)]
    saturated = Switchboard(parse(text, weights), "f16", overflow="saturate")
    assert saturated.run(sample(feeds), {a})["y"] == [np.float32(32752) * np.float32(1e-6)]
    unbounded = Switchboard(parse(text, weights), "f16", bounded=False)
    assert np.isfinite(unbounded.run(sample(feeds), {a, y})["y"]).all()


def test_an_unknown_node_and_a_wrong_assignment_are_refused() -> None:
    board = Switchboard(parse(CHAIN, {"u": normal(3), "v": normal(3)}), "f16")
    with pytest.raises(ParityError, match="'Neg#1' is no node that can be rounded"):
        board.run(sample({"x": normal(3)}), {"Neg#1"})
    with pytest.raises(ValueError, match="3 booleans"):
        board.run(sample({"x": normal(3)}), np.zeros(2, np.bool_))
    with pytest.raises(ParityError, match="f32 cannot be simulated"):
        make_switchable(parse(CHAIN), "f32")


def test_names_that_several_nodes_have_are_told_apart() -> None:
    model = parse("g (float[n] x) => (float[n] y) { a = Exp(x) y = Sqrt(a) }")
    for node in model.graph:
        node.name = "same"
    assert [node.name for node in make_switchable(model, "f16").nodes] == ["same", "same#1"]


@pytest.mark.model
def test_the_recogniser_is_exact_at_both_ends() -> None:
    path = require("ocr-rec")
    feeds = {"x": np.random.default_rng(1).uniform(-1, 1, (1, 3, 48, 96)).astype(np.float32)}
    board = Switchboard(read_graph(path), "f16", threads=1)
    count = len(board.graph.nodes)
    for low, precision in ((False, None), (True, "f16")):
        for name, array in open_simulation(arrange_precision(read_graph(path), precision), threads=1)(feeds).items():
            found = board.run(sample(feeds), np.full(count, low))[name]
            np.testing.assert_array_equal(found, array)
