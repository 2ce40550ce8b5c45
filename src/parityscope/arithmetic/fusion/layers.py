"""A graph cut into layers that an engine's rules then merge: the working form of a profile.

A layer starts as one node, or as a decomposition that the engine knows as one operator (`patterns`). Merging a layer
into the one above makes one kernel of both. `kernels` turns what is left into the records of a `Fusion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusedKernel
from parityscope.arithmetic.fusion.matching import is_static, order_of
from parityscope.arithmetic.fusion.patterns import find_regions
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir


@dataclass(slots=True, kw_only=True, eq=False)
class Layer:
    """Nodes that run as one kernel, as far as is known; `output` is what its last node computes first.

    `merged` holds the kinds of the layers that were merged into it.
    """

    kind: str
    nodes: list[ir.Node]
    output: ir.Value
    merged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayers:
    """The layers of a graph and, for each node, the layer that it is in.

    Nodes of `apart` are in no layer together with others: they run in another precision.
    """

    order: dict[ir.Node, int]
    of: dict[ir.Node, Layer]
    apart: frozenset[ir.Node] = frozenset()

    def each(self) -> list[Layer]:
        """The layers in the order of their last nodes."""
        return sorted(dict.fromkeys(self.of.values()), key=lambda layer: self.order[layer.nodes[-1]])

    def inputs(self, layer: Layer) -> list[ir.Value]:
        """What a layer reads that is not constant and that it does not compute itself, each once."""
        members = set(layer.nodes)
        found = (value for node in layer.nodes for value in node.inputs if value is not None)
        return list(dict.fromkeys(value for value in found if value.producer() not in members and not is_static(value)))

    def parents(self, layer: Layer) -> list[Layer | None]:
        """The layers above (None: a graph input), one for each of `inputs`."""
        return [None if (node := value.producer()) is None else self.of.get(node) for value in self.inputs(layer)]

    def only_child(self, layer: Layer) -> Layer | None:
        """The layer that alone reads this one, which gives back nothing else; None where there is no such layer."""
        values = [value for node in layer.nodes for value in node.outputs if value is not layer.output]
        members = set(layer.nodes)
        if layer.output.is_graph_output() or any(
            value.is_graph_output() or any(user not in members for user, _ in value.uses()) for value in values
        ):
            return None
        users = {user for user, _ in layer.output.uses() if user not in members}
        found = {self.of.get(user) for user in users}
        if len(found) != 1 or (child := found.pop()) is None:
            return None
        return child if (child.nodes[0] in self.apart) == (layer.nodes[-1] in self.apart) else None

    def merge(self, layer: Layer, child: Layer) -> None:
        """Makes `child` part of `layer`."""
        layer.nodes.extend(child.nodes)
        layer.nodes.sort(key=lambda node: self.order[node])
        layer.output = child.output
        layer.merged.extend((child.kind, *child.merged))
        self.of.update(dict.fromkeys(child.nodes, layer))

    def kernels(
        self,
        precision: Callable[[Layer], str],
        stored: Callable[[Layer], str],
        exact_inputs: Callable[[Layer], frozenset[str]] = lambda _: frozenset(),
    ) -> tuple[FusedKernel, ...]:
        """The layers as records, each with what the functions say of it."""
        return tuple(
            FusedKernel(
                values=tuple(str(value.name) for node in layer.nodes for value in node.outputs if value.name),
                precision=precision(layer),
                stored=stored(layer),
                kind=layer.kind,
                exact_inputs=exact_inputs(layer),
            )
            for layer in self.each()
        )


def cut_into_layers(model: ir.Model, kinds: Sequence[str]) -> FusedLayers:
    """One layer for each region of a pattern of `kinds`, and for each node that is in none."""
    order = order_of(model)
    of: dict[ir.Node, Layer] = {}
    for region in find_regions(order, kinds):
        layer = Layer(kind=region.kind, nodes=list(region.nodes), output=region.output)
        of.update(dict.fromkeys(region.nodes, layer))
    for node in order:
        if node not in of and node.outputs:
            of[node] = Layer(kind=node.op_type, nodes=[node], output=node.outputs[0])
    return FusedLayers(order=order, of=of)
