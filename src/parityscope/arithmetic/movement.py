"""Which tensors need no rounding of their own because they only hold numbers that were rounded before.

Rounding is idempotent, and these operators copy elements of their inputs, choose among them, change their sign or put
in zeros, all of which every format represents. A Cast from a narrow integer gives numbers that fit in the significand
(the weights of models with compressed weights). Leaving such an operator out of the table costs time; putting one in
that computes would lose a rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.case.graph import bodies_of_node
from parityscope.operators import STANDARD, with_trait

if TYPE_CHECKING:
    from parityscope.arithmetic.sites import RoundingPlan

MOVES = with_trait("keeps elements")
_COMPUTES_WITH = {one.name: one.computes_with for one in STANDARD.values()}
# The first of its body's inputs and of its own inputs that hold data, and the first of the body's outputs.
LOOPS = {one.name: one.carries for one in STANDARD.values() if one.carries is not None}

# Integers up to 2^n in magnitude are exact in a format of n bits of precision that reaches so far.
_INTEGER_BITS = {
    ir.DataType.BOOL: 1,
    ir.DataType.INT2: 1,
    ir.DataType.UINT2: 2,
    ir.DataType.INT4: 3,
    ir.DataType.UINT4: 4,
    ir.DataType.INT8: 7,
    ir.DataType.UINT8: 8,
}


def already_rounded(model: ir.Model, plan: RoundingPlan) -> frozenset[ir.Value]:
    """The values that, with every other one rounded as `plan` says, hold only numbers of their own format."""
    found: set[ir.Value] = set()
    for node in model.graph.all_nodes():
        inner = bodies_of_node(node)
        found.update(value for body in inner for value in body.inputs if _enters_rounded(value, node, body, plan))
        if inner:
            found.update(value for value in node.outputs if _leaves_rounded(value, node, inner, plan))
        elif _only_moves(node):
            found.update(value for value in node.outputs if _copies_rounded(value, node, plan))
        elif node.op_type == "Cast" and not node.domain and _is_exact(node, plan):
            found.add(node.outputs[0])
    return frozenset(found)


def _only_moves(node: ir.Node) -> bool:
    computes = any(name in node.attributes for name in _COMPUTES_WITH.get(node.op_type, ()))
    return node.op_type in MOVES and not node.domain and not computes


def _is_exact(node: ir.Node, plan: RoundingPlan) -> bool:
    """Whether a Cast gives integers that the format it is stored in holds."""
    source, held = node.inputs[0], plan.storage.get(node.outputs[0])
    if source is None or held is None or not isinstance(source.type, ir.TensorType):
        return False
    bits = _INTEGER_BITS.get(source.type.dtype)
    return bits is not None and bits <= held.precision and held.largest >= 2**bits


def _copies_rounded(value: ir.Value, node: ir.Node, plan: RoundingPlan) -> bool:
    data = [each for index, each in enumerate(node.inputs) if each is not None and plan.reads_rounded(node, index)]
    return all(_have_same_format(each, value, plan) for each in data if not _holds_no_float(each))


def _enters_rounded(value: ir.Value, node: ir.Node, body: ir.Graph, plan: RoundingPlan) -> bool:
    """An input of a body: rounded if what is fed to it is, at the start and from one iteration to the next."""
    if node.op_type not in LOOPS or len(node.inputs) != len(body.inputs):
        return False
    first_input, first_output = LOOPS[node.op_type]
    position = next(index for index, each in enumerate(body.inputs) if each is value)
    feeds = [node.inputs[position]]
    if first_input <= position < carried_end(node, body):
        feeds.append(body.outputs[position - first_input + first_output])
    return all(each is not None and _have_same_format(each, value, plan) for each in feeds)


def _leaves_rounded(value: ir.Value, node: ir.Node, inner: list[ir.Graph], plan: RoundingPlan) -> bool:
    """An output of control flow: rounded if every body gives it rounded, and what comes out after no iteration is."""
    position = next(index for index, each in enumerate(node.outputs) if each is value)
    first_input, first_output = LOOPS.get(node.op_type, (0, 0))
    sources = [body.outputs[position + first_output] for body in inner]
    if node.op_type in LOOPS and position + first_input < min(carried_end(node, inner[0]), len(node.inputs)):
        start = node.inputs[position + first_input]
        sources.extend([] if start is None else [start])
    return all(_have_same_format(each, value, plan) for each in sources)


def carried_end(node: ir.Node, body: ir.Graph) -> int:
    """Behind the last input of `body` that the iteration before gives."""
    scanned = node.attributes["num_scan_inputs"].as_int() if node.op_type == "Scan" else 0
    return len(body.inputs) - scanned


def _have_same_format(source: ir.Value, value: ir.Value, plan: RoundingPlan) -> bool:
    return source in plan.storage and plan.storage[source] == plan.storage.get(value)


def _holds_no_float(value: ir.Value) -> bool:
    """Whether a value certainly holds no floats of its own: a tensor of another type, or a sequence of tensors.

    What goes into a sequence was rounded before it went in.
    """
    if value.type is None:
        return False
    return not isinstance(value.type, ir.TensorType) or not value.type.dtype.is_floating_point()
