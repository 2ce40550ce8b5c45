"""`parityscope report`: renders a study again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import claim_file
from parityscope.errors import Exit
from parityscope.report.forms import format_of_file
from parityscope.whole_files import write_whole

NAME = "report"


def command(
    study: Annotated[Path, typer.Argument(help="The folder of a study.", show_default=False)],
    *,
    format_name: o.FormatOption = "",
    ladder: o.LadderOption = False,
    whole: o.AllOption = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A file instead of stdout, written as it ends."),
    ] = None,
) -> int:
    """Renders a study as text, json, html or an overlay for a model viewer."""
    from parityscope.cli._delivery import show_document
    from parityscope.report import renderer_named
    from parityscope.report.kinds import KINDS, forms_of
    from parityscope.study import as_written, load_study, name_files_from_here

    claim_file(output, "-o")
    format_name = format_name or format_of_file(output) or "text"
    held = load_study(study, kinds=("", *KINDS))
    document, folder = dict(held.document), held.folder or study
    with as_written(study):
        if forms := forms_of(document):
            text = forms.render(document, format_name)
            print(text, end="") if output is None else write_whole(output, text)
        elif output is None:
            show_document(document, renderer_named(format_name).name, folder, ladder=ladder, whole=whole)
        else:
            write_whole(output, renderer_named(format_name).render(name_files_from_here(document, folder)))
    return Exit.WITHIN
