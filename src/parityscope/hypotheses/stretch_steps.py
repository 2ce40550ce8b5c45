"""A stretch of nodes as a program of its own, and its steps with the node, the inputs or the opset that an edit gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from parityscope.case.declaring import names_read
from parityscope.evaluation.program import Program, ProgramStep, compile_program

if TYPE_CHECKING:
    import numpy as np

    from parityscope.hypotheses.edits import Arrays, StretchEdit
    from parityscope.hypotheses.stretch import StretchContext


def build_program(context: StretchContext) -> Program:
    """A program of the context's nodes, whose constants are the context's."""
    made = {name for node in context.nodes for name in node.output}
    read = {name for node in context.nodes for name in names_read(node) if name}
    graph = onnx.GraphProto(name="stretch", node=context.nodes)
    known = {**context.worlds[0], **context.constants}
    free = [name for name in read - made if name in known]
    graph.input.extend(onnx.helper.make_tensor_value_info(name, _element_type(known[name]), None) for name in free)
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in read - made if name not in known)
    graph.output.extend(onnx.ValueInfoProto(name=name) for node in context.nodes for name in node.output if name)
    opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in context.opsets.items()]
    message = onnx.ModelProto(ir_version=context.ir_version, graph=graph, opset_import=opsets)
    return replace(compile_program(ir.from_proto(message)), constants=context.constants)


def fit_inputs(step: ProgramStep, arrays: Arrays) -> ProgramStep:
    """The step with as many inputs as there are arrays, and those left out that are None."""
    if len(arrays) == len(step.inputs) and all(
        (array is None) is not bool(name) for array, name in zip(arrays, step.inputs, strict=True)
    ):
        return step
    names = [*step.inputs[: len(arrays)], *(f"::{index}" for index in range(len(step.inputs), len(arrays)))]
    named = tuple(
        "" if array is None else name or f"::{place}"
        for place, (name, array) in enumerate(zip(names, arrays, strict=True))
    )
    present = bytes(bool(name) for name in named)
    return replace(step, inputs=named, kind=step.kind + b"read" + present)


def change_step(step: ProgramStep, edit: StretchEdit) -> ProgramStep:
    """The step with the edit's node; what it is called and reads stays."""
    node = step.node if edit.node is None else _node_of(edit.node)
    message = onnx.NodeProto() if edit.node is None else edit.node
    kind = b"edited" + message.SerializeToString(deterministic=True) + str(edit.opset).encode()
    return replace(step, node=node, kind=kind if edit.node is not None else kind + step.kind)


def set_opset(program: Program, edit: StretchEdit) -> Program:
    """The program in the version of the operators that the edit reads it in."""
    return replace(program, opsets={**program.opsets, "": edit.opset or program.opsets.get("", 17)})


def _element_type(array: np.ndarray) -> int:
    return int(onnx.TensorProto.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype))


def _node_of(message: onnx.NodeProto) -> ir.Node:
    """The operator and attributes of a message; what it reads and gives is the step's."""
    alone = onnx.NodeProto()
    alone.CopyFrom(message)
    del alone.input[:]
    return ir.serde.deserialize_node(alone)
