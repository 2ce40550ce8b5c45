"""`parityscope reduce`: the smallest model and input that still show a finding, as a zip for a bug report."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import claim_file, command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit, ParityError
from parityscope.private_folders import scratch_folder
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.cli.shell.answering import Answer
    from parityscope.study.reduction import Reduced

__all__ = ["NAME", "command"]

NAME = "reduce"

_README = """The smallest proof of a finding, made by parityscope.

reproduce.py   shows it with the runtime and numpy alone: python reproduce.py
issue.md       a report for the runtime's authors: read it before you send it
model.onnx     the part of the model, with its weights (candidate.onnx: the candidate's own)
inputs/        what enters there on real samples; expected/ and actual/: what both sides give
proof.json     all of this as data, with every smaller model that was tried
"""


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
    from parityscope.report.reduction import FORMS, reduction_document
    from parityscope.study.reduction import GoneError
    from parityscope.version import __version__

    file, answer = answer.take_file(output or [])
    answer.claim(FORMS)
    given = {"model": model, "inputs": inputs, "candidate": candidate, "reference": reference, "preprocess": preprocess}
    options = {name: value for name, value in given.items() if value}
    path = file or Path(f"{study.resolve().stem}-proof.zip")
    claim_file(path, "-o")
    with scratch_folder("reduce") as scratch:
        home = Path(scratch)
        try:
            if study.suffix != ".onnx":
                found = _reduce_study(study, options, home, runs=runs, repeats=repeat, quiet=answer.quiet)
            else:
                options |= {"model": str(study), "declared": declared}
                found = _reduce_model(options, home, runs=runs, repeats=repeat, memory=memory, quiet=answer.quiet)
        except GoneError as gone:
            print(f"parityscope: {gone}", file=sys.stderr)
            return Exit.INCOMPLETE
        told = reduction_document(found, version=__version__, command=command_line())
        write_whole(path, _zipped(found, told))
    answer.hand_over(FORMS, told)
    if not answer.quiet:
        print(f"the proof is {path}", file=sys.stderr)
    return Exit.WITHIN


def _reduce_study(
    study: Path, options: Mapping[str, str], home: Path, *, runs: int, repeats: int, quiet: bool
) -> Reduced:
    from parityscope.study import load_study
    from parityscope.study.reduction import reduce_study

    document = load_study(study).document
    progress = progress_for(quiet=quiet)
    return reduce_study(
        document, home, replaced=options, again=command_line(), runs=runs, repeats=repeats, progress=progress
    )


def _reduce_model(
    options: Mapping[str, str], home: Path, *, runs: int, repeats: int, memory: str, quiet: bool
) -> Reduced:
    """Examines first, as `diagnose` does, and reduces what that finds."""
    from parityscope.study import Request, examine_request, open_request
    from parityscope.study.reduction import reduce_examination

    if "candidate" not in options:
        raise ParityError(
            f"{options['model']} is a model, and no candidate is given",
            fix="give the folder of a study, or add --candidate TARGET --inputs DATA",
        )
    words: dict[str, Any] = dict(options)
    request = Request(**words, memory=o.size_of(memory))
    with open_request(request) as asked:
        known = replace(asked, folder=home / "examination", progress=progress_for(quiet=quiet))
        return reduce_examination(known, examine_request(known), home, runs=runs, repeats=repeats)


def _zipped(found: Reduced, document: Mapping[str, Any]) -> bytes:
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
