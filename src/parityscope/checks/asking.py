"""A check and what is known -> experiments; what their tests show -> evidence and findings, under the check's code and title."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from parityscope.checks import Claim, Shown
from parityscope.checks._common import leading_suspects
from parityscope.errors import ParityError
from parityscope.examination import Examination
from parityscope.light_dataclasses import dataclass, fields
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from parityscope.checks import Check, Correction
    from parityscope.records import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A near miss (`checks.NearMiss`) as a finding, with its correction."""

    finding: Finding
    correction: Correction
    tried: int = 1
    distinct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What an experiment showed, and the findings that it supports (None when it refutes or stays open)."""

    evidence: Evidence
    finding: Finding | None = None
    further: tuple[Finding, ...] = ()
    correction: Correction | None = None
    nearest: Nearest | None = None
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An experiment and how to run and judge it."""

    experiment: Experiment
    test: Callable[[], TestResult]


# What a check may name, with its type as it is written: an examination's fields and what it tells by them, the whole of it, and
# the leading suspects.
_TOLD: Mapping[str, str] = {
    "known": "Examination",
    "suspects": "Sequence[Suspect]",
    **{one.name: str(one.type) for one in fields(Examination)},
    **{
        name: str(inspect.signature(value.fget).return_annotation)
        for name, value in vars(Examination).items()
        if isinstance(value, property) and value.fget is not None
    },
}


def ask_check(check: Check, known: Examination) -> Iterator[Proposal]:
    """The experiments of a check; the round of a search for several causes is part of their identities.

    Raises:
        ParityError: the check asks for what nobody knows, or proposes something else than claims.
    """
    given = _named_facts(check, known)
    if given is None:
        return
    for place, claim in enumerate(check.propose(**given), start=1):
        if not isinstance(claim, Claim):
            raise ParityError(
                f"check {check.code} proposes a {type(claim).__name__}, not a Claim",
                fix=f"see {check.propose.__module__}",
            )
        identity = f"{check.code}-{place}" + (f"@{known.number}" if known.number > 1 else "")
        yield _make_proposal(check, claim, write_experiment(check.code, claim, identity))


def _named_facts(check: Check, known: Examination) -> Mapping[str, Any] | None:
    """What the check names as its parameters; None where something of it is not known."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(check.propose).parameters.items():
        if name not in _TOLD:
            raise ParityError(
                f"check {check.code} asks for {name!r}, which nobody gives",
                fix=f"name its parameters of these: {', '.join(sorted(_TOLD))}",
            )
        if name == "known":
            value: Any = known
        else:
            value = leading_suspects(known) if name == "suspects" else getattr(known, name)
        if value is None:
            if parameter.default is parameter.empty:
                return None
            value = parameter.default
        given[name] = value
    return given


def describe_mistyped(check: Check) -> list[str]:
    """What a check's parameters are annotated as and are not, a sentence each; None is given only for what has a default."""
    told = []
    for name, parameter in inspect.signature(check.propose).parameters.items():
        if parameter.annotation is parameter.empty or name not in _TOLD:
            continue
        given, written = _members_of(_TOLD[name]), _members_of(inspect.formatannotation(parameter.annotation))
        if not given - {"None"} <= written:
            told.append(f"{check.code} takes {name} as {' | '.join(sorted(written))}: it is {_TOLD[name]}")
    return told


def _members_of(annotation: str) -> set[str]:
    """The members of a union as they are written, without the modules that hold them; a tuple of any length is a sequence."""
    plain = (re.sub(r"\b[a-z_]+\.(?=\w)", "", one.strip(" '")) for one in annotation.split(" | "))
    return {re.sub(r"^(?:tuple|Iterable|Collection)\[(.+?)(?:,\s\.\.\.)?\]$", r"Sequence[\1]", one) for one in plain}


def _make_proposal(check: Check, claim: Claim, experiment: Experiment) -> Proposal:
    def test() -> TestResult:
        shown = claim.test()
        near = shown.nearest
        nearest = None
        if near is not None and near.shown.correction is not None:
            nearest = Nearest(
                finding=write_finding(check.code, check.title, claim, experiment, near.shown),
                correction=near.shown.correction,
                tried=near.tried,
                distinct=near.distinct,
            )
        told = (shown, *shown.further) if shown.outcome == "supports" or shown.sentence else ()
        findings = [write_finding(check.code, check.title, claim, experiment, one) for one in told]
        return TestResult(
            evidence=_write_evidence(experiment, shown),
            finding=findings[0] if findings else None,
            further=tuple(findings[1:]),
            correction=shown.correction,
            nearest=nearest,
            skipped=shown.skipped,
        )

    return Proposal(experiment=experiment, test=test)


def write_experiment(code: str, claim: Claim, identity: str = "") -> Experiment:
    """The experiment of a claim as documents hold it."""
    return Experiment(
        check=code,
        claim=claim.words,
        change=claim.predicts.change,
        measure=claim.predicts.measure,
        if_true=claim.predicts.if_true,
        if_false=claim.predicts.if_false,
        cost_s=claim.cost_s,
        runs=claim.runs,
        identity=identity,
    )


def write_finding(code: str, title: str, claim: Claim, experiment: Experiment, shown: Shown) -> Finding:
    """The finding of a claim as documents hold it."""
    confidence = shown.confidence if shown.confidence is not None else shown.share
    return Finding(
        code=code,
        title=shown.title or title,
        role=shown.role,
        claim=shown.sentence or f"{claim.words[:1].upper()}{claim.words[1:]}: {shown.because}.",
        confidence=1.0 if confidence is None else confidence,
        confidence_from=shown.confidence_from,
        site=shown.site or claim.site,
        share=shown.share,
        evidence=(_write_evidence(experiment, shown),),
        repairs=tuple(
            one
            if isinstance(one, OfferedRepair)
            else OfferedRepair(repair=one[0], text=one[1], command="".join(one[2:]))
            for one in shown.repairs
        ),
        details=shown.details,
        ruled_out=shown.ruled_out,
    )


def _write_evidence(experiment: Experiment, shown: Shown) -> Evidence:
    return Evidence(
        experiment=experiment, outcome=shown.outcome, before=shown.before, after=shown.after, because=shown.because
    )
