"""Networks that are the reference's graph with some of the candidate's differences in it, and their outputs on a sample.

Every stretch with an active difference is computed by the steps of one side, each of which takes attributes, constants and inputs
from its partner as far as differences say so. Whatever does not lie behind an active stretch is not computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph.reading import run_step
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.evaluation.sessions import Sessions
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph, Values

# Of the reference's side, or the candidate's: who a site belongs to.
Place = tuple[bool, str]
_WHOLE = frozenset({"structure", "type"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixedStep:
    """A step as a mixture computes it: the side that it is of (`mine`: the reference's), and what it reads, by place."""

    step: ProgramStep
    mine: bool
    reads: tuple[Place | None, ...]


def steps_of(
    alignment: Alignment, stretch: DifferingStretch, active: Collection[GraphDifference], *, mine: bool | None = None
) -> tuple[list[MixedStep], Place]:
    """The steps that compute a stretch with these of its differences, and where its result lies.

    They are the candidate's, without what is not active; or (`mine`) the reference's, with what is.
    """
    known = (*stretch.differences, *stretch.parts)
    chosen = [one for one in known if one in active]
    if mine is None and stretch.unrunnable:
        mine = False
    if mine is None:
        whole = [one for one in stretch.differences if one.kind in _WHOLE]
        mine = stretch.unknown or not chosen or (bool(whole) and not any(one in active for one in whole))
    taken = chosen if mine else [one for one in stretch.differences if one not in active]
    made = []
    for step in stretch.steps if mine else stretch.its_steps:
        changes = [one for one in taken if one.step >= 0 and (one.maker if mine else one.step) == step.index]
        made.append(_change_step(alignment, step, changes, mine=mine))
    return made, (mine, stretch.site if mine else stretch.candidate)


def _change_step(
    alignment: Alignment, step: ProgramStep, changes: Iterable[GraphDifference], *, mine: bool
) -> MixedStep:
    reads: list[Place | None] = [(mine, name) if name else None for name in step.inputs]
    node, kind, inputs = step.node, step.kind, list(step.inputs)
    for one in changes:
        graph = alignment.candidate if mine else alignment.reference
        partner = graph.program.steps[one.step if mine else one.maker]
        if one.kind == "opset":
            node, kind = partner.node, partner.kind
        elif one.kind == "attribute":
            node = _with_attribute(node, partner.node, one.attribute)
            kind += b"|" + one.attribute.encode() + partner.kind
        else:
            name = partner.inputs[one.place] if one.place < len(partner.inputs) else ""
            reads += [None] * (one.place + 1 - len(reads))
            inputs += [""] * (one.place + 1 - len(inputs))
            reads[one.place] = (not mine, name) if name else None
            inputs[one.place] = name
            kind += f"|{[bool(each) for each in inputs]}".encode()
    if node is step.node and inputs == list(step.inputs):
        return MixedStep(step=step, mine=mine, reads=tuple(reads))
    return MixedStep(step=replace(step, node=node, kind=kind, inputs=tuple(inputs)), mine=mine, reads=tuple(reads))


def _with_attribute(node: ir.Node, other: ir.Node, name: str) -> ir.Node:
    attributes = {key: value for key, value in node.attributes.items() if key != name}
    if name in other.attributes:
        attributes[name] = other.attributes[name]
    return ir.Node(
        node.domain,
        node.op_type,
        [ir.Value(name="x") if value is not None else None for value in node.inputs],
        list(attributes.values()),
        num_outputs=len(node.outputs),
        overload=node.overload,
    )


def run_mixture(
    alignment: Alignment,
    stretches: Mapping[str, DifferingStretch],
    active: frozenset[GraphDifference],
    values: Values,
    sessions: Sessions,
    also: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """The outputs, by the reference's names, of the reference with the `active` differences.

    What lies behind a changed value that only a step reads which nothing here runs is not known, and left out.

    Args:
        alignment: The two graphs.
        stretches: Their stretches.
        active: What is taken from the candidate.
        values: The reference's values on the sample.
        sessions: Runs single steps.
        also: Other paired sites of the reference that are asked for.

    Raises:
        ParityError: such a network does not run.
    """
    known: dict[str, Any] = {}  # sites of the reference with another value than its own, up to their last reader
    at = {one.site for one in active}
    over = _last_read(alignment, stretches, {*alignment.reference.outputs, *also})
    for site in alignment.order:
        stretch = stretches.get(site)
        if stretch is None:
            continue
        chosen = site in at
        reads = stretch.reads | (
            {alignment.pairs[name] for name in stretch.its_reads} if chosen or stretch.unrunnable else frozenset()
        )
        if chosen or not reads.isdisjoint(known):
            made, place = steps_of(alignment, stretch, active)
            usual = values.get(site)
            try:
                value = compute_stretch(alignment, made, place, known, values, sessions)
            except ParityError:
                if not stretch.unrunnable and all(known.get(name, values.get(name)) is not None for name in reads):
                    raise
                value = None
            if value is None or usual is None:
                known[site] = value
                continue
            if value.dtype != usual.dtype:
                value = value.astype(usual.dtype)
            if value.shape != usual.shape or not np.array_equal(value, usual, equal_nan=usual.dtype.kind == "f"):
                known[site] = value
        for name in over.get(site, ()):
            known.pop(name, None)
    ends = {name: known.get(name, values.get(name)) for name in (*alignment.reference.outputs, *also)}
    return {name: value for name, value in ends.items() if value is not None}


def _last_read(
    alignment: Alignment, stretches: Mapping[str, DifferingStretch], asked: Collection[str]
) -> dict[str, list[str]]:
    """By site of a stretch, in the alignment's order: what no stretch behind it reads, and is not asked for."""
    last: dict[str, str] = {}
    for site in alignment.order:
        stretch = stretches.get(site)
        if stretch is not None:
            reads = stretch.reads.union(alignment.pairs[name] for name in stretch.its_reads)
            last.update(dict.fromkeys((site, *reads), site))
    over: dict[str, list[str]] = {}
    for name, site in last.items():
        if name not in asked:
            over.setdefault(site, []).append(name)
    return over


def compute_stretch(
    alignment: Alignment,
    made: list[MixedStep],
    place: Place,
    known: Mapping[str, Any],
    values: Values,
    sessions: Sessions,
) -> Any:
    """The result at `place` of the steps of a stretch, where sites of the reference have their usual `values` or those `known`.

    Raises:
        ParityError: they do not run.
    """
    inside: dict[Place, Any] = {}
    graphs: dict[bool, ReadGraph] = {True: alignment.reference, False: alignment.candidate}

    def value(where: Place) -> Any:
        mine, name = where
        if where in inside:
            return inside[where]
        if name in graphs[mine].constants:
            return graphs[mine].constants[name]
        site = name if mine else alignment.pairs.get(name)
        if site is None or (site in alignment.reference.makers and site not in alignment.partner):
            raise ParityError(f"{name} is computed nowhere in this network")
        found = known.get(site, values.get(site))
        if found is None:
            raise ParityError(f"{name} is not known here")
        typed = None if mine else alignment.own.get(name)
        if isinstance(found, np.ndarray) and isinstance(typed, np.ndarray) and typed.dtype != found.dtype:
            return found.astype(typed.dtype)
        return found

    for one in made:
        graph = graphs[one.mine]
        inputs = [None if where is None else value(where) for where in one.reads]
        captured = [value((one.mine, name)) for name in one.step.captured]
        results = run_step(one.step, _cast_partner_inputs(one, inputs), graph.program, sessions, captured)
        inside.update(((one.mine, name), found) for name, found in zip(one.step.outputs, results, strict=True) if name)
    return inside[place] if place in inside else value(place)


def _cast_partner_inputs(one: MixedStep, inputs: list[Any]) -> list[Any]:
    """Inputs from the partner in the type that the step's other floats have."""
    floats = {
        given.dtype
        for given, where in zip(inputs, one.reads, strict=True)
        if where is not None and where[0] == one.mine and isinstance(given, np.ndarray) and given.dtype.kind in "fV"
    }
    if len(floats) != 1:
        return inputs
    kind = floats.pop()
    return [
        given.astype(kind)
        if where is not None and where[0] != one.mine and isinstance(given, np.ndarray) and given.dtype.kind in "fV"
        else given
        for given, where in zip(inputs, one.reads, strict=True)
    ]
