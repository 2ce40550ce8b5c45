"""`parityscope predict`: what number formats will do to a model, without a candidate and without its hardware."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from parityscope.forecast import Settings

__all__ = ["NAME", "command"]

NAME = "predict"


def command(
    model: o.ModelArgument,
    *,
    inputs: o.InputsOption = "",
    formats: Annotated[str, typer.Option(help="Formats: f16, bf16, tf32, f8e4m3, f8e5m2.")] = "f16,bf16,tf32",
    profile: Annotated[str, typer.Option(help="The engine whose fusion is simulated.")] = "none",
    outputs_only: Annotated[bool, typer.Option("--outputs-only", help="Leave the layers out.")] = False,
    preprocess: o.PreprocessOption = "",
    stacked: o.StackedOption = False,
    shapes: o.ShapesOption = None,
    samples: o.SamplesOption = None,
    seed: o.SeedOption = 0,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json or html.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .html, .json or .txt file as well.")] = None,
    memory: o.MemoryOption = "512MiB",
    quiet: o.QuietOption = False,
) -> int:
    """Predicts the error of each format at every output and layer; exit code 1 if an output would be lost."""
    from parityscope.forecast import Settings
    from parityscope.report.forecast import FORMATS, render

    if format_name not in FORMATS:
        raise ParityError(f"a forecast has no format {format_name!r}", fix=f"use one of: {', '.join(FORMATS)}")
    written = _format_of(output)
    names = [name.strip() for name in formats.split(",") if name.strip()]
    if not names:
        raise ParityError("--formats names none", fix="write --formats f16,bf16")
    settings = Settings(profile=profile, layers=not outputs_only, introduced=not outputs_only, memory=o.size_of(memory))
    with o.spool() as scratch:
        data = {"preprocess": preprocess, "stacked": stacked, "samples": samples, "seed": seed}
        document = _document(model, inputs, scratch, names, settings, shapes=shapes, data=data, quiet=quiet)
    if output is not None:
        output.write_text(render(document, written), encoding="utf-8")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    print(render(document, format_name, width=width, color=color), end="")
    if not quiet:
        verdict = "an output is lost" if document["lost"] else "no output is lost"
        print(verdict + (f"; the report is {output}" if output else ""), file=sys.stderr)
    return Exit.BEYOND if document["lost"] else Exit.WITHIN


def _document(
    path: Path,
    inputs: str,
    scratch: Path,
    names: list[str],
    settings: Settings,
    *,
    shapes: list[str] | None,
    data: dict[str, Any],
    quiet: bool,
) -> dict[str, Any]:
    import parityscope
    from parityscope.case import load_inputs, load_model
    from parityscope.forecast import forecast
    from parityscope.report.forecast import document

    model = load_model(path)
    loaded = load_inputs(model, inputs or None, spool=scratch, shapes=o.shapes_of(shapes) or None, **data)
    found = forecast(model, loaded, names, settings, progress=o.progress_for(quiet=quiet))
    line = shlex.join(["parityscope", *sys.argv[1:]])
    return document(found, model, loaded, version=parityscope.__version__, command=line)


def _format_of(output: Path | None) -> str:
    """The format that a file's suffix asks for."""
    if output is None:
        return "text"
    kinds = {".html": "html", ".json": "json", ".txt": "text"}
    if output.suffix not in kinds:
        raise ParityError(f"-o {output} has no suffix that says how to write it", fix="use .html, .json or .txt")
    if output.exists():
        raise ParityError(f"{output} exists already", where=str(output), fix="choose another -o, or remove it")
    return kinds[output.suffix]
