"""What was asked, as a study keeps it, and a question made of that again by whoever got the study from somebody else.

What is kept is plain data: the options in the words of the command line, the folder that relative paths are meant from,
and a mark of each file that they name. What a study says is held against what it may say before anything is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.opening import model_of
from parityscope.case.policy import DECLARED, OUTSIDE
from parityscope.errors import ParityError
from parityscope.records import Budget, Policy, Tolerance
from parityscope.study._budgets import known_metrics
from parityscope.study._examine import Settings
from parityscope.study._marks import mark_of
from parityscope.study._named import MODEL, Named, is_data, marks_of_target, refuse_code
from parityscope.study._question import Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.study._question import Posed

__all__ = ["Kept", "asked_again", "plain_question"]

_SETTINGS = ("real", "states", "steps", "mapping", "layers", "thorough")
_TEXT, _MAYBE = (str,), (str, type(None))
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "candidate", "reference", "preprocess", "real"), _TEXT),
    **dict.fromkeys(("inputs", "images", "own_inputs"), _MAYBE),
    **dict.fromkeys(("stacked", "layers", "thorough"), (bool,)),
    **dict.fromkeys(("seed", "steps"), (int,)),
    **dict.fromkeys(("shapes", "states", "mapping"), (dict,)),
    "samples": (int, type(None)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a study says was asked: `models` are the digests of the targets' own models, by side, as the study has them.

    `notes` tell which files of what was named again are not what they were.
    """

    question: Question
    settings: Settings
    models: Mapping[str, str]
    notes: tuple[str, ...]


def plain_question(question: Question, settings: Settings, asked: Posed, folder: Path) -> dict[str, Any]:
    """What was asked, as a study keeps it; relative paths are meant from `folder`."""
    kept: dict[str, Any] = {field.name: getattr(question, field.name) for field in fields(Question)}
    for name in ("budgets", "policy", "declared", "match"):
        del kept[name]  # the study holds the policy that came of them
    for name in ("model", "inputs", "images", "own_inputs"):
        kept[name] = None if kept[name] is None else str(kept[name])
    kept.update(shapes={name: list(shape) for name, shape in (question.shapes or {}).items()})
    plain = {name: getattr(settings, name) for name in _SETTINGS}
    plain.update(states=dict(settings.states), mapping=dict(settings.mapping or {}))
    named = {name: kept[name] for name in ("images", "own_inputs", "preprocess")} | {"real": settings.real}
    marks = {name: mark_of(Path(value)) for name, value in named.items() if is_data(name, value)}
    for side, target, model in (
        ("reference", asked.reference, model_of(asked.case.model, asked.reference)),
        ("candidate", asked.candidate, asked.candidate_model),
    ):
        marks.update(marks_of_target(side, target))
        if target.option(MODEL):
            marks[f"{side}.{MODEL}"] = {"sha256": model.sha256}
    return {"folder": str(folder), "asked": kept, "settings": plain, "files": marks}


def asked_again(document: Mapping[str, Any], replaced: Mapping[str, str], again: str) -> Kept:
    """What a study says was asked, to be asked again.

    `replaced` are options in place of the study's, which are taken as they are; `again` is the command that they are added to.

    Raises:
        ParityError: the study does not say what was asked, or names code that `replaced` does not name, or other files.
        LookupError, TypeError, ValueError, AttributeError: it is not as it was written (`as_written` says so).
    """
    if not document.get("question"):
        raise ParityError(
            "the study does not say what was asked: it was redacted, or made by another version or from Python",
            fix="run `parityscope diagnose` again, without --redact",
        )
    kept = document["question"]
    asked, plain, marks = dict(kept["asked"]), dict(kept["settings"]), dict(kept["files"])
    _check_types({**asked, **plain}, marks)
    folder = Path(kept["folder"])
    if not folder.is_absolute():
        raise ValueError(f"the folder {str(folder)!r} is not an absolute path")
    named = Named(folder=folder, marks=marks, replaced=replaced)
    refuse_code({**asked, "real": plain["real"]}, named, again)
    asked.update((side, named.target(side, asked[side])) for side in ("reference", "candidate"))
    asked.update((name, named.path(name, asked[name])) for name in ("inputs", "preprocess", "images", "own_inputs"))
    asked["model"] = named.path("model", asked["model"])
    plain["real"] = named.path("real", plain["real"])
    asked["shapes"] = {str(name): tuple(map(int, shape)) for name, shape in asked["shapes"].items()} or None
    return Kept(
        question=Question(**asked, policy=_policy(document["policy"])),
        settings=Settings(**plain),
        models={side: str(marks.get(f"{side}.{MODEL}", {}).get("sha256")) for side in ("reference", "candidate")},
        notes=named.notes(),
    )


def _check_types(plain: Mapping[str, Any], marks: Mapping[str, Any]) -> None:
    for name, value in plain.items():
        kinds = _TYPES.get(name, ())
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{name} is {value!r}")
    for name in ("states", "mapping"):
        if not all(isinstance(value, str) for value in plain[name].values()):
            raise TypeError(f"{name} maps to more than names")
    for name, mark in marks.items():
        if not isinstance(mark, dict):
            raise TypeError(f"the mark of {name} is {mark!r}")


def _policy(plain: Mapping[str, Any]) -> Policy:
    if plain["declared"] not in DECLARED:
        raise ValueError(f"{plain['declared']!r} is no declared arithmetic")
    return Policy(
        declared=plain["declared"],
        declared_reason=str(plain["declared_reason"]),
        budgets=tuple(map(_budget, plain["budgets"])),
        matched=tuple(map(str, plain["matched"])),
    )


def _budget(plain: Mapping[str, Any]) -> Budget:
    if plain["metric"] not in {*known_metrics(), OUTSIDE}:
        raise ValueError(f"there is no metric {plain['metric']!r}")
    tolerance = plain["tolerance"]
    return Budget(
        output=str(plain["output"]),
        metric=plain["metric"],
        limit=float(plain["limit"]),
        reason=str(plain["reason"]),
        tolerance=Tolerance(atol=float(tolerance["atol"]), rtol=float(tolerance["rtol"])) if tolerance else None,
    )
