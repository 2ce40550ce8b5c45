"""`parityscope lint`: what can be known from a model's file alone, without inputs and without a run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "lint"

_EXITS = {"within": Exit.WITHIN, "beyond": Exit.BEYOND, "incomplete": Exit.INCOMPLETE}


def command(
    model: o.ModelArgument,
    *,
    formats: Annotated[str, typer.Option(help="Formats it is meant for: f16, bf16, f8e4m3, f8e5m2.")] = "f16,bf16",
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json or html.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .html, .json or .txt file as well.")] = None,
    quiet: o.QuietOption = False,
) -> int:
    """Reads a model's file and tells what will break in lower precision; exit code 1 if something will."""
    import parityscope
    from parityscope.lint import lint
    from parityscope.report.lint import FORMATS, document, render

    if format_name not in FORMATS:
        raise ParityError(f"lint has no format {format_name!r}", fix=f"use one of: {', '.join(FORMATS)}")
    written = _format_of(output)
    names = [name.strip() for name in formats.split(",") if name.strip()]
    if not names:
        raise ParityError("--formats names none", fix="write --formats f16,bf16")
    found = lint(model, names)
    held = document(found, version=parityscope.__version__, command=shlex.join(["parityscope", *sys.argv[1:]]))
    if output is not None:
        output.write_text(render(held, written), encoding="utf-8")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    print(render(held, format_name, width=width, color=color), end="")
    if not quiet:
        counts = ", ".join(f"{count} {role}" for role, count in held["counts"].items())
        print(counts + (f"; the report is {output}" if output else ""), file=sys.stderr)
    return _EXITS[held["verdict"]]


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
