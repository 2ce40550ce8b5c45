"""The outputs of before and after, each measured against the reference, sample by sample and pooled.

What is kept of a sample for drawing again are sums (float64): the error's energy, the reference's, and the elements that
are NaN or Inf on one side only; the pooled error is sqrt(sum |c - r|^2 / sum |r|^2), infinite with any of the latter.
Integers, booleans and strings are equal or not: their sums are the unequal elements and all, their number the share.

A budget on rel_l2 has an absolute floor in single samples, as in a search for a repair: sqrt(sum |c - r|^2 / max(sum |r|^2,
floor^2 n)). Without it an output that is nought on one sample (a text detector on a page without text) could keep no
relative budget. The floor is a root mean square; the default is `FLOOR_SHARE` of the largest one among the samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.policy import OUTSIDE, budgets_for
from parityscope.comparison import channel_axis, likely_scores, measure_all, measure_pair, merge_statistics
from parityscope.comparison.rows import make_aligner
from parityscope.comparison.tolerance import count_outside, measurements_of, merge_outside
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.judging import FLOOR_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.comparison.tolerance import OutsideTolerance
    from parityscope.records import Budget
    from parityscope.verification.intervals import States
    from parityscope.verification.running import Recorded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputErrors:
    """One output of one side: pooled statistics, and of each sample the sums, the measured budgets and the choice.

    `sums` is float64 (samples, 3); `budgeted` the values of each budget, pooled last; `floor` the root mean square below
    which the size of an output counts no less for a budget; `agrees` says whether all choices of a sample are the
    reference's, and is empty where the output holds no scores.
    """

    name: str
    metric: str
    dtype: str
    statistics: Statistics
    sums: np.ndarray
    budgeted: Mapping[str, tuple[float, ...]]
    floor: float
    agrees: tuple[bool, ...]


def output_errors(
    case: Case, reference: Recorded, side: Recorded, label: str, *, floor: float | None = None
) -> dict[str, OutputErrors]:
    """Every output of `side` against the reference; `floor` takes the place of the default one, for every output.

    Raises:
        ParityError: an output has another shape or kind.
    """
    return {
        value.name: _measure_output(case, value.name, reference, side, label, floor) for value in case.model.outputs
    }


def combiner_of_metric(metric: str) -> Callable[[States], float]:
    """What makes the pooled number of samples of their sums, float64 (n, 3)."""
    pooled = pooler_of_metric(metric)
    return lambda sums: float(pooled(np.asarray(sums)))


def pooler_of_metric(metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """What makes the pooled numbers of many draws of samples of their sums: float64 (..., n, 3) -> (...)."""
    return _relative_errors if metric == "rel_l2" else _mismatch_shares


def budget_key(budget: Budget) -> str:
    """What tells a budget apart from the others of the same output."""
    return OUTSIDE if budget.tolerance is not None else budget.metric


def _relative_errors(sums: np.ndarray) -> np.ndarray:
    error, size, disagreeing = np.moveaxis(sums.sum(axis=-2), -1, 0)
    ratio = np.divide(error, size, out=np.where(error == 0.0, 0.0, math.inf), where=size != 0.0)
    pooled: np.ndarray = np.where(disagreeing != 0.0, math.inf, np.sqrt(ratio))
    return pooled


def _mismatch_shares(sums: np.ndarray) -> np.ndarray:
    mismatches, count, _ = np.moveaxis(sums.sum(axis=-2), -1, 0)
    shares: np.ndarray = np.divide(mismatches, count, out=np.zeros_like(mismatches), where=count != 0.0)
    return shares


def _measure_output(
    case: Case, name: str, reference: Recorded, side: Recorded, label: str, floor: float | None
) -> OutputErrors:
    outside: dict[str, list[OutsideTolerance]] = {}
    total: Statistics | None = None
    budgets = budgets_for(case.policy, name)
    sums: list[tuple[float, float, float]] = []
    values: list[dict[str, float]] = []
    counts, agrees = [], []
    for index in case.inputs.indices:
        expected, found = outputs_side_by_side(case, name, index, reference, side)
        part = _measure_sample(expected, found, name, label, reference.names[index])
        total = part if total is None else merge_statistics(total, part)
        sums.append(_sums_of_part(part))
        counts.append(part.count)
        held = {one.metric: one.value for one in measure_all(part).values()} if budgets else {}
        for budget in budgets:
            if budget.tolerance is not None:
                counted = count_outside(expected, found, budget.tolerance)
                outside.setdefault(OUTSIDE, []).append(counted)
                held[OUTSIDE] = measurements_of(counted)[0].value
        values.append(held)
        if part.scores is not None:
            agrees.append(part.scores.top1 == part.scores.rows)
    if total is None:
        raise ParityError("there is no sample to compare", fix="give data with at least one sample")
    held_floor = _reference_floor(sums, counts) if floor is None else floor
    if total.is_float:
        for held, own, count in zip(values, sums, counts, strict=True):
            held["rel_l2"] = _floored_error(own, held_floor, count)
    pooled = {one.metric: one.value for one in measure_all(total).values()}
    for parts_outside in outside.values():
        merged = parts_outside[0]
        for one in parts_outside[1:]:
            merged = merge_outside(merged, one)
        pooled[OUTSIDE] = measurements_of(merged)[0].value
    keys = [budget_key(budget) for budget in budgets]
    return OutputErrors(
        name=name,
        metric="rel_l2" if total.is_float else "mismatch_share",
        dtype=total.reference_dtype,
        statistics=total,
        sums=np.array(sums),
        floor=held_floor if total.is_float else 0.0,
        budgeted={key: (*(one[key] for one in values), pooled[key]) for key in keys if key in pooled},
        agrees=tuple(agrees),
    )


def outputs_side_by_side(
    case: Case, name: str, index: int, reference: Recorded, side: Recorded
) -> tuple[np.ndarray, np.ndarray]:
    """One output of both; its rows paired with the reference's, together with those that belong to them, if they are to be."""
    if name in (*case.policy.matched, *(one.name for one in case.policy.counted)):
        expected, found = make_aligner(case.policy)(reference.get(index), side.get(index))
        return expected[name], found[name]
    return reference.output(index, name), side.output(index, name)


def _reference_floor(sums: list[tuple[float, float, float]], counts: list[int]) -> float:
    sizes = (math.sqrt(own[1] / count) for own, count in zip(sums, counts, strict=True) if count)
    return FLOOR_SHARE * max(sizes, default=0.0)


def _floored_error(own: tuple[float, float, float], floor: float, count: int) -> float:
    error, size, disagreeing = own
    return float(_relative_errors(np.array([(error, max(size, floor**2 * count), disagreeing)])))


def _measure_sample(expected: np.ndarray, found: np.ndarray, name: str, label: str, sample: str) -> Statistics:
    fix = "give a model with the reference's outputs; a batch that the model cannot take is another shape too"
    if expected.shape != found.shape:
        raise ParityError(
            f"output {name!r} is {list(expected.shape)} in the reference and {list(found.shape)} {label}",
            where=sample,
            fix=fix,
        )
    try:
        return measure_pair(
            expected,
            found,
            channel_axis=channel_axis(expected.ndim),
            as_scores=likely_scores(expected.dtype, expected.shape),
        )
    except ValueError as error:
        raise ParityError(f"output {name!r} {label} cannot be compared: {error}", where=sample, fix=fix) from error


def _sums_of_part(part: Statistics) -> tuple[float, float, float]:
    if part.floats is not None:
        moments = part.floats.moments.at(0)
        return moments.error2, moments.reference2, float(part.floats.disagreeing)
    mismatches = part.exact.mismatches if part.exact is not None else 0
    return float(mismatches), float(part.count), 0.0
