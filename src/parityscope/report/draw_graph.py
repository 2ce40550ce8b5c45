"""The graph around a suspect: nodes in layers from inputs (top) to outputs (bottom), coloured by introduced error.

Layers are longest paths from the sources; a few barycentre sweeps (Sugiyama, Tagawa and Toda 1981) order the nodes
within a layer. The neighbourhood is small (tens of nodes), so nothing cleverer is needed.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from parityscope.report import svg
from parityscope.report._tensors import shade_of_error
from parityscope.report.words import format_figure, shorten_name

__all__ = ["draw_neighbourhood", "shade_of_error", "widest_layer"]

_Edges = Sequence[tuple[str, str, str]]

_BOX, _HIGH, _GAP_X, _GAP_Y, _MARGIN = 224.0, 58.0, 18.0, 34.0, 8.0
_SWEEPS = 4


def widest_layer(graph: Mapping[str, Any]) -> int:
    """How many nodes the widest layer has."""
    nodes = [node["id"] for node in graph["nodes"]]
    return max(len(layer) for layer in _assign_layers(nodes, _drawable_edges(graph)))


def draw_neighbourhood(identity: str, name: str, graph: Mapping[str, Any]) -> str:
    """The neighbourhood of tensor `name` as SVG; a node that was not compared may have what is `told` of it instead."""
    nodes = {node["id"]: node for node in graph["nodes"]}
    edges = _drawable_edges(graph)
    layers = _order_layers(_assign_layers(list(nodes), edges), edges)
    width = max(len(layer) for layer in layers) * (_BOX + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = len(layers) * (_HIGH + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    places = _place_boxes(layers, width)
    body = [_draw_arrow(identity)]
    body.extend(_draw_edge(identity, places[source], places[target], tensor) for source, target, tensor in edges)
    body.extend(_draw_node(nodes[node], places[node]) for layer in layers for node in layer)
    said = f"{len(nodes)} nodes and {len(edges)} tensors around {name}."
    return svg.svg_figure(identity, (width, height), "The graph around the suspect", said, body)


def _drawable_edges(graph: Mapping[str, Any]) -> _Edges:
    """Edges between two different nodes that are both shown."""
    nodes = {node["id"] for node in graph["nodes"]}
    return [edge for edge in graph["edges"] if edge[0] in nodes and edge[1] in nodes and edge[0] != edge[1]]


def _assign_layers(names: Sequence[str], edges: _Edges) -> list[list[str]]:
    """Longest path from a source; at most as many rounds as nodes, so that a cycle in bad data ends too."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for source, target, _tensor in edges:
            if depth[target] < depth[source] + 1 <= len(names):
                depth[target] = depth[source] + 1
                moved = True
        if not moved:
            break
    used = sorted(set(depth.values()))
    return [[name for name in names if depth[name] == at] for at in used]


def _order_layers(layers: list[list[str]], edges: _Edges) -> list[list[str]]:
    near: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    for source, target, _ in edges:
        near[source].append(target)
        near[target].append(source)
    for _ in range(_SWEEPS):
        rank = {name: i - len(layer) / 2 for layer in layers for i, name in enumerate(layer)}
        layers = [
            sorted(layer, key=lambda name: _mean_or_default([rank[n] for n in near[name]], rank[name]))
            for layer in layers
        ]
    return layers


def _mean_or_default(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place_boxes(layers: Sequence[Sequence[str]], width: float) -> dict[str, tuple[float, float]]:
    """The left upper corner of each node's box; every layer is centred."""
    places = {}
    for row, layer in enumerate(layers):
        left = (width - (len(layer) * (_BOX + _GAP_X) - _GAP_X)) / 2
        for column, name in enumerate(layer):
            places[name] = (left + column * (_BOX + _GAP_X), _MARGIN + row * (_HIGH + _GAP_Y))
    return places


def _draw_arrow(identity: str) -> str:
    tip = svg.svg_element("path", {"d": "M0,0L7,3.5L0,7Z", "class": "tip"})
    marker = {"id": f"{identity}-tip", "markerWidth": 7, "markerHeight": 7, "refX": 6.5, "refY": 3.5, "orient": "auto"}
    return svg.svg_element("defs", {}, svg.svg_element("marker", marker, tip))


def _draw_edge(identity: str, source: tuple[float, float], target: tuple[float, float], tensor: str) -> str:
    x1, y1 = source[0] + _BOX / 2, source[1] + _HIGH
    x2, y2 = target[0] + _BOX / 2, target[1]
    bend = max(12.0, (y2 - y1) / 2)
    path = f"M{x1:.1f},{y1:.1f}C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"
    attributes = {"d": path, "class": "edge", "marker-end": f"url(#{identity}-tip)"}
    return svg.svg_element("path", attributes, svg.svg_element("title", {}, html.escape(tensor)))


def _draw_node(node: Mapping[str, Any], place: tuple[float, float]) -> str:
    x, y = place
    shade = "unknown" if node["introduced"] is None else f"e{shade_of_error(node['introduced'])}"
    css = f"node {shade} suspect" if node["is_suspect"] else f"node {shade}"
    errors = f"introduces {format_figure(node['introduced'])}, inherits {format_figure(node['inherited'])}"
    measured = errors if node["introduced"] is not None else node.get("told", "not compared")
    box: dict[str, object] = {"x": x, "y": y, "width": _BOX, "height": _HIGH, "rx": 5}
    return svg.svg_element(
        "g",
        {"class": css},
        svg.svg_element("title", {}, html.escape(f"{node['label']} ({node['op_type']}): {measured}")),
        svg.svg_element("rect", {**box, "class": "back"}),
        svg.svg_element("rect", box),
        svg.svg_text(x + 10, y + 18, shorten_name(node["op_type"] or "node", 30), "strong"),
        svg.svg_text(x + 10, y + 34, shorten_name(node["label"], 30), "small"),
        svg.svg_text(x + 10, y + 50, measured, "small"),
    )
