"""What a repair that was tried left of the error, what a cause's proof left, and the limit that both are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.backends import known_backend
from parityscope.expectation.grades import margin_of
from parityscope.languages import columns_of
from parityscope.report._tensors import GRADES
from parityscope.report._usability import describe_decisions_after
from parityscope.report.words import as_number, call_name, clean, format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.backends import Backend

PROVED = 0.9  # chosen, as where advice is given: from here on a cause is called proved
KEEP = "keep_in_fp32"
# Codes that say what is wrong with an output, and not what made it so.
SYMPTOMS = frozenset({"DAT007"})
_SHORT = 84  # characters of a remark that has one line; chosen
_MOST_BUDGETS = 2
# The same arithmetic may err more where one thing is put right: as in checks/_reproducing.py.
_CHANGED = 4.0
_SEEN = 0.01  # what `repair` keeps an error within where nobody says otherwise
_IN_REFERENCE = "the reference with this fault gives the same outputs"
_IN_CANDIDATE = "the candidate with this put right gives the right outputs"
_IN_OUTPUT = "read so, what is named here is right"  # nothing was run, and other outputs may be wrong
# What of a proof's experiment runs changed: the candidate, built or run in another way; else the reference.
_OF_CANDIDATE = frozenset({"candidate", "rebuild"})


def describe_effect(repair: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """What was measured of a repair, and how its file is built; "" where nothing was."""
    trial = repair["trial"]
    if not trial:
        first = cause_of(repair, document)
        return (
            f"not tried, but {describe_proof(document, first)}"
            if first and left_by_proof(document, first) is not None
            else ""
        )
    note, within = trial["note"], trial["verdict"] == "within"
    users = describe_decisions_after(document, trial["decisions"])
    seen = f"; then {users}" if users else ""
    told = repair["repair"] == KEEP and within and trial["file"]
    kept = (
        f"; {note}" if note and not (told or seen) and (repair["repair"] == KEEP or columns_of(note) <= _SHORT) else ""
    )
    how = "tried in simulation" if (known := runtime_of(document)) is not None and known.simulates else "tried"
    return f"{how}: {describe_change(repair, document)}, {_describe_trial(trial, document)}{seen}{kept}"


def describe_change(repair: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """From what error to what a trial went, the former with the target that has it, as commands say it; "" without a trial."""
    trial = repair["trial"]
    if not trial:
        return ""
    asked = clean(((document.get("question") or {}).get("asked") or {}).get("candidate") or "")
    known = runtime_of(document)
    named = f" ({asked})" if known is not None and known.simulates and asked else ""
    return f"{trial['before']}{named} -> {trial['after']}"


def _describe_trial(trial: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """The verdict on what a trial left, with the limit and the output that it rests on."""
    if trial["verdict"] not in {"within", "beyond"}:
        return "not judged"
    within = trial["verdict"] == "within"
    if budgets := (document.get("policy") or {}).get("budgets"):
        limits = ", ".join(f"{clean(one['metric'])} {format_figure(one['limit'])}" for one in budgets[:_MOST_BUDGETS])
        return f"within the budget ({limits})" if within else f"still beyond the budget ({limits})"
    limit = _describe_limit(document, trial["output"])
    said = f"within {limit}" if within else f"still beyond {limit}"
    several = len(document.get("outputs", ())) > 1 and trial["error"] and trial["output"]
    return f"{said}, in '{call_name(trial['output'])}'" if several else said


def _describe_limit(document: Mapping[str, Any], output: str) -> str:
    """Up to what error the declared arithmetic explains `output`, what that limit is, and why it is no smaller."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    grade = GRADES.get(declared, clean(declared)) or "the arithmetic"
    if limit := limit_of(document, output):
        times = f"{margin_of(declared):g} times {grade}'s expected error"
        return f"the limit {format_percent(limit, exact=True)} ({times}: engines vary)"
    return f"what {grade} explains"


def limit_of(document: Mapping[str, Any], output: str = "") -> float:
    """The largest error of `output` that the declared arithmetic explains; without one, of the output that may err least."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    expected = [
        as_number((one.get("expected") or {}).get(declared)) or 0.0
        for one in document.get("outputs", ())
        if one.get("name") == (output or _strictest_output(document))
    ]
    return margin_of(declared) * max(expected, default=0.0)


def is_rounding_left(document: Mapping[str, Any], left: float) -> bool:
    """Whether what a proof left is no more than the limit, or FP32's own rounding, which is another in another computation."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    return left <= (_CHANGED if declared == "f32" else 1.0) * limit_of(document)


def _strictest_output(document: Mapping[str, Any]) -> str:
    """The output whose expected error is the smallest: what is no more than its limit is within at every output."""
    declared = str((document.get("policy") or {}).get("declared") or "")
    expected = {
        str(one.get("name")): error
        for one in document.get("outputs", ())
        if (error := as_number((one.get("expected") or {}).get(declared)))
    }
    return min(expected, key=lambda name: expected[name], default="")


def describe_left(repair: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """What a repair leaves of the error, where that is more than the limit, or more than a search would leave; else ""."""
    if trial := repair["trial"]:
        beyond = trial["verdict"] == "beyond"
        return str(trial["after"]) if beyond or (trial["error"] or 0.0) > _SEEN else ""
    cause = cause_of(repair, document)
    left = (left_by_proof(document, cause) if cause else None) or 0.0
    is_seen = left > min(limit_of(document) or _SEEN, _SEEN) and not is_rounding_left(document, left)
    return format_percent(left, exact=True) if is_seen else ""


def cause_of(repair: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The cause that a repair removes; None where only a symptom is known."""
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    return next((one for one in causes if one.get("code") in repair["code"] and one["code"] not in SYMPTOMS), None)


def describe_proof(document: Mapping[str, Any], finding: Mapping[str, Any]) -> str:
    """What a cause rests on: what is left of the error with it in the reference too, or put right in the candidate.

    What the error was is told above, and not once more: an experiment measures it on other samples or outputs.
    """
    if finding.get("code") in SYMPTOMS:
        return "what makes it is not known"
    proof = _proof_of(document, finding)
    if proof is None:
        return clean(finding.get("confidence_from") or "")
    _, left, told = proof
    if not left:
        return told
    strictest = _strictest_output(document)
    told = f"{told} to {format_percent(left, exact=True)}"
    if limit_of(document) < left and is_rounding_left(document, left):
        return f"{told}: the rest is rounding, which differs from computation to computation"
    return f"{told}, {'no more' if left <= limit_of(document) else 'more'} than {_describe_limit(document, strictest)}"


def left_by_proof(document: Mapping[str, Any], finding: Mapping[str, Any]) -> float | None:
    """The error that was measured with a cause in the reference too, or put right in the candidate."""
    proof = _proof_of(document, finding)
    return proof[1] if proof else None


def change_by_proof(document: Mapping[str, Any], finding: Mapping[str, Any]) -> tuple[float, float] | None:
    """The error before and behind what put a cause into the reference; None where nothing measured that."""
    proof = _proof_of(document, finding)
    return proof[:2] if proof and proof[2] != _IN_CANDIDATE else None


def _proof_of(document: Mapping[str, Any], finding: Mapping[str, Any]) -> tuple[float, float, str] | None:
    """The error before a cause's proof and what it left, and which side was changed; None where nothing measured it."""
    steps = (document.get("sequence") or {}).get("steps", ())
    own = [one for one in steps if one.get("code") == finding.get("code")]
    if len(own) == 1 and is_proved(finding) and (left := as_number(own[0].get("after"))) is not None:
        return as_number(own[0].get("before")) or 0.0, left, _IN_REFERENCE
    for one in finding.get("evidence", ()):
        experiment = one.get("experiment") or {}
        measured = "relative L2" in str(experiment.get("measure") or "") and as_number(one.get("before"))
        if one.get("outcome") == "supports" and measured and (left := as_number(one.get("after"))) is not None:
            if (
                experiment.get("runs") == "nothing"
                and min(as_number(finding.get("share")) or 0.0, _sureness(finding)) < PROVED
            ):
                return measured, left, _IN_OUTPUT
            return measured, left, _IN_CANDIDATE if experiment.get("runs") in _OF_CANDIDATE else _IN_REFERENCE
    return None


def is_proved(finding: Mapping[str, Any]) -> bool:
    """Whether a cause is called proved."""
    return _sureness(finding) >= PROVED


def _sureness(finding: Mapping[str, Any]) -> float:
    return as_number(finding.get("confidence")) or 0.0


def runtime_of(document: Mapping[str, Any], side: str = "candidate") -> Backend | None:
    """What computes a side; None where that is not installed here."""
    return known_backend(str((document.get(side) or {}).get("backend") or "none"))
