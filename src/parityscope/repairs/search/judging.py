"""Outputs held against budgets: one number a sample, the worst error in units of its budget.

excess = (value - perfect) / (limit - perfect), where `perfect` is what the metric gives for the reference against
itself: above 1 misses the budget, whichever way the metric points. A number that is not finite is an excess of
infinity. `limit = perfect` allows nothing: 0 or infinity.

rel_l2 has an absolute floor: |c - r| / max(|r|, floor sqrt(n)). Without it an output that is nought on one sample (a
text detector on a page without text gives 1e-32) could never meet a relative budget. The floor is a root mean square;
the default is `FLOOR_SHARE` of the largest one that the reference has on the search samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.deciding import stated_rule
from parityscope.case.formats.loader import call_user_code
from parityscope.case.limits import TWO_SIDED
from parityscope.case.policy import budgets_for
from parityscope.comparison import can_be_scores, measure_all, measure_pair
from parityscope.comparison.decisions import GAP, measure_decisions
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from parityscope.case.formats.loader import UserFunction
    from parityscope.records import Budget, Policy

FLOOR_SHARE = 1e-3  # chosen: 60 dB below the loudest sample
_OF_SCORES = frozenset({"top1_agreement", "top5_agreement", "kl_mean", "kl_max"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """The budgets, the user's metrics by name, and the floor of each output (root mean square)."""

    policy: Policy
    functions: Mapping[str, UserFunction]
    floors: Mapping[str, float]

    def limit_of(self, output: str) -> float:
        """The rel_l2 budget of an output; 1 where there is none, so that relative errors stand for themselves."""
        held = [one.limit for one in budgets_for(self.policy, output) if one.metric == "rel_l2" and one.limit > 0]
        return min(held, default=1.0)


def make_yardstick(
    policy: Policy,
    functions: Mapping[str, UserFunction],
    references: Iterable[Mapping[str, np.ndarray]],
    floor: float | None,
) -> Yardstick:
    """Budgets with floors from the reference's outputs on the search samples, or `floor` for every output.

    Of outputs that the policy says decide something no decision may change that their budget does not explain.

    Raises:
        ParityError: no budget applies to any output, or outputs to be matched share no axis of rows.
    """
    floors: dict[str, float] = {}
    held = list(references)
    for outputs in held:
        for name, array in outputs.items():
            if array.dtype.kind == "f" and array.size:
                own = FLOOR_SHARE * _root_mean_square(array) if floor is None else floor
                floors[name] = max(floors.get(name, 0.0), own)
    made = Yardstick(policy=policy, functions=functions, floors=floors)
    if held and not _excess_terms(made, held[0], held[0]):
        names = ", ".join(sorted({one.metric for one in policy.budgets})) or "none"
        raise ParityError(
            f"no budget applies to an output of the model ({names})",
            fix="give one that does: --budget max_abs=VALUE for numbers, --budget mismatches=VALUE for integers",
        )
    return made


def worst_excess(held: Yardstick, reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
    """The worst of all budgets on one sample, in units of the budget. Arrays: by output name, any shape."""
    reference, candidate = make_aligner(held.policy)(reference, candidate)
    return max(_excess_terms(held, reference, candidate), default=math.inf)


def squared_error(held: Yardstick, reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
    """The sum over float outputs of (relative L2 error / budget)²; shares of differing elements for integers alone."""
    total = 0.0
    reference, candidate = make_aligner(held.policy)(reference, candidate)
    floats = [name for name, array in reference.items() if array.dtype.kind == "f"]
    for name in floats or reference:
        error = (
            relative_error(reference[name], candidate[name], held.floors.get(name, 0.0))
            if floats
            else float(np.mean(reference[name] != candidate[name]))
        )
        total += (error / held.limit_of(name)) ** 2
    return total


def relative_error(reference: np.ndarray, candidate: np.ndarray, floor: float) -> float:
    """|c - r| / max(|r|, floor sqrt(n)), in float64; infinite where one side alone is not finite; 0 for no elements.

    reference, candidate: floats of one shape. `floor` is a root mean square.
    """
    if reference.shape != candidate.shape:
        return math.inf
    r, c = reference.astype(np.float64).ravel(), candidate.astype(np.float64).ravel()
    finite = np.isfinite(r) & np.isfinite(c)
    if not finite.all():
        same = (r == c) | (np.isnan(r) & np.isnan(c))
        if not (finite | same).all():
            return math.inf
        r, c = r[finite], c[finite]
    distance = float(np.linalg.norm(c - r))
    scale = max(float(np.linalg.norm(r)), floor * math.sqrt(r.size))
    return 0.0 if distance == 0 else math.inf if scale == 0 else distance / scale


def _excess_terms(
    held: Yardstick, reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> list[float]:
    found = []
    for name, expected in reference.items():
        for budget in budgets_for(held.policy, name):
            if budget.metric not in held.functions:
                value = _excess_of_budget(budget, expected, candidate[name], held.floors.get(name, 0.0))
                found.extend([] if value is None else [value])
        found.extend(_excess_of_decisions(held, name, expected, candidate[name]))
    for budget in held.policy.budgets:
        if budget.metric in held.functions:
            user = held.functions[budget.metric]
            perfect, value = (_call_metric(user, reference, side) for side in (reference, candidate))
            found.append(_excess_over_limit(value, perfect, budget.limit))
    return found


def _excess_of_decisions(held: Yardstick, name: str, reference: np.ndarray, candidate: np.ndarray) -> Iterator[float]:
    """By how much the clearest changed decision of an output leads, in units of what its budget makes of two numbers' difference.

    As `study/flips.py` has it of the expected error: sqrt(2) times the RMS error that the budget allows.
    """
    stated = dict(held.policy.decides).get(name)
    if stated is None or reference.shape != candidate.shape:
        return
    found = measure_decisions(reference, candidate, name, stated_rule(stated))
    if found is not None and len(found.flips):
        size = max(_root_mean_square(reference), held.floors.get(name, 0.0))
        lead = float(found.flips[:, GAP].max())
        yield _excess_over_limit(lead, 0.0, math.sqrt(2.0) * held.limit_of(name) * size)


def _excess_of_budget(budget: Budget, reference: np.ndarray, candidate: np.ndarray, floor: float) -> float | None:
    """One budget on one output; None where its metric does not apply to such tensors."""
    if reference.shape != candidate.shape:
        return math.inf
    is_float = reference.dtype.kind == "f"
    if budget.metric == "rel_l2":
        return _excess_over_limit(relative_error(reference, candidate, floor), 0.0, budget.limit) if is_float else None
    if budget.metric in _OF_SCORES and not can_be_scores(reference.dtype, reference.shape):
        return None
    scores = budget.metric in _OF_SCORES
    pair = measure_pair(reference, candidate, channel_axis=None, as_scores=scores)
    found = measure_all(pair).get(budget.metric)
    if found is None:
        return None
    if budget.metric == "snr_db":  # equal tensors have an infinite one: an amplitude ratio takes the difference's place
        return 0.0 if found.value == math.inf else 10.0 ** ((budget.limit - found.value) / 20.0)
    if budget.metric in TWO_SIDED:
        return _excess_over_limit(abs(found.value - TWO_SIDED[budget.metric]), 0.0, budget.limit)
    own = measure_all(measure_pair(reference, reference, channel_axis=None, as_scores=scores))
    return _excess_over_limit(found.value, own[budget.metric].value, budget.limit)


def _excess_over_limit(value: float, perfect: float, limit: float) -> float:
    if value == perfect:
        return 0.0
    if not math.isfinite(value) or limit == perfect:
        return math.inf
    return (value - perfect) / (limit - perfect)


def _call_metric(user: UserFunction, reference: Mapping[str, np.ndarray], side: Mapping[str, np.ndarray]) -> float:
    try:
        value = call_user_code(user, user.function, dict(reference), dict(side), doing=f"the metric {user.text}")
    except ParityError as error:
        # What a metric of ours says about the outputs is said to the reader as it stands.
        if isinstance(error.__cause__, ParityError):
            raise error.__cause__ from None
        raise
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ParityError(
            f"the metric gave {value!r}, which is not a number",
            where=user.text,
            fix="return one float: function(reference, candidate), both arrays by output name",
        ) from error


def _root_mean_square(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)].astype(np.float64)
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
