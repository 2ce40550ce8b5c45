"""Quantities and budgets -> the verdict, with the sentences that give its reasons.

* `beyond`: a budget is missed, or an output holds NaN or Inf that the reference does not have.
* `worse`: a number is proved to be worse (an error counts as worse only where no budget that is kept allows it), or a part of
  an output that no such budget is for was lost (`lost_parts`).
* `not proved`: a budget would be kept, but there are too few samples; or nothing is proved to be better; or something
  seems to be worse.
* `improved`: something is proved to be better, nothing is or seems worse, and all budgets are kept.
* `within`: all budgets are kept and nothing is proved to be better.

`beyond` and `worse` refute the repair.

The reasons of a verdict as sentences: one for every number and every budget.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.verification.quantities import improvement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parityscope.verification.lost_parts import LostPart
    from parityscope.verification.records import BudgetCheck, OutputMeasurements, Quantity, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict, its reasons (the one that decided first), and how many samples would prove what is not."""

    verdict: Verdict
    because: tuple[str, ...]
    needed: int | None = None


def judge_verification(
    quantities: Sequence[Quantity],
    budgets: Sequence[BudgetCheck],
    outputs: Sequence[OutputMeasurements],
    parts: Sequence[LostPart] = (),
) -> Judgement:
    """The verdict over everything that was measured."""
    kept = {one.output for one in budgets if one.verdict == "within"}
    # What a budget allows is not held against the repair; it may still count for it.
    counted = [one for one in quantities if one.kind == "task" or one.name not in kept or one.outcome == "improved"]
    worse = [one for one in counted if one.outcome == "worse"]
    better = [one for one in counted if one.outcome == "improved"]
    unproved = [one for one in counted if one.outcome == "not proved"]
    doubtful = [one for one in unproved if improvement_of(one.better, one.before, one.after) < 0.0]
    lost = [_say_lost(one) for one in outputs if one.nonfinite_after]
    missed = [_say_missed(one) for one in budgets if one.verdict == "beyond"]
    short = [one for one in budgets if one.verdict == "not proved"]
    rest = [*(_say_within(one) for one in budgets if one.verdict == "within"), *map(_say_changed, quantities)]
    if lost or missed:
        return _make_judgement("beyond", [*lost, *missed], rest)
    gone = [_lost_part(one) for one in parts if one.output not in kept]
    if gone or worse:
        return _make_judgement("worse", [*gone, *(_say_changed(one) for one in worse)], rest)
    if short:
        return _make_judgement("not proved", map(_say_short_of_samples, short), rest, max(one.needed for one in short))
    if not doubtful and better:
        return _make_judgement("improved", map(_say_changed, better), rest)
    if not doubtful and budgets:
        return _make_judgement("within", (), rest)
    unproved = doubtful or unproved
    if not unproved:
        return _make_judgement("not proved", ["before and after do not differ by more than what does not matter"], rest)
    needed = max((one.needed for one in unproved if one.needed), default=None)
    told = {_say_changed(one) for one in unproved}
    return _make_judgement("not proved", map(_say_unproved, unproved), [one for one in rest if one not in told], needed)


def _make_judgement(
    verdict: Verdict, first: Iterable[str], rest: Iterable[str], needed: int | None = None
) -> Judgement:
    return Judgement(verdict=verdict, because=tuple(dict.fromkeys((*first, *rest))), needed=needed)


def _say_changed(one: Quantity) -> str:
    """What became of a number, and how sure that is."""
    what = _name_quantity(one)
    if one.before == one.after and one.outcome == "same":
        return f"{what} is {_format_figure(one.before)} before and after, on {_count_samples(one)}"
    outcome = {"improved": "better", "worse": "worse", "same": "the same within what does not matter"}
    change = f"{what} went from {_format_figure(one.before)} to {_format_figure(one.after)}"
    return f"{change} ({outcome.get(one.outcome, 'not proved')}: {_say_interval(one)})"


def _say_unproved(one: Quantity) -> str:
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


def _say_lost(one: OutputMeasurements) -> str:
    """An output that is NaN or Inf where the reference is not."""
    return f"after, output {one.output} holds {one.nonfinite_after:,} NaN or Inf that the reference does not have"


def _lost_part(one: LostPart) -> str:
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


def _say_missed(one: BudgetCheck) -> str:
    """A budget that is missed."""
    return (
        f"output {one.output} misses its budget ({_say_limit(one)}): {_format_figure(one.after)} over all samples, "
        f"{one.misses:,} of {one.samples:,} samples beyond it"
    )


def _say_within(one: BudgetCheck) -> str:
    """A budget that is kept, with the share of samples that it is shown for."""
    return (
        f"output {one.output} keeps its budget ({_say_limit(one)}): {_format_figure(one.after)}; at least "
        f"{one.bound:.1%} of samples "
        f"like these keep it, with {one.confidence:.0%} confidence ({one.misses:,} of {one.samples:,} missed)"
    )


def _say_short_of_samples(one: BudgetCheck) -> str:
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
