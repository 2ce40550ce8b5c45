"""`parityscope run`: one target on the samples; its outputs (or all tensors) as a recording that `saved` reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller
from parityscope.errors import Exit, ParityError
from parityscope.languages import say_in_language
from parityscope.request import Data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.case.formats.exporting import WrittenSample

NAME = "run"


def command(
    model: o.ModelArgument,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder of the recording; or its outputs alone: .npz, .json (Polygraphy's)."
        ),
    ],
    target: Annotated[str, typer.Option(help="What runs: backend[:precision][?key=value&...].")] = "ort",
    data: Data,
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Every tensor, not only outputs.")] = False,
    written: Annotated[
        str,
        typer.Option("--format", help="Of a folder: npz, polygraphy (JSON) or trtexec (raw blobs and command lines)."),
    ] = "npz",
    quiet: o.QuietOption = False,
) -> int:
    """Runs one target and writes `inputs/` and `outputs/`, one file a sample, or one file (`saved?path=PLACE` reads them)."""
    from parityscope.api.shared.recordings import record_samples
    from parityscope.case.formats.exporting import FILES, WRITERS, WrittenSample, write_file, write_sample
    from parityscope.study import open_request, prepare_folder

    if written not in WRITERS:
        raise ParityError(f"there is no format {written!r}", fix=f"write --format {', '.join(WRITERS)}")
    if output.exists():
        raise ParityError(
            f"{output} exists already, and a recording is never overwritten",
            where=str(output),
            fix=f"choose another -o, or remove it: rm -r {output}",
        )
    alone = output.suffix.lower() in FILES
    if alone and written not in {"npz", FILES[output.suffix.lower()]}:
        raise ParityError(f"{output} says by its ending what is written, and not {written}", fix="leave --format out")
    with open_request(data.make_request(model, target)) as asked:
        count, left_out = len(asked.case.inputs), asked.case.inputs.not_judged

        def run_samples(folder: Path) -> Iterator[WrittenSample]:
            for sample, held in record_samples(asked, all_tensors=all_tensors, caller=name_caller(quiet=quiet)):
                yield WrittenSample(
                    folder=folder, called=str(output), index=sample.index, inputs=sample.arrays, outputs=held
                )

        if alone:
            write_file(output, count, run_samples(output.parent))
        else:
            with prepare_folder(output) as folder:
                for one in run_samples(folder):
                    write_sample(written, one)
    print(output)
    if not quiet:
        print(f"{count} samples recorded in {output}", file=sys.stderr)
    for skip in left_out:
        print(say_in_language(f"{skip.what}: {skip.reason}"), file=sys.stderr)
    return Exit.INCOMPLETE if any(skip.asked for skip in left_out) else Exit.WITHIN
