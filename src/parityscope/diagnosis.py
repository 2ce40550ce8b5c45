"""Chooses, runs and ranks the experiments -> Diagnosis.

Every check proposes experiments for the scene; they run cheapest first, under a time budget. Supported claims become
findings, ordered by the part of the output error that they explain; refuted ones are kept and shown. A check that
fails (its own fault) becomes a `Skip` that names it, and the others go on.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends.recording import Progress, silent
from parityscope.checks import checks
from parityscope.errors import ParityError
from parityscope.records import Diagnosis, Skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.checks import Proposal, Result, Scene
    from parityscope.records import Evidence, Finding

__all__ = ["diagnose_scene"]

_ROLES = ("cause", "contributing", "information")

# Roles by the part of the output error that a claim explains. Chosen: a cause explains at least half of it, so that
# there is at most one; what explains less than a hundredth cannot matter to the verdict.
_CAUSE = 0.5
_CONTRIBUTES = 0.01


def diagnose_scene(
    scene: Scene,
    *,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
    progress: Progress = silent,
) -> Diagnosis:
    """Runs every check's experiments on `scene`, cheapest first, until `seconds` are spent."""
    proposals, skipped = _proposals(scene)
    end = clock() + seconds
    supported: list[Finding] = []
    refuted: list[Evidence] = []
    for position, proposal in enumerate(proposals):
        progress("testing causes", position, len(proposals))
        name = f"experiment {proposal.experiment.check}: {proposal.experiment.claim}"
        if clock() > end:
            skipped.append(Skip(what=name, reason="the time budget is spent", fix="raise --time", asked=True))
            continue
        result = _tested(proposal, name, skipped)
        if result is None:
            continue
        if result.finding is not None:
            supported.append(_with_role(result.finding, scene))
        else:
            refuted.append(result.evidence)
    progress("testing causes", len(proposals), len(proposals))
    findings = sorted(_without_repeats(supported), key=_rank)
    return Diagnosis(
        findings=tuple(findings),
        refuted=tuple(refuted),
        skipped=tuple(skipped),
        unexplained=scene.localization.unexplained if scene.localization else None,
    )


def _proposals(scene: Scene) -> tuple[list[Proposal], list[Skip]]:
    found: list[Proposal] = []
    skipped: list[Skip] = []
    for code, check in checks().items():
        try:
            found.extend(check.propose(scene))
        except Exception as error:  # noqa: BLE001 - the edge to plug-ins: their faults must not lose the study
            skipped.append(_broken(f"check {code}", error))
    found.sort(key=lambda proposal: proposal.experiment.cost_s)
    return found, skipped


def _tested(proposal: Proposal, name: str, skipped: list[Skip]) -> Result | None:
    try:
        return proposal.test()
    except ParityError as error:
        skipped.append(Skip(what=name, reason=error.problem, fix=error.fix))
    except Exception as error:  # noqa: BLE001 - the edge to plug-ins: their faults must not lose the study
        skipped.append(_broken(name, error))
    return None


def _broken(what: str, error: Exception) -> Skip:
    return Skip(
        what=what,
        reason=f"the check itself failed: {type(error).__name__}: {error}",
        fix="this is a bug of the check: report it with this line",
        asked=True,
    )


def _with_role(finding: Finding, scene: Scene) -> Finding:
    """The role that the explained share allows; nothing is a cause of what is within."""
    role = finding.role
    if role == "cause" and finding.share is not None and finding.share < _CAUSE:
        role = "contributing"
    if role == "contributing" and finding.share is not None and finding.share < _CONTRIBUTES:
        role = "information"
    if scene.verdict == "within":
        role = "information"
    return replace(finding, role=role)


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """One finding for each claim: regions that overlap may prove the same thing twice."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.code, str(finding.details.get("parameter", finding.claim)))
        held = kept.get(key)
        if held is None or (finding.share or 0.0) > (held.share or 0.0):
            kept[key] = finding
    return list(kept.values())


def _rank(finding: Finding) -> tuple[int, float, float, str]:
    return (_ROLES.index(finding.role), -(finding.share or 0.0), -finding.confidence, finding.code)
