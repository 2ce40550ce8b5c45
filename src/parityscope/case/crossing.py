"""Cuts through a graph: the values that cross from the first k nodes, in topological order, to the rest.

What depends on no model input (weights, constants and what is computed from them) is on both sides of every cut. Bodies
of control flow belong to their node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import computing_nodes, dependencies_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The cut in front of the node with topological index `index`.

    `values` are read behind it and computed in front of it, `done` are the graph outputs computed in front of it.
    """

    index: int
    values: tuple[ir.Value, ...]
    done: frozenset[str]


def all_crossings(model: ir.Model) -> list[Crossing]:
    """Every cut between two nodes, the first one behind the first node; `model` is put in topological order."""
    model.graph.sort()
    nodes = computing_nodes(model)
    inputs = {id(value) for value in model.graph.inputs if value.name not in model.graph.initializers}
    alive: set[int] = set(inputs)
    last: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if any(id(value) in alive for value in dependencies_of(node)):
            alive.update(id(value) for value in node.outputs)
        last.update((id(value), index) for value in dependencies_of(node))
    outputs = {id(value) for value in model.graph.outputs}
    open_values: dict[int, ir.Value] = {}
    done: set[str] = set()
    found = []
    for index, node in enumerate(nodes):
        if index and open_values:
            found.append(Crossing(index=index, values=tuple(open_values.values()), done=frozenset(done)))
        for value in node.outputs:
            if id(value) in outputs:
                done.add(str(value.name))
            if id(value) in alive and last.get(id(value), -1) > index:
                open_values[id(value)] = value
        for value in dependencies_of(node):
            if last[id(value)] == index:
                open_values.pop(id(value), None)
    return found
