"""What pattern matching in a graph needs: constants, regions, and who else reads what is inside them.

Engines match patterns after folding constants, so that a value counts as constant here when it depends on constants
alone. A region may become one kernel only if nothing but its output is read outside it or given back: an
intermediate that somebody else wants must be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.light_dataclasses import dataclass
from parityscope.operators import CONTRACTIONS, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import onnx_ir as ir

_MOST_NODES = 16  # of a decomposition; chosen: the longest that is known has 12

PRODUCTS = CONTRACTIONS

# Operators that compute each element of the output from one element of each input.
POINTWISE = with_trait("pointwise")
# Chosen: weights and biases lie behind a handful of operators, and the question is asked of every input of a graph.
_STATIC_LIMIT = 24
_RANDOM = of_kind("random")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRegion:
    """Nodes that match a pattern: its kind, its nodes in topological order, what enters and what leaves."""

    kind: str
    nodes: tuple[ir.Node, ...]
    entries: tuple[ir.Value, ...]
    output: ir.Value


def order_of(model: ir.Model) -> dict[ir.Node, int]:
    """The place of every node, bodies included, in an order in which users come behind what they use."""
    return {node: index for index, node in enumerate(model.graph.all_nodes())}


def is_static(value: ir.Value) -> bool:
    """Whether a value depends on constants alone (engines compute it before the first inference).

    What more than `_STATIC_LIMIT` values lead to counts as computed.
    """
    stack: list[ir.Value] = [value]
    seen: set[ir.Value] = set()
    while stack:
        each = stack.pop()
        if len(seen) > _STATIC_LIMIT:
            return False
        if each in seen or constant_value(each) is not None:
            continue
        seen.add(each)
        node = each.producer()
        if node is None or bodies_of_node(node) or node.op_type in _RANDOM:
            return False
        stack.extend(held for held in node.inputs if held is not None)
    return True


def data_inputs(node: ir.Node) -> list[ir.Value]:
    """The inputs that are not constant, each once."""
    return list(dict.fromkeys(value for value in node.inputs if value is not None and not is_static(value)))


def scalar_constant(value: ir.Value | None) -> float | None:
    """The number that a constant of one element holds; None for anything else."""
    tensor = None if value is None else constant_value(value)
    if tensor is None or tensor.size != 1 or not tensor.dtype.is_floating_point():
        return None
    return float(tensor.numpy().reshape(-1)[0])


def only_use(value: ir.Value) -> tuple[ir.Node, int] | None:
    """The one input that reads a value; None where there are others, or the graph gives it back."""
    uses = list(value.uses())
    return uses[0] if len(uses) == 1 and not value.is_graph_output() else None


def is_closed(nodes: Collection[ir.Node], output: ir.Value) -> bool:
    """Whether of what `nodes` compute only `output` is read by others or given back."""
    members = set(nodes)
    return all(
        value is output or (not value.is_graph_output() and all(user in members for user, _ in value.uses()))
        for node in nodes
        for value in node.outputs
    )


def dominated_nodes(
    last: ir.Node, allowed: Collection[str], order: dict[ir.Node, int]
) -> tuple[tuple[ir.Node, ...], ir.Value] | None:
    """The nodes above `last` down to the one value that all of its inputs come from, and that value.

    None where a node above is not of the operators `allowed`, is in another graph, or there are too many.
    """
    frontier = dict.fromkeys(data_inputs(last))
    nodes = [last]
    while len(frontier) > 1:
        deepest = max(frontier, key=lambda value: _producer_place(value, order))
        node = deepest.producer()
        if node is None or node.op_type not in allowed or node.graph is not last.graph or len(nodes) == _MOST_NODES:
            return None
        nodes.append(node)
        for value in node.outputs:
            frontier.pop(value, None)
        frontier.update(dict.fromkeys(data_inputs(node)))
    if len(frontier) != 1:
        return None
    return _sort_by_order(nodes, order), next(iter(frontier))


def _producer_place(value: ir.Value, order: dict[ir.Node, int]) -> int:
    node = value.producer()
    return -1 if node is None else order[node]


def _sort_by_order(nodes: Iterable[ir.Node], order: dict[ir.Node, int]) -> tuple[ir.Node, ...]:
    return tuple(sorted(nodes, key=lambda node: order[node]))
