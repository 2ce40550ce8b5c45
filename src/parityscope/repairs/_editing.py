"""What repairs do to a graph: find the nodes of a finding, give a node another constant, put one value in another's place.

Names of values that others read by name (graph outputs, and whatever a repair replaces) are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import drop_if_unread, give_back, redirect_uses
from parityscope.case.graph import computing_nodes, constant_value, node_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir

    from parityscope.records import Finding


def nodes_of(model: ir.Model, finding: Finding) -> list[ir.Node]:
    """The nodes of the main graph that a finding is about: details "node", else "nodes", else its site."""
    details = finding.details
    if "node" in details:
        wanted = {str(details["node"])}
    elif details.get("nodes"):
        wanted = {str(name) for name in details["nodes"]}
    else:
        wanted = {finding.site.node} if finding.site is not None else set()
    return [node for index, node in enumerate(computing_nodes(model)) if node_name(node, index) in wanted]


def has_consent(finding: Finding, name: str) -> bool:
    """Whether the reader agreed to repair `name`: details "consents" is a list of names of repairs."""
    return name in finding.details.get("consents", ())


def array_of(value: ir.Value | None) -> np.ndarray | None:
    """The elements of a constant that no caller can override, in its own shape and dtype; None for anything else."""
    if value is None or value.is_graph_input():
        return None
    tensor = constant_value(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def scalar_of(value: ir.Value | None) -> float | None:
    """The number in a constant of one element; None for anything else."""
    array = array_of(value)
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind != "b" else None


def only_reader(value: ir.Value) -> ir.Node | None:
    """The node that alone reads `value`; None where there are several, none, or the caller of the model reads it."""
    readers = list(dict.fromkeys(node for node, _ in value.uses()))
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None


def insert_before(
    before: ir.Node,
    operator: str,
    inputs: Sequence[ir.Value | None],
    name: str,
    attributes: Sequence[ir.Attr] = (),
    like: ir.Value | None = None,
) -> ir.Value:
    """A new node in front of `before`, in its graph; gives its output, of the element type of `like`."""
    import onnx_ir as ir

    kind = None if like is None else like.type
    node = ir.Node("", operator, inputs, attributes=attributes, outputs=[ir.Value(name=name, type=kind)])
    graph = before.graph
    if graph is None:
        raise ValueError("a node outside of a graph has no place to insert before")
    graph.insert_before(before, node)
    return node.outputs[0]


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Every reader of `old` reads `new`, which takes over its name and what is declared about it."""
    redirect_uses(list(old.uses()), new)
    give_back(old, new)
    name = old.name
    old.name = f"{name}::old"
    new.name = name
    if new.type is None:
        new.type = old.type
    if new.shape is None:
        new.shape = old.shape


def remove_unread(model: ir.Model, nodes: Iterable[ir.Node]) -> None:
    """Removes those of `nodes`, and of the nodes before them, whose outputs nobody reads any more."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.graph is None or any(value.is_graph_output() or list(value.uses()) for value in node.outputs):
            continue
        sources = [value for value in node.inputs if value is not None]
        model.graph.remove(node, safe=True)
        for value in sources:
            drop_if_unread(value)
        waiting.extend(before for value in sources if (before := value.producer()) is not None)
