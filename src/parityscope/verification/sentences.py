"""The reasons of a verdict as sentences: one for every number and every budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.verification.lost_parts import LostPart
    from parityscope.verification.records import BudgetCheck, OutputMeasurements, Quantity

__all__ = ["lost_part", "say_changed", "say_lost", "say_missed", "say_short_of_samples", "say_unproved", "say_within"]


def say_changed(one: Quantity) -> str:
    """What became of a number, and how sure that is."""
    what = _name_quantity(one)
    if one.before == one.after and one.outcome == "same":
        return f"{what} is {_format_figure(one.before)} before and after, on {_count_samples(one)}"
    outcome = {"improved": "better", "worse": "worse", "same": "the same within what does not matter"}
    change = f"{what} went from {_format_figure(one.before)} to {_format_figure(one.after)}"
    return f"{change} ({outcome.get(one.outcome, 'not proved')}: {_say_interval(one)})"


def say_unproved(one: Quantity) -> str:
    """What became of a number whose change is not proved, and how many samples would prove it."""
    needed = f"; about {one.needed:,} samples like these would prove it" if one.needed else ""
    return (
        f"{_name_quantity(one)} went from {_format_figure(one.before)} to {_format_figure(one.after)}, not proved "
        f"({_say_interval(one)}){needed}"
    )


def _name_quantity(one: Quantity) -> str:
    return f"the error of {one.name}" if one.kind == "output" else f"{one.title} against the {one.against}"


def _say_interval(one: Quantity) -> str:
    ends = (
        ""  # between infinities there is no difference to tell
        if one.method == "none" or not (math.isfinite(one.low) and math.isfinite(one.high))
        else f"difference {_format_figure(one.low)} to {_format_figure(one.high)} with {one.confidence:.0%} confidence, "
    )
    return f"{ends}{_count_samples(one)}"


def _count_samples(one: Quantity) -> str:
    count = len(one.per_sample_before)
    return f"{count:,} sample{'' if count == 1 else 's'}"


def say_lost(one: OutputMeasurements) -> str:
    """An output that is NaN or Inf where the reference is not."""
    return f"after, output {one.output} holds {one.nonfinite_after:,} NaN or Inf that the reference does not have"


def lost_part(one: LostPart) -> str:
    """A part of an output that is far worse than it was."""
    part = f"sample {one.sample}" if one.sample else f"index {one.index} of axis {one.axis}"
    others = f" ({one.count:,} of that axis are like it)" if one.count > 1 else ""
    change = f"from {_format_figure(one.before)} to {_format_figure(one.after)}"
    return f"{part} of output {one.output} is far worse: its error went {change}{others}"


def _say_limit(one: BudgetCheck) -> str:
    tolerance = one.budget.tolerance
    if tolerance is not None:
        return f"elements outside atol {tolerance.atol:g} + rtol {tolerance.rtol:g} |reference|"
    return f"{one.budget.metric} {one.budget.limit:g}"


def say_missed(one: BudgetCheck) -> str:
    """A budget that is missed."""
    return (
        f"output {one.output} misses its budget ({_say_limit(one)}): {_format_figure(one.after)} over all samples, "
        f"{one.misses:,} of {one.samples:,} samples beyond it"
    )


def say_within(one: BudgetCheck) -> str:
    """A budget that is kept, with the share of samples that it is shown for."""
    return (
        f"output {one.output} keeps its budget ({_say_limit(one)}): {_format_figure(one.after)}; at least "
        f"{one.bound:.1%} of samples "
        f"like these keep it, with {one.confidence:.0%} confidence ({one.misses:,} of {one.samples:,} missed)"
    )


def say_short_of_samples(one: BudgetCheck) -> str:
    """A budget that is kept so far, with the samples that would show it."""
    return (
        f"output {one.output} keeps its budget ({_say_limit(one)}) on {one.samples - one.misses:,} of "
        f"{one.samples:,} samples, which "
        f"shows it for {one.bound:.1%} of samples with {one.confidence:.0%} confidence; {one.needed:,} samples with "
        f"{one.misses or 'no'} miss{'' if one.misses == 1 else 'es'} would show it for {one.coverage:.0%}"
    )


def _format_figure(value: float) -> str:
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return f"{value:.3g}"
