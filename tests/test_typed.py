"""Strongly typed models: valid, of the right types, and computing what the simulation predicts, bit for bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.typed import TypedModel, typed_model
from parityscope.arithmetic.typed.constants import low_tensor
from parityscope.arithmetic.typed.tensorrt import tensorrt_concerns
from parityscope.backends.onnxruntime_sessions import open_bytes
from parityscope.case import Sample
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.testing.networks import parse_network
from proving.models.fetching import require
from proving.models.samples import SAMPLES, sample_of
from simulated import detype

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# With one thread ONNX Runtime takes other kernels for weights that it cannot pack, as those inside branches.
THREADS = 2
SPELT = {1: "f32", 10: "f16", 16: "bf16", 11: "f64"}


def model_of(body: str, opset: int = 17, version: int = 9) -> ir.Model:
    """A model from ONNX text."""
    text = f'<ir_version: {version}, opset_import: ["": {opset}]> {body}'
    return ir.from_proto(onnx.parser.parse_model(text))


def checked(typed: TypedModel) -> onnx.ModelProto:
    """The written model, valid with full type inference."""
    proto = ir.to_proto(typed.model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def ops(graph: ir.Graph | ir.Model) -> list[str]:
    nodes = graph.graph.all_nodes() if isinstance(graph, ir.Model) else graph.all_nodes()
    return [node.op_type for node in nodes]


def dtypes(typed: TypedModel) -> dict[str, str]:
    """Short names of the element types of all computed values of the main graph."""
    return {
        str(value.name): SPELT.get(int(value.dtype), "other")
        for node in typed.model.graph
        for value in node.outputs
        if value.dtype is not None
    }


def evaluated(model: ir.Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a typed model really computes."""
    return detype(model)(arrays, threads=THREADS)


def assert_predicted(
    model: ir.Model,
    low: str,
    keep: Mapping[str, str],
    arrays: Mapping[str, np.ndarray],
    board: Switchboard | None = None,
) -> TypedModel:
    """Compares with the switchable graph: nodes are low as the writer says they are."""
    typed = typed_model(model.clone(), low, keep)
    checked(typed)
    board = board or Switchboard(model.clone(), low, threads=THREADS)
    wanted = [node.name for node in board.graph.nodes if typed.formats.get(node.name) == low]
    expected = board.run(Sample(index=0, name="s", arrays=dict(arrays)), wanted)
    found = evaluated(typed.model, arrays)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    return typed


def chain() -> ir.Model:
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => (float[2,4] y) '
        "{ m = MatMul(x, w)  t = Transpose(m)  u = Transpose(t)  a = Add(u, b)  r = Relu(a)  s = Exp(r)  y = Sub(s, r) }"
    )
    for name, shape in (("w", (4, 4)), ("b", (4,))):
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for node in proto.graph.node:
        node.name = node.output[0].upper()
    return ir.from_proto(proto)


X = {"x": np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)}


def test_all_low_has_two_casts_and_keeps_the_borders() -> None:
    typed = assert_predicted(chain(), "f16", {}, X)
    assert typed.casts == 2  # one down at the input, one up at the output
    assert [value.name for value in typed.model.graph.inputs] == ["x"]
    assert [(value.name, value.dtype) for value in typed.model.graph.outputs] == [("y", ir.DataType.FLOAT)]
    assert {value.dtype for value in typed.model.graph.initializers.values()} == {ir.DataType.FLOAT16}
    assert sorted(typed.model.graph.initializers) == ["b", "w"]  # nothing is left behind, names stay
    assert (typed.model.ir_version, typed.model.opset_imports[""]) == (8, 17)
    assert typed.notes == ()


def test_movement_follows_and_boundaries_have_one_cast() -> None:
    typed = assert_predicted(chain(), "f16", {"A": "f32"}, X)
    found = dtypes(typed)
    assert (found["m"], found["t"], found["u"]) == ("f16", "f16", "f16")
    assert (found["a"], found["r"], found["s"]) == ("f32", "f32", "f16")  # Relu follows the Add
    # x down, u up for Add, r down once for Exp and Sub, y up
    assert typed.casts == 4


def test_nothing_between_two_kept_nodes() -> None:
    every = dict.fromkeys(("M", "A", "S", "Y"), "f32")
    typed = assert_predicted(chain(), "f16", every, X)
    assert typed.casts == 0
    assert {value.dtype for value in typed.model.graph.initializers.values()} == {ir.DataType.FLOAT}


def test_metadata_says_why() -> None:
    typed = typed_model(chain(), "f16", {"S": "f32"}, reasons={"S": "overflows at 11.1"})
    assert json.loads(typed.model.metadata_props["parityscope.kept"]) == {
        "S": {"format": "f32", "reason": "overflows at 11.1"}
    }
    assert typed.model.metadata_props["parityscope.low"] == "f16"
    node = next(node for node in typed.model.graph if node.name == "S")
    assert node.metadata_props["parityscope.kept"] == "f32: overflows at 11.1"
    assert typed.formats == {"M": "f16", "A": "f16", "S": "f32", "Y": "f16"}


def test_shared_constants_are_duplicated_and_rounded_plainly() -> None:
    model = model_of(
        """g (float[3] x) => (float[3] y, float[3] z) {
        c = Constant <value = float[3] {-1e-9, 70000.0, 1.0}> ()
        [low] y = Mul(x, c)  [high] z = Mul(x, c) }"""
    )
    typed = typed_model(model, "f16", {"high": "f32"})
    checked(typed)
    constants = {
        node.outputs[0].dtype: node.attributes["value"].as_tensor().numpy()
        for node in typed.model.graph
        if node.op_type == "Constant"
    }
    np.testing.assert_array_equal(constants[ir.DataType.FLOAT], np.array([-1e-9, 70000, 1], np.float32))
    low = constants[ir.DataType.FLOAT16]
    assert np.signbit(low[0])  # -1e-9 becomes -0, and is not lifted to +6e-8
    np.testing.assert_array_equal(low, [0, np.inf, 1])
    overflow, tiny = typed.notes
    assert overflow.what.startswith("1 of 3 values of constant c in FP16")
    assert "7e+04" in overflow.reason
    assert tiny.what.startswith("1 of 3 values of 1 constants in FP16: c")


def test_attributes_that_say_a_type() -> None:
    model = model_of(
        """g (int64[2] n, int64[2,2] i, float[2,2] x) => (float[2,2] y) {
        c = ConstantOfShape <value = float[1] {0.1}> (n)
        e = EyeLike (x)  k = Cast <to = 1> (i)  r = RandomUniformLike <dtype = 1> (i)
        a = Add(c, e)  b = Add(a, k)  d = Mul(r, x)  f = Sub(d, d)  y = Add(b, f) }"""
    )
    typed = typed_model(model, "f16", {})
    checked(typed)
    found = dtypes(typed)
    assert {found[name] for name in "cekr"} == {"f16"}
    nodes = {node.op_type: node for node in typed.model.graph}
    assert nodes["ConstantOfShape"].attributes["value"].as_tensor().numpy() == np.float16(0.1)
    assert nodes["EyeLike"].attributes["dtype"].as_int() == 10
    assert nodes["RandomUniformLike"].attributes["dtype"].as_int() == 10


def test_steering_inputs_and_shape_arithmetic_stay_exact() -> None:
    model = model_of(
        """g (float[1,1,4,4] x) => (float[1,1,M,N] y) {
        s = Shape (x)  f = Cast <to = 1> (s)
        factor = Constant <value = float[4] {1.0, 1.0, 2.3333333, 2.3333333}> ()
        half = Constant <value = float {0.1}> ()
        g = Mul (f, factor)  size = Floor (g)  scales = Div (size, f)
        h = Mul (x, half)  y = Resize <mode = "linear"> (h, , scales) }""",
        opset=13,
    )
    x = {"x": np.random.default_rng(0).normal(size=(1, 1, 4, 4)).astype(np.float32)}
    typed = assert_predicted(model, "f16", {}, x)
    found = dtypes(typed)
    assert {found[name] for name in ("f", "g", "size", "scales")} == {"f32"}
    assert found["h"] == "f16"
    assert typed.casts == 2


def test_operators_without_a_schema_stay_in_float32() -> None:
    model = model_of(
        "g (float[4] x) => (float[4] y) { a = Constant <value = int64 {0}> () c = CumSum(x, a) y = Exp(c) }", 13
    )
    typed = assert_predicted(model, "f16", {}, {"x": np.array([1, 2, 3, 4], np.float32)})
    found = dtypes(typed)
    assert (found["c"], found["c::f16"], found["y"]) == ("f32", "f16", "f32")
    assert typed.formats == {"CumSum#0": "f32", "Exp#1": "f16"}
    assert typed.notes[0].reason == "kept in FP32: ONNX defines no float16 CumSum at opset 13"
    newer = typed_model(
        model_of("g (float[4] x) => (float[4] y) { a = Constant <value = int64 {0}> () y = CumSum(x, a) }", 14),
        "f16",
        {},
    )
    assert newer.notes == ()


def test_bfloat16_converts_up_to_what_the_operators_need() -> None:
    body = "g (float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y) { c = Conv(x, w) y = Relu(c) }"
    typed = typed_model(model_of(body, 12, 7), "bf16", {})
    checked(typed)
    assert typed.model.opset_imports[""] == 22
    assert typed.notes[0].reason == "converted up to 22, the first with bfloat16 for the model's operators"
    assert dtypes(typed)["c"] == "bf16"
    plain = typed_model(model_of("g (float[4] x) => (float[4] y) { y = Exp(x) }", 11, 6), "bf16", {})
    checked(plain)
    assert plain.model.opset_imports[""] == 13


def test_three_formats_in_one_model() -> None:
    typed = typed_model(chain(), "f16", {"M": "bf16", "S": "f32"})
    checked(typed)
    found = dtypes(typed)
    assert (found["m"], found["t"], found["a"], found["r"], found["s"]) == ("bf16", "bf16", "f16", "f16", "f32")
    x = X["x"]
    assert np.all(np.isfinite(evaluated(typed.model, {"x": x})["y"]))


IF = """g (bool c, float[3] x) => (float[3] y) {
    [first] a = Exp (x)
    [branch] b = If (c) <
        then_branch = t () => (float[3] p) { k = Constant <value = float {0.1}> () [inner] p = Mul (a, k) },
        else_branch = e () => (float[3] q) { [other] q = Add (a, x) }>
    [last] y = Sqrt (b) }"""
LOOP = """g (float[3] x) => (float[3] y, float[4,3] z) {
    n = Constant <value = int64 {4}> ()  c = Constant <value = bool {1}> ()
    [first] a = Exp (x)
    [loop] s, z = Loop (n, c, a) < body = b (int64 i, bool go, float[3] state) => (bool on, float[3] next, float[3] out) {
        on = Identity (go)  h = Constant <value = float {0.3}> ()
        [inner] next = Mul (state, h)  [captures] out = Add (next, a) }>
    [last] y = Sqrt (s) }"""
SCAN = """g (float[4,3] x) => (float[3] y, float[4,3] z) {
    k = Constant <value = float[3] {0.1, 0.2, 0.3}> ()
    [first] a = Exp (k)
    [scan] y, z = Scan <num_scan_inputs = 1, body = b (float[3] sum, float[3] row) => (float[3] total, float[3] out) {
        [inner] total = Add (sum, row)  out = Identity (total) }> (a, x) }"""


@pytest.mark.parametrize("branch", [True, False])
@pytest.mark.parametrize("keep", [{}, {"first": "f32"}, {"branch": "f32"}, {"first": "f32", "branch": "f32"}])
def test_if(keep: dict[str, str], *, branch: bool) -> None:
    arrays = {"c": np.array(branch), "x": np.array([0.1, 1.3, 2.7], np.float32)}
    assert_predicted(model_of(IF), "f16", keep, arrays)


def test_a_node_in_a_branch_may_have_its_own_format() -> None:
    typed = typed_model(model_of(IF), "f16", {"inner": "f32"})
    checked(typed)
    branch = next(node for node in typed.model.graph if node.op_type == "If")
    inner = branch.attributes["then_branch"].as_graph()
    assert "Cast" in ops(inner)  # what it gives comes back low, as from the other branch
    assert branch.outputs[0].dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize(
    "keep", [{}, {"first": "f32"}, {"loop": "f32"}, {"last": "f32"}, {"first": "f32", "loop": "f32"}]
)
def test_loop(keep: dict[str, str]) -> None:
    assert_predicted(model_of(LOOP), "f16", keep, {"x": np.array([0.1, 1.3, 2.7], np.float32)})


def test_loop_carried_types_are_reconciled() -> None:
    typed = typed_model(model_of(LOOP), "f16", {"inner": "f32"})
    checked(typed)
    open_bytes(ir.to_proto(typed.model).SerializeToString(), outputs=["y", "z"])({"x": np.ones(3, np.float32)})


@pytest.mark.parametrize("keep", [{}, {"first": "f32"}, {"scan": "f32"}])
def test_scan(keep: dict[str, str]) -> None:
    assert_predicted(
        model_of(SCAN), "f16", keep, {"x": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
    )


def test_unnamed_and_duplicate_names() -> None:
    model = model_of("g (float[3] x) => (float[3] y) { [n] a = Exp (x)  [n] b = Sqrt (a)  y = Sin (b) }")
    arrays = {"x": np.array([0.1, 1.3, 2.7], np.float32)}
    typed = assert_predicted(model, "f16", {"n#1": "f32"}, arrays)
    assert typed.formats == {"n": "f16", "n#1": "f32", "Sin#2": "f16"}
    typed = assert_predicted(model, "f16", {"Sin#2": "f32"}, arrays)
    assert typed.formats["Sin#2"] == "f32"


def test_outputs_that_are_consumed_inputs_that_are_given_back_and_outputs_of_casts() -> None:
    model = model_of(
        """g (float[3] x, int64[3] i) => (float[3] y, float[3] z, float[3] k, float[3] w) {
        [one] y = Exp (x)  [two] z = Sqrt (y)  [cast] k = Cast <to = 1> (i)  w = Identity (x) }"""
    )
    arrays = {"x": np.array([0.1, 1.3, 2.7], np.float32), "i": np.array([1, 2049, 70000])}
    typed = assert_predicted(model, "f16", {}, arrays)
    assert [value.name for value in typed.model.graph.outputs] == ["y", "z", "k", "w"]
    assert {value.dtype for value in typed.model.graph.outputs} == {ir.DataType.FLOAT}
    typed = assert_predicted(model, "f16", {"two": "f32"}, arrays)
    stored = next(value for node in typed.model.graph for value in node.outputs if value.name == "y::stored")
    assert [user.op_type for user, _ in stored.uses()] == ["Cast"]  # the output's, which the kept node reads as well


def test_a_cast_of_a_typed_model_goes_when_nothing_is_left_to_do() -> None:
    model = model_of(
        """g (float[3] x) => (float[3] y) {
        [one] a = Exp (x)  h = Cast <to = 10> (a)  [typed] s = Sqrt (h)  [up] f = Cast <to = 1> (s)  [two] y = Sin (f) }"""
    )
    typed = assert_predicted(model, "f16", {}, {"x": np.array([0.1, 1.3, 2.7], np.float32)})
    assert ops(typed.model).count("Cast") == 2  # at the input and at the output
    assert typed.casts == 0


def test_scalars_doubles_and_dynamic_shapes() -> None:
    model = model_of("g (double[n,m] x, double s) => (double[n,m] y) { [one] a = Mul (x, s)  [two] y = Exp (a) }")
    typed = typed_model(model, "f16", {"two": "f32"})
    checked(typed)
    assert dtypes(typed)["a"] == "f16"
    assert dtypes(typed)["y"] == "f64"


def test_functions_are_inlined_and_old_initializers_freed() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "f": 1]> g (float[3] x) => (float[3] y) { [call] y = f.twice (x) }
        <domain: "f", opset_import: ["": 17]> twice (a) => (b) { b = Add (a, a) }"""
    )
    typed = typed_model(ir.from_proto(proto), "f16", {})
    checked(typed)
    assert typed.notes[0].what == "the model's functions"
    old = parse_network(
        '<ir_version: 3, opset_import: ["": 8]> g (float[3] x, float[3] w) => (float[3] y) { y = Mul (x, w) }',
        {"w": np.ones(3, np.float32)},
    )
    typed = typed_model(ir.from_proto(old), "f16", {})
    checked(typed)
    assert typed.model.ir_version == 4
    assert [value.name for value in typed.model.graph.inputs] == ["x"]


def test_external_weights_are_converted_when_they_are_written(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[4,64] x) => (float[4,64] y) { [m] y = MatMul (x, w) }'
    )
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    typed = typed_model(read_graph(path), "f16", {})
    held = typed.model.graph.initializers["w"].const_value
    assert isinstance(held, ir.LazyTensor)
    ir.save(typed.model, tmp_path / "low.onnx", external_data="low.bin")
    assert (tmp_path / "low.bin").stat().st_size < weights.nbytes
    onnx.checker.check_model(str(tmp_path / "low.onnx"), full_check=True)
    again = onnx.numpy_helper.to_array(onnx.load(tmp_path / "low.onnx").graph.initializer[0])
    np.testing.assert_array_equal(again, weights.astype(np.float16))


@pytest.mark.parametrize(
    ("low", "keep", "problem"),
    [
        ("f8e4m3", {}, "'f8e4m3' is no format to write"),
        ("f16", {"A": "tf32"}, "'tf32' is no format to keep 'A' in"),
        ("f16", {"nonsense": "f32"}, "'nonsense' is no node"),
        ("f16", {"T": "f32"}, "'T' is no node that has a format of its own"),
    ],
)
def test_refusals(low: str, keep: dict[str, str], problem: str) -> None:
    with pytest.raises(ParityError, match=problem):
        typed_model(chain(), low, keep)


UNARY = ("Exp", "Tanh", "Relu", "Neg", "Sigmoid", "Transpose", "Identity", "Abs")
BINARY = ("Add", "Mul", "Sub", "MatMul", "Max", "Concat+Slice", "Where")


@st.composite
def graphs(draw: st.DrawFn) -> ir.Model:
    """A random graph of up to ten nodes over 3 x 3 tensors, with constants, nodes without names, and two outputs."""
    values = ["x", "z"]
    nodes: list[Any] = []
    constants: list[Any] = []
    for position in range(draw(st.integers(2, 10))):
        name = draw(st.sampled_from(["", f"n{position}"]))
        output = f"v{position}"
        op = draw(st.sampled_from(UNARY + BINARY))
        first = draw(st.sampled_from(values))
        if op in UNARY:
            nodes.append(onnx.helper.make_node(op, [first], [output], name=name))
        else:
            second = draw(st.sampled_from([*values, "constant"]))
            if second == "constant":
                second = f"c{position}"
                array = np.random.default_rng(position).normal(size=(3, 3)).astype(np.float32)
                constants.append(onnx.numpy_helper.from_array(array, second))
            if op == "Concat+Slice":
                nodes.append(onnx.helper.make_node("Concat", [first, second], [f"w{position}"], name=name, axis=0))
                nodes.append(onnx.helper.make_node("Slice", [f"w{position}", "one", "four"], [output]))
            elif op == "Where":
                nodes.append(onnx.helper.make_node("Greater", [first, second], [f"b{position}"]))
                nodes.append(onnx.helper.make_node("Where", [f"b{position}", first, second], [output], name=name))
            else:
                nodes.append(onnx.helper.make_node(op, [first, second], [output], name=name))
        values.append(output)
    constants.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    constants.append(onnx.numpy_helper.from_array(np.array([4]), "four"))
    wanted = [values[-1], draw(st.sampled_from(values[2:]))]

    def info(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 3])

    graph = onnx.helper.make_graph(
        nodes, "g", [info("x"), info("z")], [info(name) for name in dict.fromkeys(wanted)], initializer=constants
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    return ir.from_proto(proto)


@settings(max_examples=40, deadline=None)
@given(model=graphs(), data=st.data(), low=st.sampled_from(["f16", "bf16"]))
def test_what_is_written_computes_what_is_predicted(model: ir.Model, data: st.DataObject, low: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 3)).astype(np.float32) for name in ("x", "z")}
    board = Switchboard(model.clone(), low, threads=THREADS)
    names = [node.name for node in board.graph.nodes]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    known = typed_model(model.clone(), low, {}).formats
    typed = assert_predicted(model, low, {name: "f32" for name in chosen if name in known}, arrays, board)
    assert typed.casts == sum(node.op_type == "Cast" for node in typed.model.graph)
    # One Cast for a tensor and type, and none that takes back what another one did.
    casts = [node for node in typed.model.graph if node.op_type == "Cast"]
    assert len({(node.inputs[0], node.outputs[0].dtype) for node in casts}) == len(casts)
    assert not any(user in casts for node in casts for user, _ in node.outputs[0].uses())


@pytest.mark.parametrize("identity", ["ocr-cls", "magika", "minilm-i8", "vad-15", "vad-18", "vad-seq"])
@pytest.mark.story
def test_trained_models(identity: str) -> None:
    path = require(identity)
    arrays = sample_of(identity) if identity in SAMPLES else sample_of("vad-18")
    board = Switchboard(read_graph(path), "f16", threads=THREADS)
    names = [node.name for node in board.graph.nodes]
    rng = np.random.default_rng(0)
    # All of vad-18 is one If: kept whole, it is compared with itself inside another If, whose weights are not packed.
    for share in (0.0, 0.3) if len(names) > 1 else (0.0,):
        keep = {name: "f32" for name in names if rng.random() < share}
        typed = assert_predicted(read_graph(path), "f16", keep, arrays, board)
        data = ir.to_proto(typed.model).SerializeToString()
        found = open_bytes(data, outputs=[str(value.name) for value in typed.model.graph.outputs])(arrays)
        assert all(array.dtype == np.float32 for array in found.values() if array.dtype.kind == "f")


def test_a_trained_model_in_branches() -> None:
    path = require("vad")
    typed = assert_predicted(read_graph(path), "f16", {}, sample_of("vad-18"))
    assert any(node.op_type == "If" for node in typed.model.graph)


@pytest.mark.parametrize("opset", [13, 19, 23])
def test_quantized_models_keep_their_scales(opset: int) -> None:
    model = model_of(
        """g (float[3] x) => (float[3] y) {
        s = Constant <value = float {0.013}> ()  z = Constant <value = int8 {0}> ()
        a = Exp (x)  q = QuantizeLinear (a, s, z)  d = DequantizeLinear (q, s, z)  y = Sqrt (d) }""",
        opset,
    )
    typed = assert_predicted(model, "f16", {}, {"x": np.array([0.1, 0.3, 0.7], np.float32)})
    found = dtypes(typed)
    assert (found["s"], found["a"], found["d"]) == ("f32", "f16", "f32")
    assert typed.notes[-1].what == "1 Casts behind DequantizeLinear: d::f16"
    open_bytes(ir.to_proto(typed.model).SerializeToString(), outputs=["y"])({"x": np.ones(3, np.float32)})


SMALL = {
    "sequence": "a = Exp (x) s = SequenceConstruct (a, x) c = ConcatFromSequence <axis = 0> (s) y = ReduceSum (c)",
    "optional": "a = Exp (x) o = Optional (a) b = OptionalGetElement (o) y = Sqrt (b)",
    "range": "o = Constant <value = float {0.0}> () d = Constant <value = float {0.3}> () "
    "l = ReduceMax <keepdims = 0> (x) r = Range (o, l, d) y = Exp (r)",
    "top": "k = Constant <value = int64[1] {2}> () a = Exp (x) v, i = TopK (a, k) y = Neg (v)",
    "number": "c = Constant <value_float = 0.1> () y = Mul (x, c)",
    "bound": "c = Constant <value = float {1.2}> () a = Exp (x) b = Min (a, c) y = Sqrt (b)",
    "infinite": "a = Exp (x) i = IsInf (a) y = Where (i, x, a)",
    "counted": "a = Exp (x) i = Cast <to = 7> (a) f = Cast <to = 1> (i) y = Sqrt (f)",
    "dropped": "a = Exp (x) b, mask = Dropout (a) y = Sqrt (b)",
}


@pytest.mark.parametrize("low", ["f16", "bf16"])
@pytest.mark.parametrize("name", list(SMALL))
def test_operators_with_types_of_their_own(name: str, low: str) -> None:
    arrays = {"x": np.array([0.1, 1.3, 2.7], np.float32)}
    model = model_of(f"g (float[3] x) => (float[N] y) {{ {SMALL[name]} }}", 18)
    typed = assert_predicted(model, low, {}, arrays)
    if low == "f16":
        open_bytes(ir.to_proto(typed.model).SerializeToString(), outputs=["y"])(arrays)


def test_tables_of_tensorrt() -> None:
    assert tensorrt_concerns(typed_model(chain(), "f16", {}).model) == ()
    body = "g (float[1,1,4,4] x, float[1,2,2,2] grid) => (double[1,1,2,2] y) { s = GridSample(x, grid) y = Cast <to = 11> (s) }"
    concerns = tensorrt_concerns(typed_model(model_of(body, 16), "bf16", {}).model)
    assert [concern.what for concern in concerns] == ["GridSample of BF16", "Cast of FP64"]
    found = tensorrt_concerns(
        model_of("g (float[4] x) => (float[4] y) { a, s, z = DynamicQuantizeLinear(x) y = Mul(x, s) }", 8)
    )
    assert [concern.what for concern in found] == ["opset 8", "DynamicQuantizeLinear"]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_constants_are_rounded_to_nearest_even_and_losses_counted(name: str, dtype: type, data: st.DataObject) -> None:
    held = FORMATS[name]
    bits = 8 * np.dtype(dtype).itemsize
    near = [held.largest, held.largest + 2.0 ** (held.emax - held.precision), held.smallest_subnormal / 2]
    edges = [factor * value for value in near for factor in (1.0, -1.0, 1 + 2.0**-20, 1 - 2.0**-20)]
    # numpy's own float32 holds no 3.4e38·(1 + 2^-20)
    number = st.floats(width=32 if bits == 32 else 64) | st.sampled_from([edge for edge in edges if abs(edge) < 3.4e38])
    values: np.ndarray = np.array(data.draw(st.lists(number, min_size=1, max_size=20)), dtype)
    tensor, loss = low_tensor(ir.tensor(values), name, "c")
    expected = round_to(values, held)
    np.testing.assert_array_equal(tensor.numpy().astype(dtype), expected)
    signs = ~np.isnan(values)
    np.testing.assert_array_equal(np.signbit(tensor.numpy())[signs], np.signbit(values)[signs])
    assert loss.overflowing == np.count_nonzero(np.isinf(expected) & np.isfinite(values))
    assert loss.vanishing == np.count_nonzero((expected == 0) & (values != 0))
