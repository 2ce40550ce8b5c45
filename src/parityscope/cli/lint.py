"""`parityscope lint`: what can be known from a model's file alone, without inputs and without a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._network_options import NetworkOption
from parityscope.cli.shell.contained import contain_work
from parityscope.cli.shell.progress import name_caller
from parityscope.errors import Exit, ParityError
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.api.shared.files import NetworkAsked
    from parityscope.cli.shell.answering import Answer

NAME = "lint"

_GRAVEST_FIRST = (Exit.BEYOND, Exit.INCOMPLETE)


def command(
    model: o.ModelArgument,
    others: Annotated[list[Path] | None, typer.Argument(help="More models, each as text.", show_default=False)] = None,
    *,
    formats: Annotated[str, typer.Option(help="Formats it is meant for: f16, bf16, f8e4m3, f8e5m2.")] = "f16,bf16",
    network: NetworkOption = "",
    shapes: o.ShapesOption = None,
    answer: Answer,
) -> int:
    """Reads a model's file and tells what will break in lower precision; exit code 1 if something will."""
    from parityscope.report.lint import FORMS

    answer.claim(FORMS)
    if others:
        _refuse_single(network, answer)
        found = {_tell_findings(each, formats, answer) for each in (model, *others)}
        return next((status for status in _GRAVEST_FIRST if status in found), Exit.WITHIN)
    if not network:
        return _tell_findings(model, formats, answer)
    from parityscope.api.shared.files import NetworkAsked

    asked = NetworkAsked(target=network, shapes=o.shapes_of(shapes))
    with scratch_folder("network") as scratch:
        log = Path(scratch, "build.log")
        return contain_work(lambda: _tell_findings(model, formats, answer, asked, log), log, "TensorRT")


def _refuse_single(network: str, answer: Answer) -> None:
    """Refuses what is for one model alone."""
    other = answer.format_name != "text"
    given = (
        *(("--network", network), ("-o", answer.output), ("--study", answer.kept)),
        (f"--format {answer.format_name}", other),
    )
    for option, value in given:
        if value:
            raise ParityError(f"{option} is for one model, and several are given", fix="lint one after the other")


def _tell_findings(
    model: Path, formats: str, answer: Answer, network: NetworkAsked | None = None, log: Path | None = None
) -> int:
    from parityscope.api.shared.files import report_lint

    found = report_lint(model, o.formats_of(formats), network, log=log, caller=name_caller(quiet=answer.quiet))
    answer.hand_over(found.forms, found.document)
    answer.summarize(", ".join(f"{count} {role}" for role, count in found.document["counts"].items()))
    return found.exit
