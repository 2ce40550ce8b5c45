"""Joins operators that measure, and the pointwise nodes between them, into chains (`programs`).

Behind a convolution stand additions, products and clips by the dozen, each of which reads and writes a tensor on both sides to be
measured. As one operator they are a single read and write. A node joins the chain of its first input if the rest of what it
reads does not wait for that chain. Results are the same: each tensor is computed, rounded and measured as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import feed, give_back
from parityscope.arithmetic._switching import inner_nodes
from parityscope.arithmetic.domain import DOMAIN
from parityscope.forecast._pointwise import Pointwise, pointwise
from parityscope.forecast.observing import CHAIN, OBSERVE, WATCH
from parityscope.forecast.programs import SLOTS, STEPS, Code, Operand, Step, outside, program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

__all__ = ["chain"]

_WATCHES = frozenset({OBSERVE, WATCH, f"{OBSERVE}3", f"{WATCH}3"})
_THIRD = 2  # what `_watching.ASKED` has for f(c_in) as an input of its own
_ROUNDING = ("precision", "emin", "largest", "beyond")


@dataclass(slots=True, kw_only=True, eq=False)
class _Link:
    """A tensor that is measured: by `node`, and if `sides` are not empty computed by these nodes (r, e and f(c_in))."""

    node: ir.Node
    shape: tuple[int, ...]
    sides: tuple[Pointwise, ...] = ()

    @property
    def rounding(self) -> tuple[object, ...]:
        """How it is rounded; nothing if it is not."""
        return tuple(self.node.attributes[name].value for name in _ROUNDING if name in self.node.attributes)

    @property
    def absorbed(self) -> set[ir.Node]:
        """All nodes that a chain takes the place of."""
        return {self.node, *(side.node for side in self.sides)}

    def reads(self) -> list[ir.Value]:
        """What comes from elsewhere, but for constants."""
        if self.sides:
            return [value for side in self.sides for value in side.reads]
        return [value for value in self.node.inputs if value is not None]


@dataclass(slots=True, kw_only=True, eq=False)
class _Chain:
    """Links in order. `needs` are the chains that it waits for, as bits."""

    number: int
    links: list[_Link]
    needs: int = 0
    rounding: tuple[object, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class _Chaining:
    """`fronts` are the chains that a node waits for, but for those behind other chains, as bits."""

    model: ir.Model
    names: Mapping[ir.Value, str]
    shapes: Mapping[str, tuple[int, ...]]
    chains: list[_Chain] = field(default_factory=list)
    fronts: dict[ir.Node, int] = field(default_factory=dict)
    chain_of: dict[ir.Value, _Chain] = field(default_factory=dict)

    def front(self, value: ir.Value) -> int:
        """What a value waits for."""
        chain = self.chain_of.get(value)
        node = value.producer()
        return 1 << chain.number if chain is not None else 0 if node is None else self.fronts.get(node, 0)

    def waits(self, fronts: int, chain: _Chain) -> bool:
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

    def link(self, node: ir.Node) -> _Link | None:
        """A measured tensor as a link; None where it only notes a shape, or the shape is not known."""
        name = self.names.get(node.outputs[0], "")
        asked = node.attributes["f"].as_int()
        if asked < 0 or name not in self.shapes:
            return None
        found = _Link(node=node, shape=self.shapes[name])
        if len(node.inputs) > 2 and asked != _THIRD:  # it waits for what is measured at some positions
            return found
        sides = []
        for value in node.inputs:
            maker = None if value is None else value.producer()
            alone = value is not None and len(_uses(value)) == 1 and not value.is_graph_output()
            side = pointwise(maker, found.shape, self.shape_of) if alone and maker is not None else None
            if side is None:
                return found
            sides.append(side)
        same = all(side.code == sides[0].code for side in sides)
        return _Link(node=node, shape=found.shape, sides=tuple(sides)) if same else found

    def shape_of(self, value: ir.Value) -> tuple[int, ...] | None:
        """The shape of a computed tensor on the first sample."""
        return self.shapes.get(self.names.get(value, ""))

    def place(self, link: _Link) -> None:
        """Puts a link at the end of a chain, or begins one."""
        reads = link.reads()
        inside = [self.chain_of[value] for value in reads if value in self.chain_of] if link.sides else []
        for chain in sorted(set(inside), key=lambda each: -each.number):
            if self._fits(link, chain, reads):
                break
        else:
            chain = _Chain(number=len(self.chains), links=[])
            self.chains.append(chain)
        for value in reads:
            if self.chain_of.get(value) is not chain:
                chain.needs |= self.front(value)
        chain.links.append(link)
        chain.rounding = chain.rounding or link.rounding
        for value in link.node.outputs:
            self.chain_of[value] = chain

    def _fits(self, link: _Link, chain: _Chain, reads: Sequence[ir.Value]) -> bool:
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
            alive.extend(_Writing(chain=each, moved=moved).write(model))
    return alive


@dataclass(slots=True, kw_only=True, eq=False)
class _Writing:
    """One chain that becomes an operator. `moved` are values that others took the place of."""

    chain: _Chain
    moved: dict[ir.Value, ir.Value]
    steps: list[Step] = field(default_factory=list)
    inputs: list[ir.Value] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    known: dict[ir.Value, int] = field(default_factory=dict)
    step_of: dict[ir.Value, int] = field(default_factory=dict)

    def write(self, model: ir.Model) -> list[np.ndarray]:
        """Puts the operator in place of all nodes of the chain."""
        for link in self.chain.links:
            self._step(link)
        absorbed = {node for link in self.chain.links for node in link.absorbed}
        outputs = self._outputs(absorbed)
        self._slots(outputs)
        numbers = program(
            [
                Operand(
                    at=each.at,
                    constant=each.constant,
                    trailing=int(at in self.whole) if each.at >= 0 else each.trailing,
                )
                for at, each in enumerate(self.operands)
            ],
            self.steps,
        )
        rounding = next((link.node for link in self.chain.links if link.rounding), None)
        attributes = [ir.AttrInt64("program", numbers.ctypes.data)]
        attributes += [ir.AttrInt64("rounds", int(rounding is not None))]
        attributes += [] if rounding is None else [rounding.attributes[name] for name in _ROUNDING]
        last = self.chain.links[-1].node
        made = ir.Node(DOMAIN, CHAIN, self.inputs, attributes, num_outputs=len(outputs), name=last.name)
        for value, old in zip(made.outputs, outputs, strict=True):
            value.name, value.type = old.name, ir.TensorType(ir.DataType.FLOAT)
            old.name = None
        model.graph.append(made)
        for value, old in zip(made.outputs, outputs, strict=True):
            self._move(old, _uses(old), value)
        for link in reversed(self.chain.links):
            for node in link.absorbed:
                model.graph.remove(node, safe=False)
        return [numbers, *(each.constant for each in self.operands if each.constant is not None)]

    def _step(self, link: _Link) -> None:
        attributes = link.node.attributes
        asked = attributes["f"].as_int()
        if link.sides:
            code = link.sides[0].code
            sides = [self._side(side) for side in link.sides]
        else:
            code = Code.TAKE
            taken = [value for value in link.node.inputs if value is not None]
            if asked != _THIRD:
                self.inputs.extend(taken[2:])  # it is only waited for
                taken = taken[:2]
            sides = [(self._input(value, whole=True),) for value in taken]
        step = Step(
            code=code,
            reference=sides[0],
            candidate=sides[1],
            replayed=sides[2] if asked == _THIRD else (),
            rounds=bool(link.rounding),
            asked=asked,
            row=attributes["row"].as_int(),
        )
        for value in link.node.outputs:
            self.step_of[value] = len(self.steps)
        self.steps.append(step)

    def _side(self, side: Pointwise) -> tuple[int, ...]:
        found = [self._input(side.main, whole=True)]
        found += [
            self._constant(each) if isinstance(each, Operand) else self._input(each, whole=False)
            for each in side.others
        ]
        return tuple(found)

    def _input(self, value: ir.Value, *, whole: bool) -> int:
        if value in self.step_of:
            return self.step_of[value]
        while value in self.moved:
            value = self.moved[value]
        if value not in self.known:
            self.known[value] = len(self.operands)
            self.operands.append(Operand(at=len(self.inputs)))
            self.inputs.append(value)
        if whole:
            self.whole.add(self.known[value])
        return outside(self.known[value])

    def _constant(self, operand: Operand) -> int:
        self.operands.append(operand)
        return outside(len(self.operands) - 1)

    def _outputs(self, absorbed: set[ir.Node]) -> list[ir.Value]:
        """The values that are read elsewhere."""
        found: list[ir.Value] = []
        for link, step in zip(self.chain.links, self.steps, strict=True):
            kept, passed = link.node.outputs
            for value, source in ((kept, link.node.inputs[1]), (passed, link.node.inputs[0])):
                uses = [use for use in _uses(value) if use[0] not in absorbed]
                if not uses and not value.is_graph_output():
                    continue
                if source is not None and not link.sides and (value is passed or not step.rounds):
                    self._move(value, uses, source)  # the tensor is there as it was taken
                elif value is kept:
                    step.kept = len(found)
                    found.append(value)
                else:
                    step.passed = len(found)
                    found.append(value)
        if not found:  # an operator must have one
            step = self.steps[-1]
            if step.code != Code.TAKE or step.rounds:
                step.kept = 0
                found.append(self.chain.links[-1].node.outputs[0])
        return found

    def _move(self, value: ir.Value, uses: Sequence[tuple[ir.Node, int]], other: ir.Value) -> None:
        """Lets `other` be read for `value`."""
        feed(uses, other)
        give_back(value, other)
        self.moved[value] = other

    def _slots(self, outputs: list[ir.Value]) -> None:
        """Gives results that stay in the cache places, which are used again when they are not needed any more.

        Where there is no place left, a result is written to memory as one of `outputs`.
        """
        last = list(range(len(self.steps)))
        for at, step in enumerate(self.steps):
            for read in (*step.reference, *step.candidate, *step.replayed):
                if read >= 0:
                    last[read] = at
        free = list(range(SLOTS))
        for at, step in enumerate(self.steps):
            taken = step.code == Code.TAKE
            if (step.kept < 0 and not (taken and not step.rounds)) or (step.passed < 0 and not taken):
                if free:
                    step.slot = free.pop(0)
                else:
                    self._spill(step, outputs, self.chain.links[at].node)
            for other, each in enumerate(self.steps[: at + 1]):
                if last[other] == at and each.slot >= 0:
                    free.append(each.slot)

    def _spill(self, step: Step, outputs: list[ir.Value], node: ir.Node) -> None:
        kept, passed = node.outputs
        if step.kept < 0:
            step.kept = len(outputs)
            outputs.append(kept)
        if step.passed < 0 and step.code != Code.TAKE:
            step.passed = len(outputs)
            outputs.append(passed)


def _uses(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Where a value is read in a graph: nodes that were taken out still hold what they read."""
    return [(use[0], use[1]) for use in value.uses() if use[0].graph is not None]
