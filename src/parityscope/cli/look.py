"""`parityscope look MODEL`, or `parityscope MODEL`: what can be known of a model before it is deployed anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line, exit_of_forecast
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from parityscope.case import Inputs, Model
    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

NAME = "look"

_FORMATS = ("f16", "bf16")
_GENERATED = 2  # samples where none are given or found; chosen: one alone may be the odd one


def command(
    model: o.ModelArgument,
    *,
    data: o.Data,
    answer: Answer,
    inputs: Annotated[
        str, typer.Option(help="Real samples: .npz, a folder, ... [what fits beside the model, else generated].")
    ] = "",
) -> int:
    """Tells what FP16 and BF16 would do to a model and what its file says; 1 if an output would be lost."""
    from parityscope.case import load_model
    from parityscope.case.beside import SAMPLES, samples_beside
    from parityscope.report.model_alone import FORMS

    answer.claim(FORMS)
    unread = "--preprocess" if data.preprocess else "--stacked" if data.stacked else ""
    if unread and not inputs:
        raise ParityError(f"{unread} says how data is read, and none is given", fix="give it: --inputs DATA")
    with o.spool_folder() as scratch:
        loaded = load_model(model)
        taken = None
        if not inputs and not data.shapes and (data.samples is None or data.samples > 0):
            most = SAMPLES if data.samples is None else data.samples
            taken = samples_beside(loaded, scratch / "beside", data.memory, most)
        if taken is None:
            generated = data.samples is None and not inputs
            taken = (replace(data, samples=_GENERATED) if generated else data).load(loaded, scratch / "data")
        document = _look_document(loaded, taken, inputs, data.memory, quiet=answer.quiet)
    answer.hand_over(FORMS, document)
    return exit_of_forecast(document)


def _look_document(model: Model, taken: Inputs, given: str, nbytes: int, *, quiet: bool) -> dict[str, Any]:
    """The forecast of both formats with what the file says; `data` is what the next command would be given."""
    from parityscope.expectation.forecasting import ForecastSettings, forecast
    from parityscope.linting import lint
    from parityscope.report.forecast import forecast_document
    from parityscope.report.lint import lint_document
    from parityscope.version import __version__

    words = {"version": __version__, "command": command_line()}
    said = lint_document(lint(model.path, _FORMATS, loaded=True), **words)
    settings = ForecastSettings(memory=nbytes, draws=1)
    found = forecast(model, taken, _FORMATS, settings, progress=progress_for(quiet=quiet))
    data = given or next(
        (str(model.path.parent / name) for name in [next(iter(taken)).name] if name.endswith(".npz")), ""
    )
    return {**forecast_document(found, model, taken, **words), "lint": said, "data": data}
