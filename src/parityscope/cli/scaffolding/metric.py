"""Share of elements whose sign differs.

    scaffold_name = elements with r < 0 < c or c < 0 < r, over all elements

r is the reference, c the candidate. A value that is non-finite on one side only, or differently on both, counts as
differing; NaN on both sides and the same infinity on both do not. Zero has no sign.

Known fault: it does not see how far values are apart.

Fill in: what your number is, its formula, what becomes of NaN and Inf, and what it is blind to; then the functions.
If `Statistics` holds all that you need, leave `start`, `update` and `combine` out: `finish` alone is then the metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "scaffold_name"
_State: TypeAlias = "tuple[int, int]"  # elements whose sign differs, elements


def _start() -> _State:
    return 0, 0


def _update(state: _State, reference: np.ndarray, candidate: np.ndarray) -> _State:
    """Adds one block; both float64, (n,)."""
    finite = np.isfinite(reference) & np.isfinite(candidate)
    agreeing = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate))
    opposite = np.sign(reference) * np.sign(candidate) < 0
    differing = np.where(finite, opposite, ~agreeing)
    return state[0] + int(differing.sum()), state[1] + reference.size


def _combine(first: _State, second: _State) -> _State:
    return first[0] + second[0], first[1] + second[1]


def _finish(statistics: Statistics) -> Measurement | None:
    states: Mapping[str, _State] = statistics.states
    if _NAME not in states:
        return None  # integers, booleans and strings are not shown to metrics element by element
    differing, count = states[_NAME]
    return Measurement(metric=_NAME, value=differing / max(1, count), unit="share", count=count)


METRIC = Metric(
    name=_NAME,
    unit="share",
    better="lower",
    perfect=0.0,
    finish=_finish,
    start=_start,
    update=_update,
    combine=_combine,
)
