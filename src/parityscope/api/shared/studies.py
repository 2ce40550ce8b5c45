"""What is asked of studies: what changed between two, one experiment again, the smallest model that shows a finding."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder
from parityscope.study import as_written, list_errors
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.request import Request
    from parityscope.study import Repeated, Study
    from parityscope.study.changes.comparing import StudyChanges
    from parityscope.study.reduction import Reduced

_CHANGES = {"worse": Exit.BEYOND, "incomplete": Exit.INCOMPLETE, "better": Exit.WITHIN, "same": Exit.WITHIN}
_README = """The smallest proof of a finding, made by parityscope.

reproduce.py   shows it with the runtime and numpy alone: python reproduce.py
issue.md       a report for the runtime's authors: read it before you send it
model.onnx     the part of the model, with its weights (candidate.onnx: the candidate's own)
inputs/        what enters there on real samples; expected/ and actual/: what both sides give
proof.json     all of this as data, with every smaller model that was tried
"""
EXPERIMENT = "parityscope-experiment/1"


def report_changes(
    before: Study, after: Study, places: tuple[str, str], caller: Caller = PYTHON
) -> Report[StudyChanges]:
    """What became better or worse between two studies, which are called `places`.

    Raises:
        ParityError: one is not as it was written, or they have no output in common.
    """
    from parityscope.report.diff import FORMS, changes_document
    from parityscope.study.changes.comparing import compare_studies

    with as_written():
        first, second = (list_errors(one.document, one.folder) for one in (before, after))
        found = compare_studies(first, second)
        held = changes_document(found, first, second, places=places, command=caller.command)
    return Report(document=held, record=found, forms=FORMS, exit=_CHANGES[found.verdict])


def report_experiment(
    study: Mapping[str, Any],
    identity: str,
    replaced: Mapping[str, str],
    folder: Path,
    *,
    seconds: float,
    caller: Caller = PYTHON,
) -> Report[Repeated | None]:
    """One experiment of a study's document again, or without an `identity` a list of all; `folder` is scratch.

    `replaced` are options of the question in place of the study's.

    Raises:
        ParityError: as `repeat_experiment`.
    """
    from parityscope.report.experiment import FORMS
    from parityscope.study import experiments_of, repeat_experiment

    if not identity:
        with as_written():
            every = [{"identity": name, **evidence} for name, evidence in experiments_of(study).items()]
        return Report(document={"schema": EXPERIMENT, "experiments": every}, record=None, forms=FORMS)
    again = {"again": caller.command} if caller.command else {}
    found = repeat_experiment(
        study, identity, folder, replaced=replaced, **again, seconds=seconds, progress=caller.progress
    )
    names = ("experiment", "then", "now", "reason", "fix", "same", "notes")
    document = {"schema": EXPERIMENT, "identity": identity, **{name: getattr(found, name) for name in names}}
    status = Exit.INCOMPLETE if found.now is None else Exit.WITHIN if found.same else Exit.BEYOND
    return Report(document=document, record=found, forms=FORMS, exit=status)


def report_reduction(reduce: Callable[[Path], Reduced], output: Path, *, caller: Caller = PYTHON) -> Report[Reduced]:
    """What `reduce` gives in a scratch folder, whose files are in the zip `output` afterwards.

    The zip holds the model, its samples, what both sides give, a program that shows it, and a report for the runtime's authors.

    Raises:
        GoneError: the finding does not show any more.
        ParityError: it cannot be reduced.
    """
    from parityscope.report.reduction import FORMS, reduction_document

    with scratch_folder("reduce") as scratch:
        found = reduce(Path(scratch))
        document = reduction_document(found, command=caller.command)
        write_whole(output, _pack_reduction(found, document))
    return Report(document=document, record=found, forms=FORMS)


def _pack_reduction(found: Reduced, document: Mapping[str, Any]) -> bytes:
    from parityscope.report.reduction import as_issue, as_program
    from parityscope.study.reduction import files_of

    texts = {
        "README.txt": _README,
        "reproduce.py": as_program(document),
        "issue.md": as_issue(document),
        "proof.json": json.dumps(document, indent=1, allow_nan=False) + "\n",
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in texts.items():
            packed.writestr(name, content)
        for name, data in files_of(found).items():
            packed.writestr(name, data)
    return held.getvalue()


def reduce_asked(request: Request, home: Path, *, runs: int = 0, repeats: int = 0, caller: Caller = PYTHON) -> Reduced:
    """Examines what is asked, as `diagnose` does, and reduces what that finds; `home` is scratch.

    Raises:
        GoneError: the finding does not show any more.
        ParityError: it cannot be examined, or nothing is found.
    """
    from parityscope.study import examine_request, open_request
    from parityscope.study.reduction import reduce_examination

    with open_request(request) as asked:
        known = replace(asked, folder=home / "examination", progress=caller.progress)
        return reduce_examination(known, examine_request(known), home, runs=runs, repeats=repeats)
