"""`parityscope experiment`: lists the experiments of a study, or runs one of them again, alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit, ParityError
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text or json.")] = "text",
    quiet: o.QuietOption = False,
) -> int:
    """Runs one experiment of a study again; exit code 0 if its outcome is the study's, 1 if it is another, 3 if there is none.

    Nothing is run because the study says so: programs, modules, loaders and libraries that it names have to be named again.
    """
    from parityscope.study import as_written, load_study

    if format_name not in {"text", "json"}:
        raise ParityError(f"there is no format {format_name!r} here", fix="use --format text or json")
    document = load_study(study).document
    if not identity:
        with as_written(study):
            _list_experiments(document, format_name)
        return Exit.WITHIN
    given = {"model": model, "inputs": inputs, "candidate": candidate, "reference": reference}
    given |= {"preprocess": preprocess, "real": real, "images": images, "candidate_inputs": candidate_inputs}
    options = {name: value for name, value in given.items() if value}
    found = _repeat_experiment(document, identity, options, seconds=o.seconds_of(time), quiet=quiet)
    with as_written(study):
        _tell_outcome(found, identity, format_name)
    if found.now is None:
        return Exit.INCOMPLETE
    return Exit.WITHIN if found.same else Exit.BEYOND


def _tell_outcome(found: Repeated, identity: str, format_name: str) -> None:
    if format_name == "json":
        names = ("experiment", "then", "now", "reason", "fix", "same", "notes")
        plain = {name: getattr(found, name) for name in names}
        print(json.dumps({"schema": _SCHEMA, "identity": identity, **plain}, indent=2, allow_nan=False))
    else:
        _tell_text(found, identity)


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


def _list_experiments(document: Mapping[str, Any], format_name: str) -> None:
    from parityscope.study import experiments_of

    found = experiments_of(document)
    if format_name == "json":
        print(json.dumps({"schema": _SCHEMA, "experiments": list(found.values())}, indent=2, allow_nan=False))
        return
    for identity, evidence in found.items():
        print(f"{identity:<12} {evidence['outcome']:<12} {evidence['experiment']['claim']}")
    if not found:
        print("the study holds no experiment", file=sys.stderr)


def _tell_text(found: Repeated, identity: str) -> None:
    experiment = found.experiment
    print(f"{identity}: {experiment['claim']}")
    for name, words in (
        ("change", "change"),
        ("measure", "measured"),
        ("if_true", "if true"),
        ("if_false", "if false"),
    ):
        print(f"  {words + ':':<10} {experiment[name]}")
    print(f"  then:      {_outcome_words(found.then)}")
    print(f"  now:       {_outcome_words(found.now) if found.now else f'no outcome: {found.reason}'}")
    if found.now is None and found.fix:
        print(f"  fix:       {found.fix}")
    for note in found.notes:
        print(f"  note:      {note}")
    if found.now is not None:
        print(f"  the outcome is {'that' if found.same else 'not that'} of the study")


def _outcome_words(evidence: Mapping[str, Any]) -> str:
    from parityscope.report.words import format_figure

    return (
        f"{evidence['outcome']}, {format_figure(evidence['before'])} -> {format_figure(evidence['after'])}: "
        f"{evidence['because']}"
    )
