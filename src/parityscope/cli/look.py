"""`parityscope look MODEL`, or `parityscope MODEL`: what can be known of a model before it is deployed anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller
from parityscope.request import Data

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "look"


def command(
    model: o.ModelArgument,
    *,
    data: Data,
    answer: Answer,
    inputs: Annotated[
        str, typer.Option(help="Real samples: .npz, a folder, ... [what fits beside the model, else generated].")
    ] = "",
) -> int:
    """Tells what FP16 and BF16 would do to a model and what its file says; 1 if an output would be lost."""
    from parityscope.api.shared.forecasts import report_look
    from parityscope.report.model_alone import FORMS

    answer.claim(FORMS)
    found = report_look(model, replace(data, inputs=inputs), caller=name_caller(quiet=answer.quiet))
    answer.hand_over(FORMS, found.document)
    return found.exit
