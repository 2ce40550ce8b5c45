"""What all rounds showed -> one diagnosis: the steps by their shares, and what was found beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.diagnosis import (
    CONTRIBUTES,
    DESCRIBE,
    FILE,
    SPENT,
    VARIES,
    Tested,
    claim_of,
    identity_of,
    without_rivals,
)
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import ROLES, Evidence, Skip

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from parityscope.examination import CauseSequence, CauseStep
    from parityscope.records import Diagnosis, Finding

# What is said of a claim that was supported until other causes were put right begins so.
GONE = "gone once "

_UNEXPLAINED = "FUS003"  # nothing that is known explains a layer
_SIZE = "ACC001"  # nothing but the size of the error speaks for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """The sequence of causes, the later rounds, and a finding for each step."""

    sequence: CauseSequence
    rounds: tuple[Tested, ...]
    causes: tuple[Finding, ...]


def merge_rounds(first: Diagnosis, found: Further) -> Diagnosis:
    """The diagnosis of all rounds: the steps by their shares, then what was found beside them, first round first."""
    sequence, rounds, causes = found.sequence, found.rounds, found.causes
    shares = {step.experiment: step.share for step in sequence.steps}
    if len(sequence.steps) == 1 and any(identity_of(one) in shares for one in first.findings):
        steps: list[Finding] = []
        others = list(first.findings)
    else:
        steps = [_tell_step(one, step) for one, step in zip(causes, sequence.steps, strict=True)]
        others = [one for one in first.findings if identity_of(one) not in shares]
    # What was unexplained in a layer, or described before others were put right, is explained by the step that lies there.
    explained = {one.site.tensor for one in steps if one.site is not None}
    of_layers = {_UNEXPLAINED, *DESCRIBE}
    others = [
        one for one in others if one.code not in of_layers or one.site is None or one.site.tensor not in explained
    ]
    refuted = [one for one in first.refuted if one.experiment.identity not in shares]
    if not steps and sequence.verdict == "within":
        # A claim by size alone has nothing left to explain; others may tell the same cause in other words.
        # What the file says leaves no layer unexplained and no size to explain; another version of all weights errs by any.
        from parityscope.checks.other_graph import tells_version

        says = {_UNEXPLAINED, _SIZE} if any(step.code == FILE for step in sequence.steps) else set()
        says |= {_SIZE} if any(map(tells_version, causes)) else set()
        # A guess takes nothing away that is surer than itself.
        surest = max((one.confidence for one in causes), default=1.0)
        gone = [one for one in others if _is_cause_by_size(one, shares) or one.code in says]
        gone = [one for one in gone if one.confidence <= surest]
        refuted += [evidence for one in gone for evidence in _refute_gone(one, sequence)]
        others = [one for one in others if one not in gone]
        # With the one cause put right nothing is left: another layer that seems to compute something else tells of it.
        others = [
            replace(one, role="contributing")
            if one.role == "cause" and one.code in DESCRIBE and identity_of(one) not in shares
            else one
            for one in others
        ]
        others.sort(key=lambda one: ROLES.index(one.role))
    steps.sort(key=lambda one: -(one.share or 0.0))
    if len(steps) > 1 and sequence.verdict == "within":
        refuted += [evidence for one in others for evidence in _refute_gone(one, sequence)]
        others = [one for one in others if not _can_be_gone(one)]
    told = {claim_of(one) for one in (*steps, *first.findings)}
    for number, tested in enumerate(rounds, start=2):
        refuted += [one for one in tested.diagnosis.refuted if one.experiment.identity not in shares]
        # What is left after the last step is all that these can explain.
        for one in tested.diagnosis.findings if number == sequence.rounds and sequence.verdict != "within" else ():
            if one.role != "information" and claim_of(one) not in told:
                told.add(claim_of(one))
                left = sequence.unexplained * (1.0 if one.share is None else one.share)
                told_as = replace(one, role="contributing", share=left)
                others.append(told_as if left >= CONTRIBUTES else replace(told_as, role="information"))
    skipped = [
        *first.skipped,
        *(skip for tested in rounds for skip in tested.diagnosis.skipped if skip.reason == SPENT),
    ]
    if sequence.ended == SPENT:
        what = f"causes beside {', '.join(step.code for step in sequence.steps)}"
        skipped.append(Skip(what=what, reason=SPENT, fix="raise --time", asked=True))
    several = len(sequence.steps) > 1 or first.unexplained is None
    return replace(
        first,
        findings=(*steps, *others),
        refuted=tuple(refuted),
        skipped=tuple(skipped),
        unexplained=sequence.unexplained if several else first.unexplained,
    )


def _is_cause_by_size(finding: Finding, shares: Collection[str]) -> bool:
    """Whether a cause that is no step explains no measured part of the error: its own size is no measurement of that."""
    by_size = finding.code == _SIZE and "explains" not in finding.details
    return finding.role == "cause" and (finding.share is None or by_size) and identity_of(finding) not in shares


def _tell_step(finding: Finding, step: CauseStep) -> Finding:
    """The finding of a step, whose experiment supports it together with the others."""
    evidence = finding.evidence[0]
    if evidence.outcome != "supports":
        because = f"{evidence.because}; {step.proof}"
        finding = replace(finding, evidence=(replace(evidence, outcome="supports", because=because),))
    # Others that were put right beside it are no rivals.
    return replace(without_rivals(finding), role="cause", share=step.share)


def _can_be_gone(finding: Finding) -> bool:
    """Whether putting causes right can take it away: two runs of the candidate differ whatever is put right."""
    return finding.role != "information" and finding.code != VARIES


def _refute_gone(finding: Finding, sequence: CauseSequence) -> Iterator[Evidence]:
    """What the first round had found and is gone once the causes are put right."""
    if not (_can_be_gone(finding) and finding.evidence):
        return
    evidence = finding.evidence[0]
    because = f"{GONE}{' and '.join(step.code for step in sequence.steps)} are put right: {evidence.because}"
    yield replace(evidence, outcome="refutes", because=because)
