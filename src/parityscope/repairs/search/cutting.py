"""From sensitivities to a cheap assignment that reaches a target: exact cuts, evaluated.

The exact optima of the cost model for growing prices on error (`cut`) are bisected with real evaluations, starting where
the additive model predicts the target; then prices between the last that failed and the first that passed are tried. What
passed is bettered.

Betters the cheapest assignment that reached the target, by evaluations of what the model proposes.

1. By the model: local improvement (`improving`) under a bound on the predicted error. The bound is what the assignment's own
   ratio of measured to predicted error promises, and is halved towards what has passed where that fails.
2. A prefix and a suffix: one border through the network, bisected. Only those that are as fast as the best and keep fewer
   FLOPs are looked at, so that mostly one evaluation shows that there is none.

Nothing is tried that the model does not ask for. Among enough trials one passes the search samples by luck: twelve moves that
each added the least predicted error for what they saved took a tenth off the modelled time of a text detector, which then
missed the budget on unseen samples. All of this ends when what may be spent is spent (`Finder.left`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.cut import cheapest_assignment, path_of_optima
from parityscope.repairs.search.improving import improver_of
from parityscope.repairs.search.network import price_assignment
from parityscope.repairs.search.sense import sense_nodes

if TYPE_CHECKING:
    from parityscope.repairs.search.cut import Assignment
    from parityscope.repairs.search.finding import Finder
    from parityscope.repairs.search.improving import Improver
    from parityscope.repairs.search.records import Point

_KEPT_BACK = 3.0  # evaluations of all search samples that are left for a stricter target. Chosen
_PROPOSALS = 8  # evaluations of improved assignments. Chosen: each one halves what the bound is unsure of
_STARTS = 3  # cuts that an improvement starts from. Chosen
_LEAST_GAIN = 0.002  # of the modelled time; less is not worth an evaluation. Chosen
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
    _better_assignment(finder, optima, squared, target, pinned)


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
        if finder.left < _KEPT_BACK or any(np.array_equal(between.low, end.low) for end in (one, other)):
            return
        if finder.evaluate(f"cut {between.multiplier:.2g}", between.low).excess <= target:
            other = between
        else:
            one = between


def _predict_error(assignment: Assignment, squared: np.ndarray) -> float:
    return float(squared[assignment.low].sum())


def _better_assignment(
    finder: Finder, optima: list[Assignment], squared: np.ndarray, target: float, pinned: np.ndarray
) -> None:
    """Evaluates assignments with these nodes in full precision that are cheaper than the best so far.

    optima: cuts, cheapest first. squared: float64, (nodes,). pinned: bool, (nodes,).

    Raises:
        Spent: time or evaluations ran out.
    """
    improver = improver_of(finder.network, squared, pinned)
    best = _cheapest_passing(finder, improver, target)
    if best is None:
        return
    _better_by_the_model(finder, improver, optima, target, best)
    _bisect_runs(finder, improver, pinned, target)


def _better_by_the_model(
    finder: Finder, improver: Improver, optima: list[Assignment], target: float, best: tuple[Point, np.ndarray]
) -> None:
    """Evaluates proposals under a bound on the predicted squared error that measurements correct."""
    point, low = best
    passed, failed = improver.predicted(low), math.inf
    bound = _promised_error(passed, point, target)
    for number in range(_PROPOSALS):
        if finder.left < _KEPT_BACK or bound <= passed:
            return
        finder.progress("improving", number, _PROPOSALS)
        starts = [one.low for one in optima if improver.predicted(one.low) <= bound][:_STARTS]
        proposed = improver.cheapest(bound, [low, *starts])
        if proposed is None or improver.cost(proposed) >= improver.cost(low) * (1 - _LEAST_GAIN):
            return
        made = finder.evaluate(f"improved {math.sqrt(bound):.3g}", proposed)
        if made.excess <= target:
            point, low = made, proposed
            passed = max(passed, improver.predicted(proposed))
            bound = min(
                _promised_error(improver.predicted(proposed), point, target), math.sqrt(max(passed, bound) * failed)
            )
        else:
            failed = min(failed, improver.predicted(proposed))
            bound = math.sqrt(passed * failed)


def _bisect_runs(finder: Finder, improver: Improver, pinned: np.ndarray, target: float) -> None:
    """Bisects the prefix, and the suffix, in full precision."""
    count = pinned.size
    ends, places = np.arange(count)[:, None], np.arange(count)[None]
    for side in ("prefix", "suffix"):
        lows = (places >= ends if side == "prefix" else places < count - ends) & ~pinned
        best = finder.best(target)
        if best is None:
            return
        fast = [k for k, one in enumerate(improver.pricer.seconds(lows)) if finder.as_fast(float(one), best)]
        wanted = [k for k in fast if price_assignment(finder.network, lows[k]).flops < best.flops]
        failing, passing = -1, len(wanted)
        probe = passing - 1
        while passing - failing > 1 and finder.left >= _KEPT_BACK:
            finder.progress(f"trying a {side}", failing + 1, len(wanted))
            if finder.evaluate(f"{side} of {wanted[probe]}", lows[wanted[probe]]).excess <= target:
                passing = probe
            else:
                failing = probe
            probe = (failing + passing) // 2


def _cheapest_passing(finder: Finder, improver: Improver, target: float) -> tuple[Point, np.ndarray] | None:
    """The cheapest assignment of the trail that reaches the target and keeps what is pinned."""
    held = [(point, finder.assignments[point.kept]) for point in finder.trail if point.excess <= target]
    kept = [(point, low) for point, low in held if math.isfinite(improver.predicted(low))]
    return min(kept, key=lambda one: improver.cost(one[1]), default=None)


def _promised_error(predicted: float, point: Point, target: float) -> float:
    """The squared error that may be predicted, if measured and predicted errors keep their ratio."""
    return predicted * (target / point.excess) ** 2 if point.excess > 0 else predicted
