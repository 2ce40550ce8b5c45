"""Joins operators that measure, and the pointwise nodes between them, into chains (`programs`).

Behind a convolution stand additions, products and clips by the dozen, each of which reads and writes a tensor on both sides to be
measured. As one operator they are a single read and write. A node joins the chain of its first input if the rest of what it
reads does not wait for that chain. Results are the same: each tensor is computed, rounded and measured as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.arithmetic._switching import inner_nodes
from parityscope.arithmetic.domain import DOMAIN
from parityscope.forecast._chain_writing import THIRD, Chain, Link, Writing, readers_of
from parityscope.forecast._pointwise import pointwise
from parityscope.forecast.observing import OBSERVE, WATCH
from parityscope.forecast.programs import STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx_ir as ir

__all__ = ["chain"]

_WATCHES = frozenset({OBSERVE, WATCH, f"{OBSERVE}3", f"{WATCH}3"})


@dataclass(slots=True, kw_only=True, eq=False)
class _Chaining:
    """`fronts` are the chains that a node waits for, but for those behind other chains, as bits."""

    model: ir.Model
    names: Mapping[ir.Value, str]
    shapes: Mapping[str, tuple[int, ...]]
    chains: list[Chain] = field(default_factory=list)
    fronts: dict[ir.Node, int] = field(default_factory=dict)
    chain_of: dict[ir.Value, Chain] = field(default_factory=dict)

    def front(self, value: ir.Value) -> int:
        """What a value waits for."""
        chain = self.chain_of.get(value)
        node = value.producer()
        return 1 << chain.number if chain is not None else 0 if node is None else self.fronts.get(node, 0)

    def waits(self, fronts: int, chain: Chain) -> bool:
        """Whether something that waits for `fronts` waits for `chain`."""
        seen, left = 0, fronts
        while left:
            if left >> chain.number & 1:
                return True
            seen |= left
            found, rest = 0, left
            while rest:
                found |= self.chains[(rest & -rest).bit_length() - 1].needs
                rest &= rest - 1
            left = found & ~seen
        return False

    def link(self, node: ir.Node) -> Link | None:
        """A measured tensor as a link; None where it only notes a shape, or the shape is not known."""
        name = self.names.get(node.outputs[0], "")
        asked = node.attributes["f"].as_int()
        if asked < 0 or name not in self.shapes:
            return None
        found = Link(node=node, shape=self.shapes[name])
        if len(node.inputs) > 2 and asked != THIRD:  # it waits for what is measured at some positions
            return found
        sides = []
        for value in node.inputs:
            maker = None if value is None else value.producer()
            alone = value is not None and len(readers_of(value)) == 1 and not value.is_graph_output()
            side = pointwise(maker, found.shape, self.shape_of) if alone and maker is not None else None
            if side is None:
                return found
            sides.append(side)
        same = all(side.code == sides[0].code for side in sides)
        return Link(node=node, shape=found.shape, sides=tuple(sides)) if same else found

    def shape_of(self, value: ir.Value) -> tuple[int, ...] | None:
        """The shape of a computed tensor on the first sample."""
        return self.shapes.get(self.names.get(value, ""))

    def place(self, link: Link) -> None:
        """Puts a link at the end of a chain, or begins one."""
        reads = link.reads()
        inside = [self.chain_of[value] for value in reads if value in self.chain_of] if link.sides else []
        for chain in sorted(set(inside), key=lambda each: -each.number):
            if self._fits(link, chain, reads):
                break
        else:
            chain = Chain(number=len(self.chains), links=[])
            self.chains.append(chain)
        for value in reads:
            if self.chain_of.get(value) is not chain:
                chain.needs |= self.front(value)
        chain.links.append(link)
        chain.rounding = chain.rounding or link.rounding
        for value in link.node.outputs:
            self.chain_of[value] = chain

    def _fits(self, link: Link, chain: Chain, reads: Sequence[ir.Value]) -> bool:
        last = chain.links[-1]
        elsewhere = {value for value in reads if self.chain_of.get(value) is not chain}
        return (
            last.shape == link.shape
            and len(chain.links) < STEPS
            and (not chain.rounding or not link.rounding or chain.rounding == link.rounding)
            and not any(self.waits(self.front(value), chain) for value in elsewhere)
        )


def chain(model: ir.Model, names: Mapping[ir.Value, str], shapes: Mapping[str, tuple[int, ...]]) -> list[np.ndarray]:
    """Edits a sorted graph in place. Gives what must live as long as its sessions.

    Args:
        model: A graph with operators that measure.
        names: Which tensor each value is.
        shapes: Their shapes on the first sample, as far as they are known. Where they have others later, the operator
            fails unless the same dimensions agree.
    """
    work = _Chaining(model=model, names=names, shapes=shapes)
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type in _WATCHES:
            link = work.link(node)
            if link is not None:
                work.place(link)
                continue
        inner = [value for each in inner_nodes(node) for value in each.inputs]
        fronts = 0
        for value in (*node.inputs, *inner):
            fronts |= 0 if value is None else work.front(value)
        work.fronts[node] = fronts
    alive: list[np.ndarray] = []
    moved: dict[ir.Value, ir.Value] = {}
    for each in work.chains:
        if len(each.links) > 1 or each.links[0].sides:
            alive.extend(Writing(chain=each, moved=moved).write(model))
    return alive
