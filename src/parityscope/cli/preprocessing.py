"""`parityscope preprocessing`: two preprocessings on the same images, step by step, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

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
    from parityscope.checks.preparing import compare_files
    from parityscope.report.preprocessing import FORMS, preprocessing_document

    answer.claim(FORMS)
    found = compare_files(reference, candidate, images, samples)
    answer.hand_over(FORMS, preprocessing_document(found))
    answer.summarize(f"{'they part' if found.first else 'they agree'} on {found.images} images")
    return Exit.BEYOND if found.first else Exit.WITHIN
