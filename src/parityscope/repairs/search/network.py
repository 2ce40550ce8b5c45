"""A graph as the cut sees it: what can be low, what follows, what a Cast between them costs.

Vertices are the nodes that decide and the operators that only move floats between them; the latter follow what they
read (low if all of it is), as in the model that is written. A value is one tensor with its producer and consumers: it
needs one Cast down if it is full and any consumer is low, one Cast up if it is low and any consumer is full, however
many consumers there are. Constants need none (each side has its own copy), nor what comes from integers without being
rounded (compressed weights), nor what only steers an operator. Inputs and outputs of the model are FP32.

If, Loop or Scan is one vertex; where nodes inside decide for themselves they are vertices of their own behind it, and it
stands for its border: what enters a body comes from it, and what a body gives goes to it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.sites import exact_uses, is_float
from parityscope.case.graph import bodies_of_node, computing_nodes, constant_value, dependencies_of, node_name
from parityscope.light_dataclasses import dataclass, field
from parityscope.repairs.search.costs import cast_seconds, flops_of, roofline_times, shape_of
from parityscope.repairs.search.inside import shapes_within, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.repairs.search.costs import Hardware, Times
    from parityscope.repairs.search.inside import Sizes

F32 = 0  # the label of what is in full precision; others are of low formats
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
class CutNetwork:
    """Vertices in topological order; `decisions` is the number of nodes that decide."""

    vertices: tuple[Vertex, ...]
    wires: tuple[Wire, ...]
    decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPrice:
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
    sizes: Sizes | None = None,
) -> CutNetwork:
    """The network of `model`, whose nodes have unique names; `decisions` are those that can be low, by name.

    `shapes` gives the dimensions of tensors on one sample, `sizes` what bodies compute on it; a tensor of which neither is
    known costs nothing to cast but the overhead. `measured` times take the place of the roofline.
    """
    infer_types(model)
    place = {name: index for index, name in enumerate(decisions)}
    drawing = _Drawing(shapes=shapes, sizes=sizes or {})
    vertices: list[Vertex] = []
    for node, name in _named_vertices(model, place):
        drawing.parted.update([node] if _has_deciding_body(node, place) else [])
        reads = [value for value in drawing.reads(node) if _is_float_flow(value) and value not in drawing.exact]
        if name not in place and not (reads and any(is_float(value) for value in node.outputs)):
            drawing.exact.update(node.outputs)
            continue
        sources = tuple(dict.fromkeys(drawing.producer(value) for value in reads))
        drawing.enter(node, len(vertices))
        within = size_of(node.outputs[0], drawing.sizes) is not None
        flops = flops_of(node, shapes_within(node, drawing.sizes) if within else shapes)
        touched = [*(value for value in node.inputs if value is not None), *node.outputs]
        elements = sum(drawing.elements(value) for value in touched if is_float(value))
        vertices.append(
            Vertex(
                name=name,
                op_type=node.op_type,
                decision=place.get(name),
                flops=flops,
                times=measured.get(name) or roofline_times(flops, elements, hardware),
                sources=() if name in place else sources,
            )
        )
    whole = sum(vertex.times.full for vertex in vertices)
    wires = _make_wires(model, drawing, lambda value: cast_seconds(drawing.elements(value), hardware, whole))
    return CutNetwork(vertices=tuple(vertices), wires=tuple(wires), decisions=len(place))


def resolve_labels(network: CutNetwork, decided: np.ndarray) -> np.ndarray:
    """The labels of all vertices, int (vertices,), of those of the decisions: int or bool, (decisions,).

    A label is a format: `F32`, or a low one. What moves numbers of one format has that, else FP32.
    """
    found = np.zeros(len(network.vertices), np.intp)
    for index, vertex in enumerate(network.vertices):
        if vertex.decision is not None:
            found[index] = decided[vertex.decision]
            continue
        read = {F32 if source == OUTSIDE else int(found[source]) for source in vertex.sources}
        found[index] = read.pop() if len(read) == 1 else F32
    return found


def price_assignment(network: CutNetwork, decided: np.ndarray) -> AssignmentPrice:
    """What labels of the decisions cost, as `resolve_labels` has them; FLOPs are those in FP32."""
    return price_labels(network, resolve_labels(network, decided))


def price_labels(network: CutNetwork, labels: np.ndarray) -> AssignmentPrice:
    """What labels of all vertices cost: int or bool, (vertices,)."""
    labelled = list(zip(network.vertices, labels, strict=True))
    whole = sum(vertex.flops for vertex in network.vertices)
    kept = sum(vertex.flops for vertex, label in labelled if label == F32)
    casts = [count_casts(wire, labels) for wire in network.wires]
    seconds = sum(vertex.times.full if label == F32 else vertex.times.low for vertex, label in labelled)
    return AssignmentPrice(
        seconds=seconds + sum(wire.cast * count for wire, count in zip(network.wires, casts, strict=True)),
        flops=kept / whole if whole else 0.0,
        casts=sum(casts),
    )


def count_casts(wire: Wire, labels: np.ndarray) -> int:
    """The formats that readers of a tensor take and its producer does not give."""
    own = F32 if wire.producer == OUTSIDE else int(labels[wire.producer])
    return len({F32 if reader == OUTSIDE else int(labels[reader]) for reader in wire.consumers} - {own})


@dataclass(slots=True, kw_only=True)
class _Drawing:
    """What is known while vertices are made: their numbers by node, and which of them are borders of their bodies (`parted`).

    `carriers` are the inputs of such bodies, `given` their outputs, with the number of the vertex around them; `exact` what
    is never rounded.
    """

    shapes: Mapping[str, Sequence[int]]
    sizes: Sizes
    numbers: dict[ir.Node, int] = field(default_factory=dict)
    parted: set[ir.Node] = field(default_factory=set)
    carriers: dict[ir.Value, int] = field(default_factory=dict)
    given: list[tuple[ir.Value, int]] = field(default_factory=list)
    exact: set[ir.Value] = field(default_factory=set)

    def enter(self, node: ir.Node, number: int) -> None:
        """Makes a node the vertex `number`, and the border of its bodies where the nodes inside are vertices too."""
        self.numbers[node] = number
        for body in bodies_of_node(node) if node in self.parted else ():
            self.carriers.update(dict.fromkeys(body.inputs, number))
            self.given.extend((value, number) for value in body.outputs)

    def reads(self, node: ir.Node) -> list[ir.Value]:
        """What a vertex depends on; what is captured by bodies whose nodes are vertices is theirs."""
        return (
            [value for value in node.inputs if value is not None]
            if node in self.parted
            else list(dependencies_of(node))
        )

    def producer(self, value: ir.Value) -> int:
        """The vertex that gives a value."""
        node = value.producer()
        return self.carriers.get(value, OUTSIDE) if node is None else self.numbers.get(node, OUTSIDE)

    def elements(self, value: ir.Value) -> int:
        """The number of elements; 0 where nobody knows it."""
        size = size_of(value, self.sizes)
        if size is not None:
            return round(size.elements)
        shape = shape_of(value, self.shapes)
        return 0 if shape is None else round(math.prod(shape))


def _named_vertices(model: ir.Model, place: Mapping[str, int]) -> Iterator[tuple[ir.Node, str]]:
    """The nodes that may be vertices, with their names; those inside a node that is divided right behind it."""
    for index, node in enumerate(computing_nodes(model)):
        yield node, node_name(node, index)
        yield from _vertices_inside(node, place)


def _vertices_inside(node: ir.Node, place: Mapping[str, int]) -> Iterator[tuple[ir.Node, str]]:
    if _has_deciding_body(node, place):
        for body in bodies_of_node(node):
            for inner in body:
                if inner.op_type != "Constant":
                    yield inner, inner.name or ""
                    yield from _vertices_inside(inner, place)


def _has_deciding_body(node: ir.Node, place: Mapping[str, int]) -> bool:
    """Whether a node inside this one, however deep, decides."""
    return any(
        inner.name in place or _has_deciding_body(inner, place) for body in bodies_of_node(node) for inner in body
    )


def _make_wires(model: ir.Model, drawing: _Drawing, cast: Callable[[ir.Value], float]) -> list[Wire]:
    kept = exact_uses(model)
    readers: dict[ir.Value, list[int]] = {}
    for node, number in drawing.numbers.items():
        steering = {value for index, value in enumerate(node.inputs) if (node, index) in kept}
        data = {value for index, value in enumerate(node.inputs) if (node, index) not in kept}
        for value in drawing.reads(node):
            if _is_float_flow(value) and value not in drawing.exact and (value in data or value not in steering):
                readers.setdefault(value, []).append(number)
    outputs = [(value, OUTSIDE) for value in model.graph.outputs]
    for value, number in [*drawing.given, *outputs]:
        if _is_float_flow(value):
            readers.setdefault(value, []).append(number)
    return [
        Wire(
            tensor=str(value.name),
            producer=drawing.producer(value),
            consumers=tuple(dict.fromkeys(found)),
            cast=cast(value),
        )
        for value, found in readers.items()
    ]


def _is_float_flow(value: ir.Value) -> bool:
    """Whether a value is a float that is computed or fed."""
    return is_float(value) and constant_value(value) is None
