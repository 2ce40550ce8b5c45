"""model + inputs -> Forecast: what a number format will do to a network, without the candidate and without its hardware.

The reference runs in ONNX Runtime beside its simulation in each format, sample by sample, and every tensor is measured
while both are in memory; nothing is written to disk. For each format the forecast says the error at every output and
every layer, the error that each layer introduces (`lockstep`), how far each tensor is from the ends of the format's
range, and which parameters change when they are converted (`parameters`).

What a simulation leaves out (fusion beyond the profile, narrower accumulators) is left out here too.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import QUANTIZED, known_format
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.backends.calibrating import calibrate_magnitudes, quantized_target
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.errors import ParityError
from parityscope.expectation.drawing import SharedDraws, drawn_errors, drawn_outputs
from parityscope.expectation.forecasts import ChangedParameter, Forecast, FormatForecast, Predicted
from parityscope.expectation.lockstep import Findings, LockstepPlan, run_layers, run_outputs
from parityscope.expectation.parameters import changed_parameters
from parityscope.expectation.words import about_format, about_reference, cause_of
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.memory import allow_memory
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.case import Inputs, Model


# Elements of an output, over all samples, up to which one draw says little about its error; the same bound as for the
# tensors whose relative error is compared with engines' (docs/fidelity.md).
_FEW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """How to predict.

    `profile` names the fusion that is simulated; `dynamic_range` the largest magnitude of each activation, for quantized
    products (none given: the samples' own); `layers` measures every tensor and not only outputs; `introduced`
    computes what each layer adds as well, for one more inference; `memory` is in bytes; `draws` are those of the
    rounding of outputs of few numbers, the first of them on the samples as they are.
    """

    profile: str = "none"
    dynamic_range: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    layers: bool = True
    introduced: bool = True
    memory: int = 512 << 20
    threads: int = 2
    draws: int = 9


def forecast(
    model: Model,
    inputs: Inputs,
    formats: Sequence[str],
    settings: ForecastSettings | None = None,
    progress: Progress = ignore_progress,
) -> Forecast:
    """Predicts what each of `formats` ("f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "int8", "fp8") costs on all samples.

    Raises:
        ParityError: a format cannot be simulated, or the reference cannot run.
    """
    settings = settings or ForecastSettings()
    allow_memory(settings.memory)
    for name in formats:
        if known_format(name).name not in {*PRECISIONS, *QUANTIZED}:
            raise ParityError(f"{name} cannot be predicted", fix=f"use one of: {', '.join([*PRECISIONS, *QUANTIZED])}")
    plan = LockstepPlan(
        model=model,
        inputs=inputs,
        targets={name: _target_of_format(name, settings.profile) for name in dict.fromkeys(formats)},
        threads=settings.threads,
        introduced=settings.introduced,
    )
    started = time.perf_counter()
    if QUANTIZED.keys() & plan.targets.keys():
        plan = _calibrate_plan(plan, settings, progress)
    layers = run_layers(plan, progress) if settings.layers else Findings()
    seconds = {"layers": time.perf_counter() - started} if settings.layers else {}
    names = [value.name for value in model.outputs]
    alone = not settings.layers or any(name not in model.sites for name in names)
    outputs = run_outputs(plan, progress) if alone else layers.only(names)
    seconds["outputs"] = time.perf_counter() - started - sum(seconds.values())
    graph = model.shared_graph()
    found = []
    known = SharedDraws()
    for name in plan.targets:
        parameters = changed_parameters(graph, known_format(name))
        found.append(_forecast_of(name, outputs, layers, parameters, plan, settings, progress, known))
    seconds["parameters"] = time.perf_counter() - started - sum(seconds.values())
    return Forecast(
        formats=tuple(found),
        ranges=(*layers.ranges.values(), *(held for name, held in outputs.ranges.items() if name not in layers.ranges)),
        samples=len(inputs),
        profile=settings.profile,
        statements=tuple(about_reference(model, graph, outputs, layers)),
        skipped=_without_repeats(
            [*_skips_of_unjudged(plan, outputs), *inputs.not_judged, *outputs.skipped, *layers.skipped]
        ),
        seconds=seconds,
    )


def _forecast_of(
    name: str,
    outputs: Findings,
    layers: Findings,
    parameters: tuple[ChangedParameter, ...],
    plan: LockstepPlan,
    settings: ForecastSettings,
    progress: Progress,
    known: SharedDraws,
) -> FormatForecast:
    mine = _add_draws(name, tuple(outputs.predicted.get(name, {}).values()), plan, settings, progress, known)
    lost = tuple(one.site.tensor for one in mine if one.lost)
    rounding: dict[str, float] = {}
    if lost and name == "f16":
        # What FP16 would cost with FP32's range tells overflow and underflow from rounding.
        target = Target(backend="sim", precision=name, options=_merge_options(plan.targets[name], range="unbounded"))
        again = run_outputs(plan.only(name, target), progress)
        rounding = {tensor: one.rel_l2 for tensor, one in again.predicted.get(name, {}).items()}
    every = tuple(layers.predicted.get(name, {}).values())
    result = FormatForecast(
        precision=name,
        outputs=mine,
        layers=every,
        parameters=parameters,
        rounding=rounding,
        cause=cause_of(known_format(name), every, parameters, layers.ranges) if lost else None,
    )
    return result.saying(tuple(about_format(result)))


def _add_draws(
    name: str,
    outputs: tuple[Predicted, ...],
    plan: LockstepPlan,
    settings: ForecastSettings,
    progress: Progress,
    known: SharedDraws,
) -> tuple[Predicted, ...]:
    """The outputs, those of few numbers with the errors of further draws."""
    few = [
        one.site.tensor for one in outputs if not one.exact and not one.lost and 0 < one.elements <= _FEW and one.rel_l2
    ]
    if not few or settings.draws < 2 or name in QUANTIZED:
        return outputs
    draws = settings.draws - 1
    drawn = drawn_outputs(
        plan.model,
        plan.inputs,
        plan.inputs.indices,
        name,
        few,
        draws,
        bounded=True,
        profile=settings.profile,
        progress=progress,
        known=known,
    )
    found = drawn_errors(drawn, few, draws)
    return tuple(replace(one, drawn=tuple(found.get(one.site.tensor, ()))) for one in outputs)


def _calibrate_plan(plan: LockstepPlan, settings: ForecastSettings, progress: Progress) -> LockstepPlan:
    """The plan with the scales of quantized products."""
    largest = settings.dynamic_range or calibrate_magnitudes(
        plan.model, plan.inputs, memory=settings.memory, progress=progress
    )
    targets = {
        name: quantized_target(name, largest) if name in QUANTIZED else target for name, target in plan.targets.items()
    }
    return replace(plan, targets=targets)


def _skips_of_unjudged(plan: LockstepPlan, outputs: Findings) -> Iterator[Skip]:
    """The outputs of which no format could be judged: that none of them is lost says nothing."""
    for name in (value.name for value in plan.model.outputs):
        found = [each[name] for each in outputs.predicted.values() if name in each]
        held = outputs.ranges.get(name)
        if len(found) < len(plan.targets):
            reason = "it was not measured in every format"
        elif any(not one.elements for one in found):
            reason = "it has no elements on these samples"
        elif held is not None and held.nonfinite and held.nonfinite == held.elements:
            reason = "all its values are NaN or infinite in the reference"
        else:
            continue
        fix = "give samples on which it has finite values: --inputs DATA"
        yield Skip(what=f"prediction of output {name!r}", reason=reason, fix=fix, asked=True)


def _without_repeats(skipped: list[Skip]) -> tuple[Skip, ...]:
    """Each only once: every chunk says what its sessions lack."""
    return tuple({(skip.what, skip.reason): skip for skip in skipped}.values())


def _target_of_format(name: str, profile: str) -> Target:
    return Target(backend="sim", precision=name, options=() if profile == "none" else (("profile", profile),))


def _merge_options(target: Target, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**dict(target.options), **more}.items()))
