"""What lies inside the bodies of If, Loop and Scan, screened.

One FP32 run per sample watches the magnitudes of what bodies compute (`watching`). A node inside is flagged for what would
flag a node of the main graph (`screen`): a tensor beyond the range, or one that vanishes on its way to a pole; a constant
that overflows, or vanishes as a whole; a tensor from outside that a body reads. What a body gives flags the node around it as
well, which carries and gives that.

Where nodes inside do not decide for themselves, the node around them is flagged by the first thing inside it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.gating import inner_nodes
from parityscope.arithmetic.graphs import divided_nodes
from parityscope.arithmetic.movement import LOOPS, carried_end
from parityscope.arithmetic.sites import exact_uses, is_float
from parityscope.case.graph import bodies_of_node, computing_nodes, constant_value, node_name
from parityscope.evaluation.program import wide_program
from parityscope.expectation.forecasts import MagnitudeRange
from parityscope.expectation.ranges import join_ranges
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Site
from parityscope.repairs.search.records import Flag
from parityscope.repairs.search.screen import vanishing_tensors
from parityscope.repairs.search.watching import seen_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.case import Inputs, Model

__all__ = ["flagged_within"]

_Reason = tuple[str, str, bool]  # a name, a sentence without a subject, and whether the range is left as it stands


def flagged_within(
    model: Model,
    inputs: Inputs,
    ranges: Mapping[str, MagnitudeRange],
    low: str,
    margin: float,
    threads: int,
    *,
    apart: bool = False,
) -> dict[str, Flag]:
    """The nodes that bodies say must stay in full precision, by name; `ranges` are those of the main graph.

    `apart`: nodes inside If, Loop and Scan decide for themselves, by names that are unique in the model; otherwise nodes of
    the main graph alone are flagged.

    Raises:
        ParityError: the reference cannot run.
    """
    graph, _ = wide_program(model)
    if not any(bodies_of_node(node) for node in graph.graph):
        return {}
    known = _ranges_inside(model, inputs, threads)
    for node in graph.graph:
        known |= {value: ranges[str(value.name)] for value in node.outputs if str(value.name) in ranges}
    screen = _Screen(known=known, exact=exact_uses(graph), number_format=format_named(low), margin=margin)
    parted = set(divided_nodes(graph.graph)) if apart else set()
    found: dict[str, Flag] = {}
    for index, node in enumerate(computing_nodes(graph)):
        if bodies_of_node(node):
            screen.around(node, node_name(node, index), parted, found)
    return found


@dataclass(slots=True, kw_only=True)
class _Screen:
    """What is known of tensors, and the inputs that steer."""

    known: dict[ir.Value, MagnitudeRange]
    exact: frozenset[tuple[ir.Node, int]]
    number_format: Format
    margin: float

    def around(self, node: ir.Node, name: str, parted: Collection[ir.Node], found: dict[str, Flag]) -> None:
        """Flags a node with bodies; where it is among `parted` by what its bodies give, and the nodes inside besides."""
        lost = vanishing_tensors(list(inner_nodes(node)), self.known.get, self.number_format)
        if node not in parted:
            reasons = (self.reason(inner) for inner in inner_nodes(node))
            first = next((one for one in (*reasons, *self._vanished_within(lost)) if one is not None), None)
            if first is not None:
                found[name] = _make_flag(node, name, f"inside it {first[0]} {first[1]}", overflows=first[2])
            return
        for body in bodies_of_node(node):
            self._enter_body(node, body)
            for inner in body:
                reason = self.reason(inner) or next(self._vanished_within(lost, inner), None)
                if reason is not None:
                    found[inner.name or ""] = _make_flag(
                        inner, inner.name or "", f"it {reason[1]}", overflows=reason[2]
                    )
                if bodies_of_node(inner):
                    self.around(inner, inner.name or "", parted, found)
            for value in body.outputs:
                maker = value.producer()
                reason = self._why_beyond(value, "gives") or next(
                    self._vanished_within({value: lost[value]} if value in lost else {}), None
                )
                if maker is not None and reason is not None:
                    text = f"inside it {maker.name or maker.op_type} {reason[1]}"
                    found.setdefault(name, _make_flag(node, name, text, overflows=reason[2]))

    def reason(self, inner: ir.Node) -> _Reason | None:
        """What is wrong with the range of what a node in a body reads or gives."""
        name = inner.name or inner.op_type
        title, most = self.number_format.title, self.number_format.largest
        reads = [
            value for index, value in enumerate(inner.inputs) if value is not None and (inner, index) not in self.exact
        ]
        for value in reads:
            tensor = constant_value(value)
            if tensor is not None and is_float(value):
                size = np.abs(tensor.numpy().astype(np.float64))
                finite = size[np.isfinite(size)]
                if finite.size and finite.max() > most:
                    return name, f"reads a constant {finite.max():.4g}, beyond {title}'s {most:.5g}", True
                if finite.any() and finite.max() <= self.number_format.smallest_subnormal / 2:
                    return name, f"reads a constant {finite.max():.3g}, which becomes 0 in {title}", True
        for value, verb in [*((one, "gives") for one in inner.outputs), *((one, "reads") for one in reads)]:
            found = self._why_beyond(value, verb)
            if found is not None:
                return name, found[1], found[2]
        return None

    def _why_beyond(self, value: ir.Value, verb: str) -> _Reason | None:
        most = self.number_format.largest
        held = self.known.get(value)
        if held is None or not is_float(value) or held.largest * self.margin <= most:
            return None
        beyond = held.largest > most
        where = "beyond" if beyond else f"within a factor {self.margin:g} of"
        return "", f"{verb} {held.largest:.4g}, {where} {self.number_format.title}'s {most:.5g}", beyond

    def _vanished_within(self, lost: Mapping[ir.Value, float], node: ir.Node | None = None) -> Iterator[_Reason]:
        """What vanishes on its way to a pole; of one node, what it reads or gives of that."""
        for value, smallest in lost.items():
            maker = value.producer()
            if node is not None and maker is not node and value not in node.inputs:
                continue
            name = (maker.name or maker.op_type) if maker is not None else str(value.name)
            verb = "gives" if node is None or maker is node else "reads"
            way = "on its way to a denominator, logarithm or root"
            yield name, f"{verb} {smallest:.3g}, which becomes 0 in {self.number_format.title} {way}", True

    def _enter_body(self, node: ir.Node, body: ir.Graph) -> None:
        """Says of the inputs of a body what is known of all that is fed to them."""
        first_input, first_output = LOOPS.get(node.op_type, (0, 0))
        for position, value in enumerate(body.inputs):
            fed = [node.inputs[position] if position < len(node.inputs) else None]
            if first_input <= position < carried_end(node, body):
                fed.append(body.outputs[position - first_input + first_output])
            held = [self.known[one] for one in fed if one is not None and one in self.known]
            if held:
                small = min((one.smallest for one in held if one.smallest), default=0.0)
                self.known[value] = replace(held[0], largest=max(one.largest for one in held), smallest=small)


def _make_flag(node: ir.Node, name: str, text: str, *, overflows: bool) -> Flag:
    return Flag(node=name, op_type=node.op_type, blame="activation", text=text, overflows=overflows)


def _ranges_inside(model: Model, inputs: Inputs, threads: int) -> dict[ir.Value, MagnitudeRange]:
    nowhere = Site(tensor="", node="", op_type="", index=0)
    found: dict[ir.Value, MagnitudeRange] = {}
    for seen in seen_within(model, inputs, threads):
        for value, one in seen.items():
            small = one.smallest if math.isfinite(one.smallest) else 0.0
            held = MagnitudeRange(site=nowhere, elements=0, largest=one.largest, smallest=small, zeros=0, nonfinite=0)
            found[value] = join_ranges(found[value], held) if value in found else held
    return found
