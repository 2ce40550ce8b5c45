"""FP8 in the search: scales, what is simulated and what is written, labels in one cut, from the command line to a plan."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from command_line import exit_status
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.float8 import IN_FP8, OperandScaling, quantize_and_back, scalings_of
from parityscope.arithmetic.typed import typed_model
from parityscope.arithmetic.typed.lifting import float32_copy
from parityscope.arithmetic.typed.tensorrt import tensorrt_concerns
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_inputs, load_model
from parityscope.case.inputs import Sample
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.repairs.search.costs import H200
from parityscope.repairs.search.cut import cheapest_assignment
from parityscope.repairs.search.fp8 import scales_said, scales_taken, with_products
from parityscope.repairs.search.labels import labels_of
from parityscope.repairs.search.network import network_of, price_assignment
from simulated import detype, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.arithmetic.float8 import Scalings

NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 32] x) => (float[4, 16] y) {
  a = MatMul(x, w0)
  b = Relu(a)
  c = MatMul(b, w1)
  d = Add(c, b)
  e = Softmax(d)
  y = Gemm<transB=1>(e, w2, k)
}"""
SHAPES = {"x": (4, 32), "b": (4, 32), "e": (4, 32)}
LARGEST = {"x": 12.0, "b": 20.0, "e": 1.0}


def network(text: str = NETWORK) -> ir.Model:
    random = np.random.default_rng(5)
    proto = onnx.parser.parse_model(text)
    for name, shape in (("w0", (32, 32)), ("w1", (32, 32)), ("w2", (16, 32)), ("k", (16,))):
        # Channels of different sizes, so that one scale for all of them would not do.
        array = random.standard_normal(shape) * random.uniform(0.1, 3, shape[-1])
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    for node in proto.graph.node:
        node.name = node.output[0]
    return ir.from_proto(proto)


def products() -> dict[str, Scalings]:
    model = network()
    infer_types(model)
    return scalings_of(model, LARGEST, SHAPES)


def numbers() -> np.ndarray:
    return (np.random.default_rng(6).standard_normal((4, 32)) * 3).astype(np.float32)


def test_which_products_and_with_which_scales() -> None:
    """12 / 448 lies between 2^-6 and 2^-5, 20 / 448 between 2^-5 and 2^-4, 1 / 448 between 2^-9 and 2^-8."""
    found = products()
    assert set(found) == {"a", "c", "y"}
    assert [float(found[name][0].scale) for name in ("a", "c", "y")] == [2.0**-5, 2.0**-4, 2.0**-8]
    held = network()
    for name, axis in (("a", 1), ("y", 0)):  # the channels that come out: columns, and rows of what is transposed
        node = next(node for node in held.graph if node.name == name)
        weights = node.inputs[1]
        assert weights is not None
        assert weights.const_value is not None
        array, scaling = weights.const_value.numpy(), found[name][1]
        assert scaling.axis == axis
        size = np.abs(array).max(axis=1 - axis)
        assert (size <= 448 * scaling.scale).all()
        assert (size > 224 * scaling.scale).all()


def test_products_that_kernels_do_not_take() -> None:
    odd = NETWORK.replace("float[4, 32] x", "float[4, 31] x")
    model = network(odd)
    infer_types(model)
    assert "a" not in scalings_of(model, LARGEST, {**SHAPES, "x": (4, 31)})
    assert "a" not in scalings_of(model, {"b": 1.0, "e": 1.0}, SHAPES)  # nobody saw its operand


@given(array=hnp.arrays(np.float32, (3, 5), elements=st.floats(-1e4, 1e4, width=32)), exponent=st.integers(-14, 7))
@settings(max_examples=60, deadline=None)
def test_dequantized_is_a_cast_of_ml_dtypes(array: np.ndarray, exponent: int) -> None:
    """Beyond 448 scales it saturates; ml_dtypes itself gives NaN there."""
    scale = np.float32(2.0**exponent)
    expected = np.clip(array / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    assert np.array_equal(quantize_and_back(array, OperandScaling(scale=np.array(scale))), expected)


@pytest.mark.parametrize("low", ["f16", "bf16", "f32"])
def test_what_is_written_is_what_the_switchable_graph_predicts(low: str) -> None:
    """Every seventh assignment of eight decisions, bit for bit; the written model is valid and of the tables' types."""
    held, x = products(), numbers()
    board = Switchboard(network(), low, products=held)
    names = [node.name for node in board.graph.nodes]
    assert {name for name in names if name.endswith(IN_FP8)} == {f"{name}{IN_FP8}" for name in held}
    for bits in [*itertools.product((False, True), repeat=len(names))][1::7]:
        predicted = board.run(Sample(index=0, name="", arrays={"x": x}), np.array(bits, np.bool_))["y"]
        on = dict(zip(names, bits, strict=True))
        chosen = {name: scalings for name, scalings in held.items() if on[f"{name}{IN_FP8}"]}
        keep = {name: "f32" for name in names if not name.endswith(IN_FP8) and not on[name]}
        if low == "f32" and not chosen:
            continue
        written = ir.to_proto(typed_model(network(), low, keep, products=chosen).model)
        onnx.checker.check_model(written, full_check=True)
        again = ir.from_proto(written)
        quantized = [node for node in again.graph if node.op_type == "QuantizeLinear"]
        assert len(quantized) <= len(chosen)
        assert sum(node.op_type == "DequantizeLinear" for node in again.graph) == len(quantized) + len(chosen)
        run = detype(again)
        assert np.array_equal(predicted, run({"x": x})["y"])
        assert not tensorrt_concerns(ir.from_proto(written))


def test_all_off_is_the_plain_model_and_all_on_differs() -> None:
    board = Switchboard(network(), "f16", products=products())
    x = numbers()
    plain = open_session(network(), optimization="disabled")({"x": x})["y"]
    sample = Sample(index=0, name="", arrays={"x": x})
    assert np.array_equal(board.run(sample, set())["y"], plain)
    eight = board.run(sample, {f"a{IN_FP8}"})["y"]
    error = np.linalg.norm(eight - plain) / np.linalg.norm(plain)
    assert 1e-3 < error < 0.2  # an operand is off by 2^-4 at most, and a product of 32 by much less on average


def test_a_model_in_eight_bits_without_its_original(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`evaluate` tells its faithful error against the FP32 model that it was made from."""
    ir.save(network(), tmp_path / "model.onnx")
    ir.save(typed_model(network(), "f16", {}, products=products()).model, tmp_path / "low.onnx")
    np.savez(tmp_path / "x.npz", x=numbers())
    code = exit_status(
        "evaluate",
        str(tmp_path / "low.onnx"),
        "--study",
        str(tmp_path / "study"),
        "--reference",
        str(tmp_path / "model.onnx"),
        "--inputs",
        str(tmp_path / "x.npz"),
        "--format",
        "json",
    )
    assert code in {0, 1}
    document = json.loads(capsys.readouterr().out)
    plain = open_session(network(), optimization="disabled")({"x": numbers()})["y"]
    held = Switchboard(network(), "f16", products=products())
    low = held.run(Sample(index=0, name="", arrays={"x": numbers()}), np.ones(len(held.graph.nodes), np.bool_))["y"]
    expected = float(np.linalg.norm(low - plain) / np.linalg.norm(plain))
    assert any(math.isclose(found, expected, rel_tol=1e-4) for found in floats_in(document))


def test_lifted_it_is_what_its_weights_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the original, the reference has no rounding but that of the weights, which then cost nothing."""
    written = typed_model(network(), "f16", {}, products=products()).model
    lifted, _ = float32_copy(written)
    assert not {"QuantizeLinear", "Div"} & {node.op_type for node in lifted.graph}
    held = products()
    plain = network()
    for node in plain.graph:
        weights = node.inputs[1] if node.name in held else None
        if weights is not None and weights.const_value is not None:
            rounded = quantize_and_back(weights.const_value.numpy(), held[node.name or ""][1])
            weights.const_value = ir.tensor(rounded, name=weights.name)
    expected = open_session(plain, optimization="disabled")({"x": numbers()})["y"]
    found = open_session(lifted, optimization="disabled")({"x": numbers()})["y"]
    assert np.linalg.norm(found - expected) <= 1e-3 * np.linalg.norm(expected)  # the bias is in FP16
    ir.save(written, tmp_path / "low.onnx")
    np.savez(tmp_path / "x.npz", x=numbers())
    code = exit_status(
        "evaluate",
        str(tmp_path / "low.onnx"),
        "--inputs",
        str(tmp_path / "x.npz"),
        "--format",
        "json",
        "--study",
        str(tmp_path / "lifted"),
    )
    assert code in {0, 1}
    assert json.loads(capsys.readouterr().out)


def test_tensorrt_rtx_builds_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.packages import find_package

    for low in ("f16", "bf16", "f32"):
        path = tmp_path / f"{low}.onnx"
        ir.save(typed_model(network(), low, {}, products=products()).model, path)
        view = network_view(path, find_package("rtx"))
        assert not view.problem
        quantizers = [node for node in view.nodes if node.op_type == "QuantizeLinear"]
        assert len(quantizers) == 3
        assert {node.fate for node in quantizers} <= {"kernel", "absorbed"}


def test_what_the_tables_have_against_other_eight_bits() -> None:
    model = typed_model(network(), "f16", {}, products=products()).model
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT8E4M3FN and value.const_value is not None and not value.shape:
            value.const_value = ir.Tensor(np.ones((), ml_dtypes.float8_e4m3fn), name=value.name)
    assert any("zero point" in one.what for one in tensorrt_concerns(model))


def floats_in(held: Any) -> list[float]:
    if isinstance(held, dict):
        return [number for one in held.values() for number in floats_in(one)]
    if isinstance(held, list):
        return [number for one in held for number in floats_in(one)]
    return [held] if isinstance(held, float) else []


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_cut_over_all_labels_is_the_exact_optimum(data: st.DataObject) -> None:
    """Against all 2^8 assignments: FP32, FP16, and both with operands in FP8."""
    model = network()
    held = products()
    board = Switchboard(network(), "f16", products=held)
    names = [node.name for node in board.graph.nodes]
    shapes = {**SHAPES, "a": (4, 32), "c": (4, 32), "d": (4, 32), "y": (4, 16)}
    own = [name for name in names if not name.endswith(IN_FP8)]
    base = network_of(model, own, shapes, H200, {})
    whole = with_products(base, held, {name: at for at, name in enumerate(names)}, shapes, network(), H200)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    squared = 10.0 ** random.uniform(-6, 0, len(names))
    multiplier = 10.0 ** random.uniform(-9, -4)
    pinned = random.random(len(names)) < 0.1

    def total(low: np.ndarray) -> float:
        return float(price_assignment(whole, low).seconds + multiplier * squared[low].sum())

    every = [np.array(bits, np.bool_) for bits in itertools.product((False, True), repeat=len(names))]
    least = min(total(low) for low in every if not (low & pinned).any())
    found = cheapest_assignment(whole, squared, multiplier, pinned)
    assert not (found.low & pinned).any()
    assert total(found.low) <= least * (1 + 1e-9)


def test_labels() -> None:
    assert labels_of("f16").storage == "f16"
    both = labels_of("f16,f8e4m3,f32")
    assert (both.storage, both.eighths) == ("f16", True)
    assert labels_of("f8e4m3").storage == "f32"
    assert labels_of("bf16,f16").second
    for wrong in ("f8e5m2", "", "f16,f16", "tf32"):
        with pytest.raises(ParityError):
            labels_of(wrong)


def test_scales_in_a_plan_are_those_of_the_search() -> None:
    held = products()
    said = scales_said(held, network())
    assert said["a"] == {"0": 2.0**-5}
    taken = scales_taken(said, network())
    assert set(taken) == set(held)
    for name, scalings in held.items():
        for index, scaling in scalings.items():
            assert np.array_equal(taken[name][index].scale, scaling.scale)
            assert taken[name][index].axis == scaling.axis


def deep(folder: Path, samples: int) -> None:
    """Twelve products with activations between; the last one feeds an output of few numbers."""
    random = np.random.default_rng(8)
    lines, at = [], "x"
    for number in range(12):
        lines += [f"p{number} = MatMul({at}, w{number})", f"t{number} = Tanh(p{number})"]
        at = f"t{number}"
    text = "\n".join(lines)
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[8, 32] x) => (float[8, 32] {at}) {{\n{text}\n}}'
    )
    for number in range(12):
        array = (random.standard_normal((32, 32)) / 5).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, f"w{number}"))
    onnx.save(proto, folder / "model.onnx")
    (folder / "data").mkdir()
    for number in range(samples):
        np.savez(folder / "data" / f"{number}.npz", x=random.standard_normal((8, 32)).astype(np.float32))


@pytest.mark.parametrize("low", ["f8e4m3", "f8e4m3,f16"])
def test_from_the_command_line_to_a_plan_and_back(low: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget of 10 %, where everything in FP8 makes 16 %: some products are, certified, and the same again by the plan."""
    deep(tmp_path, 40)
    model, data, fixed = (str(tmp_path / name) for name in ("model.onnx", "data", "fixed.onnx"))
    times = {f"MatMul#{number}": {"f32": 8e-6, "f16": 2e-6, "f8e4m3": 1e-6} for number in range(0, 24, 2)}
    (tmp_path / "times.json").write_text(
        json.dumps({"nodes": times}), encoding="utf-8"
    )  # products this small gain nothing by a roofline
    asked = ["repair", model, "--inputs", data, "--low", low, "--budget", "rel_l2=1e-1", "--threads", "1", "--quiet"]
    asked += ["--profile", str(tmp_path / "times.json")]
    code = exit_status(*asked, "-o", fixed, "--format", "json")
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["verdict"] == "certified"
    proto = onnx.load(fixed)
    onnx.checker.check_model(proto, full_check=True)
    pairs = sum(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    assert 0 < pairs < 12
    kinds = {one.data_type for one in proto.graph.initializer}
    assert onnx.TensorProto.FLOAT8E4M3FN in kinds
    assert (onnx.TensorProto.FLOAT16 in kinds) == ("f16" in low)
    # What was written meets the budget on samples that it was not searched on, run by itself.
    run = detype(ir.load(fixed))
    plain = open_session(ir.load(model))
    inputs = load_inputs(load_model(tmp_path / "model.onnx"), tmp_path / "data", spool=tmp_path / "spool")
    for sample in inputs:
        reference, candidate = plain(sample.arrays)["t11"], run(sample.arrays)["t11"]
        assert np.linalg.norm(candidate - reference) <= 1e-1 * np.linalg.norm(reference) * 1.01
    again = str(tmp_path / "again.onnx")
    plan = str(tmp_path / "fixed.plan.toml")
    exit_status("repair", model, "--plan", plan, "--inputs", data, "--budget", "rel_l2=1e-1", "-o", again, "--quiet")
    capsys.readouterr()
    run_again = detype(ir.load(again))
    sample = next(iter(inputs))
    assert np.array_equal(run_again(sample.arrays)["t11"], run(sample.arrays)["t11"])


@pytest.mark.parametrize("low", ["f16", "f32"])
def test_products_in_tf32_where_they_are_not_low(low: str) -> None:
    """Nothing low is TF32's simulation bit for bit; any assignment is that of what would be written."""
    held, x = products(), numbers()
    board = Switchboard(network(), low, products=held, full="tf32")
    sample = Sample(index=0, name="", arrays={"x": x})
    names = [node.name for node in board.graph.nodes]
    nothing = board.run(sample, np.zeros(len(names), np.bool_))["y"]
    tf32 = simulate(network(), "tf32")({"x": x})["y"]
    assert np.array_equal(nothing, tf32)
    for bits in [*itertools.product((False, True), repeat=len(names))][3::29]:
        on = dict(zip(names, bits, strict=True))
        chosen = {name: scalings for name, scalings in held.items() if on[f"{name}{IN_FP8}"]}
        keep = {name: "f32" for name in names if not name.endswith(IN_FP8) and not on[name]}
        if low == "f32" and not chosen:
            continue
        written = typed_model(network(), low, keep, products=chosen).model
        run = simulate(written, "tf32")
        assert np.array_equal(board.run(sample, np.array(bits, np.bool_))["y"], run({"x": x})["y"])


def test_a_search_beside_tf32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With products in TF32 nothing is exact any more: 1e-4 is out of reach, which FP32 has; 1e-2 is not."""
    deep(tmp_path, 30)
    model, data = str(tmp_path / "model.onnx"), str(tmp_path / "data")
    asked = ["repair", model, "--inputs", data, "--threads", "1", "--quiet", "--format", "json"]
    verdicts = {}
    for low, limit in (("f16,tf32", "1e-4"), ("f16,tf32", "1e-2")):
        exit_status(*asked, "--low", low, "--budget", f"rel_l2={limit}", "-o", str(tmp_path / f"{limit}.onnx"))
        verdicts[limit] = json.loads(capsys.readouterr().out)["verdict"]
    assert verdicts == {"1e-4": "infeasible", "1e-2": "nothing"}
    assert labels_of("f16,tf32").title == "FP16 beside TF32"
