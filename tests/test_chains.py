"""Chains of pointwise nodes: the same numbers as node by node, no chain that waits for itself, other shapes, thin positions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.backends import _operators
from parityscope.backends.sizing import tensor_shapes
from parityscope.case import Sample, load_model
from parityscope.forecast import joining, programs
from parityscope.forecast._pointwise import _lies_under
from parityscope.forecast._rows import Crew
from parityscope.forecast.tallies import Tally
from parityscope.forecast.together import opened
from parityscope.records import Target
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.forecast import Predicted, Range
    from parityscope.forecast.together import Pair

pytestmark = pytest.mark.skipif(not _operators.library(), reason="no compiled operators on this machine")

# Every node that a chain computes, with constants of every shape on either side; what leaves a chain and comes back to it.
NETWORK = """<ir_version: 9, opset_import: ["": 19]> g (float[1,8,H,W] x) => (float[1,8,H,W] y, float[1,8,H,W] z) {
    a = Neg(x)  b = Add(a, one)  c = Sub(one, b)  d = Mul(channels, c)  e = Div(d, columns)  f = Relu(e)
    g = Clip(f, zero, six)  h = Clip(g, zero)  i = Clip(h, , six)  j = BatchNormalization(i, s, t, m, v)
    pooled = GlobalAveragePool(j)  gate = HardSigmoid(pooled)  k = Mul(j, gate)  l = Add(k, b)  n = Sub(l, channels)
    p = Div(one, n)  q = Div(n, f)  moved = Transpose<perm=[0,1,3,2]>(q)  back = Transpose<perm=[0,1,3,2]>(moved)
    r = Mul(back, e)  u = Sub(r, p)  y = Mul(u, u)  z = Add(q, columns) }"""


def weights(width: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    held = {name: generator.normal(size=8).astype(np.float32) for name in "stm"}
    return {
        **held,
        "v": generator.random(8).astype(np.float32),
        "one": np.float32(1.1),
        "zero": np.float32(0),
        "six": np.float32(6),
        "channels": generator.normal(size=(8, 1, 1)).astype(np.float32),
        "columns": generator.normal(size=(1, 1, 1, width)).astype(np.float32),
    }


def pair(model: Model, precision: str, x: np.ndarray) -> Pair:
    sample = Sample(index=0, name="", arrays={"x": x})
    names = list(model.sites)
    found = opened(
        model,
        Target(backend="sim", precision=precision),
        names,
        tensor_shapes(model, sample, names),
        introduced=True,
    )
    assert found is not None
    return found


def measured(
    model: Model, held: Pair, samples: Sequence[np.ndarray]
) -> tuple[Mapping[str, Predicted], Mapping[str, Range]]:
    tally = Tally(model.sites, ranged=True)
    with Crew.of(1) as crew:
        for x in samples:
            held.add({"x": x}, tally, crew)
    assert not tally.problems
    return tally.predicted(frozenset()), tally.ranges()


def both_ways(
    model: Model, precision: str, samples: Sequence[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> tuple[Pair, Pair]:
    """Measures with and without chains, and compares every number."""
    chained = pair(model, precision, samples[0])
    assert chained.moving.joined.alive
    with monkeypatch.context() as patch:
        patch.setattr(joining, "chain", lambda *_arguments: [])
        apart = pair(model, precision, samples[0])
    found, ranges = measured(model, chained, samples)
    expected, other_ranges = measured(model, apart, samples)
    assert ranges == other_ranges
    for name, one in found.items():
        other = expected[name]
        # All is the same to the bit but for sums of float64, which are added up in other stretches.
        assert one.introduced == pytest.approx(other.introduced, rel=1e-12, nan_ok=True), name
        assert one.inherited == pytest.approx(other.inherited, rel=1e-12, nan_ok=True), name
        assert one.rel_l2_finite == pytest.approx(other.rel_l2_finite, rel=1e-12), name
        numbers = {"introduced": 0.0, "inherited": 0.0, "rel_l2": 0.0, "rel_l2_finite": 0.0, "per_sample": ()}
        assert replace(one, **numbers) == replace(other, **numbers), name
    return chained, apart


@pytest.mark.parametrize("precision", ["f16", "bf16", "tf32", "f8e4m3"])
@pytest.mark.parametrize("side", [(3, 5), (40, 64)])  # one part of less than a block, and several parts
def test_a_chain_measures_what_nodes_do_one_by_one(
    precision: str, side: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(write_network(tmp_path / "model.onnx", NETWORK, weights(side[1])))
    x = np.random.default_rng(1).normal(size=(1, 8, *side)).astype(np.float32)
    broken = x.copy()
    # Zeros that are divided by, of both signs; what overflows; what is not finite.
    broken.reshape(-1)[[1, 2, 7, 11, 30, 50]] = [1.1, -1.1, np.inf, np.nan, 3e38, -0.0]
    both_ways(model, precision, [x, broken], monkeypatch)


def test_samples_of_other_sizes_take_the_same_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[n,m] x) => (float[n,m] y) {
        a = Neg(x)  top = ReduceMax(a, axis)  b = Sub(a, top)  y = Mul(b, b) }"""
    model = load_model(write_network(tmp_path / "model.onnx", text, {"axis": np.int64([0])}))
    generator = np.random.default_rng(2)
    samples = [generator.normal(size=(rows, 6)).astype(np.float32) for rows in (2, 1, 30)]
    chained, _ = both_ways(model, "f16", samples, monkeypatch)
    assert chained.unchained is not None  # it was not asked for


def test_a_shape_that_a_chain_cannot_take_is_measured_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `main` has the shape of the sum on the first sample, and is spread over it on the second.
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[n,m] x) => (float[n,m] y) {
        head = Slice(x, start, stop, axis)  main = Exp(head)  rest = Exp(x)  d = Add(main, rest)  y = Mul(d, d) }"""
    held = {"start": np.int64([0]), "stop": np.int64([1]), "axis": np.int64([0])}
    model = load_model(write_network(tmp_path / "model.onnx", text, held))
    generator = np.random.default_rng(2)
    samples = [generator.normal(size=(rows, 6)).astype(np.float32) for rows in (1, 4)]
    chained, _ = both_ways(model, "f16", samples, monkeypatch)
    assert chained.unchained is None  # it was asked for, and is used from then on


def test_results_beyond_the_places_of_a_chain_go_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All of v0 ... v9 are needed at the end, more than there are places.
    count = programs.SLOTS + 4
    grown = " ".join(f"v{at + 1} = Add(v{at}, one)" for at in range(count))
    summed = " ".join(f"s{at + 1} = Mul(s{at}, v{at})" for at in range(count))
    text = f"""<ir_version: 9, opset_import: ["": 19]> g (float[n] x) => (float[n] y) {{
        v0 = Neg(x) {grown} s0 = Add(v0, one) {summed} y = Neg(s{count}) }}"""
    model = load_model(write_network(tmp_path / "model.onnx", text, {"one": np.float32(0.1)}))
    x = np.random.default_rng(1).random(30_000).astype(np.float32)
    both_ways(model, "bf16", [x], monkeypatch)


def test_chains_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a2 joins the chain of a1 and then waits for that of b1; b2 must not join that one, as it waits for a1.
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[n] x) => (float[n] y) {
        a = Neg(x)  a1 = Add(a, one)  b = Abs(x)  b1 = Add(b, one)  ea = ReduceMax(a1)  eb = ReduceMax(b1)
        a2 = Add(a1, eb)  b2 = Add(b1, ea)  y = Mul(a2, b2) }"""
    model = load_model(write_network(tmp_path / "model.onnx", text, {"one": np.float32(0.1)}))
    both_ways(model, "f16", [np.random.default_rng(1).normal(size=100).astype(np.float32)], monkeypatch)


@pytest.mark.parametrize(
    ("own", "whole", "lies"),
    [
        ((8, 1, 1), (1, 8, 4, 5), True),
        ((), (1, 8, 4, 5), True),
        ((8, 4, 1), (1, 8, 4, 5), True),
        ((8, 1, 5), (1, 8, 4, 5), False),  # along two axes with one between
        ((2, 8, 1, 1), (1, 8, 4, 5), False),
        ((1, 1, 8, 4, 5), (1, 8, 4, 5), False),
    ],
)
def test_what_is_spread_along_one_run_of_axes_is_taken(
    own: tuple[int, ...], whole: tuple[int, ...], lies: bool
) -> None:
    assert _lies_under(own, whole) is lies


def test_thin_positions_of_products_give_the_norm_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[2,900,64] x) => (float[1800,48] y) {
        o = Neg(x)  a = MatMul(o, w)  b = Reshape(a, rows)  y = Gemm(b, v, u) }"""
    generator = np.random.default_rng(4)
    held = {
        name: generator.normal(size=shape).astype(np.float32) for name, shape in {"w": (64, 64), "v": (64, 48)}.items()
    }
    held |= {"u": generator.normal(size=48).astype(np.float32), "rows": np.int64([1800, 64])}
    model = load_model(write_network(tmp_path / "model.onnx", text, held))
    x = generator.normal(size=(2, 900, 64)).astype(np.float32)
    thinned = pair(model, "bf16", x)
    assert thinned.moving.joined.thin == ("a", "y")
    monkeypatch.setattr("parityscope.forecast._watching.thinning", lambda *_arguments: None)
    whole = pair(model, "bf16", x)
    assert not whole.moving.joined.thin
    found, _ = measured(model, thinned, [x])
    expected, _ = measured(model, whole, [x])
    for name in "ay":
        # From 2 x 128 and 257 rows of 64 and 48 numbers, of which the rows alone are independent: 1/sqrt(2 * 256) at one sigma.
        assert found[name].introduced == pytest.approx(expected[name].introduced, rel=0.1), name
        assert found[name].rel_l2 == expected[name].rel_l2
