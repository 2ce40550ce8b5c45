"""Many pairs or stages from one file: every model of a policy, a matrix of models and targets, a chain of models."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.errors import EXIT_OF, Exit, ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.study.checking.pairs import CheckedPair
    from parityscope.study.checking.running import CheckSettings, PairOutcome


def _ignore_outcome(title: str, outcome: PairOutcome) -> None:
    del title, outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteAsked:
    """How pairs are examined: `folder` gets their studies, a failure is diagnosed `with_causes`, `memory` is in bytes.

    `workers` share the samples; `seen` is told of each pair, with its title, as soon as it is known.
    """

    folder: Path
    with_causes: bool = True
    memory: int = 512 << 20
    workers: str = ""
    seen: Callable[[str, PairOutcome], None] = _ignore_outcome

    def settings(self, caller: Caller, *, timed: bool = False) -> CheckSettings:
        """The same for the study of a pair; `timed` measures latencies too."""
        from parityscope.report import renderer_named
        from parityscope.study.checking.running import CheckSettings

        return CheckSettings(
            folder=self.folder,
            as_html=renderer_named("html").render,
            command=caller.command,
            with_causes=self.with_causes,
            progress=caller.progress,
            workers=self.workers,
            timed=timed,
        )

    def examine(
        self,
        pairs: Mapping[str, CheckedPair],
        entries: Mapping[str, Mapping[str, Any]],
        settings: CheckSettings,
        called: str,
    ) -> list[PairOutcome]:
        """Examines `pairs`, by title, one after the other; `entries` are what was measured before; `called` says what they are.

        Raises:
            KeyboardInterrupt: with what is done, and how to go on from there.
        """
        from parityscope.study.checking.running import check_pair

        found: list[PairOutcome] = []
        try:
            for title, pair in pairs.items():
                found.append(check_pair(pair, entries.get(pair.name), settings))
                self.seen(title, found[-1])
        except KeyboardInterrupt as interrupt:
            words = f"interrupted; {len(found)} of {len(pairs)} {called} are done"
            if found:
                words += f"\n  fix:   the same command with --study {settings.folder} goes on from there"
            raise KeyboardInterrupt(words).with_traceback(interrupt.__traceback__) from None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAsked:
    """Which pairs of a policy file, and what they are held against: `place` None is the file's own baseline.

    `update` writes what was measured as the baseline; `reports` are files that are written too, and cannot be it.
    """

    only: Sequence[str] = ()
    place: Path | None = None
    update: bool = False
    reports: Sequence[Path] = ()


def report_check(
    file: Path, asked: SuiteAsked, baseline: BaselineAsked, *, caller: Caller = PYTHON
) -> Report[tuple[PairOutcome, ...]]:
    """Examines every pair of a policy file, each against the policy and against the baseline.

    Raises:
        ParityError: the file or the baseline cannot be read or written, or there is no such pair.
    """
    from parityscope.report.check import FORMS, check_document
    from parityscope.study.checking.baseline import read_baseline, update_baseline
    from parityscope.study.checking.pairs import choose_pairs, read_check_file

    held = read_check_file(file, asked.memory)
    pairs = choose_pairs(held.pairs, list(baseline.only), file)
    place = baseline.place or held.baseline
    entries = read_baseline(place)
    if baseline.update:
        _check_baseline(place, baseline.reports)
    outcomes = asked.examine({one.name: one for one in pairs}, entries, asked.settings(caller), "checks")
    updated = baseline.update and any(one.study is not None for one in outcomes)
    document = check_document(held, outcomes, baseline=place, updated=updated, command=caller.command)
    if updated:
        update_baseline(place, [one.name for one in held.pairs], outcomes)
    return Report(document=document, record=tuple(outcomes), forms=FORMS, exit=_exit_of(document))


def report_matrix(file: Path, asked: SuiteAsked, *, caller: Caller = PYTHON) -> Report[tuple[PairOutcome, ...]]:
    """Examines every cell of a matrix, and holds it against the last run, which it becomes.

    Raises:
        ParityError: the file cannot be read, or a folder cannot be written to.
    """
    from parityscope.report.matrix import FORMS, matrix_document
    from parityscope.study.checking.baseline import read_baseline, update_baseline
    from parityscope.study.checking.matrix import cell_entry, read_matrix_file

    held = read_matrix_file(file, asked.memory)
    last = read_baseline(held.last)
    _check_folder(asked.folder, "--study")
    _check_folder(held.last.parent, "place for the file")
    cells = {f"{cell.row}, {cell.column}": cell.pair for cell in held.cells}
    outcomes = asked.examine(cells, last, asked.settings(caller, timed=True), "cells")
    document = matrix_document(held, outcomes, last, command=caller.command)
    if any(one.study is not None for one in outcomes):
        update_baseline(held.last, {cell.pair.name for cell in held.cells}, outcomes, cell_entry)
    return Report(document=document, record=tuple(outcomes), forms=FORMS, exit=_exit_of(document))


def _exit_of(document: Mapping[str, Any]) -> Exit:
    return Exit.UNUSABLE if document["verdict"] == "error" else EXIT_OF[document["verdict"]]


def _check_baseline(place: Path, reports: Sequence[Path]) -> None:
    """Refuses, before the work is done, a baseline that could not be written behind it."""
    file = place.resolve()
    if any(one.resolve() == file for one in reports):
        why = "it is given to -o as well"
    elif not file.parent.is_dir():
        why = f"there is no folder {file.parent}"
    elif not os.access(file.parent, os.W_OK):
        why = os.strerror(errno.EACCES)
    else:
        return
    raise ParityError(f"the baseline cannot be written: {why}", where=str(place), fix="choose another --baseline")


def _check_folder(folder: Path, option: str) -> None:
    """Makes a folder where there is none, and a file in it, before work is done that is to be written there.

    Raises:
        ParityError: that cannot be done; `option` is what would choose another folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ParityError(
            f"nothing can be written to {folder}: {reason}", where=str(folder), fix=f"choose another {option}"
        ) from error


def report_pipeline(
    file: Path,
    folder: Path,
    *,
    samples: int | None = None,
    seconds: float = math.inf,
    memory: int = 512 << 20,
    keep_tensors: bool = False,
    caller: Caller = PYTHON,
) -> Report[dict[str, Any] | None]:
    """Holds every stage of a chain against its reference, and examines the first that differs, whose document is the record.

    `folder` is there, and gets pipeline.json, the study of that stage, and the tensors if they are kept.

    Raises:
        ParityError: the file cannot be read, or a stage cannot run.
    """
    from parityscope.report import renderer_named
    from parityscope.report.pipeline import FORMS
    from parityscope.study import examine_pipeline, read_pipeline, write_study

    document, found = examine_pipeline(
        read_pipeline(file),
        folder=folder / "tensors",
        samples=samples,
        memory=memory,
        seconds=seconds,
        command=caller.command,
        progress=caller.progress,
    )
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    (folder / "pipeline.json").write_text(text, encoding="utf-8")
    if found is not None:
        write_study(folder, found, renderer_named("html").render)
    if not keep_tensors:
        shutil.rmtree(folder / "tensors", ignore_errors=True)
    return Report(document=document, record=found, forms=FORMS, exit=EXIT_OF[document["verdict"]])
