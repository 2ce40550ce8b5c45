"""Control flow with a node of its body changed, as far as a graph can say it: another node, inputs, constants, nodes behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.reference import Inner


def _can_be_written(edit: StretchEdit, constants: Mapping[str, np.ndarray]) -> bool:
    """Whether a graph can say all that the edit does."""
    if edit.opset is not None or edit.after is not None:
        return False
    if edit.behind:
        return edit.before is None and edit.node is None
    if edit.whole is not None:
        return False
    return bool(constants) or edit.before is None or edit.reads is not None


def rewrite_body(
    step: ProgramStep, inner: Inner, edit: StretchEdit, constants: Mapping[str, np.ndarray]
) -> ProgramStep | None:
    """The step whose body has the edit; None where a graph cannot say it."""
    if not _can_be_written(edit, constants):
        return None
    message = ir.serde.serialize_node(step.node)
    graph = next(one.g for one in message.attribute if one.name == inner.body)
    outputs = [value.name for value in inner.step.node.outputs]
    node = next((one for one in graph.node if list(one.output) == outputs), None)
    if node is None:
        return None
    before = list(node.input)
    if constants:
        for index, site in enumerate(inner.step.inputs):
            if site in constants:
                node.input[index] = _put_constant(graph, before[index], constants[site])
    if edit.reads is not None:
        del node.input[:]
        node.input.extend("" if index is None else before[index] for index in edit.reads)
        while node.input and not node.input[-1]:
            node.input.pop()
    if edit.node is not None:
        node.op_type, node.domain = edit.node.op_type, edit.node.domain
        del node.attribute[:]
        node.attribute.extend(edit.node.attribute)
    if edit.behind:
        _put_behind(graph, node, edit)
    changed = _read_back(message, inner)
    kind = b"inside" + message.SerializeToString(deterministic=True)
    return replace(step, node=changed, kind=kind)


def _read_back(message: onnx.NodeProto, inner: Inner) -> ir.Node:
    """The node in a graph where all that its bodies read from outside is there."""
    names = dict.fromkeys((*message.input, *inner.outside))
    graph = onnx.GraphProto(
        name="outside", node=[message], input=[onnx.ValueInfoProto(name=one) for one in names if one]
    )
    return ir.serde.deserialize_graph(graph)[0]


def _put_constant(graph: onnx.GraphProto, name: str, array: np.ndarray) -> str:
    """A constant of the body."""
    made = f"{name}::changed{len(graph.initializer)}"
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), made))
    return made


def _put_behind(graph: onnx.GraphProto, node: onnx.NodeProto, edit: StretchEdit) -> None:
    """Operators of one variable behind a node; whatever read its result reads theirs."""
    name = node.output[0]
    node.output[0] = last = f"{name}::before"
    place = list(graph.node).index(node)
    for count, (op_type, numbers) in enumerate(edit.behind):
        given = name if count == len(edit.behind) - 1 else f"{name}::{count}"
        held = [_put_constant(graph, given, np.asarray(one, np.float32)) for one in numbers]
        place += 1
        graph.node.insert(place, onnx.NodeProto(op_type=op_type, input=[last, *held], output=[given]))
        last = given
