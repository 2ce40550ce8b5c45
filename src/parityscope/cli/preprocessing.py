"""`parityscope preprocessing`: two preprocessings on the same images, step by step, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "preprocessing"


def command(
    reference: Annotated[str, typer.Argument(help="file.py:function, or a recipe (.toml).", show_default=False)],
    candidate: Annotated[str, typer.Argument(help="The deployment's, likewise.", show_default=False)],
    *,
    images: Annotated[Path, typer.Option(help="A folder of images.")],
    samples: o.SamplesOption = None,
    answer: Answer,
) -> int:
    """Says at which step two preprocessings part, and what is done differently there; exit code 1 if they part."""
    from parityscope.api.shared.machine import report_preprocessing
    from parityscope.report.preprocessing import FORMS

    answer.claim(FORMS)
    found = report_preprocessing(reference, candidate, images, samples)
    answer.hand_over(FORMS, found.document)
    agree = "they agree" if found.record.first is None else "they part"
    answer.summarize(f"{agree} on {found.record.images} images")
    return found.exit
