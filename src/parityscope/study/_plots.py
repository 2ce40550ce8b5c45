"""What the report draws of a study: histograms of a few tensors, the graph, and what lies around the leading suspects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.case.graph import consumers_of, node_name
from parityscope.comparison import to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.comparison import Statistics
    from parityscope.records import Suspect

__all__ = ["graph_views", "graph_wiring", "plots_of"]

_DRAWN = 3  # suspects that get histograms and a view of the graph
_REACH = 3  # nodes up and down from a suspect in its view
_VIEW_NODES = 18


def plots_of(
    outputs: Mapping[str, Statistics], tensors: Mapping[str, Statistics], suspects: tuple[Suspect, ...]
) -> dict[str, Any]:
    """Histograms of the outputs and of the leading suspects, by tensor."""
    leading = [suspect.site.tensor for suspect in suspects[:_DRAWN] if suspect.site.tensor in tensors]
    chosen = {**outputs, **{name: tensors[name] for name in leading}}
    return {name: _plot_of(statistics) for name, statistics in chosen.items() if statistics.is_float}


def _plot_of(statistics: Statistics) -> dict[str, Any]:
    plain = to_plain(statistics)
    channels = plain.get("channels") or {"worst": []}
    return {
        "reference": _values_of(plain["reference_values"]),
        "candidate": _values_of(plain["candidate_values"]),
        "error": _octaves_of(plain["error_octaves"]),
        "channels": channels["worst"],
    }


def _values_of(histogram: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "negative": _octaves_of(histogram["negative"]),
        "zero": histogram["zero"],
        "positive": _octaves_of(histogram["positive"]),
    }


def _octaves_of(dense: Mapping[str, Any]) -> list[list[int]]:
    return [[int(dense["first"]) + place, int(count)] for place, count in enumerate(dense["counts"]) if count]


def graph_views(model: Model, suspects: tuple[Suspect, ...]) -> dict[str, Any]:
    """The graph around each leading suspect, by tensor."""
    if not suspects:
        return {}
    graph = model.shared_graph()
    computing = [node for node in graph.graph if node.op_type != "Constant"]
    order = {id(node): index for index, node in enumerate(computing)}
    by_tensor = {suspect.site.tensor: suspect for suspect in suspects}
    return {
        suspect.site.tensor: _view_around(suspect, computing, order, by_tensor)
        for suspect in suspects[:_DRAWN]
        if 0 <= suspect.site.index < len(computing)
    }


def _view_around(
    suspect: Suspect, computing: list[ir.Node], order: Mapping[int, int], by_tensor: Mapping[str, Suspect]
) -> dict[str, Any]:
    near = {order[id(node)]: node for node in _neighbours_of(computing[suspect.site.index], order)}
    nodes, edges = [], []
    for index, node in sorted(near.items()):
        mine = next((by_tensor[str(value.name)] for value in node.outputs if value.name in by_tensor), None)
        nodes.append(
            {
                "id": node_name(node, index),
                "label": node.name or node.op_type,
                "op_type": node.op_type,
                "introduced": mine.introduced if mine else None,
                "inherited": mine.inherited if mine else None,
                "is_suspect": index == suspect.site.index,
            }
        )
        for value in node.inputs:
            before = None if value is None else value.producer()
            if value is not None and before is not None and order.get(id(before), -1) in near:
                edges.append([node_name(before, order[id(before)]), node_name(node, index), value.name])
    return {"nodes": nodes, "edges": edges}


def _neighbours_of(center: ir.Node, order: Mapping[int, int]) -> list[ir.Node]:
    """Nodes within `_REACH` steps of `center`, nearest first, at most `_VIEW_NODES`."""
    found: dict[int, ir.Node] = {id(center): center}
    edge = [center]
    for _ in range(_REACH):
        ahead = []
        for node in edge:
            before = [value.producer() for value in node.inputs if value is not None]
            behind = [user for value in node.outputs for user in consumers_of(value)]
            for other in (*before, *behind):
                if other is not None and id(other) in order and id(other) not in found and len(found) < _VIEW_NODES:
                    found[id(other)] = other
                    ahead.append(other)
        edge = ahead
    return list(found.values())


def graph_wiring(model: Model) -> dict[str, Any]:
    """The whole graph for a map of it: of each node in order its name, its operator, and the nodes that it reads."""
    graph = model.shared_graph()
    computing = [node for node in graph.graph if node.op_type != "Constant"]
    order = {id(node): index for index, node in enumerate(computing)}
    reads = [
        sorted({order[id(before)] for value in node.inputs if (before := _producer_of(value)) and id(before) in order})
        for node in computing
    ]
    return {
        "names": [node_name(node, index) for index, node in enumerate(computing)],
        "operators": [node.op_type for node in computing],
        "reads": reads,
    }


def _producer_of(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()
