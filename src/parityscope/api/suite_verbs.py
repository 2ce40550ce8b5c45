"""The verbs that examine many: every model of a policy file, a matrix of models and targets, a chain of models."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.api.arguments import with_checked_arguments
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.api.results import Report
    from parityscope.study.checking.running import PairOutcome

_MEMORY = 512 << 20  # bytes, as on the command line


@with_checked_arguments
def check(
    file: str | Path = "parityscope.toml",
    *,
    only: Sequence[str] = (),
    baseline: str | Path | None = None,
    update: bool = False,
    causes: bool = True,
    study: str | Path | None = None,
    memory: int = _MEMORY,
) -> Report[tuple[PairOutcome, ...]]:
    """Examines every model and target of a policy file, against the policy and against a baseline; `record` has each pair.

    `exit` is BEYOND where a pair is beyond or worse than the baseline, UNUSABLE where one could not be examined.

    Args:
        file: A policy file with [[check]] tables.
        only: Names of checks; by default all.
        baseline: By default the file's own, or parity-baseline.json beside it.
        update: Whether what was measured is written as the baseline.
        causes: Whether what fails is diagnosed.
        study: A folder that keeps the studies, from which an interrupted run goes on; by default none is kept.
        memory: In bytes.

    Raises:
        ParityError: a file cannot be read or written, or there is no such check.
    """
    from parityscope.api.shared.suites import BaselineAsked, SuiteAsked, report_check

    place = None if baseline is None else Path(baseline)
    with _folder_for_studies(study) as folder:
        asked = SuiteAsked(folder=folder, with_causes=causes, memory=memory)
        found = report_check(Path(file), asked, BaselineAsked(only=only, place=place, update=update))
        return found if study is not None else _without_studies(found, "pairs")


@with_checked_arguments
def matrix(
    file: str | Path,
    *,
    causes: bool = True,
    study: str | Path | None = None,
    workers: str = "",
    memory: int = _MEMORY,
) -> Report[tuple[PairOutcome, ...]]:
    """Examines every cell of models x versions x targets x settings, and tells what changed since the last run.

    The last run lies beside the file, and this one takes its place. `exit` and the others are as of `check`; `workers` share the
    samples.

    Raises:
        ParityError: the file cannot be read, or its folder not be written to.
    """
    from parityscope.api.shared.suites import SuiteAsked, report_matrix

    with _folder_for_studies(study) as folder:
        asked = SuiteAsked(folder=folder, with_causes=causes, memory=memory, workers=workers)
        found = report_matrix(Path(file), asked)
        return found if study is not None else _without_studies(found, "cells")


@with_checked_arguments
def pipeline(
    file: str | Path,
    *,
    samples: int | None = None,
    study: str | Path | None = None,
    seconds: float = math.inf,
    memory: int = _MEMORY,
    keep_tensors: bool = False,
) -> Report[dict[str, Any] | None]:
    """Holds every stage of a chain against its reference; `record` is the study's document of the first that differs.

    Args:
        file: The stages (.toml).
        samples: At most so many.
        study: A new folder for pipeline.json, that study and its report; by default none is kept.
        seconds: Time for experiments.
        memory: In bytes.
        keep_tensors: Whether what every stage got and gave is kept in `study`.

    Raises:
        ParityError: the file cannot be read, or a stage cannot run.
    """
    from parityscope.api.shared.suites import report_pipeline
    from parityscope.study import prepare_folder

    kept = scratch_folder("pipeline") if study is None else prepare_folder(Path(study))
    with kept as folder:
        return report_pipeline(
            Path(file),
            Path(folder),
            samples=samples,
            seconds=seconds,
            memory=memory,
            keep_tensors=keep_tensors,
        )


@contextlib.contextmanager
def _folder_for_studies(study: str | Path | None) -> Iterator[Path]:
    if study is not None:
        yield Path(study)
        return
    with scratch_folder("studies") as folder:
        yield Path(folder)


def _without_studies(found: Report[tuple[PairOutcome, ...]], rows: str) -> Report[tuple[PairOutcome, ...]]:
    """The report of studies that are not kept, which names none of their pages."""
    document = {**found.document, rows: [{**one, "report": ""} for one in found.document[rows]]}
    return replace(found, document=document, record=tuple(replace(one, folder=None) for one in found.record))
