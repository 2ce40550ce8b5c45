"""model + inputs -> Forecast: what a number format will do to a network, without the candidate and without its hardware.

The reference runs in ONNX Runtime beside its simulation in each format, sample by sample, and every tensor is measured
while both are in memory; nothing is written to disk. For each format the forecast says the error at every output and
every layer, the error that each layer introduces (`lockstep`), how far each tensor is from the ends of the format's
range, and which parameters change when they are converted (`parameters`).

What a simulation leaves out (fusion beyond the profile, narrower accumulators) is left out here too.

What a forecast says in sentences, and the cause it gives for an output that is lost.
"""

from __future__ import annotations

import math
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic.detyping import HALF
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import QUANTIZED, known_format
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.backends.calibrating import calibrate_magnitudes, quantized_target
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.errors import ParityError
from parityscope.expectation.drawing import SharedDraws, drawn_errors, drawn_outputs
from parityscope.expectation.forecasts import Cause, ChangedParameter, Forecast, FormatForecast, Predicted
from parityscope.expectation.lockstep import Findings, LockstepPlan, run_layers, run_outputs
from parityscope.expectation.parameters import changed_parameters
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.memory import allow_memory
from parityscope.plain_numbers import format_number
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import MagnitudeRange

_LEADING = 8  # chosen: layers that are asked for a reason before rounding is taken to be one
_NAMED = 3
# Elements of an output, over all samples, up to which one draw says little about its error; the same bound as for the
# tensors whose relative error is compared with engines' (docs/fidelity.md).
_FEW = 64


def _cause_of(
    number_format: Format,
    layers: Sequence[Predicted],
    parameters: Sequence[ChangedParameter],
    ranges: Mapping[str, MagnitudeRange],
) -> Cause | None:
    """Why an output is lost: the first of the layers that introduce most which a format's range breaks, or rounding.

    No layer behind the first that is not finite is the cause, nor is one of finite error that comes before it.
    """
    first = min((one for one in layers if one.nonfinite), key=lambda one: one.site.index, default=None)
    leading = sorted(
        (one for one in layers if one.introduced and (first is None or one.site.index <= first.site.index)),
        key=lambda one: (-(one.introduced or 0), one.site.index),
    )
    for layer in leading[:_LEADING]:
        broken = next((one for one in parameters if one.overflowed and layer.site.node in one.nodes), None)
        if broken is not None:
            return Cause(
                kind="parameter", site=layer.site, text=_broken_parameter(number_format, broken), parameter=broken.name
            )
        held = ranges.get(layer.site.tensor)
        if held is not None and held.to_overflow(number_format) < 0:
            text = (
                f"{number_format.title} overflows at {_describe_place(layer)}: it reaches {format_number(held.largest)}, beyond "
                f"{format_number(number_format.largest)}"
            )
            return Cause(kind="activation", site=layer.site, text=text)
    if first is not None:
        text = (
            f"{number_format.title} gives NaN or infinity first at {_describe_place(first)}: {first.nonfinite:,} of "
            f"{first.elements:,} elements"
        )
        return Cause(kind="nonfinite", site=first.site, text=text)
    if leading:
        text = (
            f"{number_format.title} loses most at {_describe_place(leading[0])}, which adds "
            f"{_format_error(leading[0].introduced)}"
        )
        return Cause(kind="rounding", site=leading[0].site, text=text)
    return None


def _about_format(found: FormatForecast) -> Iterator[str]:
    """One format in sentences: the cause, the outputs, what else leaves the range."""
    number_format = known_format(found.precision)
    title = number_format.title
    if not any(not output.exact for output in (*found.outputs, *found.layers)):
        yield f"The model computes no floating-point tensor: {title} changes nothing that was measured."
    if found.cause is not None:
        yield found.cause.text + "."
    for output in found.outputs:
        yield _about_output(output, title, found.rounding.get(output.site.tensor))
    told = found.cause.parameter if found.cause else ""
    beyond = [one for one in found.parameters if one.overflowed and one.name != told]
    for parameter in beyond[:_NAMED]:
        yield _broken_parameter(number_format, parameter) + "."
    if len(beyond) > _NAMED:
        yield f"{len(beyond) - _NAMED} more parameters are beyond {title}'s range."


def _about_reference(model: Model, graph: ir.Model, outputs: Findings, layers: Findings) -> Iterator[str]:
    """What is true whatever the format: types of the file's own, a reference that overflows, outputs of nothing but zeros.

    `graph` is the model's, whose types are inferred.
    """
    if narrow := _count_narrow_tensors(graph):
        yield (
            f"{narrow:,} of the file's own tensors are float16 or bfloat16. ONNX Runtime computes them in FP32 on a CPU, so that "
            "the reference lacks their roundings and what overflows in them; every prediction has both."
        )
    ranges = {**layers.ranges, **outputs.ranges}
    broken = [held for held in ranges.values() if held.nonfinite]
    if broken:
        first = min(broken, key=lambda held: held.site.index)
        yield (
            f"The reference itself holds {first.nonfinite:,} NaN or infinite elements at {first.site.tensor!r} (the first "
            f"of {len(broken)} such tensors): elements that are so on both sides count as equal."
        )
    for value in model.outputs:
        held = outputs.ranges.get(value.name)
        if held is not None and held.elements == 0:
            yield f"Output {value.name!r} is empty on these samples."
        elif held is not None and held.zeros == held.elements:
            yield f"Output {value.name!r} is all zeros in the reference: any error there is infinite relative to it."


def _count_narrow_tensors(graph: ir.Model) -> int:
    """How many tensors nodes compute in 16 bits by the model's own types."""
    infer_types(graph)
    return sum(
        value.dtype in HALF for node in graph.graph.all_nodes() for value in node.outputs if value.type is not None
    )


def _format_error(value: float | None) -> str:
    """A relative error in words."""
    return "NaN or infinity" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _about_output(output: Predicted, title: str, rounding: float | None) -> str:
    name = f"Output {output.site.tensor!r}"
    if output.exact:
        return f"{name} {'is lost' if output.lost else 'is predicted'} in {title}: {output.rel_l2:.3g} of its elements differ."
    if output.nonfinite:
        count = f"{output.nonfinite:,} of {output.elements:,} elements become NaN or infinite"
        return f"{name} is lost in {title}: {count}{_describe_rounding_alone(rounding)}."
    said = f"relative L2 error {_format_error(output.rel_l2)}, largest error {output.max_abs:.3g}"
    if output.lost:
        return f"{name} is lost in {title}: {said}{_describe_rounding_alone(rounding)}."
    return f"{name} in {title}: {said}{_describe_draws(output)}."


def _describe_draws(output: Predicted) -> str:
    """What further draws of the rounding gave, for an output of few numbers."""
    if not output.drawn:
        return ""
    draws = (output.rel_l2, *output.drawn)
    lost = sum(not math.isfinite(each) for each in draws)
    if lost:
        return f"; in {lost} of {len(draws)} draws of the rounding NaN or infinity"
    return (
        f"; over {len(draws)} draws of the rounding {_format_error(output.expected)} (root mean square), from "
        f"{_format_error(min(draws))} to "
        f"{_format_error(max(draws))}"
    )


def _describe_rounding_alone(rounding: float | None) -> str:
    return "" if rounding is None or not math.isfinite(rounding) else f" (rounding alone would cost {rounding:.3g})"


def _broken_parameter(number_format: Format, parameter: ChangedParameter) -> str:
    role = parameter.role if parameter.role != "constant" else "a constant"
    more = len(parameter.nodes) - 1
    also = f" and {more} more" if more else ""
    return (
        f"{number_format.title} overflows at the {role} of {parameter.nodes[0]}{also} ({parameter.op_type}): "
        f"{parameter.name!r} holds {format_number(parameter.value)}, beyond {format_number(number_format.largest)} "
        f"({parameter.overflowed:,} of {parameter.elements:,} elements)"
    )


def _describe_place(layer: Predicted) -> str:
    return f"{layer.site.node} ({layer.site.op_type}), tensor {layer.site.tensor!r}"


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
        statements=tuple(_about_reference(model, graph, outputs, layers)),
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
        cause=_cause_of(known_format(name), every, parameters, layers.ranges) if lost else None,
    )
    return result.saying(tuple(_about_format(result)))


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
