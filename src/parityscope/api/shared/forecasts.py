"""What number formats will do to a model, without a candidate: the whole forecast, and a first look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.api.shared.files import NetworkAsked, report_lint, report_network
from parityscope.case import load_model
from parityscope.case.beside import SAMPLES, samples_beside
from parityscope.errors import Exit, ParityError
from parityscope.expectation.forecasting import ForecastSettings, forecast
from parityscope.private_folders import scratch_folder
from parityscope.report.forecast import forecast_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import Forecast
    from parityscope.request import Data

_LOOKED_AT = ("f16", "bf16")
_GENERATED = 2  # samples where none are given or found; chosen: one alone may be the odd one


def report_forecast(
    path: Path,
    data: Data,
    formats: Sequence[str],
    settings: ForecastSettings,
    *,
    network: str = "",
    log: Path | None = None,
    caller: Caller = PYTHON,
) -> Report[Forecast]:
    """What each of `formats` will do; with a target of TensorRT as `network` also what that makes of the model.

    The builder's log is written to `log`.

    Raises:
        ParityError: bad input, or a format or profile that there is not.
    """
    from parityscope.report.forecast import FORMS

    model = load_model(path)
    with scratch_folder("spool") as scratch:
        loaded = data.load_samples(model, Path(scratch))
        found = forecast(model, loaded, list(formats), settings, progress=caller.progress)
        document = forecast_document(found, model, loaded, command=caller.command)
        if network and log is not None:
            document |= _network_of(path, network, loaded, document, log, caller)
    return Report(document=document, record=found, forms=FORMS, exit=_exit_of(document))


def _exit_of(document: Mapping[str, Any]) -> Exit:
    """Beyond if an output would be lost, incomplete if something that was asked for was not judged."""
    unjudged = any(skip["asked"] for skip in document["skipped"])
    return Exit.BEYOND if document["lost"] else Exit.INCOMPLETE if unjudged else Exit.WITHIN


def _network_of(
    path: Path, target: str, loaded: Inputs, held: Mapping[str, Any], log: Path, caller: Caller
) -> dict[str, Any]:
    """What TensorRT makes of the model, for the samples' shapes: its document, and a statement of each thing that matters."""
    sizes = tuple({name: array.shape for name, array in sample.arrays.items()} for sample in loaded)
    seen = report_network(path, NetworkAsked(target=target, sizes=sizes), log=log, caller=caller)
    network = seen.document
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(network["fates"].items()))
    said = [f"{network['built_by']} builds it: {fates}"] if not network["problem"] else []
    said += [f"{one.code} {one.title}: {one.claim}" for one in seen.findings]
    return {"network": network, "statements": [*held["statements"], *said]}


def report_look(path: Path, data: Data, *, caller: Caller = PYTHON) -> Report[Forecast]:
    """What FP16 and BF16 would do to a model and what its file says, on samples that are given, lie beside it, or are generated.

    Raises:
        ParityError: the model or the samples cannot be read.
    """
    from parityscope.report.model_alone import FORMS

    unread = "--preprocess" if data.preprocess else "--stacked" if data.stacked else ""
    if unread and not data.inputs:
        raise ParityError(f"{unread} says how data is read, and none is given", fix="give it: --inputs DATA")
    with scratch_folder("spool") as scratch:
        model = load_model(path)
        taken = _take_samples(model, data, Path(scratch))
        document, found = _look_document(model, taken, data, caller)
    return Report(document=document, record=found, forms=FORMS, exit=_exit_of(document))


def _take_samples(model: Model, data: Data, scratch: Path) -> Inputs:
    if not data.inputs and not data.shapes and (data.samples is None or data.samples > 0):
        most = SAMPLES if data.samples is None else data.samples
        if (found := samples_beside(model, scratch / "beside", data.memory, most)) is not None:
            return found
    generated = data.samples is None and not data.inputs
    return (replace(data, samples=_GENERATED) if generated else data).load_samples(model, scratch / "data")


def _look_document(model: Model, taken: Inputs, data: Data, caller: Caller) -> tuple[dict[str, Any], Forecast]:
    """The forecast of both formats with what the file says; `data` of it is what the next command would be given."""
    said = report_lint(model.path, _LOOKED_AT, caller=caller).document
    found = forecast(model, taken, _LOOKED_AT, ForecastSettings(memory=data.memory, draws=1), progress=caller.progress)
    beside = next((str(model.path.parent / name) for name in [next(iter(taken)).name] if name.endswith(".npz")), "")
    given = data.inputs if isinstance(data.inputs, str | Path) and data.inputs else beside
    read = {one: getattr(data, one) for one in ("preprocess", "stacked", "samples", "seed")}
    held = forecast_document(found, model, taken, command=caller.command)
    return {**held, "lint": said, "data": {"inputs": str(given or "DATA"), **read, "shapes": dict(data.shapes)}}, found
