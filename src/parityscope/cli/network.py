"""`parityscope network`: what TensorRT makes of an ONNX file, parsed and built without a GPU and without a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._output import check_report_file, command_line, hand_over
from parityscope.errors import Exit

__all__ = ["NAME", "command"]

NAME = "network"


def command(
    model: o.ModelArgument,
    *,
    shapes: o.ShapesOption = None,
    product: Annotated[str, typer.Option(help="tensorrt or rtx [the first that is installed].")] = "",
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let products round to TF32, as trtexec does by default.")
    ] = False,
    keep_log: Annotated[Path | None, typer.Option(help="Keep the builder's verbose log here.")] = None,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json or html.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .html, .json or .txt file as well.")] = None,
    quiet: o.QuietOption = False,
) -> int:
    """Parses and builds a model with TensorRT and tells what became of every node; exit code 1 if it is refused."""
    import parityscope
    from parityscope.backends.tensorrt_views import find_in_view, find_package, network_view
    from parityscope.report.network import FORMS, document

    FORMS.check(format_name)
    check_report_file(output, "-o")
    view = network_view(model, find_package(product), shapes=o.shapes_of(shapes), tf32=tf32, log_file=keep_log)
    held = document(view, find_in_view(view), model=model, version=parityscope.__version__, command=command_line())
    hand_over(FORMS, held, format_name, output)
    if not quiet:
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(held["fates"].items()))
        print(fates + (f"; the report is {output}" if output else ""), file=sys.stderr)
    return Exit.BEYOND if view.problem else Exit.WITHIN
