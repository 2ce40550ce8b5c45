"""An IR of OpenVINO as a candidate's file: its operators in those of ONNX, and what somebody changed in it, by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from command_line import exit_status
from parityscope.backends.openvino_ir.translating import translated_file
from parityscope.case import load_model
from parityscope.case.mending import UNREAD
from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ov = pytest.importorskip("openvino")
ops = pytest.importorskip("openvino.opset13")

_RNG = np.random.default_rng(90)
X = {"x": _RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)}
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,5] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
  n = BatchNormalization<epsilon = 0.001>(c, scale, shift, mean, variance)
  r = Relu(n)
  d = Conv<pads = [1, 1, 1, 1], group = 2>(r, w2, b2)
  e = Sub(d, r)
  s = Sigmoid(e)
  p = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(s)
  f = Flatten<axis = 1>(p)
  m = MatMul(f, w3)
  a = Add(m, b3)
  y = Softmax<axis = 1>(a)
}"""
SHAPES = {
    "w1": (8, 3, 3, 3),
    "b1": (8,),
    "w2": (8, 4, 3, 3),
    "b2": (8,),
    "w3": (72, 5),
    "b3": (5,),
    "shift": (8,),
    "mean": (8,),
}
WEIGHTS = {name: (0.4 * _RNG.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}
WEIGHTS |= {name: _RNG.uniform(0.5, 2, 8).astype(np.float32) for name in ("scale", "variance")}


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", **X)
    return write_network(tmp_path / "reference.onnx", NETWORK, WEIGHTS)


def _converted(reference: Path, edit: Callable[[Any], None] | None = None, *, half: bool = False) -> Path:
    """The reference's IR, with what somebody did to it."""
    model = ov.convert_model(str(reference))
    path = reference.with_name("candidate.xml")
    ov.save_model(model, path, compress_to_fp16=half)
    if edit is not None:
        model = ov.Core().read_model(path)
        edit(model)
        path = reference.with_name("edited.xml")
        ov.save_model(model, path, compress_to_fp16=half)
    return path


def _nodes(model: Any, kind: str) -> list[Any]:
    return [node for node in model.get_ordered_ops() if node.get_type_name() == kind]


def _put(old: Any, new: Any) -> None:
    new.get_node().set_friendly_name(old.get_node().get_friendly_name())
    for reader in list(old.get_target_inputs()):
        reader.replace_source_output(new)


def _weight(kind: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], None]:
    def edit(model: Any) -> None:
        source = _nodes(model, kind)[0].input_value(1)
        _put(source, ops.constant(np.ascontiguousarray(change(np.array(source.get_node().data)))).output(0))

    return edit


def _exchange(array: np.ndarray) -> np.ndarray:
    array[[2, 5]] = array[[5, 2]]
    return array


def _other_activation(model: Any) -> None:
    node = _nodes(model, "Sigmoid")[0]
    _put(node.output(0), ops.tanh(node.input_value(0)).output(0))


def _other_axis(model: Any) -> None:
    node = _nodes(model, "Softmax")[0]
    _put(node.output(0), ops.softmax(node.input_value(0), 0).output(0))


def _other_padding(model: Any) -> None:
    node = _nodes(model, "Convolution")[0]
    _put(
        node.output(0),
        ops.convolution(node.input_value(0), node.input_value(1), [1, 1], [2, 1], [0, 1], [1, 1]).output(0),
    )


def _diagnosed(capsys: pytest.CaptureFixture[str], reference: Path, ir: Path, code: int = 1) -> dict[str, Any]:
    command = ["diagnose", str(reference), "--inputs", str(reference.with_name("x.npz")), "--format", "json", "--quiet"]
    command += ["--candidate", f"openvino?model={ir}", "--study", str(reference.with_name("study"))]
    assert exit_status(*command) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_weight("Convolution", _exchange), "channel 2 and 5 exchanged"),
        (_weight("MatMul", lambda array: 3 * array), "constant w3 of MatMul"),
        (_other_activation, "Tanh"),
        (_other_axis, "attribute axis of Softmax"),
        (_other_padding, "attribute pads of Conv"),
    ],
)
def test_what_somebody_changed_in_an_ir_is_named_first(
    capsys: pytest.CaptureFixture[str], reference: Path, edit: Callable[[Any], None], words: str
) -> None:
    document = _diagnosed(capsys, reference, _converted(reference, edit))
    first = document["findings"][0]
    assert (first["code"], first["role"]) == ("EXP005", "cause")
    assert words in first["claim"]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("half", [False, True])
def test_an_ir_as_openvino_made_it_is_not_blamed(
    capsys: pytest.CaptureFixture[str], reference: Path, half: bool
) -> None:
    document = _diagnosed(capsys, reference, _converted(reference, half=half), code=0)
    assert not [one for one in document["findings"] if one["role"] == "cause"]


def test_an_ir_is_a_candidate_by_its_path_alone(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    ir = _converted(reference)
    command = ["compare", str(reference), "--inputs", str(reference.with_name("x.npz")), "--candidate", str(ir)]
    assert exit_status(*command, "--study", str(reference.with_name("study"))) == 0
    assert "OpenVINO" in capsys.readouterr().out


def test_an_ir_that_openvino_cannot_read_is_one_error(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    path = _converted(reference)
    path.write_text(path.read_text(encoding="utf-8")[:400], encoding="utf-8")
    command = ["diagnose", str(reference), "--inputs", str(reference.with_name("x.npz"))]
    assert exit_status(*command, "--candidate", f"openvino?model={path}") == 2
    assert "OpenVINO cannot read the model" in " ".join(capsys.readouterr().err.split())
    assert exit_status(*command, "--candidate", f"openvino?model={path.with_name('none.xml')}") == 2
    assert "there is no model at" in " ".join(capsys.readouterr().err.split())


def _model(result: Any, *inputs: Any) -> Any:
    return ov.Model([result], list(inputs), "m")


def _parameter(*shape: int) -> Any:
    found = ops.parameter(list(shape), np.float32, name="x")
    found.output(0).get_tensor().set_names({"x"})
    return found


def _lstm(direction: str) -> Any:
    size, both = 4, 2 if direction == "bidirectional" else 1
    draw = np.random.default_rng(3)
    x = _parameter(2, 5, 3)
    state = [draw.normal(size=(2, both, size)).astype(np.float32) for _ in range(2)]
    w, r, b = (
        draw.normal(size=shape).astype(np.float32)
        for shape in ((both, 4 * size, 3), (both, 4 * size, size), (both, 4 * size))
    )
    lengths = np.array([5, 5], np.int32)
    node = ops.lstm_sequence(x, *map(ops.constant, (*state, lengths, w, r, b)), size, direction)
    return _model(node.output(0), x)


def _compressed() -> Any:
    x = _parameter(2, 6)
    held = ops.constant(np.random.default_rng(4).integers(0, 255, (6, 3)).astype(np.uint8))
    zero = ops.constant(np.array([[120, 128, 131]], np.uint8))
    scale = ops.constant(np.array([[0.02, 0.01, 0.03]], np.float32))
    weight = ops.multiply(ops.subtract(ops.convert(held, "f32"), ops.convert(zero, "f32")), scale)
    return _model(ops.matmul(x, weight, False, False), x)


def _in_groups() -> Any:
    """Weights of four bits, a scale for each group of four, as compressed language models have them."""
    x, draw = _parameter(2, 8), np.random.default_rng(7)
    held = ops.constant(draw.integers(0, 15, (3, 2, 4)).astype(np.uint8), dtype=ov.Type.u4)
    zero = ops.constant(np.full((3, 2, 1), 7, np.uint8), dtype=ov.Type.u4)
    scale = ops.constant(draw.uniform(0.01, 0.03, (3, 2, 1)).astype(np.float32))
    weight = ops.multiply(ops.subtract(ops.convert(held, "f32"), ops.convert(zero, "f32")), scale)
    return _model(ops.matmul(x, ops.reshape(weight, [3, 8], False), False, True), x)


def _iterated(direction: int) -> Any:
    """A state that each turn adds a part of the input to; given are all turns' states."""
    x = _parameter(2, 5, 3)
    part, state = ops.parameter([2, 1, 3], np.float32), ops.parameter([2, 1, 3], np.float32)
    after = ops.tanh(ops.add(ops.multiply(part, np.float32(0.5)), state))
    body = ov.Model([ops.result(after), ops.result(ops.sigmoid(after))], [part, state], "each")
    found = ov.op.tensor_iterator()
    found.set_body(body)
    ends = (0, 1, 1, -1, 1) if direction > 0 else (-1, -1, 1, 0, 1)
    found.set_sliced_input(part, x.output(0), *ends)
    begin = ops.reduce_mean(x, ops.constant([1]), True)
    found.set_merged_input(state, begin.output(0), body.results[0].output(0))
    told = found.get_concatenated_slices(body.results[1].output(0), *ends)
    last = found.get_iter_value(body.results[0].output(0), -1)
    return _model(ops.add(told, last), x)


def _looped() -> Any:
    """Three turns that each halve and shift a state."""
    x, turn, state = _parameter(2, 3), ops.parameter([], np.int64), ops.parameter([2, 3], np.float32)
    after = ops.add(ops.multiply(state, np.float32(0.5)), ops.convert(turn, "f32"))
    body = ov.Model([ops.constant(True), after], [turn, state], "each")
    found = ov.op.loop(ops.constant(3).output(0), ops.constant(True).output(0))
    found.set_function(body)
    found.set_special_body_ports([0, 0])
    found.set_merged_input(state, ops.abs(x).output(0), body.results[1].output(0))
    return _model(found.get_iter_value(body.results[1].output(0), -1), x)


def _branched(least: float) -> Any:
    x = _parameter(2, 3)
    given = [ops.parameter([2, 3], np.float32) for _ in range(2)]
    made = ops.exp(given[0]), ops.relu(given[1])
    branches = [ov.Model([ops.result(one)], [read], "b") for read, one in zip(given, made, strict=True)]
    asked = ops.greater(ops.reduce_max(x, ops.constant([0, 1]), False), np.float32(least))
    found = ov.op.if_op(asked.output(0))
    found.set_then_body(branches[0])
    found.set_else_body(branches[1])
    found.set_input(x.output(0), *given)
    return _model(found.set_output(branches[0].results[0], branches[1].results[0]), x)


def _with_state() -> Any:
    x = _parameter(2, 3)
    held = ops.read_value(ops.constant(np.full((2, 3), 0.25, np.float32)), "held", ov.Type.f32, [2, 3])
    total = ops.add(x, held)
    found = _model(ops.tanh(total), x)
    found.add_sinks([ops.assign(total, "held")])
    return found


def _large() -> Any:
    """Weights of 67 MB, which lie in a file beside the graph."""
    x = _parameter(1, 4100)
    weight = np.random.default_rng(8).normal(size=(4100, 4100)).astype(np.float32) / np.float32(64)
    return _model(ops.matmul(x, ops.constant(weight), False, False), x)


def _quantized(levels: int) -> Any:
    x = _parameter(1, 2, 3)
    low, high = np.array([[[-1.28], [0.0]]], np.float32), np.array([[[1.27], [2.55]]], np.float32)
    ends = [ops.constant(one) for one in (low, high, low, high)]
    return _model(ops.fake_quantize(x, *ends, levels), x)


def _of(build: Callable[[Any], Any], *shape: int) -> Callable[[], Any]:
    """What makes a model of one node on an input of this shape."""

    def make() -> Any:
        x = _parameter(*shape)
        return _model(build(x), x)

    return make


def _transposed(x: Any) -> Any:
    weight = ops.constant(np.random.default_rng(6).normal(size=(2, 3, 3, 3)).astype(np.float32))
    ends = {"pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "output_padding": [1, 1]}
    return ops.convolution_backprop_data(x, weight, [2, 2], **ends)


def _resized(x: Any) -> Any:
    scales, axes = ops.constant(np.array([1.5, 2.0], np.float32)), ops.constant([2, 3])
    return ops.interpolate(x, scales, "linear_onnx", "scales", axes=axes)


def _strided(x: Any) -> Any:
    return ops.strided_slice(x, [0, 1, 0], [2, -1, 1], [1, 2, 1], [1, 0, 0], [1, 0, 0], [], [0, 0, 1])


KINDS = {
    "attention": _of(lambda x: ops.scaled_dot_product_attention(x, x, x), 1, 5, 4),
    "bidirectional": lambda: _lstm("bidirectional"),
    "branch, else": lambda: _branched(100.0),
    "branch, then": lambda: _branched(-100.0),
    "clamp": _of(lambda x: ops.clamp(x, -0.5, 0.5), 2, 6),
    "coarse": lambda: _quantized(16),
    "compressed": _compressed,
    "forward": lambda: _lstm("forward"),
    "four bits": _in_groups,
    "gelu": _of(lambda x: ops.gelu(x, "tanh"), 2, 6),
    "iterated": lambda: _iterated(1),
    "iterated backwards": lambda: _iterated(-1),
    "large": _large,
    "looped": _looped,
    "mvn": _of(lambda x: ops.mvn(x, ops.constant([-1]), True, 1e-3, "inside_sqrt"), 2, 6),
    "norm": _of(lambda x: ops.normalize_l2(x, ops.constant([1]), 1e-6, "add"), 3, 6),
    "pad": _of(lambda x: ops.pad(x, [0, 1], [1, 2], "reflect"), 3, 6),
    "pool": _of(lambda x: ops.avg_pool(x, [2, 2], [1, 1], [0, 0], [3, 3], True, "ceil"), 1, 2, 6, 6),
    "quantized": lambda: _quantized(256),
    "resize": _of(_resized, 1, 2, 4, 4),
    "split": _of(lambda x: ops.variadic_split(x, 1, ops.constant([2, -1])).output(1), 2, 6),
    "state": _with_state,
    "squares": _of(lambda x: ops.squared_difference(x, ops.constant(np.float32(0.3))), 3, 6),
    "strided": _of(_strided, 2, 6, 3),
    "swish": _of(ops.swish, 2, 6),
    "topk": _of(lambda x: ops.topk(x, ops.constant(2), 1, "max", "value").output(0), 2, 6),
    "transposed": _of(_transposed, 1, 2, 4, 4),
    "turned": _of(lambda x: ops.matmul(x, ops.constant(np.ones((3, 6), np.float32)), False, True), 2, 6),
}


def _plain() -> Any:
    """Without ONNX Runtime's optimizer, which rounds what compressed weights are multiplied with."""
    found = ort.SessionOptions()
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return found


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("opset", [13, 21])
def test_an_operator_computes_the_same_in_those_of_onnx(tmp_path: Path, name: str, opset: int) -> None:
    path = tmp_path / f"{name}.xml"
    ov.save_model(KINDS[name](), path, compress_to_fp16=False)
    model = ov.Core().read_model(path)
    shape = model.input(0).shape
    x = np.random.default_rng(5).normal(size=list(shape)).astype(np.float32)
    wanted = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]
    found = translated_file(path, opset)
    message = onnx.load(found)
    assert not [node.op_type for node in message.graph.node if node.domain == UNREAD]
    onnx.checker.check_model(message)
    (given,) = ort.InferenceSession(str(found), _plain()).run(None, {message.graph.input[0].name: x})
    np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5)


def test_what_has_no_translation_is_left_unread_and_named(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    def edit(model: Any) -> None:
        _weight("MatMul", lambda array: 3 * array)(model)
        node = _nodes(model, "Sigmoid")[0]
        _put(node.output(0), ops.reverse_sequence(ops.sigmoid(node.input_value(0)), np.array([1]), 0, 1).output(0))

    path = _converted(reference, edit)
    message = onnx.load(translated_file(path, 17))
    assert [node.op_type for node in message.graph.node if node.domain == UNREAD] == ["ReverseSequence"]
    document = _diagnosed(capsys, reference, path)
    assert "constant w3 of MatMul" in document["findings"][0]["claim"]
    assert [one for one in document["skipped"] if "ReverseSequence" in one["reason"]]


@pytest.mark.parametrize(("factor", "declared"), [(1.0, True), (1.5, False)])
def test_weights_of_four_bits_are_on_the_grid_that_their_groups_declare(
    tmp_path: Path, factor: float, declared: bool
) -> None:
    draw = np.random.default_rng(11)
    weight = draw.normal(size=(16, 4, 8)).astype(np.float32)
    scale = ((weight.max(-1, keepdims=True) - weight.min(-1, keepdims=True)) / 15).astype(np.float32)
    zero = np.rint(-weight.min(-1, keepdims=True) / scale)
    held = np.clip(np.rint(weight / scale) + zero, 0, 15)
    x = _parameter(2, 32)
    parts = [ops.convert(ops.constant(one.astype(np.uint8), dtype=ov.Type.u4), "f32") for one in (held, zero)]
    whole = ops.multiply(ops.subtract(*parts), ops.constant((factor * scale).astype(np.float32)))
    path = tmp_path / "candidate.xml"
    model = _model(ops.matmul(x, ops.reshape(whole, [16, 32], False), False, True), x)
    ov.save_model(model, path, compress_to_fp16=False)
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,32] x) => (float[2,16] y) { y = MatMul(x, w) }'
    reference = write_network(tmp_path / "reference.onnx", text, {"w": np.ascontiguousarray(weight.reshape(16, 32).T)})
    feeds = {"x": draw.normal(size=(2, 32)).astype(np.float32)}
    wrong = ((held - zero) * factor * scale).reshape(16, 32)
    sample = SideOutputs(
        inputs=feeds,
        reference={"y": feeds["x"] @ weight.reshape(16, 32).T},
        candidate={"y": (feeds["x"] @ wrong.T).astype(np.float32)},
    )
    compared = compare_graphs(load_model(reference), load_model(translated_file(path, 17)), [sample])
    [(unit, share)] = compared.decision.causes
    assert share > 0.99
    assert unit.declared is declared


@pytest.mark.parametrize(
    ("kind", "build", "words"),
    [
        ("Add", ops.maximum, "Max n in place of BatchNormalization n; Conv c is given no B"),
        ("Add", ops.subtract, "the bias of w1, with what is folded into it: times -1"),
        ("Relu", ops.sqrt, "Sqrt r in place of Relu r"),
    ],
)
def test_another_operator_in_an_ir_is_one_difference(
    reference: Path, kind: str, build: Callable[..., Any], words: str
) -> None:
    def edit(model: Any) -> None:
        node = _nodes(model, kind)[0]
        _put(node.output(0), build(*(node.input_value(place) for place in range(node.get_input_size()))).output(0))

    path = _converted(reference, edit)
    compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    sample = SideOutputs(
        inputs=X,
        reference={"y": ort.InferenceSession(str(reference)).run(None, X)[0]},
        candidate={"y": next(iter(compiled(list(X.values())).values()))},
    )
    compared = compare_graphs(load_model(reference), load_model(translated_file(path, 17)), [sample])
    assert [one.differences[0].words for one, _ in compared.decision.causes] == [words]
