"""Every node of a model under a name of its own, and its symbolic dimensions apart, for the builder's reports to be exact.

Exists because exporters leave nodes unnamed or name two alike; TensorRT reports by name, and makes names up for unnamed ones.
A symbolic dimension that stands in several places must have one size for TensorRT; some exporters write the same symbol ("?")
for dimensions that have nothing to do with each other, and TensorRT then refuses every profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.case.intake import read_message
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNode:
    """A node by the name that it was given: `index` is its place in the main graph (-1 inside of a body)."""

    name: str
    op_type: str
    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A model's message with unique node names: `renamed` counts those that had none or another's.

    `outputs` are those of the graph and of every body in it. `shared_symbols` are symbolic dimensions that had to be split
    because they stand for different sizes.
    """

    message: Any
    nodes: tuple[NamedNode, ...]
    renamed: int
    shared_symbols: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: frozenset[str]
    initializers: frozenset[str]


def name_all_nodes(path: Path, shapes: Mapping[str, Sequence[int]]) -> Renamed:
    """The model at `path` with a name of its own for every node, also in bodies of control flow.

    A symbolic dimension that has different sizes in `shapes` (by input) becomes one of its own wherever it stands.

    Raises:
        ParityError: the file is no ONNX model.
    """
    message = read_message(path)
    used: set[str] = set()
    renamed = 0
    computing = 0
    for node, index in _nodes_in_bodies(message.graph):
        # As sites are named: by the place among the nodes that compute.
        place = index if node.op_type == "Constant" else computing
        name = node.name or f"{node.op_type}#{place if index >= 0 else node.output[0]}"
        computing += index >= 0 and node.op_type != "Constant"
        while name in used:
            name += "'"
        renamed += name != node.name
        node.name = name
        used.add(name)
    return describe_named_model(message, renamed=renamed, shared_symbols=_split_symbols(message.graph, shapes))


def describe_named_model(message: Any, *, renamed: int = 0, shared_symbols: tuple[str, ...] = ()) -> Renamed:
    """What a message whose nodes have names of their own holds."""
    initializers = frozenset(tensor.name for tensor in message.graph.initializer)
    return Renamed(
        message=message,
        nodes=tuple(
            NamedNode(
                name=node.name,
                op_type=node.op_type,
                index=index,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
            )
            for node, index in _nodes_in_bodies(message.graph)
        ),
        renamed=renamed,
        shared_symbols=shared_symbols,
        inputs=tuple(value.name for value in message.graph.input if value.name not in initializers),
        outputs=frozenset(_outputs_in_bodies(message.graph)),
        initializers=initializers,
    )


def _outputs_in_bodies(graph: Any) -> Iterator[str]:
    yield from (value.name for value in graph.output)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _outputs_in_bodies(body)


def _split_symbols(graph: Any, shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    sizes: dict[str, set[int]] = {}
    for dim, _, size in _named_dimensions(graph, shapes):
        sizes.setdefault(dim.dim_param, set()).add(size)
    split = {symbol for symbol, found in sizes.items() if len(found) > 1}
    for dim, name, _ in _named_dimensions(graph, shapes):
        if dim.dim_param in split:
            dim.dim_param = name
    return tuple(sorted(split))


def _named_dimensions(graph: Any, shapes: Mapping[str, Sequence[int]]) -> list[tuple[Any, str, int]]:
    """(dimension, a name of its own, size) of each symbolic dimension of an input whose shape is given."""
    return [
        (dim, f"{value.name}.{axis}", size)
        for value in graph.input
        for axis, (dim, size) in enumerate(
            zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False)
        )
        if dim.dim_param
    ]


def _nodes_in_bodies(graph: Any, *, inside: bool = False) -> Iterator[tuple[Any, int]]:
    for index, node in enumerate(graph.node):
        yield node, -1 if inside else index
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes_in_bodies(body, inside=True)
