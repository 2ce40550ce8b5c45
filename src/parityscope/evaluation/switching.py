"""Precision assignments as worlds: any set of nodes low, all others in full precision, and nothing to build for the next one.

`Switchboard(model, "f16").run(sample, {"conv1", "fc"})` gives the outputs with these nodes in FP16 and all others in FP32. With
nothing low that is the plain network node by node, with everything low the simulation, bit for bit.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import quantize_and_back
from parityscope.arithmetic.gating import inner_nodes, inner_values
from parityscope.arithmetic.integers import Quantizer
from parityscope.arithmetic.sites import PRODUCTS
from parityscope.arithmetic.switchable import Switchable, make_switchable
from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.machine import usable_cores
from parityscope.evaluation.program import compile_program, keys_of
from parityscope.evaluation.reordering import reordered_world
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.simulating import rounding_of
from parityscope.evaluation.worlds import Then, World

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.gating import Border, Gated
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.case import Sample
    from parityscope.evaluation.rounding import FloatRounding
    from parityscope.evaluation.worlds import Change, Input


class Switchboard:
    """Runs assignments of a model.

    Args:
        model: The graph; it is not changed but for its order.
        precision: The format that nodes are switched to, e.g. "f16".
        overflow: As for `simulation.arrange_precision`.
        bounded: As for `simulation.arrange_precision`.
        threads: Threads inside an operator; 0 takes all processors.
        products: As for `make_switchable`.
        full: As for `make_switchable`.
        inside: As for `make_switchable`.
        order: Given, the sums of products with weights run in an order drawn from this seed.

    Raises:
        ParityError: the format cannot be simulated.
    """

    def __init__(
        self,
        model: ir.Model,
        precision: str,
        *,
        overflow: Overflow = "infinity",
        bounded: bool = True,
        threads: int = 0,
        products: Mapping[str, Scalings] = MappingProxyType({}),
        full: str = "f32",
        inside: bool = False,
        order: int | None = None,
    ) -> None:
        self.graph: Switchable = make_switchable(
            model, precision, overflow=overflow, bounded=bounded, products=products, full=full, inside=inside
        )
        self.program = compile_program(self.graph.model)
        self.sessions = Sessions(threads=threads or usable_cores())
        self._order = order
        self._keys = keys_of(self.program)
        self._exact = self._inputs(self.graph.plan.exact)

    def close(self) -> None:
        """Gives back the memory of what is open; the next run opens it again."""
        self.sessions.clear()

    def run(self, sample: Sample, low: Collection[str] | np.ndarray) -> dict[str, np.ndarray]:
        """The outputs on one sample with the nodes of `low` in the format.

        Args:
            sample: The model's inputs.
            low: Names of nodes, or bool, (nodes,) in the order of `graph.nodes`.

        Raises:
            ParityError: a name is not of a node that can be switched, or the runtime fails.
        """
        return run_world(self.world("switched", low), sample.arrays, self.program.outputs, self.sessions)

    def world(self, name: str, low: Collection[str] | np.ndarray, *, follows: str = "") -> World:
        """The world called `name` in which the nodes of `low` are low; as for `run`.

        With `follows`, the name of another world, each node reads what that one stores, and rounds it for itself.
        """
        graph = self.graph
        assignment = low if isinstance(low, np.ndarray) else graph.assignment(low)
        work = _Assignment(board=self, opened=graph.opened(assignment), alone=bool(follows))
        for value, number_format in graph.typed.items():
            work.store(value, number_format)
        for gated in graph.switching.gated:
            work.switch(gated)
        for border in graph.switching.borders:
            work.enclose(border)
        found = World(
            name=name,
            program=self.program,
            stored=work.stored,
            taken=work.taken,
            registers=self._exact,
            constants=work.constants,
            given_back=work.given_back,
            follows=follows,
        )
        return found if self._order is None else reordered_world(found, np.random.default_rng(self._order))

    def key(self, node: ir.Node) -> str:
        """The key of the step of a node, in bodies too."""
        return self._keys[node]

    def _inputs(self, uses: Collection[tuple[ir.Node, int]]) -> frozenset[Input]:
        return frozenset((self._keys[node], index) for node, index in uses if node in self._keys)


class _Assignment:
    """The changes of one assignment; `opened` says which gates are open, `alone` that each node rounds all that it reads."""

    def __init__(self, *, board: Switchboard, opened: list[bool], alone: bool) -> None:
        self.alone = alone
        self.board = board
        self.graph = board.graph
        self.opened = opened
        self.stored: dict[str, Change] = {}
        self.taken: dict[Input, Change] = {}
        self.constants: dict[Input, np.ndarray] = {}
        self.given_back: dict[tuple[str, str, int], Change] = {}

    def store(self, value: ir.Value, number_format: Format) -> None:
        """Rounds what is stored of a value."""
        site = self.board.program.sites.get(value)
        if site is not None:
            self.stored[site] = self._rounding(value, number_format)

    def switch(self, gated: Gated) -> None:
        """A node as its gates say."""
        node, plan = gated.node, self.graph.plan
        is_low = self.opened[gated.low]
        alone = bool(gated.scaled) and gated.eighth is None
        rounds = is_low and not (alone and not gated.operands and not gated.results)
        if rounds:
            # What was stored rounded is not rounded again; that would change nothing, and takes time.
            reads = self.alone or gated.plain is None or not self.opened[gated.plain]
            for index, number_format in gated.operands:
                value = node.inputs[index]
                if value is not None and (reads or constant_value(value) is not None):
                    self._take_rounded(node, index, value, number_format)
            captured = dict(gated.captures)
            for inner in inner_nodes(node):
                for index, value in enumerate(inner.inputs):
                    if value in captured and plan.reads_rounded(inner, index):
                        self._take_rounded(inner, index, value, captured[value])
                    elif (inner, index) in plan.operands and value is not None:
                        self._take_rounded(inner, index, value, plan.operands[inner, index])
            for value in inner_values(node):
                if value in plan.storage and (constant_value(value) is not None or value not in self.graph.settled):
                    self.store(value, plan.storage[value])
            for value, number_format in gated.results.items():
                self.store(value, number_format)
        elif not is_low:
            self._in_full(node)
        if gated.scaled and (is_low if gated.eighth is None else self.opened[gated.eighth]):
            self._scale_operands(gated)

    def enclose(self, border: Border) -> None:
        """What a node with bodies takes and what its bodies give, while its gate is open."""
        if not self.opened[border.low]:
            return
        node = border.node
        for index, number_format in border.operands:
            value = node.inputs[index]
            if value is not None:
                self._take_rounded(node, index, value, number_format)
        names = [name for name, attribute in node.attributes.items() if attribute.type.name == "GRAPH"]
        inside = bodies_of_node(node)
        for number, position, number_format in border.given:
            place = self.board.key(node), names[number], position
            self.given_back[place] = self._rounding(inside[number].outputs[position], number_format)

    def _take_rounded(self, node: ir.Node, index: int, value: ir.Value, number_format: Format) -> None:
        self.taken[self.board.key(node), index] = self._rounding(value, number_format)

    def _in_full(self, node: ir.Node) -> None:
        full = self.graph.full
        if full is None or node.op_type not in PRODUCTS:
            return
        for index in PRODUCTS[node.op_type] or range(len(node.inputs)):
            value = node.inputs[index]
            if value is not None and value.dtype is not None and value.dtype.name == "FLOAT":
                self._take_rounded(node, index, value, full)

    def _scale_operands(self, gated: Gated) -> None:
        """The operands of a product in FP8."""
        key = self.board.key(gated.node)
        for index, scaling in gated.scaled.items():
            value = gated.node.inputs[index]
            if value is None:
                continue
            tensor = constant_value(value)
            if tensor is not None:
                self.taken.pop((key, index), None)
                self.constants[key, index] = quantize_and_back(np.asarray(tensor.numpy()), scaling)
            else:
                quantizer = Quantizer(float(scaling.scale), None)
                before = self.taken.get((key, index))
                self.taken[key, index] = quantizer if before is None else Then(before, quantizer)

    def _rounding(self, value: ir.Value, number_format: Format) -> FloatRounding:
        return rounding_of(number_format, self.graph.overflow, constant=constant_value(value) is not None)
