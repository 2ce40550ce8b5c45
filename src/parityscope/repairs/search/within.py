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

from parityscope.arithmetic import format_named
from parityscope.arithmetic.gating import inner_nodes
from parityscope.arithmetic.graphs import divided_nodes
from parityscope.arithmetic.movement import LOOPS, carried_end
from parityscope.case.graph import bodies_of_node, computing_nodes, node_name
from parityscope.evaluation.program import wide_program
from parityscope.expectation.forecasts import MagnitudeRange
from parityscope.expectation.ranges import join_ranges
from parityscope.light_dataclasses import replace
from parityscope.records import Site
from parityscope.repairs.search.records import Flag
from parityscope.repairs.search.screen import RangeScreen
from parityscope.repairs.search.watching import seen_within

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

    from parityscope.case import Inputs, Model


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
    screen = RangeScreen(graph, known.get, format_named(low), margin)
    parted = set(divided_nodes(graph.graph)) if apart else set()
    found: dict[str, Flag] = {}
    for index, node in enumerate(computing_nodes(graph)):
        if bodies_of_node(node):
            _flag_around(screen, known, node, node_name(node, index), parted, found)
    return found


def _flag_around(
    screen: RangeScreen,
    known: dict[ir.Value, MagnitudeRange],
    node: ir.Node,
    name: str,
    parted: Collection[ir.Node],
    found: dict[str, Flag],
) -> None:
    """Flags a node with bodies; where it is among `parted` by what its bodies give, and the nodes inside besides."""
    lost = screen.vanishing(list(inner_nodes(node)))
    if node not in parted:
        first = next(((inner, one) for inner in inner_nodes(node) for one in screen.reasons(inner, lost)), None)
        if first is not None:
            found[name] = _flag_by_inner(node, name, *first)
        return
    for body in bodies_of_node(node):
        _enter_body(known, node, body)
        for inner in body:
            own = inner.name or ""
            reason = next(screen.reasons(inner, lost), None)
            if reason is not None:
                found[own] = _make_flag(inner, own, f"it {reason.text}", reason)
            if bodies_of_node(inner):
                _flag_around(screen, known, inner, own, parted, found)
        for value in body.outputs:
            maker = value.producer()
            given = () if maker is None else screen.reasons(maker, lost)
            reason = next((one for one in given if one.tensor == value.name), None)
            if maker is not None and reason is not None:
                found.setdefault(name, _flag_by_inner(node, name, maker, reason))


def _enter_body(known: dict[ir.Value, MagnitudeRange], node: ir.Node, body: ir.Graph) -> None:
    """Says of the inputs of a body what is known of all that is fed to them."""
    first_input, first_output = LOOPS.get(node.op_type, (0, 0))
    for position, value in enumerate(body.inputs):
        fed = [node.inputs[position] if position < len(node.inputs) else None]
        if first_input <= position < carried_end(node, body):
            fed.append(body.outputs[position - first_input + first_output])
        held = [known[one] for one in fed if one is not None and one in known]
        if held:
            small = min((one.smallest for one in held if one.smallest), default=0.0)
            known[value] = replace(held[0], largest=max(one.largest for one in held), smallest=small)


def _flag_by_inner(node: ir.Node, name: str, inner: ir.Node, reason: Flag) -> Flag:
    return _make_flag(node, name, f"inside it {inner.name or inner.op_type} {reason.text}", reason)


def _make_flag(node: ir.Node, name: str, text: str, reason: Flag) -> Flag:
    """A flag that names no tensor: range repairs are for those of the main graph."""
    return Flag(node=name, op_type=node.op_type, blame="activation", text=text, overflows=reason.overflows)


def _ranges_inside(model: Model, inputs: Inputs, threads: int) -> dict[ir.Value, MagnitudeRange]:
    nowhere = Site(tensor="", node="", op_type="", index=0)
    found: dict[ir.Value, MagnitudeRange] = {}
    for seen in seen_within(model, inputs, threads):
        for value, one in seen.items():
            small = one.smallest if math.isfinite(one.smallest) else 0.0
            held = MagnitudeRange(site=nowhere, elements=0, largest=one.largest, smallest=small, zeros=0, nonfinite=0)
            found[value] = join_ranges(found[value], held) if value in found else held
    return found
