"""Which change of an error is more than noise.

Another version sums in another order, and rounds otherwise: the error is drawn again, and nothing became better or worse. A
change counts where the error grew or shrank by more than `GROWTH`, or by more than `STEADY` on the same samples, every one of
which moved the same way. What lies below the noise of FP32, or below what the candidate itself differs by from run to run, is
no change however often it doubled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.expectation.grades import FLOAT32_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Sequence

GROWTH = 2.0  # chosen: errors of rounding in another order differ by a factor of two at the most in 59 of 100 cases
STEADY = 1.25  # chosen: a quarter more on every sample
FEWEST_STEADY = 8  # samples: all of them move one way by chance in less than one of a hundred cases (2 / 2^8)


def direction_beyond_noise(
    before: float, after: float, *, floor: float = 0.0, pairs: Sequence[tuple[float, float]] = ()
) -> int:
    """1 where an error grew beyond noise, -1 where it shrank, else 0; NaN counts as infinite.

    `floor` is the error below which nothing is told apart, at least one rounding of FP32; `pairs` are the errors of the same
    samples before and after.
    """
    low, high = sorted((_as_size(before), _as_size(after)))
    floor = max(floor, FLOAT32_ROUNDING)
    if low == high or high <= floor:
        return 0
    way = 1 if _as_size(after) == high else -1
    if high > GROWTH * max(low, floor):  # what lies below the floor may have been as large as that
        return way
    return way if high > STEADY * low and high - low > floor and _move_together(pairs, way) else 0


def _as_size(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _move_together(pairs: Sequence[tuple[float, float]], way: int) -> bool:
    return len(pairs) >= FEWEST_STEADY and all(way * (after - before) > 0 for before, after in pairs)
