"""`parityscope predict`: what number formats will do to a model, without a candidate and without its hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._network_options import NetworkOption
from parityscope.cli.shell.contained import contain_work
from parityscope.cli.shell.progress import name_caller
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder
from parityscope.request import Data

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "predict"

_VERDICTS = {
    Exit.BEYOND: "an output is lost",
    Exit.INCOMPLETE: "no output is lost as far as could be judged",
    Exit.WITHIN: "no output is lost",
}


def command(
    model: o.ModelArgument,
    *,
    data: Data,
    answer: Answer,
    formats: Annotated[
        str, typer.Option(help="Formats: f16, bf16, tf32, f8e4m3, f8e5m2, int8, fp8.")
    ] = "f16,bf16,tf32",
    dynamic_range: Annotated[
        str, typer.Option(help="For int8 and fp8: calibration.cache or JSON; else what the inputs reach.")
    ] = "",
    profile: Annotated[str, typer.Option(help="The engine whose fusion is simulated.")] = "none",
    network: NetworkOption = "",
    outputs_only: Annotated[bool, typer.Option("--outputs-only", help="Leave the layers out.")] = False,
    draws: Annotated[int, typer.Option(min=1, help="Draws of the rounding of outputs of few numbers.")] = 9,
) -> int:
    """Predicts the error of each format at every output and layer; 1 if an output would be lost, 3 if not judged."""
    from parityscope.api.shared.forecasts import report_forecast
    from parityscope.case.formats.dynamic_ranges import dynamic_ranges
    from parityscope.expectation.forecasting import ForecastSettings
    from parityscope.report.forecast import FORMS

    answer.claim(FORMS)
    names = o.formats_of(formats)
    settings = ForecastSettings(
        profile=profile,
        dynamic_range=dynamic_ranges(dynamic_range) if dynamic_range else {},
        layers=not outputs_only,
        introduced=not outputs_only,
        memory=data.memory,
        draws=draws,
    )

    def work(log: Path | None = None) -> int:
        caller = name_caller(quiet=answer.quiet)
        found = report_forecast(model, data, names, settings, network=network, log=log, caller=caller)
        answer.hand_over(FORMS, found.document)
        answer.summarize(_VERDICTS[found.exit])
        return found.exit

    if not network:
        return work()
    with scratch_folder("network") as scratch:
        log = Path(scratch, "build.log")
        return contain_work(lambda: work(log), log, "TensorRT")
