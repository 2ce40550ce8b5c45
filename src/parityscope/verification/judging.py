"""Quantities and budgets -> the verdict, with the sentences that give its reasons.

* `beyond`: a budget is missed, or an output holds NaN or Inf that the reference does not have.
* `worse`: a number is proved to be worse (an error counts as worse only where no budget that is kept allows it), or a part of
  an output that no such budget is for was lost (`lost_parts`).
* `not proved`: a budget would be kept, but there are too few samples; or nothing is proved to be better; or something
  seems to be worse.
* `improved`: something is proved to be better, nothing is or seems worse, and all budgets are kept.
* `within`: all budgets are kept and nothing is proved to be better.

`beyond` and `worse` refute the repair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.verification import sentences as said
from parityscope.verification.quantities import improvement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parityscope.verification.lost_parts import LostPart
    from parityscope.verification.records import BudgetCheck, OutputMeasurements, Quantity, Verdict

__all__ = ["Judgement", "judge_verification"]


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
    lost = [said.say_lost(one) for one in outputs if one.nonfinite_after]
    missed = [said.say_missed(one) for one in budgets if one.verdict == "beyond"]
    short = [one for one in budgets if one.verdict == "not proved"]
    rest = [*(said.say_within(one) for one in budgets if one.verdict == "within"), *map(said.say_changed, quantities)]
    if lost or missed:
        return _make_judgement("beyond", [*lost, *missed], rest)
    gone = [said.lost_part(one) for one in parts if one.output not in kept]
    if gone or worse:
        return _make_judgement("worse", [*gone, *(said.say_changed(one) for one in worse)], rest)
    if short:
        return _make_judgement(
            "not proved", map(said.say_short_of_samples, short), rest, max(one.needed for one in short)
        )
    if not doubtful and better:
        return _make_judgement("improved", map(said.say_changed, better), rest)
    if not doubtful and budgets:
        return _make_judgement("within", (), rest)
    unproved = doubtful or unproved
    if not unproved:
        return _make_judgement("not proved", ["before and after do not differ by more than what does not matter"], rest)
    needed = max((one.needed for one in unproved if one.needed), default=None)
    told = {said.say_changed(one) for one in unproved}
    return _make_judgement(
        "not proved", map(said.say_unproved, unproved), [one for one in rest if one not in told], needed
    )


def _make_judgement(
    verdict: Verdict, first: Iterable[str], rest: Iterable[str], needed: int | None = None
) -> Judgement:
    return Judgement(verdict=verdict, because=tuple(dict.fromkeys((*first, *rest))), needed=needed)
