"""One experiment of a study, run again alone: the case is built from what the study says was asked.

What a study keeps of that is plain data: the options in the words of the command line, the policy that came of them, and the
folder that relative paths are meant from. Nothing in a study is code, and what it names is run again only if its digest
is still that of the study.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.recording import Progress, silent
from parityscope.backends.targets import parse_target
from parityscope.errors import ParityError
from parityscope.records import Budget, Policy, Tolerance
from parityscope.study._examine import Settings, examine
from parityscope.study._found import GONE
from parityscope.study._question import Question, posed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Repeated", "experiments_of", "plain_question", "repeat"]

_PATHS = ("model", "inputs", "policy", "images", "own_inputs")
_KEPT = ("real", "states", "steps", "mapping", "layers")  # of the settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """An experiment and its outcome in the study (`then`) and again (`now`, None where it could not be run: `reason`, `fix`)."""

    experiment: Mapping[str, Any]
    then: Mapping[str, Any]
    now: Mapping[str, Any] | None
    reason: str = ""
    fix: str = ""

    @property
    def same(self) -> bool:
        """Whether the outcome is that of the study."""
        return self.now is not None and self.now["outcome"] == self.then["outcome"]


def plain_question(question: Question, settings: Settings, folder: Path) -> dict[str, Any]:
    """What was asked, as a study keeps it; relative paths are meant from `folder`."""
    asked: dict[str, Any] = {field.name: getattr(question, field.name) for field in fields(Question)}
    for name in ("budgets", "policy", "declared", "match"):
        del asked[name]  # the study holds the policy that came of them
    asked.update({name: None if asked[name] is None else str(asked[name]) for name in _PATHS if name in asked})
    asked.update(shapes={name: list(shape) for name, shape in (question.shapes or {}).items()})
    kept = {name: getattr(settings, name) for name in _KEPT}
    kept.update(states=dict(settings.states), mapping=dict(settings.mapping or {}))
    return {"folder": str(folder), "asked": asked, "settings": kept}


def experiments_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The evidence of every experiment of a study that can be repeated, by its identity, in the study's order."""
    found: dict[str, Mapping[str, Any]] = {}
    told = [evidence for finding in document.get("findings", ()) for evidence in finding.get("evidence", ())]
    for evidence in (*told, *document.get("refuted", ())):
        identity = evidence.get("experiment", {}).get("identity", "")
        if identity:
            found.setdefault(identity, evidence)
    return found


def repeat(
    document: Mapping[str, Any],
    identity: str,
    folder: Path,
    *,
    replaced: Mapping[str, str] | None = None,
    seconds: float = math.inf,
    progress: Progress = silent,
) -> Repeated:
    """Runs experiment `identity` of a study again, and nothing else but what it stands on.

    `folder` is scratch; `replaced` are options of the question (model, inputs, candidate, reference) in place of the study's.

    Raises:
        ParityError: the study has no such experiment, does not say what was asked, or what it names is gone or another.
    """
    held = experiments_of(document)
    if identity not in held:
        raise ParityError(
            f"the study has no experiment {identity!r}", fix="parityscope experiment STUDY lists those that it has"
        )
    question, settings = _asked(document, replaced or {})
    settings = replace(settings, only=_needed(document, identity), seconds=seconds)
    with posed(question) as asked:
        for what, digest in (("model", asked.case.model.sha256), ("inputs", asked.case.inputs.sha256)):
            _check_same(what, str(document[what]["sha256"]), digest)
        again = examine(
            asked.case, asked.reference, asked.candidate, folder=folder, settings=settings, progress=progress
        )
    then = held[identity]
    if str(then["because"]).startswith(GONE):
        then = {**then, "outcome": "supports"}  # alone, as it was before the others were put right
    now = experiments_of(again).get(identity)
    reason, fix = ("", "") if now else _why_not(again, identity)
    return Repeated(experiment=then["experiment"], then=then, now=now, reason=reason, fix=fix)


def _needed(document: Mapping[str, Any], identity: str) -> frozenset[str]:
    """The experiment, and the steps that it stands on: those before its round, or all if it is a step itself."""
    steps = (document.get("sequence") or {}).get("steps", ())
    own = int(identity.partition("@")[2] or 1)
    whole = any(step["experiment"] == identity for step in steps)
    return frozenset({identity, *(step["experiment"] for step in steps if whole or step["round"] < own)})


def _asked(document: Mapping[str, Any], replaced: Mapping[str, str]) -> tuple[Question, Settings]:
    kept = document.get("question") or {}
    if not kept:
        raise ParityError(
            "the study does not say what was asked: it was redacted, or made by another version or from Python",
            fix="run `parityscope diagnose` again, without --redact",
        )
    try:
        asked = {**kept["asked"], **replaced}
        asked["shapes"] = {name: tuple(shape) for name, shape in asked["shapes"].items()} or None
        question = Question(**asked, policy=_policy(document["policy"]))
        settings = Settings(**kept["settings"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ParityError(f"what the study says was asked cannot be read: {error}", fix="run diagnose again") from error
    for option, path in (("model", question.model), ("inputs", question.inputs)):
        # A loader is written file.py:function.
        if path and not Path(str(path)).exists() and not Path(str(path).rpartition(":")[0] or ".").is_file():
            raise ParityError(
                f"the {option} of the study is not at {path} any more",
                where=f"from the folder {kept['folder']}",
                fix=f"put it back, or say where it is now: --{option} PATH",
            )
    for option in ("candidate", "reference"):
        target = parse_target(getattr(question, option))
        for name in ("model", "path", "engine"):
            if target.option(name) and not Path(target.option(name)).exists():
                raise ParityError(
                    f"the {option} of the study names {name}={target.option(name)}, and nothing is there any more",
                    where=f"from the folder {kept['folder']}",
                    fix=f"put it back, or write the target with the new place: --{option} TARGET",
                )
    return question, settings


def _policy(plain: Mapping[str, Any]) -> Policy:
    budgets = tuple(
        Budget(**{**one, "tolerance": Tolerance(**one["tolerance"]) if one["tolerance"] else None})
        for one in plain["budgets"]
    )
    return Policy(**{**plain, "budgets": budgets, "matched": tuple(plain["matched"])})


def _check_same(what: str, then: str, now: str) -> None:
    if then != now:
        raise ParityError(
            f"the {what} of the study had the digest {then[:12]}…, and what is there now has {now[:12]}…",
            fix=f"give the {what} that the study was made with (--{what} PATH), or run diagnose again",
        )


def _why_not(again: Mapping[str, Any], identity: str) -> tuple[str, str]:
    for skip in again["skipped"]:
        if str(skip["what"]).startswith(f"experiment {identity}:"):
            return str(skip["reason"]), str(skip["fix"])
    if again["verdict"] == "within":
        return "the outputs are within policy now, and nothing asks for this experiment", "run diagnose again"
    return "what was found this time does not ask for this experiment", "run diagnose again, and compare the studies"
