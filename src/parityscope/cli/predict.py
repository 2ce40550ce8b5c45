"""`parityscope predict`: what number formats will do to a model, without a candidate and without its hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._network_view import NetworkOption, NetworkWords, view_network
from parityscope.cli.shell.contained import contain_work
from parityscope.cli.shell.output import command_line, exit_of_forecast
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit

if TYPE_CHECKING:
    from parityscope.case import Inputs
    from parityscope.cli.shell.answering import Answer
    from parityscope.expectation.forecasting import ForecastSettings

__all__ = ["NAME", "command"]

NAME = "predict"

_LOG = "build.log"
_VERDICTS = {
    Exit.BEYOND: "an output is lost",
    Exit.INCOMPLETE: "no output is lost as far as could be judged",
    Exit.WITHIN: "no output is lost",
}


def command(
    model: o.ModelArgument,
    *,
    data: o.Data,
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

    def work(scratch: Path) -> int:
        document = _predict_document(model, data, scratch, names, settings, network=network, quiet=answer.quiet)
        answer.hand_over(FORMS, document)
        status = exit_of_forecast(document)
        answer.summarize(_VERDICTS[status])
        return status

    with o.spool_folder() as scratch:
        return contain_work(lambda: work(scratch), scratch / _LOG, "TensorRT") if network else work(scratch)


def _predict_document(
    path: Path,
    data: o.Data,
    scratch: Path,
    names: list[str],
    settings: ForecastSettings,
    *,
    network: str,
    quiet: bool,
) -> dict[str, Any]:
    from parityscope.case import load_model
    from parityscope.expectation.forecasting import forecast
    from parityscope.report.forecast import forecast_document
    from parityscope.version import __version__

    model = load_model(path)
    loaded = data.load(model, scratch)
    found = forecast(model, loaded, names, settings, progress=progress_for(quiet=quiet))
    held = forecast_document(found, model, loaded, version=__version__, command=command_line())
    return held | _network_of(path, network, loaded, held, scratch / _LOG) if network else held


def _network_of(path: Path, target: str, loaded: Inputs, held: dict[str, Any], log: Path) -> dict[str, Any]:
    """What TensorRT makes of the model, for the samples' shapes: its document, and a statement of each thing that matters."""
    from parityscope.version import __version__

    sizes = tuple({name: array.shape for name, array in sample.arrays.items()} for sample in loaded)
    asked = NetworkWords(candidate=target, sizes=sizes)
    network, findings = view_network(path, asked, version=__version__, command=command_line(), log=log)
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(network["fates"].items()))
    said = [f"{network['built_by']} builds it: {fates}"] if not network["problem"] else []
    said += [f"{one.code} {one.title}: {one.claim}" for one in findings]
    return {"network": network, "statements": [*held["statements"], *said]}
