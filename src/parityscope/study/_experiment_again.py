"""One experiment of a study, run again alone: the case is built from what the study says was asked.

Nothing in a study is code, and nothing is run because it says so: `_question` says what is taken from it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.backends.opening import model_of
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.study._examining import examine_request
from parityscope.study._folder import as_written
from parityscope.study._merged_diagnosis import GONE
from parityscope.study._opening import open_request
from parityscope.study._question import RequestAgain, ask_again

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.examination import Examination

_AGAIN = "parityscope experiment STUDY NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """An experiment and its outcome in the study (`then`) and again (`now`, None where it could not be run: `reason`, `fix`).

    `notes` tell which files of what was named again are not those of the study.
    """

    experiment: Mapping[str, Any]
    then: Mapping[str, Any]
    now: Mapping[str, Any] | None
    reason: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the outcome is that of the study."""
        return self.now is not None and self.now["outcome"] == self.then["outcome"]


def experiments_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The evidence of every experiment of a study that can be repeated, by its identity, in the study's order."""
    found: dict[str, Mapping[str, Any]] = {}
    told = [evidence for finding in document.get("findings", ()) for evidence in finding.get("evidence", ())]
    for evidence in (*told, *document.get("refuted", ())):
        identity = evidence.get("experiment", {}).get("identity", "")
        if identity:
            found.setdefault(identity, evidence)
    return found


def repeat_experiment(
    document: Mapping[str, Any],
    identity: str,
    folder: Path,
    *,
    replaced: Mapping[str, str] | None = None,
    again: str = _AGAIN,
    seconds: float = math.inf,
    progress: Progress = ignore_progress,
) -> Repeated:
    """Runs experiment `identity` of a study again, and nothing else but what it stands on.

    `folder` is scratch; `replaced` are options of the question (model, inputs, candidate, ...) in place of the study's, and
    `again` is the command that they would be added to, for what an error advises.

    Raises:
        ParityError: the study has no such experiment, does not say what was asked, names code that `replaced` does not name,
            or what it names is gone or another.
    """
    with as_written():
        held = experiments_of(document)
    if identity not in held:
        raise ParityError(
            f"the study has no experiment {identity!r}", fix="parityscope experiment STUDY lists those that it has"
        )
    with as_written():
        kept = ask_again(document, replaced or {}, again)
        only = _needed_experiments(document, identity)
        digests = {what: str(document[what]["sha256"]) for what in ("model", "inputs")}
        then = _evidence_alone(held[identity])
    with open_request(replace(kept.request, seconds=seconds)) as asked:
        notes = check_digests(digests, kept, asked, replaced or {})
        found = examine_request(replace(asked, folder=folder, progress=progress, only=only))
    now = experiments_of(found).get(identity)
    reason, fix = ("", "") if now else _why_not(found, identity)
    return Repeated(
        experiment=then["experiment"], then=then, now=now, reason=reason, fix=fix, notes=(*kept.notes, *notes)
    )


def _evidence_alone(evidence: Mapping[str, Any]) -> Mapping[str, Any]:
    """The evidence as it is without the other causes: as it was before they were put right."""
    return {**evidence, "outcome": "supports"} if str(evidence["because"]).startswith(GONE) else evidence


def _needed_experiments(document: Mapping[str, Any], identity: str) -> frozenset[str]:
    """The experiment, and the steps that it stands on: those before its round, or all if it is a step itself."""
    steps = (document.get("sequence") or {}).get("steps", ())
    own = int(identity.partition("@")[2] or 1)
    whole = any(step["experiment"] == identity for step in steps)
    return frozenset({identity, *(step["experiment"] for step in steps if whole or step["round"] < own)})


def check_digests(
    digests: Mapping[str, str], kept: RequestAgain, asked: Examination, replaced: Mapping[str, str]
) -> tuple[str, ...]:
    """Refuses models and samples that are not the study's; that of a target that was named again is told in a note."""
    _check_same("model", digests["model"], asked.case.model.sha256, "--model PATH")
    _check_same("inputs", digests["inputs"], asked.case.inputs.sha256, "--inputs PATH")
    own = {
        "reference": model_of(asked.case.model, asked.reference),
        "candidate": model_of(asked.case.model, asked.candidate),
    }
    asked_for = {side: model.sha256 for side, model in own.items() if getattr(asked, side).option("model")}
    for side, digest in asked_for.items():
        if side not in replaced:
            _check_same(f"{side}'s model", kept.models[side], digest, f"--{side} TARGET")
    return tuple(
        f"model= of the {side} is not what the study was made with"
        for side, digest in asked_for.items()
        if digest != kept.models[side]
    )


def _check_same(what: str, then: str, now: str, option: str) -> None:
    if then != now:
        raise ParityError(
            f"the {what} of the study had the digest {then[:12]}…, and what is there now has {now[:12]}…",
            fix=f"give the {what} that the study was made with ({option}), or run diagnose again",
        )


def _why_not(again: Mapping[str, Any], identity: str) -> tuple[str, str]:
    for skip in again["skipped"]:
        if str(skip["what"]).startswith(f"experiment {identity}:"):
            return str(skip["reason"]), str(skip["fix"])
    if again["verdict"] == "within":
        return "the outputs are within policy now, and nothing asks for this experiment", "run diagnose again"
    return "what was found this time does not ask for this experiment", "run diagnose again, and compare the studies"
