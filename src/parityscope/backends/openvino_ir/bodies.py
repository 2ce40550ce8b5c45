"""If, Loop and TensorIterator of OpenVINO, whose bodies are models of their own, as ONNX's If and Loop; and what keeps a state.

A slice that a body reads in each turn is a Gather at that turn's index; what a body's results are put together of is a result of
each turn, whose axis is moved. A body with an operator that has no translation leaves the whole unread. Of a variable the first
call reads its initial value: each sample is run as the first one.

Source: OpenVINO's specifications of If-8, Loop-5, TensorIterator-1 and ReadValue-6.

Recurrent operators: OpenVINO goes over batches first and has gates in another order; its bias is the sum of ONNX's two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from parityscope.backends.openvino_ir.operators import ELEMENT_TYPES
from parityscope.backends.openvino_ir.writing import OnnxWriter, UntranslatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.backends.openvino_ir.operators import Translator
    from parityscope.backends.openvino_ir.translating import OpenvinoNode

    WriteBody = Callable[[OnnxWriter, Any, Mapping[int, str]], list[str]]
    from collections.abc import Mapping

# Of each gate of ONNX's, its place in OpenVINO's: LSTM is iofc there and fico here, GRU zrh in both.
_GATES = {"LSTMSequence": ("LSTM", (1, 3, 0, 2)), "GRUSequence": ("GRU", (0, 1, 2)), "RNNSequence": ("RNN", (0,))}
_DIRECTIONS = {"forward": "forward", "reverse": "reverse", "bidirectional": "bidirectional"}


def translators_of_bodies(write_body: WriteBody) -> dict[str, Translator]:
    """The translators of operators that hold bodies or states."""
    return {
        "If": lambda write, node: _write_if(write, node, write_body),
        "Loop": lambda write, node: _write_loop(write, node, write_body),
        "TensorIterator": lambda write, node: _write_loop(write, node, write_body),
        "ReadValue": _read_variable,
        "Assign": lambda write, node: write.emit("Identity", node.inputs[:1]),
    }


def _read_variable(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if not node.inputs:
        raise UntranslatedError("nothing says the initial value of its variable")
    return write.emit("Identity", node.inputs[:1])


def _write_if(write: OnnxWriter, node: OpenvinoNode, write_body: WriteBody) -> list[str]:
    held, branches = node.body_holder, []
    for which in (0, 1):
        body = held.get_function(which)
        given = {one.body_parameter_index: node.inputs[one.input_index] for one in held.get_input_descriptions(which)}
        inner = _inner_writer(write)
        results = write_body(inner, body, given)
        places = {one.output_index: one.body_value_index for one in held.get_output_descriptions(which)}
        outputs = [_declare_result(inner, results, body, places[place]) for place in range(len(node.outputs))]
        branches.append(helper.make_graph(inner.nodes, inner.fresh_name(), [], outputs, inner.constants))
    condition = write.emit_one("Reshape", node.inputs[0], write.add_constant(np.zeros(0, np.int64)))
    then, other = branches
    return write.emit("If", [condition], outputs=len(node.outputs), then_branch=then, else_branch=other)


def _write_loop(write: OnnxWriter, node: OpenvinoNode, write_body: WriteBody) -> list[str]:
    held = node.body_holder
    body, inner = held.get_function(), _inner_writer(write)
    turn, going = inner.fresh_name(), inner.fresh_name()
    counter, condition = held.get_special_body_ports() if node.kind == "Loop" else (-1, -1)
    given: dict[int, str] = {}
    merged = []
    for one in held.get_input_descriptions():
        kind = type(one).__name__
        if kind == "MergedInputDescription":
            given[one.body_parameter_index] = inner.fresh_name()
            merged.append(one)
        elif kind == "SliceInputDescription":
            given[one.body_parameter_index] = _read_slice(inner, node, one, turn)
        else:
            given[one.body_parameter_index] = node.inputs[one.input_index]
    if counter >= 0:
        kind = body.get_parameters()[counter].get_element_type().get_type_name()
        shape = list(body.get_parameters()[counter].get_output_shape(0))
        number = inner.emit_one("Cast", turn, to=ELEMENT_TYPES[kind])
        given[counter] = inner.emit_one("Reshape", number, inner.add_constant(np.array(shape, np.int64)))
    results = write_body(inner, body, given)
    go_on = results[condition] if condition >= 0 else going
    still = inner.emit_one("Reshape", go_on, inner.add_constant(np.zeros(0, np.int64)))
    outputs = [helper.make_tensor_value_info(still, onnx.TensorProto.BOOL, None)]
    outputs += [_declare_result(inner, results, body, one.body_value_index) for one in merged]
    told = sorted(held.get_output_descriptions(), key=lambda one: one.output_index)
    states = {one.body_value_index: place for place, one in enumerate(merged)}
    turned = [one for one in told if hasattr(one, "axis") or one.body_value_index not in states]
    outputs += [_declare_result(inner, results, body, one.body_value_index) for one in turned]
    kinds = [body.get_parameters()[one.body_parameter_index].get_element_type().get_type_name() for one in merged]
    inputs = [
        helper.make_tensor_value_info(turn, onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, []),
        *(
            helper.make_tensor_value_info(given[one.body_parameter_index], ELEMENT_TYPES[kind], None)
            for one, kind in zip(merged, kinds, strict=True)
        ),
    ]
    graph = helper.make_graph(inner.nodes, inner.fresh_name(), inputs, outputs, inner.constants)
    begin = [node.inputs[one.input_index] for one in merged]
    made = write.emit("Loop", [*_turns_of(write, node), *begin], outputs=len(merged) + len(turned), body=graph)
    found = []
    for one in told:
        if one in turned:
            found.append(_put_together(write, made[len(merged) + turned.index(one)], one))
        else:
            found.append(made[states[one.body_value_index]])
    return found


def _turns_of(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """How often a loop turns at most, and whether it does at all."""
    scalar = np.zeros(0, np.int64)
    if node.kind == "TensorIterator":
        count = int(node.body_holder.get_num_iterations())
        if count < 0:
            raise UntranslatedError("how often it turns is not known before it runs")
        return [write.add_constant(np.array(count, np.int64)), ""]
    known = node.maybe_constant(0)
    count_name = ""
    if known is None or int(known.reshape(-1)[0]) >= 0:
        number = write.emit_one("Cast", node.inputs[0], to=onnx.TensorProto.INT64)
        count_name = write.emit_one("Reshape", number, write.add_constant(scalar))
    return [count_name, write.emit_one("Reshape", node.inputs[1], write.add_constant(scalar))]


def _read_slice(inner: OnnxWriter, node: OpenvinoNode, one: Any, turn: str) -> str:
    """What a turn reads of an input: the part of one index along an axis, which stays."""
    if one.part_size != 1:
        raise UntranslatedError(f"its body reads {one.part_size} indices in each turn")
    size = node.in_shape(one.input_index, known=False)[one.axis]
    if one.start < 0 and size < 0:
        raise UntranslatedError("where its first turn reads is not known before it runs")
    start = one.start if one.start >= 0 else size + one.start
    step = inner.emit_one("Mul", turn, inner.add_constant(np.array(one.stride, np.int64)))
    place = inner.emit_one("Add", step, inner.add_constant(np.array(start, np.int64)))
    index = inner.emit_one("Reshape", place, inner.add_constant(np.array([1], np.int64)))
    return inner.emit_one("Gather", node.inputs[one.input_index], index, axis=one.axis)


def _put_together(write: OnnxWriter, turned: str, one: Any) -> str:
    """The results of all turns, (turns, ...), along the axis that they are put together along; or that of the last turn."""
    if not hasattr(one, "axis"):
        return write.emit_one("Gather", turned, write.add_constant(np.array(-1, np.int64)), axis=0)
    if one.part_size != 1:
        raise UntranslatedError(f"its body gives {one.part_size} indices in each turn")
    if one.stride < 0:
        begin, end, axis, step = (write.add_constant(np.array([each], np.int64)) for each in (-1, -(1 << 62), 0, -1))
        turned = write.emit_one("Slice", turned, begin, end, axis, step)
    # A Transpose would have to know the rank: the turns, of one index each, are joined as a sequence.
    parts = write.emit_one("SplitToSequence", turned, axis=0, keepdims=0)
    return write.emit_one("ConcatFromSequence", parts, axis=one.axis)


def _inner_writer(write: OnnxWriter) -> OnnxWriter:
    inner = OnnxWriter(write.opset)
    inner.taken, inner.stem = write.taken, write.stem
    return inner


def _declare_result(inner: OnnxWriter, results: list[str], body: Any, place: int) -> onnx.ValueInfoProto:
    """A result of a body under a name of its own."""
    kind = body.get_results()[place].get_element_type().get_type_name()
    return helper.make_tensor_value_info(inner.emit_one("Identity", results[place]), ELEMENT_TYPES[kind], None)


def _write_sequence(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """X (B, T, I), states (B, D, H) and lengths (B) -> Y (B, D, T, H) and the last states (B, D, H)."""
    op_type, order = _GATES[node.kind]
    states = 2 if op_type == "LSTM" else 1
    x, *rest = node.inputs
    given, (lengths, weight, recurrence, bias) = rest[:states], rest[states : states + 4]
    usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[op_type]
    if [one.lower() for one in node.get_attribute("activations", usual)] != usual:
        raise UntranslatedError("activations of its own")
    reset = int(bool(node.get_attribute("linear_before_reset", False)))
    arranged = [_arrange_gates(write, name, order) for name in (weight, recurrence)]
    turned = [write.emit_one("Transpose", name, perm=[1, 0, 2]) for name in (x, *given)]
    clip = float(node.get_attribute("clip", 0.0))
    made = write.emit(
        op_type,
        [
            turned[0],
            *arranged,
            _both_biases(write, bias, order, reset=reset),
            _read_as_int32(write, node, lengths),
            *turned[1:],
        ],
        outputs=1 + states,
        hidden_size=int(node.get_attribute("hidden_size")),
        direction=_DIRECTIONS[str(node.get_attribute("direction")).lower()],
        clip=clip or None,
        linear_before_reset=reset if op_type == "GRU" else None,
    )
    whole = write.emit_one("Transpose", made[0], perm=[2, 1, 0, 3])
    return [whole, *(write.emit_one("Transpose", name, perm=[1, 0, 2]) for name in made[1:])]


def _arrange_gates(write: OnnxWriter, name: str, order: tuple[int, ...]) -> str:
    """Gates along axis 1 in the order of ONNX's."""
    if list(order) == sorted(order):
        return name
    parts = write.emit("Split", [name], outputs=len(order), axis=1, **_equal_parts(write, len(order)))
    return write.emit_one("Concat", *(parts[place] for place in order), axis=1)


def _equal_parts(write: OnnxWriter, count: int) -> Mapping[str, int]:
    return {"num_outputs": count} if write.opset >= 18 else {}


def _both_biases(write: OnnxWriter, bias: str, order: tuple[int, ...], *, reset: int) -> str:
    """The one bias as that of inputs, and zeros as that of states; a GRU that resets behind its product has one of each there."""
    if reset:
        parts = write.emit("Split", [bias], outputs=4, axis=1, **_equal_parts(write, 4))
        nought = write.emit_one("Mul", parts[0], write.add_constant(np.float32(0)))
        return write.emit_one("Concat", *parts[:3], nought, nought, parts[3], axis=1)
    arranged = _arrange_gates(write, bias, order)
    return write.emit_one(
        "Concat", arranged, write.emit_one("Mul", arranged, write.add_constant(np.float32(0))), axis=1
    )


def _read_as_int32(write: OnnxWriter, node: OpenvinoNode, name: str) -> str:
    return name if node.in_type(node.inputs.index(name)) == "i32" else write.emit_one("Cast", name, to=6)


RECURRENT: Mapping[str, Translator] = dict.fromkeys(_GATES, _write_sequence)
