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
from parityscope.request import Request
from parityscope.study._budgets import known_metrics
from parityscope.study._file_marks import mark_of
from parityscope.study._named_files import MODEL, StudyFiles, is_data, marks_of_target, refuse_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.examination import Examination

__all__ = ["RequestAgain", "ask_again", "question_of"]

# What a study does not keep of a request: the policy that came of it stands elsewhere, and an experiment needs no peer;
# what drives calls is code.
_LEFT_OUT = frozenset(
    {
        "budgets",
        "policy",
        "declared",
        "match",
        "decide",
        "memory",
        "seconds",
        "peer",
        "workers",
        "allow_skipped",
        "until_sure",
        "drive",
    }
)
_PATHS = ("inputs", "preprocess", "images", "candidate_inputs", "real")
_ASKED = tuple(field.name for field in fields(Request) if field.name not in _LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAgain:
    """What a study says was asked: `models` are the digests of the targets' own models, by side, as the study has them.

    `notes` tell which files of what was named again are not what they were.
    """

    request: Request
    models: Mapping[str, str]
    notes: tuple[str, ...]


def question_of(examination: Examination, folder: Path) -> dict[str, Any]:
    """What was asked, as a study keeps it; relative paths are meant from `folder`."""
    request = examination.request
    asked: dict[str, Any] = {name: getattr(request, name) for name in _ASKED}
    for name in ("model", *_PATHS):
        asked[name] = None if asked[name] is None else str(asked[name])
    asked.update(shapes={name: list(shape) for name, shape in request.shapes.items()})
    asked.update(states=dict(request.states), mapping=dict(request.mapping))
    marks = {name: mark_of(Path(asked[name])) for name in _PATHS if name != "inputs" and is_data(name, asked[name])}
    for side in ("reference", "candidate"):
        target = getattr(examination, side)
        marks.update(marks_of_target(side, target))
        if target.option(MODEL):
            marks[f"{side}.{MODEL}"] = {"sha256": model_of(examination.case.model, target).sha256}
    return {"folder": str(folder), "asked": asked, "files": marks}


def ask_again(document: Mapping[str, Any], replaced: Mapping[str, str], again: str) -> RequestAgain:
    """What a study says was asked, to be asked again.

    `replaced` are options in place of the study's, which are taken as they are; `again` is the command that they are added to.

    Raises:
        ParityError: the study does not say what was asked, or names code that `replaced` does not name, or other files.
        LookupError, TypeError, ValueError, AttributeError: it is not as it was written (`as_written` says so).
    """
    if "folder" not in (document.get("question") or {}):
        raise ParityError(
            "the study does not say what was asked: it was redacted, or made by another version or from Python",
            fix="run `parityscope diagnose` again, without --redact",
        )
    kept = document["question"]
    asked, marks = dict(kept["asked"]), dict(kept["files"])
    if strange := asked.keys() - set(_ASKED):
        raise ValueError(f"{', '.join(sorted(strange))} is nothing that a study keeps of what was asked")
    folder = Path(kept["folder"])
    if not folder.is_absolute():
        raise ValueError(f"the folder {str(folder)!r} is not an absolute path")
    named = StudyFiles(folder=folder, marks=marks, replaced=replaced)
    refuse_code(asked, named, again)
    asked.update((side, named.target(side, asked[side])) for side in ("reference", "candidate"))
    asked.update((name, named.path(name, asked[name])) for name in ("model", *_PATHS))
    asked["shapes"] = {str(name): tuple(map(int, shape)) for name, shape in asked["shapes"].items()}
    return RequestAgain(
        request=Request(**asked, policy=_policy_of(document["policy"])),
        models={side: str(marks.get(f"{side}.{MODEL}", {}).get("sha256")) for side in ("reference", "candidate")},
        notes=named.notes(),
    )


def _policy_of(plain: Mapping[str, Any]) -> Policy:
    if plain["declared"] not in DECLARED:
        raise ValueError(f"{plain['declared']!r} is no declared arithmetic")
    return Policy(
        declared=plain["declared"],
        declared_reason=str(plain["declared_reason"]),
        budgets=tuple(map(_budget_of, plain["budgets"])),
        matched=tuple(map(str, plain["matched"])),
        decides=tuple((str(output), str(words)) for output, words in plain.get("decides", ())),
    )


def _budget_of(plain: Mapping[str, Any]) -> Budget:
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
