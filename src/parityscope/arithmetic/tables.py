"""Large tables that are only gathered from: what is taken out of them is rounded, and not the table.

Rounding element by element and taking elements out give the same in either order, so that a table of gigabytes (the
embedding of a language model) needs no rounded copy, and none in float32 where it is stored in float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import constant_value

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

LARGE = 1 << 26  # bytes; smaller tables are rounded once, before they are gathered from. Chosen


def nodes_reading_tables(model: ir.Model, dtypes: Collection[ir.DataType]) -> list[ir.Node]:
    """The nodes of `model`, bodies included, that take elements of one of these types out of large tables.

    Of a table that anything else reads, or that the graph gives back, there are none.
    """
    found: list[ir.Node] = []
    for value in model.graph.initializers.values():
        tensor = constant_value(value)
        if tensor is None or tensor.dtype not in dtypes or tensor.nbytes < LARGE or value.is_graph_input():
            continue
        uses = list(value.uses())
        if not value.is_graph_output() and all(_is_table_input(node, index) for node, index in uses):
            found.extend(node for node, _ in uses)
    return found


def _is_table_input(node: ir.Node, index: int) -> bool:
    return node.op_type == "Gather" and node.domain in {"", "ai.onnx"} and index == 0
