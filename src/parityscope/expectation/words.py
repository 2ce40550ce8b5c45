"""What a forecast says in sentences, and the cause it gives for an output that is lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.detyping import HALF
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import known_format
from parityscope.expectation.forecasts import Cause
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.case import Model
    from parityscope.expectation.forecasts import ChangedParameter, FormatForecast, MagnitudeRange, Predicted
    from parityscope.expectation.lockstep import Findings

_LEADING = 8  # chosen: layers that are asked for a reason before rounding is taken to be one
_NAMED = 3


def cause_of(
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
            f"{format_error(leading[0].introduced)}"
        )
        return Cause(kind="rounding", site=leading[0].site, text=text)
    return None


def about_format(found: FormatForecast) -> Iterator[str]:
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


def about_reference(model: Model, graph: ir.Model, outputs: Findings, layers: Findings) -> Iterator[str]:
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


def format_error(value: float | None) -> str:
    """A relative error in words."""
    return "NaN or infinity" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _about_output(output: Predicted, title: str, rounding: float | None) -> str:
    name = f"Output {output.site.tensor!r}"
    if output.exact:
        return f"{name} {'is lost' if output.lost else 'is predicted'} in {title}: {output.rel_l2:.3g} of its elements differ."
    if output.nonfinite:
        count = f"{output.nonfinite:,} of {output.elements:,} elements become NaN or infinite"
        return f"{name} is lost in {title}: {count}{_describe_rounding_alone(rounding)}."
    said = f"relative L2 error {format_error(output.rel_l2)}, largest error {output.max_abs:.3g}"
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
        f"; over {len(draws)} draws of the rounding {format_error(output.expected)} (root mean square), from "
        f"{format_error(min(draws))} to "
        f"{format_error(max(draws))}"
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
