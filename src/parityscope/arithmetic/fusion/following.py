"""An executed graph -> the `GraphFusion` that the simulation follows.

An engine names, for each layer, some of the original nodes fused into it; others it drops from the list (of a decomposed
LayerNormalization OpenVINO names the last node alone). What can be relied on is where a layer ends: at the deepest of
the nodes that it names. Everything between the ends of the layers above and its own end is the layer's, and runs in its
precision. Layers with made-up names alone (`Multiply_12197`) end where nobody says. Where such a layer that computes stands
before one whose end is known, the region between is cut as OpenVINO's profile predicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusedKernel, GraphFusion
from parityscope.arithmetic.fusion.matching import order_of
from parityscope.arithmetic.fusion.openvino import PROFILE
from parityscope.arithmetic.fusion.patterns import activation_kinds, find_regions, fused_by
from parityscope.arithmetic.recurrent import Recurrence
from parityscope.case.graph import sites_of_values
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.records import ExecutedGraph, ExecutedLayer, Site

# Precisions of layers that compute in floating point. A product of weights in eight bits says "i8" and still computes in
# the engine's precision; layers of integers have nothing to round.
_FLOATS = frozenset({"f32", "f16", "bf16"})
# Layers that compute and may have a made-up name; others of those only move or convert.
_COMPUTES = frozenset({"Eltwise", "Math", "MVN", "MatMul", "Reduce", "Softmax", "Subgraph"})
# Layers of OpenVINO that take what the model is fed as it comes: `Graph::EnforceInferencePrecision` leaves inputs of
# Eltwise and Subgraph nodes alone that come straight from an input (intel_cpu/src/graph.cpp).
_TAKES_INPUTS_AS_THEY_ARE = frozenset({"Eltwise", "Subgraph"})


def layers_by_end(executed: ExecutedGraph, model: ir.Model) -> dict[str, ExecutedLayer]:
    """The value of `model` that each layer ends in -> the layer; of two that end in the same, the later one."""
    places = sites_of_values(model)
    named: dict[str, list[str]] = {}
    for tensor, site in places.items():
        named.setdefault(site.node, []).append(tensor)
        if tensor != site.node:
            named.setdefault(tensor, []).append(tensor)
    activations = _decomposed_activations(model)
    found: dict[str, ExecutedLayer] = {}
    for layer in executed.layers:
        members = [tensor for node in layer.nodes for tensor in named.get(node, [])]
        if not members:
            continue
        deepest = max(places[tensor].index for tensor in members)
        last = [tensor for tensor in members if places[tensor].index == deepest]
        # An activation that the engine put together from several nodes has a name that the engine made up.
        if layer.nodes[-1] not in named and last[0] in activations:
            last = [activations[last[0]]]
        found.update((tensor, layer) for tensor in last)
    return found


def split_borders(
    executed: ExecutedGraph, ends: Container[str], wanted: Sequence[str], sites: Mapping[str, Site]
) -> tuple[list[str], list[Skip]]:
    """Those of `wanted` in which an executed layer ends, and a Skip for each other; `sites` are the model's."""
    layer_of = {node: layer.name for layer in executed.layers for node in layer.nodes}
    skips = []
    for name in wanted:
        if name not in ends:
            node = sites[name].node if name in sites else ""
            layer = layer_of.get(node, layer_of.get(name, ""))
            reason = f"fused into layer {layer}" if layer else "inside a fused layer"
            skips.append(Skip(what=f"tensor {name}", reason=reason, fix="observe=all marks it, and changes the fusion"))
    return [name for name in wanted if name in ends], skips


def follow_executed(executed: ExecutedGraph, model: ir.Model) -> GraphFusion:
    """How `executed` ran `model` (read only), of which it is the executed graph."""
    layers = layers_by_end(executed, model)
    inputs = frozenset(str(value.name) for value in model.graph.inputs)
    given = {str(value.name) for value in model.graph.outputs}
    owner: dict[ir.Node, str] = {}
    for node in reversed(list(model.graph)):
        end = _end_of_layer(node, layers, owner)
        if end is not None:
            owner[node] = end
    pieces = _predicted_pieces(executed, model, layers)
    members: dict[tuple[str, int], list[ir.Node]] = {}
    for node in model.graph:
        if node in owner:
            members.setdefault((owner[node], pieces(node, owner[node])), []).append(node)
    kernels = []
    for (end, _), nodes in members.items():
        layer = layers[end]
        precision = layer.precision if layer.precision in _FLOATS else executed.executed
        # Between FP32 islands and what is given back stands a conversion to float16 that no layer shows.
        narrow = executed.executed == "f16" and end in given
        kernels.append(
            FusedKernel(
                values=tuple(str(value.name) for node in nodes for value in node.outputs if value.name),
                precision=precision,
                stored="f16" if narrow else layer.stored or precision,
                kind=layer.layer_type,
                exact_inputs=inputs if layer.layer_type in _TAKES_INPUTS_AS_THEY_ARE else frozenset(),
            )
        )
    return GraphFusion(
        kernels=tuple(kernels),
        default=executed.executed,
        stores_constants=executed.executed == "f16",
        folds=True,
        overflow="saturate",
        keeps_nan=False,
        recurrence=Recurrence(stored=frozenset({"states"})),
    )


def _predicted_pieces(
    executed: ExecutedGraph, model: ir.Model, layers: Mapping[str, ExecutedLayer]
) -> Callable[[ir.Node, str], int]:
    """Which piece of the region that ends in a value a node is in: 0, unless a layer before has a made-up name."""
    known = {id(layer) for layer in layers.values()}
    blind: set[int] = set()
    pending = False
    for layer in executed.layers:
        if id(layer) in known:
            if pending:
                blind.add(id(layer))
            pending = False
        elif layer.layer_type in _COMPUTES:
            pending = True
    fusion = PROFILE.predict(model, executed.executed) if blind else None
    kernels = {} if fusion is None else {name: at for at, kernel in enumerate(fusion.kernels) for name in kernel.values}

    def piece(node: ir.Node, end: str) -> int:
        if id(layers[end]) not in blind or not node.outputs:
            return 0
        return kernels.get(str(node.outputs[0].name), -1) + 1

    return piece


def _decomposed_activations(model: ir.Model) -> dict[str, str]:
    """What each decomposed activation of the graph gives, by what enters it."""
    # Activations that get made-up names when they are put together.
    kinds = [kind for kind in fused_by("openvino") if kind in activation_kinds()]
    return {
        str(value.name): str(region.output.name)
        for region in find_regions(order_of(model), kinds)
        for value in region.entries
    }


def _end_of_layer(node: ir.Node, layers: dict[str, ExecutedLayer], owner: dict[ir.Node, str]) -> str | None:
    """The end of the layer that `node` is part of: its own output, or that of the first layer that reads it."""
    for value in node.outputs:
        if value.name in layers:
            return str(value.name)
    for value in node.outputs:
        for user, _ in value.uses():
            if user in owner:
                return owner[user]
    return None
