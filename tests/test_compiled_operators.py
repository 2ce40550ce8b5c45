"""Operators of our own inside sessions: every rounding bit for bit, what a joined graph measures, and the way without them."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic import FORMATS, round_to
from parityscope.arithmetic._graphs import Names
from parityscope.arithmetic.primitives import DOMAIN, Rewriting, rounding_nodes
from parityscope.arithmetic.simulation import simulate
from parityscope.backends import _operators
from parityscope.backends._onnxruntime import open_session
from parityscope.backends._operators._stub import SLOT, SYMBOL, stub
from parityscope.backends.switching import Switchboard
from parityscope.case import Sample, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.forecast import Settings, forecast, lockstep
from parityscope.forecast._thinning import thinning
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.forecast import FormatForecast

pytestmark = pytest.mark.skipif(not _operators.library(), reason="no compiled operators on this machine")
ROUNDED = ("tf32", "f16", "bf16", "f8e4m3", "f8e5m2")


def rounding(name: str, overflow: Any, *, compiled: bool = True) -> Any:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n"]))
    graph = ir.Graph([value], [], nodes=[], opset_imports={"": 21}, name="g")
    model = ir.Model(graph, ir_version=9)
    work = Rewriting(model=model, names=Names(model), overflow=overflow, compiled=compiled)
    nodes = rounding_nodes(value, FORMATS[name], "y", work)
    graph.extend(nodes)
    graph.outputs.append(nodes[-1].outputs[0])
    run = open_session(model)
    return lambda array: run({"x": array})["y"]


@pytest.fixture(scope="module", params=ROUNDED)
def rounder(request: pytest.FixtureRequest) -> tuple[str, Any]:
    return request.param, rounding(request.param, "infinity")


def breaks(name: str) -> np.ndarray:
    """Where rounding to a format changes: between rounding's steps it is constant, because it is monotonic.

    All magnitudes of the format, the midpoints between neighbours, and the float32 numbers on either side of both. Steps of
    TF32 and bfloat16 are taken at every exponent for some thousands of significands, of the others all.
    """
    held = FORMATS[name]
    significands = np.arange(2 ** (held.precision - 1), 2**held.precision, dtype=np.float64)
    if held.precision > 10:
        significands = significands[:: 1 if name == "f16" else 37]
    exponents = np.arange(max(held.emin, -126) - held.precision + 1, held.emax - held.precision + 2)
    normal = (significands[:, None] * 2.0 ** exponents[None]).ravel()
    subnormal = np.arange(2**held.precision) * held.smallest_subnormal
    numbers = np.unique(np.concatenate([normal, subnormal, [held.largest]]))
    middles = np.append((numbers[1:] + numbers[:-1]) / 2, held.largest * (1 + held.unit_roundoff / 2))
    with np.errstate(over="ignore"):
        found = np.concatenate([numbers, middles]).astype(np.float32)
        found = np.concatenate([found, np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(0))])
    special = np.array([np.inf, np.nan, 0, 1e-45, 1e-40, 3e38], np.float32)
    found = np.concatenate([found, special])
    return np.concatenate([found, -found])


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def test_every_step_of_every_format_is_where_it_belongs(rounder: tuple[str, Any]) -> None:
    name, run = rounder
    numbers = breaks(name)
    agree(run(numbers), round_to(numbers, FORMATS[name]))


@settings(deadline=None, max_examples=60)
@given(bits=st.lists(st.integers(0, 2**32 - 1), max_size=70))
def test_any_bits_are_rounded_as_in_numpy(rounder: tuple[str, Any], bits: list[int]) -> None:
    name, run = rounder
    numbers = np.array(bits, np.uint32).view(np.float32)
    agree(run(numbers), round_to(numbers, FORMATS[name]))


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2"])
def test_saturation_is_that_of_cast(name: str) -> None:
    numbers = np.float32([447, 449, 465, 1e4, 57345, 61441, 1e30, np.inf, -np.inf, np.nan])
    agree(rounding(name, "saturate")(numbers), rounding(name, "saturate", compiled=False)(numbers))


@pytest.mark.parametrize("count", [0, 1, 65_535, 65_536, 100_003, 1_500_001])
def test_stretches_of_several_threads_leave_nothing_out(count: int) -> None:
    numbers = np.random.default_rng(count).normal(size=count).astype(np.float32)
    agree(rounding("bf16", "infinity")(numbers), round_to(numbers, FORMATS["bf16"]))


def test_the_library_leads_where_its_slot_says(tmp_path: Path) -> None:
    path = tmp_path / "stub.so"
    path.write_bytes(stub())
    loaded = ctypes.CDLL(str(path))
    answer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(lambda one, other: one + other)
    ctypes.c_uint64.in_dll(loaded, SLOT.decode()).value = ctypes.cast(answer, ctypes.c_void_p).value or 0
    entry = getattr(loaded, SYMBOL.decode())
    entry.restype, entry.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
    assert entry(40, 2) == 42


def network(folder: Path) -> Path:
    """Convolutions large enough to be thinned, what only moves numbers, constants that are computed, integers."""
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[1,3,H,W] x) => (float[1,8,P,Q] y, int64[1] best) {
        a = Conv<pads=[1,1,1,1]>(x, w)  b = Relu(a)  c = Clip(b, zero, six)  d = Add(c, bias)
        s = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)  e = Conv<group=8>(s, v)  f = Mul(scale, twice)
        g = Mul(e, f)  flat = Reshape(g, all)  row = Unsqueeze(flat, axes)  best = ArgMax<keepdims=0, axis=1>(row)
        k = Sum(g, g)  t = Transpose<perm=[0,1,3,2]>(k)  u = Transpose<perm=[0,1,3,2]>(t)  y = Sigmoid(u) }"""
    generator = np.random.default_rng(1)
    weights: Mapping[str, np.ndarray] = {
        "w": generator.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": generator.normal(size=(8, 1, 1, 1)).astype(np.float32),
        "bias": generator.normal(size=(8, 1, 1)).astype(np.float32),
        "zero": np.float32(0),
        "six": np.float32(6),
        "scale": np.float32(0.37),
        "twice": np.float32(1.9),
        "all": np.int64([-1]),
        "axes": np.int64([0]),
    }
    return write_network(folder / "model.onnx", text, weights)


def both_ways(folder: Path, precision: str, monkeypatch: pytest.MonkeyPatch) -> tuple[FormatForecast, FormatForecast]:
    """The forecast of two samples of different sizes, joined and apart."""
    (folder / "samples").mkdir()
    for number, side in enumerate((96, 128)):
        x = np.random.default_rng(number).normal(size=(1, 3, side, side)).astype(np.float32)
        x[0, 0, 5, 7] = 1e5 if number else 0
        write_npz(folder / "samples" / f"{number:06d}.npz", {"x": x})
    model = load_model(network(folder))
    inputs = load_inputs(model, str(folder / "samples"), spool=folder / "spool")
    joined = forecast(model, inputs, [precision], Settings())
    monkeypatch.setattr(lockstep, "opened", lambda *_arguments, **_options: None)
    apart = forecast(model, inputs, [precision], Settings())
    for one, other in zip(joined.ranges, apart.ranges, strict=True):
        assert (one.site, one.elements, one.nonfinite) == (other.site, other.elements, other.nonfinite)
        assert one.largest == pytest.approx(other.largest, rel=1e-5)
    return joined.formats[0], apart.formats[0]


@pytest.mark.parametrize("precision", ["f16", "bf16", "tf32"])
def test_a_joined_graph_measures_what_sessions_of_their_own_do(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, apart = both_ways(tmp_path, precision, monkeypatch)
    assert [one.site for one in joined.layers] == [one.site for one in apart.layers]
    for one, other in zip(joined.layers, apart.layers, strict=True):
        assert (one.elements, one.nonfinite, one.exact) == (other.elements, other.nonfinite, other.exact), one.site
        # Reference and simulation are FP32 sums in other orders: 2^-24 of a sum of 27 products each.
        assert one.rel_l2 == pytest.approx(other.rel_l2, rel=1e-3, abs=1e-6), one.site
        assert one.per_sample == pytest.approx(other.per_sample, rel=1e-3, abs=1e-6)
        assert one.introduced is not None
        assert other.introduced is not None
        # Convolutions are computed again at some thousands of positions: each norm is a draw.
        again = 0.1 if one.site.op_type == "Conv" else 1e-3
        assert one.introduced == pytest.approx(other.introduced, rel=again, abs=1e-6), one.site
        assert one.inherited == pytest.approx(other.inherited, rel=again, abs=2e-6), one.site
    for one, other in zip(joined.outputs, apart.outputs, strict=True):
        assert one.rel_l2 == pytest.approx(other.rel_l2, rel=1e-3)


def test_convolutions_and_products_are_thinned_where_enough_is_left() -> None:
    def node(op_type: str, weights: tuple[int, ...], **attributes: Any) -> ir.Node:
        held = ir.Value(name="w", const_value=ir.tensor(np.zeros(weights, np.float32)))
        graph = ir.Graph([], [], nodes=[], initializers=[held], name="g")
        made = ir.node(op_type, [ir.Value(name="x"), held], attributes=attributes)
        graph.append(made)
        return made

    found = thinning(node("Conv", (64, 3, 3, 3)), (1, 64, 100, 30), 13)
    assert found is not None
    # Every fifth of 100 x 30 leaves 20 x 6 positions; every seventh would leave 14 x 4, which are fewer than 96.
    assert (found.axes, found.step) == ((2, 3), 5)
    small = thinning(node("Conv", (384, 384, 1, 1)), (1, 384, 12, 24), 13)
    assert small is not None
    # Every third along both axes would leave 4 x 8 positions; along the last alone 12 x 8.
    assert (small.axes, small.step) == ((3,), 3)
    assert thinning(node("Conv", (64, 3, 3, 3), auto_pad="SAME_UPPER"), (1, 64, 100, 100), 13) is None
    assert thinning(node("Conv", (64, 3, 3, 3)), (1, 64, 100, 100), 9) is None  # Slice has no steps before opset 10
    assert thinning(node("Conv", (64, 3, 3, 3)), (1, 64, 8, 8), 13) is None
    rows = thinning(node("MatMul", (64, 256)), (2, 900, 256), 13)
    assert rows is not None
    assert (rows.axes, rows.step) == ((1,), 7)
    assert thinning(node("Gemm", (64, 256), transA=1), (900, 256), 13) is None


def test_without_the_library_graphs_are_the_standards_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = network(tmp_path)
    model = load_model(path)
    sample = Sample(
        index=0, name="", arrays={"x": np.random.default_rng(2).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    )

    def runs() -> tuple[np.ndarray, np.ndarray]:
        board = Switchboard(model.graph(), "bf16")
        low = np.ones(len(board.graph.nodes), np.bool_)
        return board.run(sample, low)["y"], board.run(sample, ~low)["y"]

    compiled = runs()
    monkeypatch.setattr("parityscope.backends.switching.library", lambda: "")
    standard = runs()
    assert all(np.array_equal(one, other) for one, other in zip(compiled, standard, strict=True))
    assert DOMAIN not in simulate(model.graph(), "bf16").model.opset_imports
    assert DOMAIN in simulate(model.graph(), "bf16", compiled=True).model.opset_imports


def test_overflow_and_nan_are_counted_in_a_joined_graph(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[n] x) => (float[n] y) {
        a = Mul(x, x)  b = Sub(a, a)  y = Neg(b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    x = np.ones(100_000, np.float32)
    x[[70_000, 90_000]] = 300  # 90,000 is infinite in FP16, and infinity less infinity is none
    write_npz(tmp_path / "x.npz", {"x": x})
    model = load_model(tmp_path / "model.onnx")
    found = forecast(model, load_inputs(model, str(tmp_path / "x.npz"), spool=tmp_path / "spool"), ["f16"])
    layers = {layer.site.tensor: layer for layer in found.formats[0].layers}
    assert [layers[name].nonfinite for name in "aby"] == [2, 2, 2]
    assert layers["a"].worst_index == (70_000,)
    assert layers["a"].introduced == math.inf
    assert layers["y"].introduced == 0
    assert layers["y"].inherited == math.inf
