"""View of the diagnosis: findings, every experiment, and the causes that were put right one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parityscope.report._draw_curve import view_curve
from parityscope.report._ruled_out import view_ruled_out
from parityscope.report._tensors import GRADES
from parityscope.report.words import (
    ABSENT,
    as_number,
    clean,
    format_count,
    format_error,
    format_figure,
    format_percent,
    format_seconds,
)

_ROLES: Mapping[str, tuple[int, str]] = {
    "cause": (0, "Cause"),
    "contributing": (1, "Contributing"),
    "information": (2, "Information"),
}
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "supports": ("✓", "supported"),
    "refutes": ("\N{EN DASH}", "ruled out"),
    "inconclusive": ("?", "inconclusive"),
}

_PLACE = ("tensor", "node", "op_type")

# Items of a list that a finding shows (chosen); study.json holds them all.
_MOST_ITEMS = 12


def view_findings(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Findings, causes first."""
    found = [_view_finding(finding) for finding in document.get("findings", ())]
    return sorted(found, key=lambda finding: _ROLES.get(finding["role"], (3, ""))[0])


def findings_in_words(document: Mapping[str, Any]) -> list[str]:
    """A line for each finding, for pages that have no place for more."""
    return [f"{clean(one['code'])} {clean(one['title'])}: {clean(one['claim'])}" for one in document["findings"]]


def view_experiments(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every experiment with its prediction and outcome: those of the findings, then the refuted ones."""
    shown: list[dict[str, Any]] = []
    for code, evidence in _evidence_with_codes(document):
        row = _view_experiment(code, evidence)
        if row not in shown:
            shown.append(row)
    return shown


def view_sequence(document: Mapping[str, Any]) -> dict[str, Any]:
    """The causes that were put right in a copy, one after the other; empty where nothing was."""
    found = document.get("sequence")
    if not found or not found.get("steps"):
        return {}
    steps = [_view_step(place, step) for place, step in enumerate(found["steps"], start=1)]
    looked = len(found.get("samples", ()))
    told = {
        "within": "What is left is as the candidate's arithmetic allows.",
        "beyond": f"{format_percent(found.get('unexplained'))} of the error, in squares, is left unexplained: "
        f"{clean(found.get('ended', ''))}.",
    }
    return {
        "steps": steps,
        "note": f"Each cause was put right in a copy of the reference, and the copy was diagnosed again, on {looked:,} "
        f"{'sample' if looked == 1 else 'samples'}.",
        "left": told.get(str(found.get("verdict")), "What is left could not be judged."),
    }


def _view_step(place: int, step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "place": str(place),
        "code": clean(step.get("code", "")),
        "title": clean(step.get("title", "")),
        "experiment": clean(step.get("experiment", "")),
        "correction": f"the reference {clean(step.get('correction', ''))}",
        "before": format_error(step.get("before")),
        "after": format_error(step.get("after")),
        "share": format_percent(step.get("share"), exact=True),  # a second cause may be behind the decimal point
        "proof": clean(step.get("proof", "")),
    }


def _evidence_with_codes(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for finding in document.get("findings", ()):
        for evidence in finding.get("evidence", ()):
            yield clean(finding.get("code", "")), evidence
    for evidence in document.get("refuted", ()):
        yield "", evidence


def _view_finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    role = finding.get("role", "information")
    held = sorted((finding.get("details") or {}).items())
    details = [
        (_label_of_key(key), _format_fact(value))
        for key, value in held
        if value not in (None, "", [], {}) and key != "curve"  # it is drawn
    ]
    return {
        "code": clean(finding.get("code", "")),
        "title": clean(finding.get("title", "")),
        "role": role,
        "role_label": _ROLES.get(role, (3, clean(role)))[1],
        "claim": clean(finding.get("claim", "")),
        "confidence": format_percent(finding.get("confidence")),
        "confidence_from": clean(finding.get("confidence_from", "")),
        "site": _view_site(finding.get("site")),
        "share": format_percent(finding["share"]) if finding.get("share") is not None else "",
        "details": details,
        "unsaid": [fact for fact in details if not _is_said(fact[1], finding)],
        "tests": [_view_experiment("", one) for one in finding.get("evidence", ()) if one.get("outcome") == "supports"],
        "ruled_out": view_ruled_out(finding),
        "curve": view_curve(finding),
        "contradicted": clean(finding.get("contradicted", "")),
        "because": [clean(evidence.get("because", "")) for evidence in finding.get("evidence", ())],
    }


def _view_experiment(code: str, evidence: Mapping[str, Any]) -> dict[str, Any]:
    experiment = evidence.get("experiment", {})
    outcome = evidence.get("outcome", "inconclusive")
    symbol, label = _OUTCOMES.get(outcome, ("?", clean(outcome)))
    return {
        "check": clean(experiment.get("check", "") or code),
        "identity": clean(experiment.get("identity", "")),
        "claim": clean(experiment.get("claim", "")),
        "change": clean(experiment.get("change", "")),
        "measure": clean(experiment.get("measure", "")),
        "if_true": clean(experiment.get("if_true", "")),
        "predicted": ": ".join(
            part for part in (_text_of_key(experiment, "measure"), _text_of_key(experiment, "if_true")) if part
        ),
        "if_false": clean(experiment.get("if_false", "")),
        "cost": format_seconds(experiment["cost_s"]) if as_number(experiment.get("cost_s")) else "",
        "outcome": outcome if outcome in _OUTCOMES else "inconclusive",
        "symbol": symbol,
        "label": label,
        "before": format_error(evidence.get("before")),
        "after": format_error(evidence.get("after")),
        "because": clean(evidence.get("because", "")),
    }


def _text_of_key(experiment: Mapping[str, Any], key: str) -> str:
    return clean(experiment.get(key, ""))


def _view_site(site: Mapping[str, Any] | None) -> dict[str, str]:
    if not site:
        return {}
    return {
        "tensor": clean(site.get("tensor", "")),
        "node": clean(site.get("node", "")),
        "op_type": clean(site.get("op_type", "")),
        "index": clean(site.get("index", "")),
        "scope": clean(site.get("scope", "")),
    }


def _is_said(fact: str, finding: Mapping[str, Any]) -> bool:
    """Whether a fact stands already in the finding's sentence, or in where it is."""
    site = finding.get("site") or {}
    sentence = " ".join(str(part) for part in (finding.get("claim", ""), *(site.get(key, "") for key in _PLACE)))
    return GRADES.get(fact, fact).lower() in clean(sentence).lower()


def _label_of_key(key: object) -> str:
    return clean(key).replace("_", " ")


def _format_fact(value: object) -> str:
    """A plain fact: whole numbers in full (a parameter's 97,903,600 is the evidence), others to three digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ABSENT}[value]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53):
        return format_count(value)
    if isinstance(value, float):
        return format_figure(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{_label_of_key(key)}: {_format_fact(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        more = f", … {len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else ""
        return f"[{', '.join(_format_fact(item) for item in value[:_MOST_ITEMS])}{more}]"
    return clean(value)
