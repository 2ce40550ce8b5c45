"""Two models and what both gave on a few samples -> which differences of their graphs make the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.mending import UNREAD
from parityscope.errors import ParityError
from parityscope.evaluation.sessions import Sessions
from parityscope.hypotheses.from_other_graph.aligning import align_graphs
from parityscope.hypotheses.from_other_graph.deciding import (
    decide_causes,
    decide_without_outputs,
    energy_of,
    units_of,
)
from parityscope.hypotheses.from_other_graph.differing import stretches_of
from parityscope.hypotheses.from_other_graph.likeness import outlines_of
from parityscope.hypotheses.from_other_graph.mixing import run_mixture
from parityscope.hypotheses.from_other_graph.naming import name_difference
from parityscope.hypotheses.from_other_graph.reading import read_graph, run_step, values_of
from parityscope.hypotheses.from_other_graph.stating import name_of
from parityscope.light_dataclasses import dataclass, replace
from parityscope.plain_numbers import list_first
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.case import Model
    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.deciding import GraphDecision, SideOutputs
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph, SideValues, Values

    Feeds = Mapping[str, np.ndarray]

_NAMED = 5  # nodes that are told by name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """Two aligned graphs, their stretches by the reference's site, and what was decided of their differences.

    Of the alignment's values only shapes and types are left. `remaining` is what the causes leave of the squared error, each
    output over its own norm, a sample. `unread` says what of the candidate's could not be compared.
    """

    alignment: Alignment
    stretches: Mapping[str, DifferingStretch]
    decision: GraphDecision
    remaining: float
    unread: tuple[Skip, ...] = ()


def compare_graphs(
    reference: Model,
    candidate: Model,
    samples: Sequence[SideOutputs],
) -> Compared:
    """Compares two graphs on samples; they are aligned on the one whose outputs are furthest apart.

    Outputs are each other's by name, else by position. What a node of the reference's that nothing here runs gives is what was
    watched, else what the candidate's node in its place gives, else numbers of our own, from which what lies behind is compared.

    Raises:
        ParityError: a graph cannot be read, or what could be compared is the same.
    """
    sessions = Sessions()
    samples = sorted(samples, key=lambda one: -energy_of(one.reference, one.candidate, one.reference))
    mine, its = read_graph(reference, sessions), read_graph(candidate, sessions)
    known, alignment, whole = _align_sides(mine, its, samples[0], sessions)
    samples = samples if whole else samples[:1]  # the others' values are not known
    stretches = {site: name_difference(alignment, one, sessions) for site, one in stretches_of(alignment).items()}
    unread = (*_tell_refused(mine, known), *_tell_unread(alignment))
    kept: dict[int, Values] = {0: known.values}
    ends = [name for name in _ends_of(mine, known) if name in alignment.partner and name in known.values]

    def mix(active: frozenset[GraphDifference], place: int) -> Mapping[str, np.ndarray]:
        found = mix_ends(active, place)
        return {name: found[name] for name in mine.outputs if name in found and name not in known.made_up}

    def mix_ends(active: frozenset[GraphDifference], place: int) -> Mapping[str, np.ndarray]:
        if place not in kept:
            kept[place] = _reference_values(mine, samples[place], sessions).values
        return run_mixture(alignment, stretches, active, kept[place], sessions, ends)

    units = units_of(stretches.values())
    if not units:
        outside = f", without {unread[0].what}: {unread[0].reason}" if unread else ""
        raise ParityError(
            f"the two graphs compute the same step by step{outside}",
            fix=unread[0].fix if unread else "look for the cause in what runs the candidate's graph",
        )
    decision = decide_causes(units, samples, mix)
    if ends:
        at_ends = {name: known.values[name] for name in ends}
        decision = decide_without_outputs(decision, units, at_ends, samples[0], mix_ends)
    total = sum(energy_of(one.reference, one.candidate, one.reference) for one in samples)
    return Compared(
        alignment=replace(alignment, values=outlines_of(known.values), seen=outlines_of(alignment.seen)),
        stretches=stretches,
        decision=decision,
        remaining=(1.0 - decision.explained) * total / len(samples),
        unread=unread,
    )


def _align_sides(
    mine: ReadGraph, its: ReadGraph, sample: SideOutputs, sessions: Sessions
) -> tuple[SideValues, Alignment, bool]:
    """The reference's values on a sample and the alignment on them; whether nothing had to stand in for unknown ones."""
    fed = _feeds_of_candidate(mine.inputs, its.inputs, sample.inputs)
    known = _reference_values(mine, sample, sessions)
    alignment = align_graphs(mine, its, known, fed, sessions)
    missing = _steps_without_results(mine, known)
    given, found, in_part = {**known.values, **sample.reference}, bool(missing), known
    while found:  # what one step's stand-in makes known, the next one reads
        news = {}
        for step in _steps_without_results(mine, in_part):
            news.update(_values_in_place(alignment, in_part.values, step, sessions))
        found = bool(news)
        given.update(news)
        in_part = values_of(mine, sample.inputs, sessions, given) if found else in_part
    if missing:
        known = values_of(mine, sample.inputs, sessions, given, invent=True)
        alignment = align_graphs(mine, its, known, fed, sessions)
    return known, alignment, not missing


def _steps_without_results(graph: ReadGraph, known: SideValues) -> list[ProgramStep]:
    """Those that nothing here runs, and of which nothing else tells what they give."""
    return [
        step
        for step in graph.steps
        if step.index in known.refused and not {*filter(None, step.outputs)} <= known.values.keys()
    ]


def _reference_values(graph: ReadGraph, sample: SideOutputs, sessions: Sessions) -> SideValues:
    """The reference's values on a sample; what nothing here runs is looked for in the whole, as often as that tells more."""
    given = dict(sample.reference)
    while True:
        found = values_of(graph, sample.inputs, sessions, given)
        kinds = {step.kind for step in graph.steps if step.index in found.refused}
        names = [
            name for step in graph.steps if step.kind in kinds for name in step.outputs if name and name not in given
        ]
        if sample.watch is None or not names:
            return found
        try:
            watched = sample.watch(names)
        except ParityError:  # then it cannot be looked at
            return found
        if not watched:
            return found
        given.update(watched)


def _values_in_place(
    alignment: Alignment, values: Values, step: ProgramStep, sessions: Sessions
) -> dict[str, np.ndarray]:
    """What the candidate's step in place of one of the reference's gives for what that reads.

    It is the step behind its pair, or the only one that reads the same.
    """
    graph, pairs = alignment.candidate, alignment.pairs
    real = [name for name in step.reads if name not in alignment.reference.constants]
    made = [graph.makers.get(alignment.partner.get(name, "")) for name in step.outputs]
    alike = [
        one
        for one in graph.steps
        if one.outputs[0] not in pairs
        and [pairs.get(name) for name in one.reads if name not in graph.constants] == real
    ]
    its = next(filter(None, made), None) or (alike[0] if len(alike) == 1 else None)
    if its is None or len(its.outputs) != len(step.outputs) or not values.keys() >= {*real}:
        return {}
    read = [name for name in its.reads if name not in graph.constants]
    if len(read) != len(real):
        return {}
    fed = {**graph.constants, **{other: values[name] for other, name in zip(read, real, strict=True)}}
    inputs = [fed[name] if name else None for name in its.inputs]
    try:
        found = run_step(its, inputs, graph.program, sessions, [fed[name] for name in its.captured])
    except ParityError:
        return {}
    return {name: value for name, value in zip(step.outputs, found, strict=True) if name}


def _ends_of(graph: ReadGraph, known: SideValues) -> list[str]:
    """Where what can be run ends, of a graph with steps that cannot: what these read, and outputs that rest on made-up values."""
    made_up = [name for name in graph.outputs if name in known.made_up]
    refused = (step for step in graph.steps if step.index in known.refused)
    read = [name for step in refused for name in step.reads if name in graph.makers]
    return list(dict.fromkeys((*made_up, *read)))


def _tell_refused(graph: ReadGraph, known: SideValues) -> tuple[Skip, ...]:
    """What of the reference's graph could not be run, and what stood in its place."""
    if not known.refused:
        return ()
    steps = [step for step in graph.steps if step.index in known.refused]
    invented = [step for step in steps if not known.made_up.isdisjoint(step.outputs)]
    instead = (
        "what the candidate or a recording gives in their place was taken"
        if not invented
        else "what lies behind was compared from numbers of our own: what it does to the outputs is not known"
    )
    return (
        Skip(
            what=f"{len(steps)} of {len(graph.steps)} nodes of the reference's file",
            reason=f"they cannot be run alone: {_list_names(steps)}. {known.refused[steps[0].index]}; {instead}",
            fix="record what they give, with the outputs (docs/recorder.md), or register their operators: ort?custom_ops=LIBRARY",
        ),
    )


def _list_names(steps: Sequence[ProgramStep]) -> str:
    """Operators and names of the first few."""
    return list_first([f"{step.op_type} {name_of(step)}" for step in steps], _NAMED)


def _tell_unread(alignment: Alignment) -> tuple[Skip, ...]:
    """What of the candidate's graph could not be run, with the reason of the first, and what could not be for want of that."""
    if not alignment.unknown:
        return ()
    steps = alignment.candidate.program.steps
    behind = len(alignment.unknown) - len(alignment.refused)
    told = _list_names([steps[place] for place in sorted(alignment.refused)])
    more = f", and {behind} that read what these give" if behind else ""
    runtime = [why for place, why in sorted(alignment.refused.items()) if steps[place].node.domain != UNREAD]
    first = runtime[0] if runtime else "what they read is not known"
    return (
        Skip(
            what=f"{len(alignment.unknown)} of {len(steps)} nodes of the candidate's file",
            reason=f"they cannot be run alone: {told}{more}. {first}",
            fix="what differs elsewhere was tried; export these as operators of ONNX to have them compared too",
        ),
    )


def _feeds_of_candidate(reference: Sequence[str], candidate: Sequence[str], feeds: Feeds) -> dict[str, np.ndarray]:
    """The sample by the candidate's names: those of the reference, else by position."""
    found = {}
    for place, name in enumerate(candidate):
        other = name if name in feeds else reference[place] if place < len(reference) else name
        if other in feeds:
            found[name] = feeds[other]
    return found
