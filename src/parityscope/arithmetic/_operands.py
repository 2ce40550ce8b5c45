"""What a product reads in a format of its own: TF32 where it is not low, FP8 where it is said to be.

Nodes that round computed operands are added to the list that is handed in; constants are rounded once for all readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import onnx_ir as ir

from parityscope.arithmetic._graphs import constant_tensor
from parityscope.arithmetic.float8 import scaling_nodes
from parityscope.arithmetic.primitives import rounding_nodes
from parityscope.arithmetic.sites import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.arithmetic._switching import Gated
    from parityscope.arithmetic.float8 import Scaling
    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.primitives import Rewriting

__all__ = ["in_eight_bits", "in_full"]


class Constants(Protocol):
    """What makes rounded constants, and knows what products that are not low round their operands to."""

    full: Format | None
    work: Rewriting

    def constant(self, value: ir.Value, number_format: Format) -> ir.Value:
        """The rounded constant."""

    def scaled(self, value: ir.Value, scaling: Scaling) -> ir.Value:
        """The constant as a product reads it in FP8."""


def in_full(builder: Constants, node: ir.Node, nodes: list[ir.Node]) -> dict[int, ir.Value]:
    """What a product that is not low reads rounded to the format of full precision, by input."""
    held = builder.full
    if held is None or node.op_type not in PRODUCTS:
        return {}
    found = {}
    for index in PRODUCTS[node.op_type] or range(len(node.inputs)):
        value = node.inputs[index]
        if value is None or value.dtype != ir.DataType.FLOAT:
            continue
        if constant_tensor(value) is not None:
            found[index] = builder.constant(value, held)
            continue
        nodes.extend(rounding_nodes(value, held, builder.work.names.fresh(value.name, held.name), builder.work))
        found[index] = nodes[-1].outputs[0]
    return found


def in_eight_bits(
    builder: Constants, gated: Gated, inputs: Mapping[int, ir.Value], nodes: list[ir.Node]
) -> dict[int, ir.Value]:
    """The operands in FP8, of what `inputs` puts in the place of the node's own, by input."""
    found = {}
    for index, scaling in gated.scaled.items():
        own = gated.node.inputs[index]
        if own is not None and constant_tensor(own) is not None:
            found[index] = builder.scaled(own, scaling)
        elif own is not None:
            nodes.extend(scaling_nodes(inputs.get(index, own), scaling, builder.work))
            found[index] = nodes[-1].outputs[0]
    return found
