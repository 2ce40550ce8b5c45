"""How well a fusion profile agrees with an engine that TensorRT built: over the edges of the graph.

An edge is a pair of nodes of which the second reads the first, both named by layers of the engine. The profile agrees
where it says of both "one kernel" or of both "two" as the engine does. Edges at operators that only move numbers are
counted apart: moving does not round, so a disagreement there changes nothing that a simulation computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import PRODUCTS, is_static

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.fusion import GraphFusion
    from parityscope.logs import EngineLayer

MOVING = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize", "Slice", "Split"),
        *("Squeeze", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Edges between nodes that compute: both say fused, both say apart, or one says otherwise; `moving` are the others."""

    both_fused: int
    both_apart: int
    only_profile: int
    only_engine: int
    moving: int

    @property
    def share(self) -> float:
        """The part of the edges between computing nodes on which they agree; NaN without any."""
        edges = self.both_fused + self.both_apart + self.only_profile + self.only_engine
        return (self.both_fused + self.both_apart) / edges if edges else float("nan")


def agreement(model: ir.Model, fusion: GraphFusion, layers: Iterable[EngineLayer]) -> Agreement:
    """How far `fusion` of `model` agrees with the layers of the engine that was built of it."""
    kernel = {name: place for place, each in enumerate(fusion.kernels) for name in each.values}
    inside: dict[str, set[int]] = {}
    products = {str(node.name) for node in model.graph if node.op_type in PRODUCTS}
    for place, region in enumerate(_regions([frozenset(layer.nodes) for layer in layers], products)):
        for node in region:
            inside.setdefault(node, set()).add(place)
    counts = {(predicted, real): 0 for predicted in (True, False) for real in (True, False)}
    moving = 0
    for maker, name, reader in _edges(model):
        after = str(reader.outputs[0].name)
        if not (maker.name in inside and reader.name in inside and name in kernel and after in kernel):
            continue
        if maker.op_type in MOVING or reader.op_type in MOVING:
            moving += 1
            continue
        real = bool(inside[str(maker.name)] & inside[str(reader.name)])
        counts[kernel[name] == kernel[after], real] += 1
    return Agreement(
        both_fused=counts[True, True],
        both_apart=counts[False, False],
        only_profile=counts[True, False],
        only_engine=counts[False, True],
        moving=moving,
    )


def _edges(model: ir.Model) -> Iterator[tuple[ir.Node, str, ir.Node]]:
    for node in model.graph:
        for value in node.outputs:
            for reader, _ in value.uses():
                if reader.graph is model.graph and reader.outputs:
                    yield node, str(value.name), reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """How many of an engine's regions a profile has just so: the nodes that compute in one kernel, and no others.

    Moves of elements are left out, and what follows from constants alone. `predicted` and `regions` count those that have any
    node of which both know; `exact` those that are the same.
    """

    predicted: int
    regions: int
    exact: int


def foretold(model: ir.Model, fusion: GraphFusion, layers: Iterable[EngineLayer]) -> Foretold:
    """The regions of the engine's `layers` that `fusion` of `model` has exactly; a node in several kernels counts in each."""
    makers = {
        str(node.outputs[0].name): node
        for node in model.graph
        if node.outputs and node.op_type not in MOVING and not all(is_static(value) for value in node.outputs)
    }
    kernels = [frozenset(str(makers[name].name) for name in each.values if name in makers) for each in fusion.kernels]
    products = {str(node.name) for node in makers.values() if node.op_type in PRODUCTS}
    engine = _regions([frozenset(layer.nodes) for layer in layers], products)
    known = frozenset().union(*kernels) & frozenset().union(*engine)
    mine = {kernel & known for kernel in kernels} - {frozenset()}
    theirs = {region & known for region in engine} - {frozenset()}
    return Foretold(predicted=len(mine), regions=len(theirs), exact=len(mine & theirs))


def _regions(named: Sequence[frozenset[str]], products: Collection[str]) -> list[frozenset[str]]:
    """What each layer computes of what it names.

    A layer that pads or transposes what a product is about to read, or adds its bias behind it, names all nodes of the product's
    own layer too: they are computed there.
    """
    parts = [nodes for nodes in dict.fromkeys(named) if nodes & frozenset(products)]
    return [nodes.difference(*(part for part in parts if part < nodes)) for nodes in named]
