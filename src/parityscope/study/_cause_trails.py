"""A trail of corrections, one copy behind the other: what of it is told, which of two is better, and what its steps took away.

A claim that nothing proves is told where what it leaves is explained to the end, and not by its size alone, or where it takes
away so much by itself that chance is excluded. Else the trail is cut in front of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.diagnosis import Tested, identity_of
from parityscope.examination import CauseSequence, CauseStep
from parityscope.light_dataclasses import dataclass, replace
from parityscope.study._merged_diagnosis import Further

if TYPE_CHECKING:
    from parityscope.checks import Correction
    from parityscope.checks.asking import Nearest
    from parityscope.examination import Examination
    from parityscope.records import Finding
    from parityscope.study._copy import Copy

# Of the squared error: what takes so much with nothing fitted is told, whatever the rest is, if no accident brings that about
# among all that was tried (chosen). A vector of d independent directions comes so near by accident with (after / before)^d,
# of which a sample is taken to have four, as in the search for transformations of the input.
_ALONE = 0.6
_ACCIDENT = 1e-4
_DIRECTIONS = 4
_PROVED = "proved on its own"
_JOINTLY = "what it leaves is explained to the end"
_MOSTLY = "it takes away most of the error, which is no accident; what is left is not explained"
_BY_SIZE = "what is left has the size of this arithmetic's rounding"
EXHAUSTED = "nothing was left to try"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseClaim:
    """Findings that one correction puts right; `near` is what is known of it where nothing proves it."""

    findings: tuple[Finding, ...]
    correction: Correction
    near: Nearest | None = None

    @property
    def known_as(self) -> frozenset[tuple[str, str]]:
        """What a step that was made already is known by: a claim tells numbers, which change from round to round."""
        return frozenset((one.code, self.correction.words) for one in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """A copy in which all claims up to `claim` are put right, and what its experiments showed (None: it was not examined).

    `energy` is its squared error, `most` how many changes an explanation may make to be still of interest, `parts` how many
    there are up to here. `ended` says why nothing was looked for behind it.
    """

    copy: Copy
    known: Examination
    energy: float
    tested: Tested | None = None
    claim: CauseClaim | None = None
    before: Trail | None = None
    parts: int = 0
    most: float = math.inf
    ended: str = EXHAUSTED

    @property
    def made(self) -> tuple[Trail, ...]:
        """The trails of all corrections up to here, this one last."""
        return () if self.before is None else (*self.before.made, self)

    @property
    def number(self) -> int:
        """The round of the search that is next."""
        return len(self.made) + 1


def cut_unjustified(trail: Trail) -> Trail:
    """The trail up to the first claim that neither is proved nor has anything to speak for it."""
    for one in reversed(trail.made):
        if _support_of(one, trail) is None and one.before is not None:
            trail = replace(one.before, ended=EXHAUSTED)
    return trail


def better_trail(best: Trail, other: Trail) -> Trail:
    """The one that explains all, or goes further; where they part what was proved, else what leaves less."""
    if other.known.verdict == "within":
        return other
    pairs = zip(best.made, other.made, strict=False)
    parted = next(((one, its) for one, its in pairs if one.copy is not its.copy), None)
    if parted is None:
        return other if len(other.made) > len(best.made) else best
    one, its = (trail.claim is not None and trail.claim.near is None for trail in parted)
    if one != its:
        return best if one else other
    return other if other.energy < best.energy else best


def further_of(trail: Trail, total: float) -> Further:
    """What a trail tells: a step for each finding, with its part of the squared error `total`, and the rounds that were made."""
    steps = [step for one in trail.made for step in _steps_of(one, trail, total)]
    rounds = tuple(one.tested for one in trail.made if one.tested is not None)
    sequence = CauseSequence(
        steps=tuple(steps),
        verdict=trail.known.verdict,
        unexplained=max(0.0, 1.0 - sum(step.share for step in steps)),
        samples=trail.copy.places,
        rounds=1 + len(rounds),
        ended=trail.ended,
    )
    causes = tuple(finding for one in trail.made for finding in _findings_of(one, trail))
    return Further(sequence=sequence, rounds=rounds, causes=causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Support:
    """What speaks for a step; `chance` is that of coming so near by accident, None where it is proved."""

    proof: str
    chance: float | None = None
    how: str = ""


def _support_of(one: Trail, trail: Trail) -> _Support | None:
    """What speaks for the claim of `one`, where `trail` leads on from it; None if nothing does."""
    claim = one.claim
    if claim is None or one.before is None:
        return None
    if claim.near is None:
        return _Support(proof=_BY_SIZE if claim.correction.declared else _PROVED)
    left = 0.0 if trail.claim is not None and trail.claim.correction.declared else trail.energy
    if trail.known.verdict == "within" and (claim.near.distinct or not _only_by_size(one, trail)):
        return _Support(proof=_JOINTLY, chance=_chance_of_accident(claim.near, one, left), how="with what follows")
    chance = _chance_of_accident(claim.near, one, one.energy)
    if claim.near.distinct and one.energy <= (1.0 - _ALONE) * one.before.energy and chance <= _ACCIDENT:
        return _Support(proof=_MOSTLY, chance=chance, how="alone")
    return None


def _only_by_size(one: Trail, trail: Trail) -> bool:
    """Whether nothing but its size speaks for what is behind a step, in no layer or in one that holds most of it.

    An error that is small enough looks like the rounding of some arithmetic, whatever makes it.
    """
    behind = [each.claim for each in trail.made[len(one.made) :] if each.claim is not None]
    proved = any(claim.near is None and not claim.correction.declared for claim in behind)
    last = trail.claim
    return not proved and last is not None and bool(last.correction.declared) and last.findings[-1].share is None


def _chance_of_accident(near: Nearest, one: Trail, left: float) -> float:
    """The chance that one of the claims tried takes away so much by accident, at most."""
    before = one.before.energy if one.before is not None else 0.0
    ratio = math.sqrt(left / before) if before > 0 else 1.0
    return float(min(1.0, near.tried * ratio ** (_DIRECTIONS * len(one.copy.places))))


def _findings_of(one: Trail, trail: Trail) -> tuple[Finding, ...]:
    """The findings of a step; the first is as sure as coming so near is no accident, and alone as far as it explains."""
    findings = one.claim.findings if one.claim is not None else ()
    support = _support_of(one, trail)
    if support is None or support.chance is None:
        return findings
    chance, source = 1.0 - support.chance, f"one minus the chance of coming so near, {support.how}, by accident"
    taken = 1.0 - one.energy / one.before.energy if one.before is not None else 1.0
    if support.proof == _MOSTLY and taken < chance:
        # That it is no accident says nothing of another cause that would explain the rest as well.
        chance, source = taken, "the part of the error, in squares, that it takes away; what is left is not explained"
    return (replace(findings[0], confidence=chance, confidence_from=source), *findings[1:])


def _steps_of(one: Trail, trail: Trail, total: float) -> list[CauseStep]:
    """A step for each finding; what they take away together is divided as their own shares are."""
    support = _support_of(one, trail)
    if one.claim is None or one.before is None or support is None:
        return []
    findings, correction = one.claim.findings, one.claim.correction
    parts = [finding.share or 0.0 for finding in findings]
    parts = [part / sum(parts) for part in parts] if sum(parts) > 0 else [1.0 / len(parts)] * len(parts)
    after = 0.0 if correction.declared else one.energy
    taken, before = one.before.energy - after, one.before.energy
    found = []
    for place, (finding, part) in enumerate(zip(findings, parts, strict=True), start=1):
        left = after + taken * max(0.0, sum(parts[place:]))
        step = CauseStep(
            round=len(one.made),
            experiment=identity_of(finding),
            code=finding.code,
            title=finding.title,
            correction=correction.words,
            before=math.sqrt(before),
            after=math.sqrt(left),
            share=taken * part / total,
            proof=_BY_SIZE if correction.declared else support.proof,
        )
        found.append(step)
        before = left
    return found
