"""Two models and what both gave on a few samples -> which differences of their graphs make the error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parityscope.case.mending import UNREAD
from parityscope.errors import ParityError
from parityscope.evaluation.sessions import Sessions
from parityscope.hypotheses.from_other_graph.aligning import align_graphs
from parityscope.hypotheses.from_other_graph.deciding import decide_causes, energy_of, units_of
from parityscope.hypotheses.from_other_graph.differing import stretches_of
from parityscope.hypotheses.from_other_graph.likeness import outlines_of
from parityscope.hypotheses.from_other_graph.mixing import run_mixture
from parityscope.hypotheses.from_other_graph.naming import name_difference
from parityscope.hypotheses.from_other_graph.reading import read_graph, values_of
from parityscope.hypotheses.from_other_graph.stating import name_of
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.case import Model
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.deciding import GraphDecision, SideOutputs
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch
    from parityscope.hypotheses.from_other_graph.reading import Values

    Feeds = Mapping[str, np.ndarray]

__all__ = ["Compared", "compare_graphs"]

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

    Outputs are each other's by name, else by position.

    Raises:
        ParityError: a graph cannot be read, the reference's not be run step by step, or what could be compared is the same.
    """
    sessions = Sessions()
    samples = sorted(samples, key=lambda one: -energy_of(one.reference, one.candidate, one.reference))
    feeds = [one.inputs for one in samples]
    mine, its = read_graph(reference, sessions), read_graph(candidate, sessions)
    values = values_of(mine, feeds[0], sessions)
    alignment = align_graphs(mine, its, values, _feeds_of_candidate(mine.inputs, its.inputs, feeds[0]), sessions)
    stretches = {site: name_difference(alignment, one, sessions) for site, one in stretches_of(alignment).items()}
    unread = _tell_unread(alignment)
    kept: dict[int, Values] = {0: values}

    def mix(active: frozenset[GraphDifference], place: int) -> Mapping[str, np.ndarray]:
        if place not in kept:
            kept[place] = values_of(mine, feeds[place], sessions)
        return run_mixture(alignment, stretches, active, kept[place], sessions)

    units = units_of(stretches.values())
    if not units:
        outside = f", without {unread[0].what}: {unread[0].reason}" if unread else ""
        raise ParityError(
            f"the two graphs compute the same step by step{outside}",
            fix=unread[0].fix if unread else "look for the cause in what runs the candidate's graph",
        )
    decision = decide_causes(units, samples, mix)
    total = sum(energy_of(one.reference, one.candidate, one.reference) for one in samples)
    return Compared(
        alignment=replace(alignment, values=outlines_of(values), seen=outlines_of(alignment.seen)),
        stretches=stretches,
        decision=decision,
        remaining=(1.0 - decision.explained) * total / len(samples),
        unread=unread,
    )


def _tell_unread(alignment: Alignment) -> tuple[Skip, ...]:
    """What of the candidate's graph could not be run, with the reason of the first, and what could not be for want of that."""
    if not alignment.unknown:
        return ()
    steps = alignment.candidate.program.steps
    named = [f"{steps[place].op_type} {name_of(steps[place])}" for place in sorted(alignment.refused)]
    behind = len(alignment.unknown) - len(named)
    told = ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")
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
