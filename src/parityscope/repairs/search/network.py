"""A graph as the cut sees it: what can be low, what follows, what a Cast between them costs.

Vertices are the nodes that decide and the operators that only move floats between them; the latter follow what they
read (low if all of it is), as in the model that is written. A value is one tensor with its producer and consumers: it
needs one Cast down if it is full and any consumer is low, one Cast up if it is low and any consumer is full, however
many consumers there are. Constants need none (each side has its own copy), nor what comes from integers without being
rounded (compressed weights), nor what only steers an operator. Inputs and outputs of the model are FP32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._graphs import constant_tensor
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.sites import exact_uses, is_float
from parityscope.case.graph import computing, dependencies, node_name
from parityscope.repairs.search.costs import cast_seconds, flops_of, roofline, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.repairs.search.costs import Hardware, Times

__all__ = ["OUTSIDE", "Network", "Price", "Vertex", "Wire", "network_of", "price", "resolved"]

OUTSIDE = -1  # the FP32 world around the graph, as a producer or consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """A node. `decision` is its place among the deciding nodes, None for one that follows `sources` (vertices)."""

    name: str
    op_type: str
    decision: int | None
    flops: float
    times: Times
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A float tensor: who makes it, who reads it (vertices or `OUTSIDE`, each once), and a Cast of it in seconds."""

    tensor: str
    producer: int
    consumers: tuple[int, ...]
    cast: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Vertices in topological order; `decisions` is the number of nodes that decide."""

    vertices: tuple[Vertex, ...]
    wires: tuple[Wire, ...]
    decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an assignment costs: modelled seconds, the share of FLOPs in full precision (0 where there are none), Casts."""

    seconds: float
    flops: float
    casts: int


def network_of(
    model: ir.Model,
    decisions: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    hardware: Hardware,
    measured: Mapping[str, Times],
) -> Network:
    """The network of `model`, whose nodes have unique names; `decisions` are those that can be low, by name.

    `shapes` gives the dimensions of tensors on one sample; a tensor without a known shape costs nothing to cast but
    the overhead. `measured` times take the place of the roofline.
    """
    infer_types(model)
    place = {name: index for index, name in enumerate(decisions)}
    numbers: dict[ir.Node, int] = {}
    vertices: list[Vertex] = []
    exact: set[ir.Value] = set()
    for index, node in enumerate(computing(model)):
        name = node_name(node, index)
        reads = [value for value in dependencies(node) if _flows(value) and value not in exact]
        if name not in place and not (reads and any(is_float(value) for value in node.outputs)):
            exact.update(node.outputs)
            continue
        sources = tuple(dict.fromkeys(_producer(value, numbers) for value in reads))
        numbers[node] = len(vertices)
        flops = flops_of(node, shapes)
        touched = [*(value for value in node.inputs if value is not None), *node.outputs]
        elements = sum(_elements(value, shapes) for value in touched if is_float(value))
        vertices.append(
            Vertex(
                name=name,
                op_type=node.op_type,
                decision=place.get(name),
                flops=flops,
                times=measured.get(name) or roofline(flops, elements, hardware),
                sources=() if name in place else sources,
            )
        )
    whole = sum(vertex.times.full for vertex in vertices)
    wires = _wires(model, numbers, exact, lambda value: cast_seconds(_elements(value, shapes), hardware, whole))
    return Network(vertices=tuple(vertices), wires=tuple(wires), decisions=len(place))


def resolved(network: Network, low: np.ndarray) -> np.ndarray:
    """Which vertices are low when the decisions `low` (bool, (decisions,)) are. Gives bool, (vertices,)."""
    found = np.zeros(len(network.vertices), np.bool_)
    for index, vertex in enumerate(network.vertices):
        if vertex.decision is not None:
            found[index] = low[vertex.decision]
        else:
            found[index] = all(source != OUTSIDE and found[source] for source in vertex.sources)
    return found


def price(network: Network, low: np.ndarray, *, vertices: bool = False) -> Price:
    """The price of an assignment: bool, (decisions,), or (vertices,) when `vertices`."""
    is_low = low if vertices else resolved(network, low)
    seconds, kept, total = 0.0, 0.0, 0.0
    for vertex, each in zip(network.vertices, is_low, strict=True):
        seconds += vertex.times.low if each else vertex.times.full
        total += vertex.flops
        kept += 0.0 if each else vertex.flops
    casts = 0
    for wire in network.wires:
        own = wire.producer != OUTSIDE and bool(is_low[wire.producer])
        if any((reader != OUTSIDE and bool(is_low[reader])) != own for reader in wire.consumers):
            casts += 1
            seconds += wire.cast
    return Price(seconds=seconds, flops=kept / total if total else 0.0, casts=casts)


def _wires(
    model: ir.Model,
    numbers: Mapping[ir.Node, int],
    exact: Collection[ir.Value],
    cast: Callable[[ir.Value], float],
) -> list[Wire]:
    kept = exact_uses(model)
    readers: dict[ir.Value, list[int]] = {}
    for node, number in numbers.items():
        steering = {value for index, value in enumerate(node.inputs) if (node, index) in kept}
        data = {value for index, value in enumerate(node.inputs) if (node, index) not in kept}
        for value in dependencies(node):
            if _flows(value) and value not in exact and (value in data or value not in steering):
                readers.setdefault(value, []).append(number)
    for value in model.graph.outputs:
        if _flows(value):
            readers.setdefault(value, []).append(OUTSIDE)
    return [
        Wire(
            tensor=str(value.name),
            producer=_producer(value, numbers),
            consumers=tuple(dict.fromkeys(found)),
            cast=cast(value),
        )
        for value, found in readers.items()
    ]


def _flows(value: ir.Value) -> bool:
    """Whether a value is a float that is computed or fed."""
    return is_float(value) and constant_tensor(value) is None


def _producer(value: ir.Value, numbers: Mapping[ir.Node, int]) -> int:
    node = value.producer()
    return OUTSIDE if node is None else numbers.get(node, OUTSIDE)


def _elements(value: ir.Value, shapes: Mapping[str, Sequence[int]]) -> int:
    """The number of elements; 0 where nobody knows it."""
    shape = shape_of(value, shapes)
    return 0 if shape is None else math.prod(shape)
