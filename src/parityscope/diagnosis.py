"""Chooses, runs and ranks the experiments -> Diagnosis.

Every check proposes experiments for what is known. What needs no run comes first, then what runs the reference, then what runs
the candidate, then what builds or starts it in another way; within each the cheapest first. An outcome changes that order:
once a claim explains all of the error, the experiments that would explain it in another way come last. Once a function of
one layer inside the network does, on the candidate's own inputs, only its rivals are tested that speak of layers too: what
is wrong with inputs, outputs or the machine makes no such error; and once the candidate's own file says what makes it, nothing
is built or started in another way. Where the arithmetic that the candidate names explains all, in no single place, layers alone
are asked too, and no long search is made for what else might. Where a cause was proved before layers were looked at, nothing is
run any more. All of it obeys a time budget. Supported claims become findings, ordered by the part of the output error that they
explain; refuted ones are kept and shown. A check that fails (its own fault) becomes a `Skip` that names it, and the others go on.
"""

from __future__ import annotations

import math
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.checks import known_checks
from parityscope.checks.asking import ask_check
from parityscope.checks.contradicting import with_contradictions
from parityscope.checks.ending import NeverEndedError, ended_after, is_of_others
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import ROLES, Diagnosis, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.checks import Correction
    from parityscope.checks.asking import Nearest, Proposal, TestResult
    from parityscope.examination import Examination
    from parityscope.records import Evidence, Experiment, Finding

SPENT = "the time budget is spent"

VARIES = "RUN001"  # the candidate does not give the same answer twice
_BY_SIZE = "ACC001"  # nothing but the size of the error speaks for it
# A layer computes another function: a mistake by name says more.
DESCRIBE = ("FUS002",)
_ALONE = "alone"  # how sure a description is without its rivals, and why: among its details

# What an experiment runs, cheap and decisive first.
_STAGES = ("nothing", "reference", "candidate", "rebuild")

# Roles by the part of the output error that a claim explains. Chosen: a cause explains at least half of it, so that
# there is at most one; what explains less than a hundredth cannot matter to the verdict.
_CAUSE = 0.5
CONTRIBUTES = 0.01

# A claim that explains this part of the error leaves nothing to explain: as in checks/_reproducing.py.
_ALL = 0.99

# What a simulation explains of a real engine's error, at least, where it computes in that format: an engine may cut off where
# another rounds, and adds in another order (0.4 to 0.96 of the squared error, of TF32 on an H200). Chosen.
_MOST = 0.5
_AS_SIMULATED = (
    "rounding of a coarser format, simulated, points where most of the error does, by more numbers than chance would"
)
_AS_TOLD = "the arithmetic that the candidate says it computes in makes an error of this size, in no single place"

# The candidate itself was seen without it, with nothing else changed: what layers seem to compute instead, and that it is gone
# without the optimizer, are how it shows.
_SEEN_WITHOUT = "RNG005"
_SHOWS_AS = frozenset({"FUS002", "FUS003", "FUS011"})

FILE = "EXP005"  # the candidate's own graph says something else

# Codes of checks whose claims are of what a layer computes, by how they begin.
_OF_LAYERS = ("FUS", "CST", "RNG", "EXP")


# Seconds that an experiment is estimated to take from which on it is not made once all is explained. Chosen.
_COSTLY_S = 20.0

# Of what is left of the time for experiments, what a check of others may take, and seconds where there is no such limit. Chosen.
_HALF, _LONGEST_S = 0.5, 600.0


class TimeSpentError(Exception):
    """Raised by what an experiment runs once the time budget is spent; the experiment then has no outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A diagnosis, and how each finding is put right in a copy, by the identity of its experiment.

    `nearest` are claims that were refuted as the only cause and may be one of several, those that explain most first.
    """

    diagnosis: Diagnosis
    corrections: Mapping[str, Correction] = field(default_factory=lambda: MappingProxyType({}))
    nearest: tuple[Nearest, ...] = ()


def run_experiments(known: Examination, *, clock: Callable[[], float] = time.monotonic) -> Tested:
    """Runs every check's experiments, cheap ones first, until it is `known.end` on the clock.

    With `known.only` just the experiments of these identities are run, and nothing is said of the others. A request that is
    thorough runs them all, whatever is proved.
    """
    proposals, skipped = _list_proposals(known)
    supported: list[Finding] = []
    refuted: list[Evidence] = []
    corrections: dict[str, Correction] = {}
    nearest: list[Nearest] = []
    queue, total, explained = list(proposals), len(proposals), ""  # the check that explained all
    if known.proof is not None:
        queue.sort(key=lambda one: one.experiment.check != FILE)
    while queue:
        proposal = queue.pop(0)
        known.progress("testing causes", total - len(queue) - 1, total)
        name = f"experiment {proposal.experiment.identity}: {proposal.experiment.claim}"
        if clock() > known.end:
            skipped.append(Skip(what=name, reason=SPENT, fix="raise --time", asked=True))
            continue
        if explained not in {"", proposal.experiment.check} and proposal.experiment.cost_s >= _COSTLY_S:
            skipped.append(Skip(what=name, reason="another experiment explains all of the error already"))
            continue
        result = _test_proposal(proposal, name, skipped, _patience_for(proposal.experiment.check, known.end - clock()))
        if result is None:
            continue
        skipped += result.skipped
        if result.finding is None:
            refuted.append(result.evidence)
            if result.nearest is not None:
                nearest.append(result.nearest)
            continue
        place = len(supported)
        supported += [result.finding, *result.further]
        if result.correction is not None:
            corrections[proposal.experiment.identity] = result.correction
        if result.finding.code == _SEEN_WITHOUT and result.finding.role == "cause":
            queue = _unlike_consequences(queue, skipped)
        if reason := _why_nothing_else(known, result.finding):
            queue = _cheap_experiments(queue, skipped, reason)
        if result.finding.role == "cause" and _explained_share(_join_outputs(supported)[place]) >= _ALL:
            explained = proposal.experiment.check
            queue.sort(key=lambda one: one.experiment.check != proposal.experiment.check)
            if known.only is None and not known.request.thorough:
                queue = _remaining_rivals(known, result.finding, queue, skipped)
    known.progress("testing causes", total, total)
    supported = [_give_role(one, known) for one in _join_outputs(supported)]
    gone = _list_consequences(supported)
    supported = [one for one in supported if one not in gone]
    refuted += [_refute_consequence(one.evidence[0]) for one in gone if one.evidence]
    corrections = {key: one for key, one in corrections.items() if key not in set(map(identity_of, gone))}
    nearest = [one for one in nearest if not gone or one.finding.code not in _SHOWS_AS]
    supported = with_contradictions(_share_doubt(supported), refuted, known)
    findings = sorted(
        _after_file(_after_description(_after_variation(_without_repeats(supported)))), key=_rank_of_finding
    )
    nearest.sort(key=lambda one: -(one.finding.share or 0.0))
    return Tested(
        diagnosis=Diagnosis(
            findings=tuple(findings),
            refuted=tuple(refuted),
            skipped=tuple(skipped),
            unexplained=known.localization.unexplained if known.localization else None,
        ),
        corrections=corrections,
        nearest=tuple(nearest),
    )


def _list_consequences(findings: list[Finding]) -> list[Finding]:
    """What only tells how a cause shows that the candidate itself was seen without."""
    if not any(one.code == _SEEN_WITHOUT and one.role == "cause" for one in findings):
        return []
    return [one for one in findings if one.code in _SHOWS_AS]


def _unlike_consequences(queue: list[Proposal], skipped: list[Skip]) -> list[Proposal]:
    """The experiments without those that could only find how a cause shows that the candidate itself was seen without."""
    kept = [one for one in queue if one.experiment.check not in _SHOWS_AS]
    if len(kept) < len(queue):
        what = f"{len(queue) - len(kept)} experiments of what layers seem to compute"
        skipped.append(Skip(what=what, reason="the candidate itself is right without what makes them seem so"))
    return kept


def _refute_consequence(evidence: Evidence) -> Evidence:
    because = f"the candidate itself is right without {_SEEN_WITHOUT}, which looks like this: {evidence.because}"
    return replace(evidence, outcome="refutes", because=because)


def _share_doubt(findings: list[Finding]) -> list[Finding]:
    """Descriptions of several layers that each claim most of one error: each is as sure as its part of what all claim."""
    rivals = [one for one in findings if one.code in DESCRIBE and one.role == "cause" and "together" not in one.details]
    claimed = sum(one.share or 0.0 for one in rivals)
    if len({one.site for one in rivals}) < 2 or claimed <= 1.0 + CONTRIBUTES:
        return findings
    source = "changes of other layers explain a part of the same error as well"
    return [
        replace(
            one,
            confidence=min(one.confidence, (one.share or 0.0) / claimed),
            confidence_from=source,
            details={**one.details, _ALONE: [one.confidence, one.confidence_from]},
        )
        if one in rivals
        else one
        for one in findings
    ]


def without_rivals(finding: Finding) -> Finding:
    """The finding as sure as it was before descriptions of other layers shared its certainty."""
    if _ALONE not in finding.details:
        return finding
    confidence, source = finding.details[_ALONE]
    details = {name: told for name, told in finding.details.items() if name != _ALONE}
    return replace(finding, confidence=confidence, confidence_from=source, details=details)


def _is_inside_layer(known: Examination, finding: Finding) -> bool:
    """Whether a finding is of what one layer computes that neither reads the model's inputs nor gives its outputs."""
    if finding.site is None or finding.code not in DESCRIBE or not finding.code.startswith(_OF_LAYERS):
        return False
    places = {name: site.node for name, site in known.places.items()}
    inputs = {value.name for value in known.model.inputs}
    suspects = known.localization.suspects if known.localization else ()
    region = next((one.region for one in suspects if one.site.tensor == finding.site.tensor), ())
    reading = {
        places.get(str(output.name), "")
        for node in known.graph.graph
        if any(value is not None and value.name in inputs for value in node.inputs)
        for output in node.outputs
    }
    last = {places.get(value.name, "") for value in known.model.outputs}
    return not (reading | last) & {finding.site.node, *region}


def _remaining_rivals(
    known: Examination, finding: Finding, queue: list[Proposal], skipped: list[Skip]
) -> list[Proposal]:
    """The experiments that can still change what is said, now that a finding explains everything, and those that cost nothing.

    Those of the same check tell its other parts.
    """
    if known.proof is not None:
        kept = [
            one
            for one in queue
            if _stage_of_experiment(one.experiment) == 0
            or one.experiment.check == finding.code
            or (known.proof.rivals and not one.experiment.check.startswith(_OF_LAYERS))
        ]
        proved = known.proof.reason
    elif finding.code == FILE:
        kept = [one for one in queue if _stage_of_experiment(one.experiment) < _STAGES.index("rebuild")]
        proved = "the candidate's own file was proved to say what makes all of the error"
    elif reason := _why_nothing_else(known, finding):
        kept = [
            one
            for one in queue
            if _stage_of_experiment(one.experiment) == 0 or one.experiment.check.startswith(_OF_LAYERS)
        ]
        proved = reason
    elif _is_inside_layer(known, finding):
        kept = [
            one
            for one in queue
            if _stage_of_experiment(one.experiment) == 0 or one.experiment.check.startswith(_OF_LAYERS)
        ]
        proved = "one layer inside the network was proved to make all of the error"
    else:
        return queue
    if len(kept) < len(queue):
        codes = ", ".join(sorted({one.experiment.check for one in queue if one not in kept}))
        what = f"{len(queue) - len(kept)} experiments that could not change that ({codes})"
        skipped.append(Skip(what=what, reason=proved, fix="test them all the same: --thorough"))
    return kept


def _why_nothing_else(known: Examination, finding: Finding) -> str:
    """Why no long search for what else might err as an arithmetic does is made; "" where one is, or somebody asked for all."""
    if finding.code != _BY_SIZE or finding.role != "cause" or known.only is not None or known.request.thorough:
        return ""
    if finding.details.get("grade") in {known.executed, known.candidate.precision}:
        return _AS_TOLD
    return _AS_SIMULATED if _MOST <= finding.details.get("explains", 0.0) < _ALL else ""


def _cheap_experiments(queue: list[Proposal], skipped: list[Skip], reason: str) -> list[Proposal]:
    """Without the long searches for what else might make an error that an arithmetic makes."""
    costly = [one for one in queue if one.experiment.cost_s >= _COSTLY_S]
    for one in costly:
        what = f"experiment {one.experiment.identity}: {one.experiment.claim}"
        skipped.append(Skip(what=what, reason=reason, fix="test them all the same: --thorough"))
    return [one for one in queue if one not in costly]


def identity_of(finding: Finding) -> str:
    """The identity of the experiment that a finding rests on; "" if it rests on none."""
    return finding.evidence[0].experiment.identity if finding.evidence else ""


def claim_of(finding: Finding) -> tuple[str, str]:
    """What makes two findings the same claim."""
    return finding.code, str(finding.details.get("parameter", finding.claim))


def _list_proposals(known: Examination) -> tuple[list[Proposal], list[Skip]]:
    """What is to be run, in order. Identities are given in the order in which a check proposes."""
    found: list[Proposal] = []
    skipped: list[Skip] = []
    for code, check in known_checks().items():
        if known.only is not None and not any(identity.startswith(f"{code}-") for identity in known.only):
            continue
        try:
            with ended_after(_patience_for(code, known.end - time.monotonic())):
                asked = list(ask_check(check, known))
            found += [one for one in asked if known.only is None or one.experiment.identity in known.only]
        except NeverEndedError:
            skipped.append(_skip_of_endless_check(f"check {code}"))
        except TimeSpentError:
            skipped.append(Skip(what=f"check {code}", reason=SPENT, fix="raise --time", asked=True))
        except Exception as error:  # noqa: BLE001 - the edge to plug-ins: their faults must not lose the study
            skipped.append(_skip_of_broken_check(f"check {code}", error))
    found.sort(key=lambda proposal: (_stage_of_experiment(proposal.experiment), proposal.experiment.cost_s))
    return found, skipped


def _stage_of_experiment(experiment: Experiment) -> int:
    runs = experiment.runs or ("reference" if experiment.cost_s > 0 else "nothing")
    # Asking the candidate for a moment decides more than a long search on the reference's side.
    return _STAGES.index("candidate" if runs == "reference" and experiment.cost_s >= _COSTLY_S else runs)


def _patience_for(code: str, left: float) -> float:
    """Seconds after which a check is ended: 0, never, for ours; what one of others leaves is for those that come after it."""
    check = known_checks().get(code)
    if check is None or not is_of_others(check):
        return 0.0
    return max(_HALF * left, 1.0) if math.isfinite(left) else _LONGEST_S


def _test_proposal(proposal: Proposal, name: str, skipped: list[Skip], patience: float) -> TestResult | None:
    try:
        with ended_after(patience):
            return proposal.test()
    except NeverEndedError:
        skipped.append(_skip_of_endless_check(name))
    except TimeSpentError:
        skipped.append(Skip(what=name, reason=SPENT, fix="raise --time", asked=True))
    except ParityError as error:
        skipped.append(Skip(what=name, reason=error.problem, fix=error.fix))
    except Exception as error:  # noqa: BLE001 - the edge to plug-ins: their faults must not lose the study
        skipped.append(_skip_of_broken_check(name, error))
    return None


def _skip_of_endless_check(what: str) -> Skip:
    return Skip(
        what=what,
        reason="the check itself did not end, and was ended",
        fix="give it more --time, or report it to the authors of the check",
        asked=True,
    )


def _skip_of_broken_check(what: str, error: Exception) -> Skip:
    return Skip(
        what=what,
        reason=f"the check itself failed: {type(error).__name__}: {error}",
        fix="this is a bug of the check: report it with this line",
        asked=True,
    )


def _give_role(finding: Finding, known: Examination) -> Finding:
    """The role that the explained share allows; nothing is a cause of what is within."""
    role = finding.role
    # How far two runs happen to be apart says only roughly what part of the error that makes: the check knows better.
    # Several that were proved at once are causes, whatever part each is.
    alone = finding.code != VARIES and "together" not in finding.details
    if role == "cause" and finding.share is not None and finding.share < _CAUSE and alone:
        role = "contributing"
    if role == "contributing" and finding.share is not None and finding.share < CONTRIBUTES and alone:
        role = "information"
    if known.verdict == "within":
        role = "information"
    return replace(finding, role=role)


def _join_outputs(findings: list[Finding]) -> list[Finding]:
    """What became of single outputs on their way, as proved together where all of these are most of the error."""
    joined = [one for one in findings if one.role == "cause" and "output" in one.details]
    shares: dict[str, float] = {}
    for one in joined:
        output = str(one.details["output"])
        shares[output] = max(shares.get(output, 0.0), one.share or 0.0)
    together = min(1.0, sum(shares.values()))
    if len(shares) < 2 or together < _CAUSE:
        return findings
    return [replace(one, details={**one.details, "together": together}) if one in joined else one for one in findings]


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """One finding for each claim: regions that overlap may prove the same thing twice."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = claim_of(finding)
        held = kept.get(key)
        if held is None or (finding.share or 0.0) > (held.share or 0.0):
            kept[key] = finding
    return list(kept.values())


def _after_variation(findings: list[Finding]) -> list[Finding]:
    """Nothing else is the cause of an error that two runs of the candidate differ by."""
    if not any(one.code == VARIES and one.role == "cause" for one in findings):
        return findings
    return [
        replace(one, role="contributing") if one.role == "cause" and one.code != VARIES else one for one in findings
    ]


def _after_description(findings: list[Finding]) -> list[Finding]:
    """An arithmetic that was told by its size is no cause where a description of one change explains more of the same error.

    Both take about as few words, so that what explains more is the shorter description of what was measured. How much an
    arithmetic explains is known where its error was simulated (`explains`).
    """
    described = max((_described_share(one) for one in findings if one.code != _BY_SIZE), default=0.0)
    return [
        replace(one, role="contributing")
        if one.code == _BY_SIZE and one.role == "cause" and described > one.details.get("explains", 1.0)
        else one
        for one in findings
    ]


def _after_file(findings: list[Finding]) -> list[Finding]:
    """Where the candidate's own file says what makes all of the error, no size is its cause, and advises nothing."""
    if not any(one.code == FILE and one.role == "cause" and _explained_share(one) >= _ALL for one in findings):
        return findings
    return [
        replace(one, role="information", repairs=()) if one.code == _BY_SIZE and one.role != "information" else one
        for one in findings
    ]


def _described_share(finding: Finding) -> float:
    """What a finding, or the nearest description that it tells, explains of the squared error."""
    return max(finding.share or 0.0, float(finding.details.get("nearest_share", 0.0)))


def _explained_share(finding: Finding) -> float:
    """The share (at most 1) that a finding explains, with those that were proved together with it."""
    return min(1.0, float(finding.details.get("together", finding.share or 0.0)))


def _rank_of_finding(finding: Finding) -> tuple[int, int, float, int, float, float, str]:
    # Of the same role, answers that vary are told before anything else, whatever part of the error they are, and a size last.
    # What only describes a layer comes after a cause that explains as much, to the percent that is shown.
    turn = {VARIES: 0, _BY_SIZE: 2}.get(finding.code, 1)
    share = round(_explained_share(finding), 2)
    described = DESCRIBE.index(finding.code) + 1 if finding.code in DESCRIBE else 0
    own = -(finding.share or 0.0) if "together" in finding.details else 0.0
    return (ROLES.index(finding.role), turn, -share, described, own, -finding.confidence, finding.code)
