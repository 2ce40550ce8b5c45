"""The verbs that take a study up again: read, rendered, compared, one experiment of it, and the smallest proof of its finding."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from parityscope.api.arguments import with_checked_arguments
from parityscope.api.given import candidate_target, model_and_data
from parityscope.api.results import Report, Result
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.api.given import Candidate, Data, Network
    from parityscope.api.options import PlacesNow
    from parityscope.study import Repeated, Study
    from parityscope.study.changes.comparing import StudyChanges
    from parityscope.study.reduction import Reduced


def load_study(folder: str | Path) -> Result:
    """Reads a study again.

    Raises:
        ParityError: there is none, or another version wrote it.
    """
    from parityscope import study

    found = study.load_study(Path(folder))
    return Result(document=found.document, folder=found.folder)


def load_report(folder: str | Path) -> Result | Report[None]:
    """Reads what any verb saved as a folder: a study, or a forecast, a repair, a verification ...

    `save` writes it in another form, as the command `report` does.

    Raises:
        ParityError: there is none, or another version wrote it.
    """
    from parityscope import study
    from parityscope.report.kinds import KINDS, forms_of

    found = study.load_study(Path(folder), kinds=("", *KINDS))
    forms = forms_of(found.document)
    if forms is None:
        return Result(document=found.document, folder=found.folder)
    return Report(document=found.document, record=None, forms=forms)


def diff(before: str | Path | Result, after: str | Path | Result) -> Report[StudyChanges]:
    """What became better or worse between two studies, beyond noise, and which versions and settings changed.

    `exit` is BEYOND where something is worse.

    Raises:
        ParityError: a folder holds no study, or they have no output in common.
    """
    from parityscope.api.shared.studies import report_changes

    places = (_place_of(before, "before"), _place_of(after, "after"))
    return report_changes(_study_of(before), _study_of(after), places)


@with_checked_arguments
def experiment(
    study: str | Path | Result, identity: str = "", *, seconds: float = math.inf, **now: Unpack[PlacesNow]
) -> Report[Repeated | None]:
    """Runs one experiment of a study again, alone; without an `identity` those that it has are listed.

    `exit` is BEYOND where the outcome is another. Nothing is run because the study says so: programs, modules and loaders
    that it names are named again.

    Args:
        study: Its folder, or a result that says what was asked (of files and targets, not of what lay in memory).
        identity: Which one.
        seconds: Time for experiments.
        **now: Where things are now: `options.PlacesNow` (model, inputs, candidate ...).

    Raises:
        ParityError: there is no such experiment, or what it names is gone, another, or has to be named again.
    """
    from parityscope.api.shared.studies import report_experiment

    replaced = {name: str(value) for name, value in now.items() if value}
    with scratch_folder("experiment") as scratch:
        return report_experiment(_study_of(study).document, identity, replaced, Path(scratch), seconds=seconds)


@with_checked_arguments
def reduce(
    study: Network | Result,
    *,
    output: str | Path,
    model: str | Path = "",
    candidate: Candidate = "",
    inputs: Data = None,
    reference: Candidate | None = None,
    preprocess: str = "",
    declared: str = "",
    runs: int = 0,
    repeat: int = 0,
    memory: int = 512 << 20,
) -> Report[Reduced]:
    """The smallest model and input that still show a finding, in the zip `output` for a bug report.

    Args:
        study: The folder of a study, or a result that says what was asked; or a model as of `diagnose`, which is examined first.
        output: The zip that is written.
        model: With a study: where its model is now.
        candidate: With a model: as of `diagnose`. With a study: its target, if it runs code or its files moved.
        inputs: As `candidate`; with a study a path.
        reference: As `candidate`.
        preprocess: As `candidate`.
        declared: With a model: the arithmetic that the candidate declares.
        runs: At most about so many runs; 0 is chosen by the size of the model.
        repeat: Runs before a smaller model shows nothing; 0 is 3 where answers vary.
        memory: With a model: in bytes.

    Raises:
        ParityError: there is no finding, it does not show any more, or what was asked is not known.
    """
    from parityscope.api.saving import refuse_file
    from parityscope.api.shared.studies import reduce_asked, report_reduction
    from parityscope.request import Request
    from parityscope.study.reduction import reduce_study

    path = Path(output)
    refuse_file(path)
    if isinstance(study, Result) or (isinstance(study, str | Path) and Path(study).suffix != ".onnx"):
        given = {
            "model": model,
            "candidate": candidate,
            "inputs": inputs,
            "reference": reference,
            "preprocess": preprocess,
        }
        replaced = {name: str(value) for name, value in given.items() if value}
        document = _study_of(study).document
        return report_reduction(
            lambda home: reduce_study(document, home, replaced=replaced, runs=runs, repeats=repeat), path
        )
    if isinstance(candidate, str) and not candidate:
        raise ParityError("a model is given, and no candidate", fix="give candidate=, or the folder of a study")
    with (
        model_and_data(study, inputs) as (path_of_model, data),
        candidate_target(candidate) as tested,
        candidate_target("ort" if reference is None else reference) as original,
    ):
        request = Request(
            model=path_of_model,
            candidate=tested,
            reference=original,
            inputs=data,
            preprocess=preprocess,
            declared=declared,
            memory=memory,
        )
        return report_reduction(lambda home: reduce_asked(request, home, runs=runs, repeats=repeat), path)


def _study_of(given: str | Path | Result) -> Study:
    from parityscope import study

    if isinstance(given, Result):
        return study.Study(document=given.document, folder=given.folder)
    return study.load_study(Path(given))


def _place_of(given: str | Path | Result, otherwise: str) -> str:
    return str(given.folder or otherwise) if isinstance(given, Result) else str(given)
