"""`parityscope log`: what logs of TensorRT, trtexec and Polygraphy say, of one build or of two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli.shell.output import claim_file
from parityscope.cli.shell.progress import name_caller

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "log"


def command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A log of trtexec, Polygraphy or TensorRT, or an engine's layers (trtexec --exportLayerInfo).",
            show_default=False,
        ),
    ],
    other: Annotated[Path | None, typer.Argument(help="Another build's, to compare with.")] = None,
    *,
    answer: Answer,
    profile: Annotated[
        list[Path] | None,
        typer.Option(help="Times of layers (trtexec --exportProfile), once for each FILE."),
    ] = None,
    node_times: Annotated[
        Path | None, typer.Option(help="With two builds: each node's times, for `repair --profile` (.json).")
    ] = None,
) -> int:
    """Reads logs of TensorRT builds and explains what matters in them; exit code 1 if there is a cause."""
    from parityscope.api.shared.files import report_log
    from parityscope.report.log import FORMS

    answer.claim(FORMS)
    claim_file(node_times, "--node-times")
    caller = name_caller(quiet=answer.quiet)
    found = report_log(file, other, profiles=profile or [], node_times=node_times, caller=caller)
    answer.hand_over(FORMS, found.document)
    answer.summarize(", ".join(f"{count} {role}" for role, count in found.document["counts"].items()))
    return found.exit
