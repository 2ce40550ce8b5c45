"""View of the diagnosis: findings, the repairs they offer with what a trial measured, and every experiment."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from parityscope.report.words import ABSENT, clean, count, figure, number, percent, ratio, seconds

__all__ = ["experiments", "findings", "repairing", "repairs", "sequence"]

_ROLES: Mapping[str, tuple[int, str]] = {
    "cause": (0, "Cause"),
    "contributing": (1, "Contributing"),
    "information": (2, "Information"),
}
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "supports": ("✓", "supports"),
    "refutes": ("✕", "refutes"),
    "inconclusive": ("?", "inconclusive"),
}

# Items of a list that a finding shows (chosen); study.json holds them all.
_MOST_ITEMS = 12


def findings(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Findings, causes first."""
    found = [_finding(finding) for finding in document.get("findings", ())]
    return sorted(found, key=lambda finding: _ROLES.get(finding["role"], (3, ""))[0])


def repairs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every repair offered, those that a trial showed to work best first, each with what the trial measured."""
    written = repairing(document)
    offered = [
        _repair(repair, finding, written)
        for finding in document.get("findings", ())
        for repair in finding.get("repairs", ())
    ]
    # Findings of several layers may ask for the same in the same words: that is said once, with how often.
    told: dict[tuple[object, ...], dict[str, Any]] = {}
    for place, repair in enumerate(offered):
        key = (place,) if repair["trial"] else (repair["repair"], repair["text"], repair["command"], repair["code"])
        told.setdefault(key, {**repair, "times": 0})["times"] += 1
    for repair in told.values():
        if repair["times"] > 1:
            repair["text"] = f"{repair['text']} ({repair['times']} findings)"
    return sorted(told.values(), key=lambda repair: repair["order"])


def experiments(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every experiment with its prediction and outcome: those of the findings, then the refuted ones."""
    shown: list[dict[str, Any]] = []
    for code, evidence in _evidence(document):
        row = _experiment(code, evidence)
        if row not in shown:
            shown.append(row)
    return shown


def sequence(document: Mapping[str, Any]) -> dict[str, Any]:
    """The causes that were put right in a copy, one after the other; empty where nothing was."""
    found = document.get("sequence")
    if not found or not found.get("steps"):
        return {}
    steps = [_step(place, step) for place, step in enumerate(found["steps"], start=1)]
    looked = len(found.get("samples", ()))
    told = {
        "within": "What is left is as the candidate's arithmetic allows.",
        "beyond": f"{percent(found.get('unexplained'))} of the error, in squares, is left unexplained: "
        f"{clean(found.get('ended', ''))}.",
    }
    return {
        "steps": steps,
        "note": f"Each cause was put right in a copy of the reference, and the copy was diagnosed again, on {looked:,} "
        f"{'sample' if looked == 1 else 'samples'}.",
        "left": told.get(str(found.get("verdict")), "What is left could not be judged."),
    }


def _step(place: int, step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "place": str(place),
        "code": clean(step.get("code", "")),
        "title": clean(step.get("title", "")),
        "experiment": clean(step.get("experiment", "")),
        "correction": f"the reference {clean(step.get('correction', ''))}",
        "before": figure(step.get("before")),
        "after": figure(step.get("after")),
        "share": percent(step.get("share")),
        "proof": clean(step.get("proof", "")),
    }


def _evidence(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for finding in document.get("findings", ()):
        for evidence in finding.get("evidence", ()):
            yield clean(finding.get("code", "")), evidence
    for evidence in document.get("refuted", ()):
        yield "", evidence


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    role = finding.get("role", "information")
    return {
        "code": clean(finding.get("code", "")),
        "title": clean(finding.get("title", "")),
        "role": role,
        "role_label": _ROLES.get(role, (3, clean(role)))[1],
        "claim": clean(finding.get("claim", "")),
        "confidence": percent(finding.get("confidence")),
        "confidence_from": clean(finding.get("confidence_from", "")),
        "site": _site(finding.get("site")),
        "share": percent(finding["share"]) if finding.get("share") is not None else "",
        "details": [(_label(key), _fact(value)) for key, value in sorted((finding.get("details") or {}).items())],
        "because": [clean(evidence.get("because", "")) for evidence in finding.get("evidence", ())],
    }


def repairing(document: Mapping[str, Any]) -> str:
    """The command that searches the model's repair and writes it, where the deployment is in FP16 or BF16; else ""."""
    declared = clean((document.get("policy") or {}).get("declared") or "")
    path = clean((document.get("model") or {}).get("path") or "")
    if declared not in {"f16", "bf16"} or not path:
        return ""
    told = clean(((document.get("question") or {}).get("asked") or {}).get("inputs") or "")
    given = f" --inputs {shlex.quote(told)}" if told else ""
    fixed = shlex.quote(f"{PurePath(path).stem}.fixed.onnx")
    return f"parityscope repair {shlex.quote(path)}{given} --low {declared} -o {fixed}"


def _repair(repair: Mapping[str, Any], finding: Mapping[str, Any], written: str) -> dict[str, Any]:
    trial = repair.get("trial")
    # What was tried on a copy is a change of the model, which the search makes too; so is keeping a node in FP32.
    searched = written if trial or repair.get("repair") == "keep_in_fp32" else ""
    shown: dict[str, Any] = {
        "repair": clean(repair.get("repair", "")),
        "text": clean(repair.get("text", "")),
        "command": _command(repair.get("command", "")) or searched,
        "code": clean(finding.get("code", "")),
        "trial": None,
        "order": (1, 0.0),
    }
    if trial:
        after = number(trial.get("after"))
        shown["trial"] = {
            "before": figure(trial.get("before")),
            "after": figure(trial.get("after")),
            "ratio": ratio(trial.get("before"), trial.get("after")),
            "verdict": trial.get("verdict", "incomplete"),
            "note": clean(trial.get("note", "")),
        }
        rank = math.inf if after is None or math.isnan(after) else after
        shown["order"] = (0 if trial.get("verdict") == "within" else 2, rank)
    return shown


def _experiment(code: str, evidence: Mapping[str, Any]) -> dict[str, Any]:
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
        "if_false": clean(experiment.get("if_false", "")),
        "cost": seconds(experiment["cost_s"]) if number(experiment.get("cost_s")) else "",
        "outcome": outcome if outcome in _OUTCOMES else "inconclusive",
        "symbol": symbol,
        "label": label,
        "before": figure(evidence.get("before")),
        "after": figure(evidence.get("after")),
        "because": clean(evidence.get("because", "")),
    }


def _site(site: Mapping[str, Any] | None) -> dict[str, str]:
    if not site:
        return {}
    return {
        "tensor": clean(site.get("tensor", "")),
        "node": clean(site.get("node", "")),
        "op_type": clean(site.get("op_type", "")),
        "index": clean(site.get("index", "")),
        "scope": clean(site.get("scope", "")),
    }


def _command(text: object) -> str:
    """A command keeps its line breaks: it is there to be copied."""
    return "\n".join(clean(line) for line in str(text).splitlines())


def _label(key: object) -> str:
    return clean(key).replace("_", " ")


def _fact(value: object) -> str:
    """A plain fact: whole numbers in full (a parameter's 97,903,600 is the evidence), others to three digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ABSENT}[value]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53):
        return count(value)
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{_label(key)}: {_fact(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        more = f", … {len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else ""
        return f"[{', '.join(_fact(item) for item in value[:_MOST_ITEMS])}{more}]"
    return clean(value)
