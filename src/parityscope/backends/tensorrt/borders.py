"""The tensors between the kernels of an engine -> the ONNX values that they are.

The engine has names of its own for them (`depthwise_conv2d_0.tmp_0.1_4_myl0`, `__myln_k_arg__bb1_3_myl0`), equal in its inspector
and in what it shows while it runs. What can be relied on is where a layer ends: at the deepest of the nodes that it names,
if that node has one output and the layer writes one tensor. Of several layers that end in one value the last is taken. A
tensor that carries the name of an ONNX value is that value. A kernel that only prepares another one (padding, or three products
in one) names that one's node too; what it writes has other sizes than the value, so that sizes are asked in the end
(`fits_shape`).

Names of nodes: those of the ONNX file; a node without one is `Relu#7` here (its place among the nodes that compute) and
`node_of_y` in an engine that was built elsewhere (the parser's own way, after its first output).
"""

from __future__ import annotations

import itertools
import operator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.tensorrt.naming import Renamed
    from parityscope.logs import EngineLayer
    from parityscope.records import Site

_MADE_UP = "node_of_"
_FOREIGN = "{ForeignNode["


def site_names(renamed: Renamed, sites: Mapping[str, Site]) -> dict[str, str]:
    """The names that nodes had during a build -> those that they have as sites."""
    return {node.name: sites[output].node for node in renamed.nodes for output in node.outputs[:1] if output in sites}


def with_site_names(
    layers: Sequence[EngineLayer], names: Mapping[str, str], sites: Mapping[str, Site]
) -> tuple[EngineLayer, ...]:
    """The layers with the nodes' names as sites; `names` are those of the build."""

    def site(name: str) -> str:
        if name in names:
            return names[name]
        made = sites.get(name.removeprefix(_MADE_UP)) if name.startswith(_MADE_UP) else None
        return made.node if made else name

    return tuple(replace(layer, nodes=tuple(dict.fromkeys(site(node) for node in layer.nodes))) for layer in layers)


def read_by(renamed: Renamed, sites: Mapping[str, Site]) -> dict[str, tuple[str, ...]]:
    """Of each node, by its name as a site: the nodes that it reads, in the order of the graph."""
    return {
        sites[output].node: tuple(dict.fromkeys(sites[name].node for name in node.inputs if name in sites))
        for node in renamed.nodes
        for output in node.outputs[:1]
        if output in sites
    }


def whole_regions(layers: Sequence[EngineLayer], reads: Mapping[str, Sequence[str]]) -> tuple[EngineLayer, ...]:
    """The layers, with the nodes between both ends of a region whose metadata does not list them.

    `{ForeignNode[a...b]}` names the first and the last node of what was handed to another compiler. In between is what `b` is
    computed from, as far back as `a` stands in the graph, but for what other layers name. `reads` is in the order of the graph.
    """
    order = {node: place for place, node in enumerate(reads)}
    named = {node for layer in layers if layer.told or not layer.name.startswith(_FOREIGN) for node in layer.nodes}

    def members(ends: Sequence[str]) -> tuple[str, ...]:
        known = [node for node in ends if node in order]
        # A region that begins with a constant begins where the graph does.
        start = order[known[0]] if known and known[0] == ends[0] else 0
        found = set(known)
        stack = known[-1:]
        while stack:
            for node in reads[stack.pop()]:
                if node not in found and node not in named and order.get(node, -1) >= start:
                    found.add(node)
                    stack.append(node)
        return tuple(sorted(found, key=order.__getitem__))

    return tuple(
        replace(layer, nodes=members(layer.nodes)) if layer.name.startswith(_FOREIGN) and not layer.told else layer
        for layer in layers
    )


def border_values(layers: Sequence[EngineLayer], sites: Mapping[str, Site]) -> dict[str, str]:
    """The engine's tensors by name -> ONNX values, for layers whose nodes have the names of sites."""
    made: dict[str, list[str]] = {}
    for tensor, where in sites.items():
        made.setdefault(where.node, []).append(tensor)
    ends: dict[str, str] = {}
    for layer in layers:
        if len(layer.outputs) != 1:
            continue
        members = [tensor for node in layer.nodes for tensor in made.get(node, ())]
        deepest = max((sites[tensor].index for tensor in members), default=-1)
        last = [tensor for tensor in members if sites[tensor].index == deepest]
        if len(last) == 1:
            ends[last[0]] = layer.outputs[0].name
    found = {name: value for value, name in ends.items()}
    found.update((tensor.name, tensor.name) for layer in layers for tensor in layer.outputs if tensor.name in sites)
    return found


def fits_shape(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a tensor of `shape` can be one of the shape `wanted` that was written in the same order.

    Dimensions may be split or joined (24x9x32 for 2x12x9x32), and ones come and go; exchanged dimensions do not fit.
    """
    ends = [set(itertools.accumulate(sizes, operator.mul)) | {1} for sizes in (shape, wanted)]
    if 0 in ends[0] | ends[1]:
        return tuple(shape) == tuple(wanted)
    return max(ends[0]) == max(ends[1]) and (ends[0] <= ends[1] or ends[1] <= ends[0])
