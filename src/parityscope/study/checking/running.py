"""Examines the pairs of a policy file one after the other, and holds each against its policy and its baseline.

A pair's study is written as soon as it is known, so that an interrupted run goes on behind it. Outputs are compared first, which
takes little; where they are beyond, or worse than the baseline, the whole diagnosis is made, so that the failure says why.

The latency of a cell's candidate, measured alike for every cell: warmed up, run in turns with the reference, the median.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.recording import ignore_progress
from parityscope.errors import ParityError
from parityscope.light_dataclasses import asdict, dataclass, replace
from parityscope.records import Skip
from parityscope.study._examining import examine_request
from parityscope.study._folder import load_study, prepare_folder, to_strict_data, write_study
from parityscope.study._opening import open_request
from parityscope.study._question import question_of
from parityscope.study._sample_columns import COLUMNS
from parityscope.study.changes.comparing import compare_studies, nothing_compared
from parityscope.verification.latency import measure_latency, why_not_timed
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.backends.recording import Progress
    from parityscope.examination import Examination
    from parityscope.study.changes.comparing import StudyChanges
    from parityscope.study.checking.pairs import CheckedPair

_BUDGET_S = 1.0  # of a cell; chosen: at least ten rounds are run, however long they take
_DIAGNOSED = frozenset({"beyond", "worse"})
_ALIKE = ("shapes", "samples", "seed", "stacked", "preprocess", "candidate", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Where studies go, what draws their page, the command that is run, and whether a failure is diagnosed.

    `workers` share the samples, as in `Request`; `timed` says that the candidate's latency is measured too.
    """

    folder: Path
    as_html: Callable[[Mapping[str, Any]], str]
    command: str = ""
    with_causes: bool = True
    progress: Progress = ignore_progress
    workers: str = ""
    timed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutcome:
    """What became of a pair.

    `status` is "beyond", "worse" (within, and worse than the baseline), "error" (could not be examined), "incomplete", "better"
    or "within". `changes` are against the baseline, None where it has no entry; `study` is the study's document, None on an
    error. `seconds` is what it took here, 0 where its study was there already.
    """

    pair: CheckedPair
    status: str
    study: Mapping[str, Any] | None = None
    folder: Path | None = None
    changes: StudyChanges | None = None
    error: ParityError | None = None
    seconds: float = 0.0


def check_pair(pair: CheckedPair, entry: Mapping[str, Any] | None, settings: CheckSettings) -> PairOutcome:
    """Examines a pair, or takes its study of an interrupted run; `entry` is its baseline."""
    started = time.perf_counter()
    folder = settings.folder / pair.name
    try:
        with open_request(replace(pair.request, workers=settings.workers)) as opened:
            asked = replace(
                opened, question=question_of(opened, Path.cwd()), command=settings.command, progress=settings.progress
            )
            study = _study_again(asked, folder) if folder.exists() else None
            if study is not None and _lacks_causes(study, entry, settings):
                shutil.rmtree(folder)  # of a run that was not to diagnose what fails
                study = None
            if study is None:
                study = _examine_pair(asked, entry, folder, settings)
    except ParityError as error:
        return PairOutcome(pair=pair, status="error", error=error, seconds=time.perf_counter() - started)
    changes = _changes_since(entry, study)
    return PairOutcome(
        pair=pair,
        status=_status_of(study, changes),
        study=study,
        folder=folder,
        changes=changes,
        seconds=time.perf_counter() - started,
    )


def _lacks_causes(study: Mapping[str, Any], entry: Mapping[str, Any] | None, settings: CheckSettings) -> bool:
    """Whether a failure is to be diagnosed, and its study only compares outputs."""
    if not settings.with_causes or _status_of(study, _changes_since(entry, study)) not in _DIAGNOSED:
        return False
    asked: str = study["question"]["asked"]["depth"]
    return asked != "causes"


def _examine_pair(
    asked: Examination, entry: Mapping[str, Any] | None, folder: Path, settings: CheckSettings
) -> Mapping[str, Any]:
    with prepare_folder(folder) as scratch:
        tensors = scratch / "tensors"
        tensors.mkdir(parents=True, exist_ok=True)
        asked = replace(asked, folder=tensors)
        study = examine_request(asked)
        if settings.with_causes and _status_of(study, _changes_since(entry, study)) in _DIAGNOSED:
            request = replace(asked.request, depth="causes")
            further = replace(asked, request=request)
            study = examine_request(replace(further, question=question_of(further, Path.cwd())))
        if (tensors / COLUMNS).exists():
            (tensors / COLUMNS).rename(scratch / COLUMNS)
        shutil.rmtree(tensors, ignore_errors=True)
        for trial in (one.get("trial") for finding in study["findings"] for one in finding["repairs"]):
            if trial:
                trial["file"] = ""  # the repaired copy is not kept here
        if settings.timed:
            study["candidate"]["latency_s"] = _time_candidate(asked)
        write_study(scratch, study, settings.as_html)
    return study


def _changes_since(entry: Mapping[str, Any] | None, study: Mapping[str, Any]) -> StudyChanges | None:
    """The changes; where none of the outputs are in both, as after a new export, that is what was not judged."""
    if entry is None:
        return None
    try:
        return compare_studies(entry, study)
    except ParityError as error:
        fix = "write it again: parityscope check --update"
        return nothing_compared(Skip(what="the baseline", reason=error.problem, fix=fix, asked=True))


def _status_of(study: Mapping[str, Any], changes: StudyChanges | None) -> str:
    if study["verdict"] == "beyond":
        return "beyond"
    if changes is not None and changes.verdict == "worse":
        return "worse"
    if study["verdict"] != "within" or any(skip.get("asked") for skip in study["skipped"]):
        return "incomplete"
    if changes is not None and changes.verdict in {"incomplete", "better"}:
        return changes.verdict
    return "within"


def _study_again(asked: Examination, folder: Path) -> Mapping[str, Any]:
    """The study that an interrupted run wrote of the same question.

    Raises:
        ParityError: it cannot be read, or is of other files, another policy or another version.
    """
    fix = f"choose another --study, or remove it: rm -r {folder}"
    try:
        study = load_study(folder).document
    except ParityError as error:  # what is to be done here is not what whoever reads a study does
        raise ParityError(error.problem, where=error.where, fix=fix) from error
    now, then = _identity_of(asked), _identity_of_study(study)
    other = next((name for name in now if now[name] != then.get(name)), "")
    if other:
        raise ParityError(
            f"{folder} holds a study that was made with another {other}",
            where=str(folder),
            fix=fix,
        )
    return study


def _identity_of(asked: Examination) -> dict[str, Any]:
    """What a study must be of to be taken again, in the form that documents have."""
    held: dict[str, Any] = to_strict_data(
        {
            "version": __version__,
            "model": asked.case.model.sha256,
            "data": asked.case.inputs.sha256,
            "policy": asdict(asked.case.policy),
            "file": asked.question["files"],
            **{name: asked.question["asked"][name] for name in _ALIKE},
        }
    )
    return held


def _identity_of_study(study: Mapping[str, Any]) -> dict[str, Any]:
    question = study.get("question") or {}
    asked = question.get("asked") or {}
    return {
        "version": (study.get("tool") or {}).get("version"),
        "model": study["model"].get("sha256"),
        "data": (study.get("inputs") or {}).get("sha256"),
        "policy": study.get("policy"),
        "file": question.get("files"),
        **{name: asked.get(name) for name in _ALIKE},
    }


def _time_candidate(asked: Examination) -> float | None:
    """Seconds of a run of the candidate; None where nobody times it (simulations, recordings) or it cannot run."""
    if why_not_timed(asked.reference, asked.candidate) is not None:
        return None
    try:
        found = measure_latency(
            asked.case,
            asked.reference,
            asked.candidate,
            budget=_BUDGET_S,
            clock=time.perf_counter,
            seed=asked.request.seed,
        )
    except ParityError:
        return None  # what it fails on, its study tells
    return found.after.median
