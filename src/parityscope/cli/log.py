"""`parityscope log`: what logs of TensorRT, trtexec and Polygraphy say, of one build or of two."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._output import check_report_file, command_line, hand_over
from parityscope.errors import Exit

__all__ = ["NAME", "command"]

NAME = "log"

_EXITS = {"within": Exit.WITHIN, "beyond": Exit.BEYOND, "incomplete": Exit.INCOMPLETE}


def command(
    file: Annotated[Path, typer.Argument(help="A log of trtexec, Polygraphy or TensorRT.", show_default=False)],
    other: Annotated[Path | None, typer.Argument(help="Another build's log, to compare with.")] = None,
    *,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json or html.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .html, .json or .txt file as well.")] = None,
    quiet: o.QuietOption = False,
) -> int:
    """Reads logs of TensorRT builds and explains what matters in them; exit code 1 if there is a cause."""
    import parityscope
    from parityscope.logs import compare_logs, find, find_pair, read_log
    from parityscope.report.log import FORMS, document

    FORMS.check(format_name)
    check_report_file(output, "-o")
    log = read_log(file)
    pair = compare_logs(log, read_log(other)) if other is not None else None
    findings = find_pair(pair) if pair else find(log)
    held = document(log, findings, version=parityscope.__version__, command=command_line(), pair=pair)
    hand_over(FORMS, held, format_name, output)
    if not quiet:
        counts = ", ".join(f"{count} {role}" for role, count in held["counts"].items())
        print(counts + (f"; the report is {output}" if output else ""), file=sys.stderr)
    return _EXITS[held["verdict"]]
