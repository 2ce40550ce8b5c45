"""Softmax written as `Exp(x - max) / sum(Exp(x - max))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import MatchedRegion, data_inputs, dominated_nodes, is_closed
from parityscope.arithmetic.fusion.patterns import Pattern

if TYPE_CHECKING:
    import onnx_ir as ir

_NODES = frozenset({"Div", "Exp", "ReduceMax", "ReduceSum", "Sub"})


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The Softmax whose division is `node`."""
    if node.op_type != "Div" or len(data_inputs(node)) != 2:
        return None
    # The nearest value that all comes from is Exp's output; its own input is what enters.
    found = dominated_nodes(node, _NODES, order)
    exponential = None if found is None else found[1].producer()
    if found is None or exponential is None or exponential.op_type != "Exp":
        return None
    nodes = (exponential, *found[0])
    shift = exponential.inputs[0].producer() if exponential.inputs[0] is not None else None
    entries = tuple(data_inputs(exponential))
    if shift is not None and shift.op_type == "Sub" and (above := dominated_nodes(shift, _NODES, order)) is not None:
        nodes, entries = (*above[0], *nodes), (above[1],)
    if not is_closed(nodes, node.outputs[0]):
        return None
    return MatchedRegion(kind="Softmax", nodes=nodes, entries=entries, output=node.outputs[0])


PATTERNS = (Pattern(kind="Softmax", match=match, engines=frozenset({"openvino", "tensorrt"}), place=20),)
