"""`parityscope experiment`: lists the experiments of a study, or runs one of them again, alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.cli.shell.answering import Answer
    from parityscope.study import Repeated

__all__ = ["NAME", "command"]

NAME = "experiment"

_SCHEMA = "parityscope-experiment/1"


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
    from parityscope.report.forms import plain_forms
    from parityscope.study import as_written, experiments_of, load_study

    forms = plain_forms("experiment", _list_lines)
    told.claim(forms)
    document = load_study(study).document
    if not identity:
        with as_written(study):
            every = [{"identity": name, **evidence} for name, evidence in experiments_of(document).items()]
            told.hand_over(forms, {"schema": _SCHEMA, "experiments": every})
        return Exit.WITHIN
    given = {"model": model, "inputs": inputs, "candidate": candidate, "reference": reference}
    given |= {"preprocess": preprocess, "real": real, "images": images, "candidate_inputs": candidate_inputs}
    options = {name: value for name, value in given.items() if value}
    found = _repeat_experiment(document, identity, options, seconds=o.seconds_of(time), quiet=told.quiet)
    with as_written(study):
        told.hand_over(forms, _outcome_document(found, identity))
    if found.now is None:
        return Exit.INCOMPLETE
    return Exit.WITHIN if found.same else Exit.BEYOND


def _outcome_document(found: Repeated, identity: str) -> dict[str, Any]:
    names = ("experiment", "then", "now", "reason", "fix", "same", "notes")
    return {"schema": _SCHEMA, "identity": identity, **{name: getattr(found, name) for name in names}}


def _repeat_experiment(
    document: Mapping[str, Any], identity: str, options: Mapping[str, str], *, seconds: float, quiet: bool
) -> Repeated:
    from parityscope.study import repeat_experiment

    with scratch_folder("experiment") as scratch:
        return repeat_experiment(
            document,
            identity,
            Path(scratch),
            replaced=options,
            again=command_line(),
            seconds=seconds,
            progress=progress_for(quiet=quiet),
        )


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    if "experiments" in document:
        for one in document["experiments"]:
            yield f"{one['identity']:<12} {one['outcome']:<12} {one['experiment']['claim']}"
        if not document["experiments"]:
            yield "the study holds no experiment"
        return
    experiment, now = document["experiment"], document["now"]
    yield f"{document['identity']}: {experiment['claim']}"
    for name, words in (
        ("change", "change"),
        ("measure", "measured"),
        ("if_true", "if true"),
        ("if_false", "if false"),
    ):
        yield f"  {words + ':':<10} {experiment[name]}"
    yield f"  then:      {_outcome_words(document['then'])}"
    yield f"  now:       {_outcome_words(now) if now else 'no outcome: ' + document['reason']}"
    if now is None and document["fix"]:
        yield f"  fix:       {document['fix']}"
    for note in document["notes"]:
        yield f"  note:      {note}"
    if now is not None:
        yield f"  the outcome is {'that' if document['same'] else 'not that'} of the study"


def _outcome_words(evidence: Mapping[str, Any]) -> str:
    from parityscope.report.words import format_figure

    return (
        f"{evidence['outcome']}, {format_figure(evidence['before'])} -> {format_figure(evidence['after'])}: "
        f"{evidence['because']}"
    )
