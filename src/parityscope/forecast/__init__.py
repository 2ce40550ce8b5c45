"""model + inputs -> Forecast: what a number format will do to a network, without the candidate and without its hardware.

The reference runs in ONNX Runtime beside its simulation in each format, sample by sample, and every tensor is measured
while both are in memory; nothing is written to disk. For each format the forecast says the error at every output and
every layer, the error that each layer introduces (`lockstep`), how far each tensor is from the ends of the format's
range, and which parameters change when they are converted (`parameters`).

What a simulation leaves out (fusion beyond the profile, narrower accumulators) is left out here too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.arithmetic import format_named
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.backends.recording import Progress, silent
from parityscope.errors import ParityError
from parityscope.forecast.lockstep import Findings, Plan, run_layers, run_outputs
from parityscope.forecast.parameters import changed_parameters
from parityscope.forecast.records import (
    LOST_ERROR,
    ChangedParameter,
    Forecast,
    FormatForecast,
    Predicted,
    Range,
)
from parityscope.forecast.words import about_format, about_reference, cause_of
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.case import Inputs, Model
    from parityscope.records import Skip

__all__ = [
    "LOST_ERROR",
    "ChangedParameter",
    "Forecast",
    "FormatForecast",
    "Predicted",
    "Range",
    "Settings",
    "forecast",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to predict.

    `profile` names the fusion that is simulated; `layers` measures every tensor and not only outputs; `introduced`
    computes what each layer adds as well, for one more inference; `memory` is in bytes.
    """

    profile: str = "none"
    layers: bool = True
    introduced: bool = True
    memory: int = 512 << 20
    threads: int = 2


def forecast(
    model: Model,
    inputs: Inputs,
    formats: Sequence[str],
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Forecast:
    """Predicts what each of `formats` ("f16", "bf16", "tf32", "f8e4m3", "f8e5m2") costs on all samples of `inputs`.

    Raises:
        ParityError: a format cannot be simulated, or the reference cannot run.
    """
    settings = settings or Settings()
    for name in formats:
        if format_named(name).name not in PRECISIONS:
            raise ParityError(f"{name} cannot be predicted", fix=f"use of: {', '.join(PRECISIONS)}")
    plan = Plan(
        model=model,
        inputs=inputs,
        targets={name: _target(name, settings.profile) for name in dict.fromkeys(formats)},
        memory=settings.memory,
        threads=settings.threads,
        introduced=settings.introduced,
    )
    started = time.perf_counter()
    layers = run_layers(plan, progress) if settings.layers else Findings()
    seconds = {"layers": time.perf_counter() - started} if settings.layers else {}
    names = [value.name for value in model.outputs]
    alone = not layers.together or any(name not in model.sites for name in names)
    outputs = run_outputs(plan, progress) if alone else layers.only(names)
    seconds["outputs"] = time.perf_counter() - started - sum(seconds.values())
    graph = model.graph()
    found = []
    for name in plan.targets:
        parameters = changed_parameters(graph, format_named(name))
        found.append(_forecast_of(name, outputs, layers, parameters, plan, progress))
    seconds["parameters"] = time.perf_counter() - started - sum(seconds.values())
    return Forecast(
        formats=tuple(found),
        ranges=(*layers.ranges.values(), *(held for name, held in outputs.ranges.items() if name not in layers.ranges)),
        samples=len(inputs),
        profile=settings.profile,
        statements=tuple(about_reference(model, outputs, layers)),
        skipped=_once([*inputs.skipped, *outputs.skipped, *layers.skipped]),
        seconds=seconds,
    )


def _forecast_of(
    name: str,
    outputs: Findings,
    layers: Findings,
    parameters: tuple[ChangedParameter, ...],
    plan: Plan,
    progress: Progress,
) -> FormatForecast:
    mine = tuple(outputs.predicted.get(name, {}).values())
    lost = tuple(one.site.tensor for one in mine if one.lost)
    rounding: dict[str, float] = {}
    if lost and name == "f16":
        # What FP16 would cost with FP32's range tells overflow and underflow from rounding.
        target = Target(backend="sim", precision=name, options=_options(plan.targets[name], range="unbounded"))
        again = run_outputs(plan.only(name, target), progress)
        rounding = {tensor: one.rel_l2 for tensor, one in again.predicted.get(name, {}).items()}
    every = tuple(layers.predicted.get(name, {}).values())
    result = FormatForecast(
        precision=name,
        outputs=mine,
        layers=every,
        parameters=parameters,
        rounding=rounding,
        cause=cause_of(format_named(name), every, parameters, layers.ranges) if lost else None,
    )
    return result.saying(tuple(about_format(result)))


def _once(skipped: list[Skip]) -> tuple[Skip, ...]:
    """Each only once: every chunk says what its sessions lack."""
    return tuple({(skip.what, skip.reason): skip for skip in skipped}.values())


def _target(name: str, profile: str) -> Target:
    return Target(backend="sim", precision=name, options=() if profile == "none" else (("profile", profile),))


def _options(target: Target, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**dict(target.options), **more}.items()))
