"""Several causes, one after the other: what was found is put right in a copy, and the copy is diagnosed again.

A claim is a step if its correction takes away at least a hundredth of the squared error of the outputs, or lets the rest
be as declared. What was proved goes first. Where nothing was, the claims that come nearest are tried in turn: one of them is a
step if what it leaves is explained to the end by further steps, and not by its size alone, or if it alone takes away so much
that chance is excluded, and nothing else lies near it. Otherwise the attempt is given up, and nothing is said of it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parityscope.case.graph import computing, node_name
from parityscope.diagnosis import SPENT, Tested, identity_of
from parityscope.errors import ParityError
from parityscope.examination import CauseSequence, CauseStep
from parityscope.expectation import margin_of
from parityscope.study._again import examined_again, look
from parityscope.study._copy import corrected, energy_of
from parityscope.study._merging import Further

if TYPE_CHECKING:
    from collections.abc import Collection

    from parityscope.checks import Correction, Nearest
    from parityscope.examination import Examination
    from parityscope.records import Finding, Verdict
    from parityscope.study._copy import Copy

__all__ = ["further"]

_STEPS = 4  # chosen: more causes than that at once were in no public report
_LOOKS = 6  # chosen: of the same size as the first; attempts that lead nowhere count too
_ATTEMPTS = 2  # claims tried in one place where nothing was proved
_TAKES = 0.01  # of the squared error, as in `diagnosis`: what takes less cannot matter, unless it decides the verdict
# Of the squared error: what takes so much with nothing fitted is told, whatever the rest is, if no accident brings that about
# among all that was tried (chosen). A vector of d independent directions comes so near by accident with (after / before)^d,
# of which a sample is taken to have four, as in the search for transformations of the input.
_ALONE = 0.6
_ACCIDENT = 1e-4
_DIRECTIONS = 4
# The same arithmetic may err more on changed inputs than is predicted for them: as in checks/_reproducing.py.
_CHANGED = 4.0
_PROVED = "proved on its own"
_JOINTLY = "what it leaves is explained to the end"
_MOSTLY = "it takes away most of the error, which is no accident; what is left is not explained"
_BY_SIZE = "what is left has the size of this arithmetic's rounding"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """Steps, and where they lead: the copy's energy, verdict and (None: not looked at) what was found in it.

    `parts` counts the changes that all corrections together make.
    """

    steps: tuple[CauseStep, ...]
    findings: tuple[Finding, ...]
    energy: float
    verdict: Verdict
    rounds: tuple[Tested, ...]
    ended: str
    parts: int = 0


@dataclass(slots=True, kw_only=True)
class _State:
    """What is counted while looking: looks left, and the sum of the squared error before any step."""

    known: Examination
    total: float
    looks: int = _LOOKS


def further(known: Examination, copy: Copy, tested: Tested) -> Further | None:
    """The sequence of causes that begins with what `tested` found; None if nothing of that can be put right.

    Raises:
        ParityError: the copy cannot be run.
    """
    if not tested.corrections and not tested.nearest:
        return None
    total = energy_of(copy)
    if not total > 0 or not math.isfinite(total):
        return None
    state = _State(known=known, total=total)
    path = _onward(state, copy, tested, total, frozenset(), 1)
    if not path.steps:
        return None
    sequence = CauseSequence(
        steps=path.steps,
        verdict=path.verdict,
        unexplained=max(0.0, 1.0 - sum(step.share for step in path.steps)),
        samples=copy.places,
        rounds=1 + len(path.rounds),
        ended=path.ended,
    )
    return Further(sequence=sequence, rounds=path.rounds, causes=path.findings)


def _onward(
    state: _State, copy: Copy, tested: Tested, energy: float, told: frozenset[tuple[str, str]], number: int
) -> _Path:
    """The steps from here on; `told` are claims that were steps before, `number` is the round that `tested` is of."""
    here = _Path(steps=(), findings=(), energy=energy, verdict="beyond", rounds=(), ended="nothing was left to try")
    if number > _STEPS:
        return replace(here, ended=f"{_STEPS} steps are the most that are tried")
    proved = _proved(tested, told)
    entrance = _entrance(copy)
    # What is wrong with the inputs looks like another function of the layers that read them: inputs are asked before those.
    doubtful = [
        (findings, correction)
        for findings, correction in proved
        if correction.model is not None
        and any(finding.site is not None and finding.site.node in entrance for finding in findings)
    ]
    # An arithmetic granted excuses whatever is as small: it comes when nothing else is left.
    granted = [(findings, correction) for findings, correction in proved if correction.declared]
    for findings, correction in proved:
        if not any(findings is other for other, _ in (*doubtful, *granted)):
            path = _through(state, copy, findings, correction, energy, told, number, proof=_PROVED)
            if path is not None:
                return path
    attempts = [near for near in tested.nearest if _told_as(near.finding, near.correction) not in told]
    attempts = attempts if state.known.only is not None else attempts[:_ATTEMPTS]
    nearest = None if _settled(tested) else _nearest(state, copy, attempts, energy, told, number)
    if nearest is not None and nearest.verdict == "within" and nearest.parts == 1:
        return nearest
    for findings, correction in (*doubtful, *granted):
        path = _through(state, copy, findings, correction, energy, told, number, proof=_PROVED)
        if path is not None:
            return _simpler(nearest, path)
    return nearest or here


def _simpler(nearest: _Path | None, proved: _Path) -> _Path:
    """Of two ways to explain all, the one that changes less; inputs before layers where both change as much."""
    if nearest is None or nearest.verdict != "within":
        return proved
    return proved if proved.verdict == "within" and proved.parts < nearest.parts else nearest


def _entrance(copy: Copy) -> set[str]:
    """The layers that read the model's own inputs."""
    inputs = {value.name for value in copy.case.model.inputs}
    return {
        node_name(node, index)
        for index, node in enumerate(computing(copy.case.model.graph()))
        if any(value is not None and value.name in inputs for value in node.inputs)
    }


def _nearest(
    state: _State,
    copy: Copy,
    attempts: list[Nearest],
    energy: float,
    told: frozenset[tuple[str, str]],
    number: int,
) -> _Path | None:
    """The first of the claims that came near from which all is explained, else the best that is no accident."""
    best: _Path | None = None
    for near in attempts:
        path = _through(state, copy, (near.finding,), near.correction, energy, told, number, proof=_JOINTLY)
        if path is None:
            continue
        first = path.steps[0]
        if path.verdict == "within" and (near.distinct or not _only_by_size(path)):
            left = path.steps[-1].after
            return _sure(path, _accident(near, first.before, left, len(copy.places)), "with what follows")
        chance = _accident(near, first.before, first.after, len(copy.places))
        told_anyway = first.after**2 <= (1.0 - _ALONE) * first.before**2 and chance <= _ACCIDENT
        if near.distinct and told_anyway and (best is None or path.energy < best.energy):
            best = replace(_sure(path, chance, "alone"), steps=(replace(first, proof=_MOSTLY), *path.steps[1:]))
    return best


def _sure(path: _Path, chance: float, how: str) -> _Path:
    """The path whose first finding is as sure as coming so near is no accident."""
    finding = replace(
        path.findings[0],
        confidence=1.0 - chance,
        confidence_from=f"one minus the chance of coming so near, {how}, by accident",
    )
    return replace(path, findings=(finding, *path.findings[1:]))


def _far_beyond(copy: Copy, finding: Finding) -> bool:
    """Whether an error is so far beyond the declared arithmetic that what was put right before cannot be why."""
    declared = copy.case.policy.declared
    expected = finding.details.get("expected", {}).get(declared)
    measured = finding.details.get("measured")
    return bool(expected and measured and measured > _CHANGED * margin_of(declared) * expected)


def _only_by_size(path: _Path) -> bool:
    """Whether nothing but its size speaks for what is behind the first step, in no layer or in one that holds most of it.

    An error that is small enough looks like the rounding of some arithmetic, whatever makes it.
    """
    proved = any(step.proof == _PROVED for step in path.steps[1:])
    return not proved and path.steps[-1].proof == _BY_SIZE and path.findings[-1].share is None


def _accident(near: Nearest, before: float, after: float, samples: int) -> float:
    """The chance that one of the claims tried takes away so much by accident, at most."""
    ratio = after / before if before > 0 else 1.0
    return float(min(1.0, near.tried * ratio ** (_DIRECTIONS * samples)))


def _proved(tested: Tested, told: Collection[tuple[str, str]]) -> list[tuple[tuple[Finding, ...], Correction]]:
    """What was found and can be put right, that which explains most first; arithmetic by its size last.

    What was proved together shares one correction, and is put right at once.
    """
    found: dict[int, tuple[tuple[Finding, ...], Correction]] = {}
    for finding in tested.diagnosis.findings:
        correction = tested.corrections.get(identity_of(finding))
        if correction is not None and _told_as(finding, correction) not in told:
            before = found[id(correction)][0] if id(correction) in found else ()
            found[id(correction)] = (*before, finding), correction
    # A small part of what holds together is told with the rest; what is nothing but information is no step.
    steps = [one for one in found.values() if any(finding.role != "information" for finding in one[0])]
    return sorted(steps, key=lambda one: bool(one[1].declared))


def _told_as(finding: Finding, correction: Correction) -> tuple[str, str]:
    """What a step that was made already is known by: a claim tells numbers, which change from round to round."""
    return finding.code, correction.words


def _settled(tested: Tested) -> bool:
    """Whether a cause was found that lies in no layer, and cannot be put right in a copy: answers that vary, a switch."""
    return any(
        one.role == "cause" and identity_of(one) not in tested.corrections and (one.site is None or one.site.index < 0)
        for one in tested.diagnosis.findings
    )


def _through(
    state: _State,
    copy: Copy,
    findings: tuple[Finding, ...],
    correction: Correction,
    energy: float,
    told: frozenset[tuple[str, str]],
    number: int,
    *,
    proof: str,
) -> _Path | None:
    """The path that begins with the steps that one correction makes; None if it takes nothing away."""
    if time.monotonic() > state.known.end:
        return None
    try:
        changed = corrected(copy, correction, number)
        after = energy_of(changed)
        takes = 1.0 - after / energy
        by_size = bool(correction.declared)
        if by_size and number > 1 and not _far_beyond(copy, findings[0]):
            return None
        if not by_size and takes < _TAKES:
            return None
        known = look(state.known, changed)
    except ParityError:
        return None
    if by_size and known.verdict == "beyond":
        return None
    steps = _steps(
        state, findings, correction, (energy, 0.0 if by_size else after), number, _BY_SIZE if by_size else proof
    )
    path = _Path(
        steps=steps,
        findings=findings,
        energy=after,
        verdict=known.verdict,
        rounds=(),
        ended="what is left is within",
        parts=correction.parts,
    )
    if known.verdict != "beyond":
        return path
    if correction.rough:
        return replace(path, ended="another library's rounding may be all that is left")
    if time.monotonic() > state.known.end:
        return replace(path, ended=SPENT)
    if state.looks <= 0:
        return replace(path, ended=f"{_LOOKS} further looks are the most that are taken")
    state.looks -= 1
    try:
        tested = examined_again(state.known, changed, known, number + 1)
    except ParityError as error:
        return replace(path, ended=f"the copy cannot be diagnosed: {error.problem}")
    rest = _onward(state, changed, tested, after, told | {_told_as(one, correction) for one in findings}, number + 1)
    return _Path(
        steps=(*steps, *rest.steps),
        findings=(*findings, *rest.findings),
        energy=rest.energy,
        verdict=rest.verdict,
        rounds=(tested, *rest.rounds),
        ended=rest.ended,
        parts=correction.parts + rest.parts,
    )


def _steps(
    state: _State,
    findings: tuple[Finding, ...],
    correction: Correction,
    energies: tuple[float, float],
    number: int,
    proof: str,
) -> tuple[CauseStep, ...]:
    """A step for each finding; what they take away together is divided as their own shares are."""
    parts = [finding.share or 0.0 for finding in findings]
    parts = [part / sum(parts) for part in parts] if sum(parts) > 0 else [1.0 / len(parts)] * len(parts)
    before, after = energies
    found = []
    for place, (finding, part) in enumerate(zip(findings, parts, strict=True), start=1):
        left = after + (energies[0] - after) * max(0.0, sum(parts[place:]))
        step = CauseStep(
            round=number,
            experiment=identity_of(finding),
            code=finding.code,
            title=finding.title,
            correction=correction.words,
            before=math.sqrt(before),
            after=math.sqrt(left),
            share=(energies[0] - after) * part / state.total,
            proof=proof,
        )
        found.append(step)
        before = left
    return tuple(found)
