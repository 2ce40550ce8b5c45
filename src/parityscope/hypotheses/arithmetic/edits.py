"""Small edits of a region's graph.

The arithmetic that a stretch is computed in, by its name: what another process is told of a variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.graphs import give_back, redirect_uses
from parityscope.hypotheses.arithmetic import RegionContext as ArithmeticContext
from parityscope.hypotheses.arithmetic import Variant, known_hypotheses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.hypotheses.stretch import StretchContext


def variant_of(context: StretchContext, name: str, words: str) -> Variant:
    """The variant of the hypothesis `name` that is told in `words`, for the last node of a stretch; FP32 without a name.

    Raises:
        KeyError: there is none.
    """
    if not name:
        return Variant(words="FP32")
    last = context.nodes[context.stretch[-1]]
    graph = onnx.GraphProto(name="stretch", node=[context.nodes[index] for index in context.stretch])
    made = {output for node in graph.node for output in node.output}
    free = {read for node in graph.node for read in node.input if read} - made
    graph.initializer.extend(
        onnx.numpy_helper.from_array(context.constants[read], read)
        for read in sorted(free)
        if read in context.constants and context.constants[read].dtype != object
    )
    held = {one.name for one in graph.initializer}
    graph.input.extend(onnx.ValueInfoProto(name=read) for read in sorted(free - held))
    graph.output.extend([onnx.ValueInfoProto(name=context.output)])
    opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in context.opsets.items()]
    model = ir.from_proto(onnx.ModelProto(ir_version=context.ir_version, graph=graph, opset_import=opsets))
    node = next(one for one in model.graph if any(value.name in last.output for value in one.outputs))
    nothing = np.zeros(context.candidate[0].shape)
    asked = ArithmeticContext(model=model, candidate=nothing, replayed=nothing, value=lambda _: nothing)
    return next(
        (variant for variant in known_hypotheses()[name].variants(node, asked) if variant.words == words),
        Variant(words="FP32"),
    )


def insert_before(
    node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, int] | None = None
) -> ir.Value:
    """A new node right before `node`; gives its output."""
    made = ir.node(op_type, inputs, attributes, num_outputs=1)
    made.outputs[0].name = f"{node.outputs[0].name}::{op_type}{_count_nodes(node)}"
    node.prepend(made)
    return made.outputs[0]


def substitute_result(node: ir.Node, value: ir.Value) -> None:
    """Lets everything that read the first output of `node` read `value`; the node goes if nothing needs it."""
    old = node.outputs[0]
    redirect_uses([use for use in old.uses() if use[0] is not value.producer()], value)
    give_back(old, value)


def insert_behind(
    node: ir.Node,
    op_type: str,
    others: Sequence[ir.Value | None] = (),
) -> ir.Value:
    """A new node on the first output of `node` (and `others`), which everything reads from now on instead."""
    old = node.outputs[0]
    made = ir.Node("", op_type, [old, *others], num_outputs=1)
    made.outputs[0].name = f"{old.name}::{op_type}{_count_nodes(node)}"
    node.append(made)
    substitute_result(node, made.outputs[0])
    return made.outputs[0]


def _count_nodes(node: ir.Node) -> int:
    """The number of nodes in the graph: grows with every insertion, so that it makes names fresh."""
    if node.graph is None:
        raise ValueError(f"{node.op_type} belongs to no graph")
    return len(node.graph)
