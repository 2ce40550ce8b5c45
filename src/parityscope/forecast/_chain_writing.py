"""A chain of measured tensors becomes one operator: what it reads, where each result is, what is read elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import feed, give_back
from parityscope.arithmetic.domain import DOMAIN
from parityscope.forecast.observing import CHAIN
from parityscope.forecast.programs import SLOTS, Code, Operand, Step, outside, program

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from parityscope.forecast._pointwise import Pointwise

__all__ = ["ROUNDING", "THIRD", "Chain", "Link", "Writing", "readers_of"]

THIRD = 2  # what `_watching.ASKED` has for f(c_in) as an input of its own
ROUNDING = ("precision", "emin", "largest", "beyond")


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """A tensor that is measured: by `node`, and if `sides` are not empty computed by these nodes (r, e and f(c_in))."""

    node: ir.Node
    shape: tuple[int, ...]
    sides: tuple[Pointwise, ...] = ()

    @property
    def rounding(self) -> tuple[object, ...]:
        """How it is rounded; nothing if it is not."""
        return tuple(self.node.attributes[name].value for name in ROUNDING if name in self.node.attributes)

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
class Chain:
    """Links in order. `needs` are the chains that it waits for, as bits."""

    number: int
    links: list[Link]
    needs: int = 0
    rounding: tuple[object, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Writing:
    """One chain that becomes an operator. `moved` are values that others took the place of."""

    chain: Chain
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
        attributes += [] if rounding is None else [rounding.attributes[name] for name in ROUNDING]
        last = self.chain.links[-1].node
        made = ir.Node(DOMAIN, CHAIN, self.inputs, attributes, num_outputs=len(outputs), name=last.name)
        for value, old in zip(made.outputs, outputs, strict=True):
            value.name, value.type = old.name, ir.TensorType(ir.DataType.FLOAT)
            old.name = None
        model.graph.append(made)
        for value, old in zip(made.outputs, outputs, strict=True):
            self._move(old, readers_of(old), value)
        for link in reversed(self.chain.links):
            for node in link.absorbed:
                model.graph.remove(node, safe=False)
        return [numbers, *(each.constant for each in self.operands if each.constant is not None)]

    def _step(self, link: Link) -> None:
        attributes = link.node.attributes
        asked = attributes["f"].as_int()
        if link.sides:
            code = link.sides[0].code
            sides = [self._side(side) for side in link.sides]
        else:
            code = Code.TAKE
            taken = [value for value in link.node.inputs if value is not None]
            if asked != THIRD:
                self.inputs.extend(taken[2:])  # it is only waited for
                taken = taken[:2]
            sides = [(self._input(value, whole=True),) for value in taken]
        step = Step(
            code=code,
            reference=sides[0],
            candidate=sides[1],
            replayed=sides[2] if asked == THIRD else (),
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
                readers = [use for use in readers_of(value) if use[0] not in absorbed]
                if not readers and not value.is_graph_output():
                    continue
                if source is not None and not link.sides and (value is passed or not step.rounds):
                    self._move(value, readers, source)  # the tensor is there as it was taken
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

    def _move(self, value: ir.Value, readers: Sequence[tuple[ir.Node, int]], other: ir.Value) -> None:
        """Lets `other` be read for `value`."""
        feed(readers, other)
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


def readers_of(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Where a value is read in a graph: nodes that were taken out still hold what they read."""
    return [(use[0], use[1]) for use in value.uses() if use[0].graph is not None]
