"""A copy in which causes are put right -> what the examination of it shows: outputs, layers, experiments."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.diagnosis import Tested, run_experiments
from parityscope.study._copy import observe_copy
from parityscope.study._grading import expect_errors, far_beyond, grade_tensors, judge_outputs, verdict_of
from parityscope.study._lab import open_lab
from parityscope.study.bench import open_bench
from parityscope.study.layers import explain_layers, observe_layers
from parityscope.study.outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.examination import Examination, OutputRun
    from parityscope.expectation.records import Expectation
    from parityscope.study._copy import Copy

__all__ = ["compare_copy", "examine_copy"]


def compare_copy(first: Examination, copy: Copy) -> Examination:
    """The copy's outputs, judged."""
    names = {value.name: value.name for value in copy.case.model.outputs}
    known = replace(
        first,
        case=copy.case,
        reference=copy.reference,
        candidate=copy.candidate,
        names=names,
        how={},
        answers=None,
        tensors={},
        layers=None,
        explanations={},
        real=None,
        growth=None,
    )
    told = first.compared
    run = run_outputs(known)
    known = replace(known, run=run, outputs=())
    if first.expectation is not None:
        # What an arithmetic makes of a network hardly changes with one cause put right: who is within by that is so, and who is
        # far beyond all of it.
        known = replace(known, expectation=_expectation_of_copy(first.expectation, copy))
        known = replace(known, outputs=judge_outputs(known))
    clear = {pair.site.tensor for pair in known.outputs if pair.verdict == "within"}
    clear |= far_beyond(run, first.expectation) if first.expectation is not None else set()
    if not known.outputs or not {pair.site.tensor for pair in known.outputs} <= clear:
        known = replace(known, expectation=expect_errors(known))
        known = replace(known, outputs=judge_outputs(known))
    # A difference that was there from the start is no matter of this copy.
    run = replace(run, candidate_environment=told.candidate_environment, executed=told.executed, skipped=())
    known = replace(known, run=_with_variation(first, replace(known, run=run)), expectation=first.expectation)
    return replace(known, verdict=verdict_of(known))


def _with_variation(first: Examination, known: Examination) -> OutputRun:
    """The copy's run with what the candidate's answers vary by: as much as ever, and of what is left a larger part."""
    told, left = first.compared, _worst_error(known)
    grown = (_worst_error(first) / left) ** 2 if left else 1.0
    changing = min(1.0, told.changing * grown) if math.isfinite(grown) else told.changing
    return replace(known.compared, spread=told.spread, changing=changing)


def _worst_error(known: Examination) -> float:
    return max(
        (pair.value("rel_l2") for pair in known.outputs if math.isfinite(pair.value("rel_l2"))), default=math.inf
    )


def _expectation_of_copy(expectation: Expectation, copy: Copy) -> Expectation:
    """The same with the places that samples have in the copy."""
    positions = {place: position for position, place in enumerate(copy.places)}
    parts = {
        name: {(positions[place], site): part for (place, site), part in found.items() if place in positions}
        for name, found in expectation.parts.items()
    }
    return replace(expectation, parts=parts)


def examine_copy(first: Examination, copy: Copy, known: Examination, number: int, label: int) -> Tested:
    """What the experiments show in the copy that is the `number`-th on its way; `label` makes the names of its files."""
    if first.layers is not None:
        names: Mapping[str, str] = {name: name for name in first.layers.statistics} | dict(known.names)
        folder = copy.folder / f"round-{label}"
        copy = observe_copy(copy, label)
        known = replace(known, candidate=copy.candidate, names=names)
        layers = observe_layers(known, known.case.inputs.indices, folder=folder, inject=True)
        known = replace(known, layers=layers)
        known = replace(known, tensors=grade_tensors(known))
        if layers is not None:
            known = replace(known, explanations=explain_layers(known, layers))
    with open_bench(known, end=first.end, deployed=first.candidate) as bench:
        return run_experiments(replace(known, bench=bench, lab=open_lab(known), number=number))
