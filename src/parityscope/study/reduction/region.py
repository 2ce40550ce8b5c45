"""Regions of the reference's graph, grown and bordered; the same region of the candidate's.

A border is a tensor that both sides have: a pair of the study, or an input of the model. Between two borders each side keeps
what it has there, one node or ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import (
    Regions,
    computing_nodes,
    constant_value,
    consumers_of,
    dependencies_of,
    value_by_name,
)
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import onnx_ir as ir

    from parityscope.case import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBorders:
    """Where both graphs are cut: tensors that enter and that leave, by the reference's names, and the nodes between them."""

    entering: tuple[str, ...]
    leaving: tuple[str, ...]
    nodes: frozenset[int]


class Graphs:
    """The reference's graph, and the candidate's where it has one of its own.

    `names` pairs tensors (reference -> candidate); `held` are those whose values there are.
    """

    def __init__(self, model: Model, own: Model | None, names: Mapping[str, str], held: Collection[str]) -> None:
        graph = model.graph()
        graph.graph.sort()
        self._graph = graph
        self._regions = Regions(graph)
        self.nodes = computing_nodes(graph)
        self._known = value_by_name(graph)
        self._places = {id(node): place for place, node in enumerate(self.nodes)}
        given = [str(value.name) for value in graph.graph.inputs]
        self.borders = {*held, *given}
        self.names = {**dict(zip(given, given, strict=True)), **names}
        self._its = None if own is None else value_by_name(own.graph())
        self._back = {its: mine for mine, its in reversed(self.names.items())}

    def around(self, tensor: str) -> frozenset[int]:
        """The nodes between a tensor and the nearest borders above it; below it too, where the candidate does not have it."""
        if tensor not in self._known:
            raise ParityError(f"the model has no tensor {tensor!r} any more", fix="run `parityscope diagnose` again")
        found = {self._places[id(node)] for node in self._regions.of(tensor, self.borders)}
        stack = [self._known[tensor]]
        while stack:
            value = stack.pop()
            if self._is_shared(value):
                continue
            for reader in consumers_of(value):
                if self._place(reader) not in found | {-1}:
                    found.add(self._place(reader))
                    stack.extend(reader.outputs)
        return frozenset(found)

    def has(self, tensor: str) -> bool:
        """Whether both sides have this tensor, with values."""
        return tensor in self.names and tensor in self.borders

    def grown(self, nodes: frozenset[int], hops: int) -> frozenset[int]:
        """The nodes with all that are at most so many edges away."""
        found, edge = set(nodes), set(nodes)
        for _ in range(hops):
            reached = {place for here in edge for place in self._neighbours(self.nodes[here])} - found
            found |= reached
            edge = reached
        return frozenset(found)

    def cut(self, nodes: Iterable[int], only: str = "") -> PartBorders:
        """Where to cut so that these nodes are inside, and what lies between them and their borders.

        With `only` that tensor alone leaves.

        Raises:
            ParityError: nothing leaves that both sides have, or nothing is inside.
        """
        inside, entering = self._inside(nodes)
        made = [value for place in sorted(inside) for value in self.nodes[place].outputs if value.name]
        shared = [str(value.name) for value in made if self._is_shared(value)]
        leaving = [only] if only else [name for name in shared if self._is_read_outside(name, inside)]
        leaving = leaving or shared[-1:]
        if not leaving:
            raise ParityError("nothing leaves this part of the graph that both sides have")
        entering |= self._its_entering(leaving, {str(value.name) for value in made})
        return PartBorders(entering=tuple(sorted(entering)), leaving=tuple(leaving), nodes=frozenset(inside))

    def _inside(self, nodes: Iterable[int]) -> tuple[set[int], set[str]]:
        """The nodes with those above them up to borders, and the borders; constants are inside."""
        inside = set(nodes)
        stack = [self.nodes[place] for place in inside]
        entering: set[str] = set()
        while stack:
            for value in dependencies_of(stack.pop()):
                producer = value.producer()
                if constant_value(value) is not None or (producer is not None and self._place(producer) in inside):
                    continue
                if str(value.name) in self.borders:
                    entering.add(str(value.name))
                elif producer is not None:
                    inside.add(self._places[id(producer)])
                    stack.append(producer)
        made = {str(value.name) for place in inside for value in self.nodes[place].outputs}
        return inside, entering - made

    def _its_entering(self, leaving: Iterable[str], made: Collection[str]) -> set[str]:
        """What enters the candidate's part, by the reference's names: it may read what the reference's does not."""
        if self._its is None:
            return set()
        ends = {self.names[name] for name in leaving}
        stack = [self._its[name] for name in ends]
        seen: set[int] = set()
        found: set[str] = set()
        while stack:
            value = stack.pop()
            if id(value) in seen or constant_value(value) is not None:
                continue
            seen.add(id(value))
            mine = self._back.get(str(value.name), "")
            producer = value.producer()
            if value.name not in ends and mine in self.borders and mine not in made:
                found.add(mine)
            elif producer is not None:
                stack.extend(dependencies_of(producer))
            else:
                raise ParityError(f"the candidate reads {value.name!r} there, which the reference does not have")
        return found

    def _is_shared(self, value: ir.Value) -> bool:
        return self.has(str(value.name))

    def _is_read_outside(self, name: str, inside: Collection[int]) -> bool:
        value = self._known[name]
        return value.is_graph_output() or any(self._place(node) not in inside for node in consumers_of(value))

    def _place(self, node: ir.Node) -> int:
        return self._places.get(id(node), -1)

    def _neighbours(self, node: ir.Node) -> set[int]:
        above = {self._place(producer) for value in dependencies_of(node) if (producer := value.producer()) is not None}
        below = {self._place(reader) for value in node.outputs for reader in consumers_of(value)}
        return (above | below) - {-1}
