"""`parityscope experiment`: lists the experiments of a study, or runs one of them again, alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "experiment"


def command(
    study: Annotated[Path, typer.Argument(help="The folder of a study.", show_default=False)],
    identity: Annotated[str, typer.Argument(help="Which one (without it: all are listed).", show_default=False)] = "",
    *,
    model: Annotated[str, typer.Option(help="Where the model is now.")] = "",
    inputs: Annotated[str, typer.Option(help="The samples, if they come from a function or moved.")] = "",
    candidate: Annotated[str, typer.Option(help="The candidate's target, if it runs code or its files moved.")] = "",
    reference: Annotated[str, typer.Option(help="The reference's target, if it runs code or its files moved.")] = "",
    preprocess: Annotated[str, typer.Option(help="The preprocessing, if it is a function or its file moved.")] = "",
    real: Annotated[str, typer.Option(help="The real samples, if they come from a function or moved.")] = "",
    images: Annotated[str, typer.Option(help="Where the samples' images are now.")] = "",
    candidate_inputs: Annotated[str, typer.Option(help="Where the deployment's recorded inputs are now.")] = "",
    time: o.TimeOption = "",
    told: Answer,
) -> int:
    """Runs one experiment of a study again; exit code 0 if its outcome is the study's, 1 if it is another, 3 if there is none.

    Nothing is run because the study says so: programs, modules, loaders and libraries that it names have to be named again.
    """
    from parityscope.api.shared.studies import report_experiment
    from parityscope.report.experiment import FORMS
    from parityscope.study import as_written, load_study

    told.claim(FORMS)
    document = load_study(study).document
    given = {"model": model, "inputs": inputs, "candidate": candidate, "reference": reference}
    given |= {"preprocess": preprocess, "real": real, "images": images, "candidate_inputs": candidate_inputs}
    options = {name: value for name, value in given.items() if value}
    with scratch_folder("experiment") as scratch:
        caller = name_caller(quiet=told.quiet)
        found = report_experiment(document, identity, options, Path(scratch), seconds=o.seconds_of(time), caller=caller)
    with as_written(study):
        told.hand_over(FORMS, found.document)
    return found.exit
