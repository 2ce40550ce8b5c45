"""From sensitivities to a cheap assignment that reaches a target: exact cuts, evaluated.

The exact optima of the cost model for growing prices on error (`cut`) are bisected with real evaluations, starting where
the additive model predicts the target; then prices between the last that failed and the first that passed are tried. What
passed is bettered (`bettering`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.bettering import KEPT_BACK, better_assignment
from parityscope.repairs.search.cut import cheapest_assignment, path_of_optima
from parityscope.repairs.search.sense import sense_nodes

if TYPE_CHECKING:
    from parityscope.repairs.search.cut import Assignment
    from parityscope.repairs.search.finding import Finder

__all__ = ["cut_out"]

_CUTS = 14  # evaluations of cuts. Chosen: 40 prices take 6, the rest narrows the last step down
_SENSED = 32  # evaluations of all search samples for sensitivities, unless the reader says more. Chosen


def cut_out(finder: Finder, target: float, pinned: np.ndarray) -> None:
    """Evaluates assignments with these nodes in full precision until a cheap one reaches the target.

    pinned: bool, (nodes,). What was evaluated stands on the finder's trail.

    Raises:
        Spent: time or evaluations ran out.
    """
    squared = _sense_candidates(finder, target, pinned)
    optima = path_of_optima(finder.network, squared, pinned)
    _bisect_optima(finder, optima, squared, target, pinned)
    better_assignment(finder, optima, squared, target, pinned)


def _sense_candidates(finder: Finder, target: float, pinned: np.ndarray) -> np.ndarray:
    if finder.sensed is None:
        oracle = finder.oracle
        candidates = [int(place) for place in np.flatnonzero(~pinned)]
        before = oracle.passes
        # Where most samples are not active, single nodes are measured for little, which says more than a first order can: on
        # a text detector with 64 samples 34.1 us by the model in place of 35.3.
        reverse = finder.reverse if 2 * oracle.active > oracle.samples else None
        # One evaluation for sensitivities runs the active samples alone.
        most = finder.sensing or int(_SENSED * oracle.samples / oracle.active)
        finder.sensed = sense_nodes(
            oracle,
            candidates,
            target**2,
            min(most, len(candidates)),
            lambda done, most: finder.progress("measuring sensitivities", done, most),
            reverse,
        )
        finder.excused += oracle.passes - before
    return finder.sensed.squared


def _bisect_optima(
    finder: Finder, optima: list[Assignment], squared: np.ndarray, target: float, pinned: np.ndarray
) -> None:
    first = next((at for at, one in enumerate(optima) if _predict_error(one, squared) <= target**2), len(optima) - 1)
    failing, passing = -1, len(optima)
    probe = first
    for number in range(_CUTS):
        if passing - failing <= 1:
            _narrow_between(finder, (optima, failing, passing), squared, target, pinned, _CUTS - number)
            return
        finder.progress("cutting", number, _CUTS)
        if finder.evaluate(f"cut {optima[probe].multiplier:.2g}", optima[probe].low).excess <= target:
            passing = probe
        else:
            failing = probe
        probe = (failing + passing) // 2


def _narrow_between(
    finder: Finder,
    ends: tuple[list[Assignment], int, int],
    squared: np.ndarray,
    target: float,
    pinned: np.ndarray,
    left: int,
) -> None:
    """Goes on between the last price that failed and the first that passed, as long as there are optima between."""
    optima, failing, passing = ends
    if failing < 0 or passing >= len(optima):
        return
    one, other = optima[failing], optima[passing]
    for _ in range(left):
        between = cheapest_assignment(finder.network, squared, math.sqrt(one.multiplier * other.multiplier), pinned)
        if finder.left < KEPT_BACK or any(np.array_equal(between.low, end.low) for end in (one, other)):
            return
        if finder.evaluate(f"cut {between.multiplier:.2g}", between.low).excess <= target:
            other = between
        else:
            one = between


def _predict_error(assignment: Assignment, squared: np.ndarray) -> float:
    return float(squared[assignment.low].sum())
