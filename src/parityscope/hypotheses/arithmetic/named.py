"""The arithmetic that a stretch is computed in, by its name: what another process is told of a variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.hypotheses.arithmetic import RegionContext as ArithmeticContext
from parityscope.hypotheses.arithmetic import Variant, known_hypotheses

if TYPE_CHECKING:
    from parityscope.hypotheses.stretch import StretchContext

__all__ = ["variant_of"]


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
