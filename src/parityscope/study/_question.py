"""What was asked, as a study keeps it, and a question made of that again by whoever got the study from somebody else.

What is kept is plain data: the options in the words of the command line, the folder that relative paths are meant from,
and a mark of each file that they name. What a study says is held against what it may say before anything is opened.

What a study names, for whoever repeats an experiment: data that is read if it is the study's, and code that is never run.

Nothing is run because a study says so. Where it names a program, a module, a loader, a library, another machine or a file
that is written, the user has to name that again. What it names as data lies where the study says, and has its mark.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.opening import model_of
from parityscope.backends.targets import format_target, named_code, parse_target
from parityscope.case.formats.loader import is_function
from parityscope.case.policy import DECLARED, OUTSIDE
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, fields, replace
from parityscope.records import Budget, Policy, Tolerance
from parityscope.request import Request
from parityscope.study._budgets import known_metrics
from parityscope.study._file_marks import digest_of_files, is_marked, mark_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.examination import Examination
    from parityscope.records import Target

_MODEL = "model"  # has the digest of a model instead of a mark, in targets too
_SIDES = ("reference", "candidate")
_DIGESTED = ("model", "inputs")  # have digests of their own, which are told when they are read
_LARGEST_CODE = 1 << 30  # chosen: a larger file among the words of a program is its data
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
class _StudyFiles:
    """What a study names: the folder that relative paths are meant from, its marks, and what is named anew."""

    folder: Path
    marks: Mapping[str, Any]
    replaced: Mapping[str, str]

    def path(self, name: str, value: str | None) -> str | None:
        """Where something lies that an option names, in full.

        Raises:
            ParityError: it is not there, or is not what the study was made with.
        """
        if name in self.replaced or not value:
            return self.replaced.get(name, value)
        option = name.replace("_", "-")
        what = f"the {name} of the study" if name in _DIGESTED else f"what --{option} names in the study"
        return str(self._find_marked(what, value, None if name in _DIGESTED else name, f"--{option} PATH"))

    def target(self, side: str, text: str) -> str:
        """The target of a side, its files in full.

        Raises:
            ParityError: a file is not there, or is not what the study was made with, or another backend is named anew.
        """
        then = parse_target(text)
        if side not in self.replaced:
            options = tuple((key, self._value_in_full(side, then, key, value)) for key, value in then.options)
            return format_target(replace(then, options=options))
        now = parse_target(self.replaced[side])
        if (now.backend, now.precision) != (then.backend, then.precision):
            raise ParityError(
                f"the {side} of the study was {_short_target(then)}, and {_short_target(now)} is another one",
                fix="give the same backend and precision, or run `parityscope diagnose` with the other",
            )
        return self.replaced[side]

    def notes(self) -> tuple[str, ...]:
        """What was named anew and is not what it was."""
        found: dict[str, Any] = {}
        for side in _SIDES:
            if side in self.replaced:
                found.update(marks_of_target(side, parse_target(self.replaced[side])))
        for name in ("preprocess", "images", "candidate_inputs", "real"):
            if name in self.replaced and _is_data(name, self.replaced[name]):
                found[name] = mark_of(Path(self.replaced[name]))
        changed = [name for name, mark in found.items() if name in self.marks and self.marks[name] != mark]
        return tuple(f"{_words_of(name)} is not what the study was made with" for name in changed)

    def _value_in_full(self, side: str, target: Target, key: str, value: str) -> str:
        """The value of a target's option; if it names a file, in full."""
        what, option = f"{key}= of the {side}", f"--{side} TARGET"
        if key == _MODEL:
            return str(self._find_marked(what, value, None, option))
        if key not in backend_named(target.backend).files or _is_inline(value):
            return value
        return str(self._find_marked(what, value, f"{side}.{key}", option))

    def _find_marked(self, what: str, value: str, mark: str | None, option: str) -> Path:
        """The path that `value` is, which has the mark of this name."""
        path = self.folder / value
        if not path.exists():
            raise ParityError(
                f"{what} is not at {value} any more",
                where=f"from the folder {self.folder}",
                fix=f"put it back, or say where it is now: {option}",
            )
        if mark is not None and not is_marked(path, self.marks.get(mark, {})):
            raise ParityError(
                f"{what} is not what the study was made with",
                where=str(path),
                fix=f"put it back, or if it is what you mean, name it yourself: {option}",
            )
        return path


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
    marks = {name: mark_of(Path(asked[name])) for name in _PATHS if name != "inputs" and _is_data(name, asked[name])}
    for side in ("reference", "candidate"):
        target = getattr(examination, side)
        marks.update(marks_of_target(side, target))
        if target.option(_MODEL):
            marks[f"{side}.{_MODEL}"] = {"sha256": model_of(examination.case.model, target).sha256}
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
    named = _StudyFiles(folder=folder, marks=marks, replaced=replaced)
    _refuse_code(asked, named, again)
    asked.update((side, named.target(side, asked[side])) for side in ("reference", "candidate"))
    asked.update((name, named.path(name, asked[name])) for name in ("model", *_PATHS))
    asked["shapes"] = {str(name): tuple(map(int, shape)) for name, shape in asked["shapes"].items()}
    return RequestAgain(
        request=Request(**asked, policy=_policy_of(document["policy"])),
        models={side: str(marks.get(f"{side}.{_MODEL}", {}).get("sha256")) for side in ("reference", "candidate")},
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


def _is_data(name: str, value: str | None) -> bool:
    """Whether what an option names is read and not run; nothing names nothing."""
    if not value:
        return False
    return value.endswith(".toml") if name == "preprocess" else not is_function(value)


def _refuse_code(asked: Mapping[str, Any], named: _StudyFiles, again: str) -> None:
    """Refuses code that the study names and the user does not.

    Raises:
        ParityError: with the words to add to the command `again`.
    """
    found: dict[str, str] = {}
    for side in _SIDES:
        target = parse_target(asked[side])
        code = named_code(target, backend_named(target.backend))
        if code and side not in named.replaced:
            found[side] = f"{', '.join(code)} of the {side}"
    for name in ("inputs", "preprocess", "real"):
        if asked[name] and not _is_data(name, asked[name]) and name not in named.replaced:
            found[name] = f"the function of --{name}"
    if not found:
        return
    words = " ".join(f"--{name} {shlex.quote(asked[name])}" for name in found)
    raise ParityError(
        f"the study names code, another machine or a file to write, and nothing is run because a study says so: "
        f"{'; '.join(found.values())}",
        where=f"relative paths in it are meant from {named.folder}",
        fix=f"if you know it and trust it, name it yourself: {again} {words}",
    )


def marks_of_target(side: str, target: Target) -> dict[str, Any]:
    """The marks of what the options of a target name, by side and option.

    Of code the mark is the digest of those files in the option's words that are there: whether it is the same is told, and
    whoever names it decides.
    """
    runtime = backend_named(target.backend)
    code = named_code(target, runtime)
    found: dict[str, Any] = {}
    for key, value in target.options:
        if key in runtime.files and not _is_inline(value):
            found[f"{side}.{key}"] = mark_of(Path(value))
        elif key != _MODEL and code and (runtime.plain is None or f"{key}=" in code):
            found[f"{side}.{key}"] = {"sha256": digest_of_files(_files_in(value))}
    return found


def _files_in(value: str) -> list[Path]:
    """The files that the value of an option may name: itself, a module with a function, several, words of a command."""
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    texts = [value, *value.split(","), *words]
    texts += [text.rpartition(":")[0] for text in texts if is_function(text)]
    return [path for path in map(Path, dict.fromkeys(texts)) if path.is_file() and path.stat().st_size <= _LARGEST_CODE]


def _is_inline(value: str) -> bool:
    """Whether an option that may name a file holds the data itself, as JSON."""
    return value.lstrip().startswith("{")


def _words_of(name: str) -> str:
    side, _, key = name.partition(".")
    return f"{key}= of the {side}" if key else "--" + name.replace("_", "-")


def _short_target(target: Target) -> str:
    return target.backend + (f":{target.precision}" if target.precision else "")
