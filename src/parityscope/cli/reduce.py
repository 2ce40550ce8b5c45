"""`parityscope reduce`: the smallest model and input that still show a finding, as a zip for a bug report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import claim_file
from parityscope.cli.shell.progress import name_caller
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.cli.shell.answering import Answer
    from parityscope.request import Request
    from parityscope.study.reduction import Reduced

NAME = "reduce"


def command(
    study: Annotated[Path, typer.Argument(help="The folder of a study, or a model (.onnx).", show_default=False)],
    *,
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="The zip [<study>-proof.zip]; .html, .json, ...: what it says."),
    ] = None,
    answer: Answer,
    model: Annotated[str, typer.Option(help="Where the study's model is now.")] = "",
    inputs: Annotated[str, typer.Option(help="Real samples of a model, or where the study's are now.")] = "",
    candidate: Annotated[str, typer.Option(help="The candidate of a model, or where the study's is now.")] = "",
    reference: Annotated[str, typer.Option(help="The reference's target, likewise.")] = "",
    preprocess: Annotated[str, typer.Option(help="The preprocessing, likewise.")] = "",
    declared: Annotated[str, typer.Option(help="With a model: the arithmetic that the candidate declares.")] = "",
    runs: Annotated[
        int, typer.Option(help="At most about so many runs [log2 of the nodes, and 2].", min=0, show_default=False)
    ] = 0,
    repeat: Annotated[
        int, typer.Option(help="Runs before a model shows nothing [3 if answers vary].", min=0, show_default=False)
    ] = 0,
    memory: o.MemoryOption = "512MiB",
) -> int:
    """Reduces a model to what still shows the same finding; exit code 0, or 3 where it does not show any more."""
    from parityscope.api.shared.studies import reduce_asked, report_reduction
    from parityscope.report.reduction import FORMS
    from parityscope.study import load_study
    from parityscope.study.reduction import GoneError, reduce_study

    file, answer = answer.take_file(output or [])
    answer.claim(FORMS)
    given = {"model": model, "inputs": inputs, "candidate": candidate, "reference": reference, "preprocess": preprocess}
    options = {name: value for name, value in given.items() if value}
    path = file or Path(f"{study.resolve().stem}-proof.zip")
    claim_file(path, "-o")
    caller = name_caller(quiet=answer.quiet)

    def work(home: Path) -> Reduced:
        if study.suffix == ".onnx":
            request = _request_of(study, options, declared, o.size_of(memory))
            return reduce_asked(request, home, runs=runs, repeats=repeat, caller=caller)
        return reduce_study(
            load_study(study).document,
            home,
            replaced=options,
            again=caller.command,
            runs=runs,
            repeats=repeat,
            progress=caller.progress,
        )

    try:
        found = report_reduction(work, path, caller=caller)
    except GoneError as gone:
        print(f"parityscope: {gone}", file=sys.stderr)
        return Exit.INCOMPLETE
    answer.hand_over(FORMS, found.document)
    if not answer.quiet:
        print(f"the proof is {path}", file=sys.stderr)
    return found.exit


def _request_of(model: Path, options: Mapping[str, str], declared: str, memory: int) -> Request:
    from parityscope.request import Request

    if "candidate" not in options:
        raise ParityError(
            f"{model} is a model, and no candidate is given",
            fix="give the folder of a study, or add --candidate TARGET --inputs DATA",
        )
    words: dict[str, Any] = {**options, "model": str(model), "declared": declared}
    return Request(**words, memory=memory)
