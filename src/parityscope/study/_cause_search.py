"""Several causes, one after the other: the best claim is put right in a copy, and the copy is examined again.

A claim is a step if its correction takes away at least a hundredth of the squared error of the outputs, or lets the rest
be as declared. What was proved goes first. Where nothing was, the claims that come nearest are tried in turn: one of them is a
step if what it leaves is explained to the end by further steps, and not by its size alone, or if it alone takes away so much
that chance is excluded, and nothing else lies near it. Otherwise the attempt is given up, and nothing is said of it. The first
copy that is within ends the search; where a proved correction alone gives one, only claims that change no more are still tried.

A copy in which causes are put right -> what the examination of it shows: outputs, layers, experiments.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.case.graph import computing_nodes, node_name
from parityscope.diagnosis import SPENT, Tested, identity_of, run_experiments
from parityscope.errors import ParityError
from parityscope.expectation.grades import margin_of
from parityscope.study._cause_trails import EXHAUSTED, CauseClaim, Trail, better_trail, cut_unjustified, further_of
from parityscope.study._copy import correct_copy, energy_of, observe_copy
from parityscope.study._grading import expect_errors, far_beyond, grade_tensors, judge_outputs, verdict_of
from parityscope.study._lab import open_lab
from parityscope.study.bench import open_bench
from parityscope.study.layers import explain_layers, observe_layers
from parityscope.study.outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.examination import Examination, OutputRun
    from parityscope.expectation.records import Expectation
    from parityscope.records import Finding
    from parityscope.study._copy import Copy
    from parityscope.study._merged_diagnosis import Further

_STEPS = 4  # chosen: more causes than that at once were in no public report
_LOOKS = 6  # chosen: of the same size as the first; attempts that lead nowhere count too
# Elements of tensors inside the network that all looks together may hold against each other: no clock's, so that a slow machine
# finds what a quick one does. Chosen: a look at 50 million takes a minute or two of one core.
_ELEMENTS = 150e6
# Estimated seconds of the looks behind claims that are not proved, and runs of the reference that each takes: what is searched
# for in a copy from outputs alone costs as much as in the first. Chosen: a network of 0.2 s a run has one such look.
_UNPROVED_S, _RUNS = 120.0, 600.0
_ATTEMPTS = 2  # claims tried in one place where nothing was proved
_TAKES = 0.01  # of the squared error, as in `diagnosis`: what takes less cannot matter, unless it decides the verdict
# The same arithmetic may err more on changed inputs than is predicted for them: as in checks/_reproducing.py.
_CHANGED = 4.0


def search_causes(known: Examination, copy: Copy, tested: Tested) -> Further | None:
    """The sequence of causes that begins with what `tested` found; None if nothing of that can be put right.

    Raises:
        ParityError: the copy cannot be run.
    """
    total = energy_of(copy)
    if not total > 0 or not math.isfinite(total):
        return None
    best = start = Trail(copy=copy, known=known, energy=total, tested=tested)
    labels, allowed = itertools.count(1), _looks_allowed(known)
    few = _looks_behind_unproved(tested, allowed)
    looks, unproved = allowed, few
    open_trails = [_correct_each(known, start, labels)]
    while open_trails and best.known.verdict != "within":
        trail = next(open_trails[-1], None)
        if trail is None:
            open_trails.pop()
            continue
        is_proved = all(one.claim is None or one.claim.near is None for one in trail.made)
        trail = _with_end(trail, looks, allowed) if is_proved or looks < unproved else _with_end(trail, unproved, few)
        if trail.ended == EXHAUSTED:
            looks, unproved = looks - 1, unproved - (not is_proved)
            trail = _examined_again(known, trail, next(labels))
        best = better_trail(best, cut_unjustified(trail))
        if trail.tested is not None:
            open_trails.append(_correct_each(known, trail, labels))
    return further_of(best, total) if best.before is not None else None


def _correct_each(known: Examination, trail: Trail, labels: Iterator[int]) -> Iterator[Trail]:
    """What lies one correction behind a trail: of what was proved only the first that takes anything away.

    What is wrong with the inputs looks like another function of the layers that read them: inputs are asked before those. An
    arithmetic granted excuses whatever is as small: it comes when nothing else is left.
    """
    proved = _proved_claims(trail)
    entrance = _entrance_layers(trail.copy)
    doubtful = [one for one in proved if one.correction.model is not None and _lies_in(one, entrance)]
    granted = [one for one in proved if one.correction.declared and one not in doubtful]
    for claim in (one for one in proved if one not in doubtful and one not in granted):
        found = _correct_claim(known, trail, claim, labels)
        if found is not None:
            yield found
            return
    later = next(filter(None, (_correct_claim(known, trail, one, labels) for one in (*doubtful, *granted))), None)
    is_enough = later is not None and later.known.verdict == "within" and not known.request.thorough
    enough = later.parts if later is not None and is_enough else math.inf
    for claim in _near_claims(known, trail):
        found = _correct_claim(known, replace(trail, most=min(trail.most, enough)), claim, labels)
        if found is not None:
            yield found
    if later is not None:
        yield later


def _correct_claim(known: Examination, trail: Trail, claim: CauseClaim, labels: Iterator[int]) -> Trail | None:
    """The trail with one claim more put right; None if that takes nothing away."""
    correction, by_size = claim.correction, bool(claim.correction.declared)
    parts = trail.parts + correction.parts
    if time.monotonic() > known.end or parts > trail.most:
        return None
    try:
        copy = correct_copy(trail.copy, correction, next(labels))
        after = energy_of(copy)
        if by_size and trail.number > 1 and not _is_far_beyond(trail.copy, claim.findings[0]):
            return None
        if not by_size and 1.0 - after / trail.energy < _TAKES:
            return None
        compared = _compare_copy(known, copy)
    except ParityError:
        return None
    if by_size and compared.verdict == "beyond":
        return None
    return Trail(copy=copy, known=compared, energy=after, claim=claim, before=trail, parts=parts, most=trail.most)


def _looks_allowed(known: Examination) -> int:
    """How many copies are looked at again: fewer where the tensors inside the network are large."""
    statistics = known.layers.statistics.values() if known.layers is not None else ()
    elements = sum(one.count for one in statistics)
    return max(1, min(_LOOKS, int(_ELEMENTS / max(elements, 1))))


def _looks_behind_unproved(tested: Tested, allowed: int) -> int:
    """How many copies are looked at in which a claim was put right that is not proved: fewer where a run takes long."""
    takes = max((float(one.details.get("run_s", 0.0)) for one in tested.diagnosis.findings), default=0.0) * _RUNS
    return allowed if takes * allowed <= _UNPROVED_S else max(1, int(_UNPROVED_S / takes))


def _with_end(trail: Trail, looks: int, allowed: int) -> Trail:
    """The trail with why nothing is looked for behind it, if so."""
    if trail.known.verdict != "beyond":
        return replace(trail, ended="what is left is within")
    if trail.claim is not None and trail.claim.correction.rough:
        return replace(trail, ended="another library's rounding may be all that is left")
    if trail.parts >= trail.most:
        return replace(trail, ended="what is left was not looked at")
    if time.monotonic() > trail.known.end:
        return replace(trail, ended=SPENT)
    if looks <= 0:
        return replace(trail, ended=f"{allowed} further looks are the most that are taken")
    return trail


def _examined_again(known: Examination, trail: Trail, label: int) -> Trail:
    try:
        tested = _examine_copy(known, trail.copy, trail.known, trail.number, label)
    except ParityError as error:
        return replace(trail, ended=f"the copy cannot be diagnosed: {error.problem}")
    ended = f"{_STEPS} steps are the most that are tried" if trail.number > _STEPS else trail.ended
    return replace(trail, tested=tested, ended=ended)


def _proved_claims(trail: Trail) -> list[CauseClaim]:
    """What was found and can be put right, that which explains most first; arithmetic by its size last.

    What was proved together shares one correction, and is put right at once.
    """
    if trail.tested is None or trail.number > _STEPS:
        return []
    told = _known_as(trail)
    found: dict[int, CauseClaim] = {}
    for finding in trail.tested.diagnosis.findings:
        correction = trail.tested.corrections.get(identity_of(finding))
        if correction is not None and (finding.code, correction.words) not in told:
            before = found[id(correction)].findings if id(correction) in found else ()
            found[id(correction)] = CauseClaim(findings=(*before, finding), correction=correction)
    # A small part of what holds together is told with the rest; what is nothing but information is no step.
    steps = [one for one in found.values() if any(finding.role != "information" for finding in one.findings)]
    return sorted(steps, key=lambda one: bool(one.correction.declared))


def _near_claims(known: Examination, trail: Trail) -> list[CauseClaim]:
    """The claims that come nearest, where no cause was found that lies in no layer and cannot be put right in a copy."""
    if trail.tested is None or trail.number > _STEPS or _is_settled(trail.tested):
        return []
    near = [CauseClaim(findings=(one.finding,), correction=one.correction, near=one) for one in trail.tested.nearest]
    near = [one for one in near if not one.known_as & _known_as(trail)]
    return near if known.only is not None else near[:_ATTEMPTS]


def _known_as(trail: Trail) -> frozenset[tuple[str, str]]:
    return frozenset().union(*(one.claim.known_as for one in trail.made if one.claim is not None))


def _is_settled(tested: Tested) -> bool:
    """Whether a cause was found that lies in no layer, and cannot be put right in a copy: answers that vary, a switch."""
    return any(
        one.role == "cause" and identity_of(one) not in tested.corrections and (one.site is None or one.site.index < 0)
        for one in tested.diagnosis.findings
    )


def _entrance_layers(copy: Copy) -> set[str]:
    """The layers that read the model's own inputs."""
    inputs = {value.name for value in copy.case.model.inputs}
    return {
        node_name(node, index)
        for index, node in enumerate(computing_nodes(copy.case.model.shared_graph()))
        if any(value is not None and value.name in inputs for value in node.inputs)
    }


def _lies_in(claim: CauseClaim, nodes: set[str]) -> bool:
    """Whether it is about one of these layers, and fitted to them: what the candidate's own file says of one is read."""
    from parityscope.checks.other_graph import tells_layer

    return any(one.site is not None and one.site.node in nodes and not tells_layer(one) for one in claim.findings)


def _is_far_beyond(copy: Copy, finding: Finding) -> bool:
    """Whether an error is so far beyond the declared arithmetic that what was put right before cannot be why."""
    declared = copy.case.policy.declared
    expected = finding.details.get("expected", {}).get(declared)
    measured = finding.details.get("measured")
    return bool(expected and measured and measured > _CHANGED * margin_of(declared) * expected)


def _compare_copy(first: Examination, copy: Copy) -> Examination:
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


def _examine_copy(first: Examination, copy: Copy, known: Examination, number: int, label: int) -> Tested:
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
