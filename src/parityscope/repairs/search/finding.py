"""Probes, sensitivities and cuts: from a target to the cheapest assignment that reaches it on the search samples.

1. All low. If that passes, nothing is to be kept.
2. All low without the flagged nodes. If that passes, flagged ones are taken out of the set one at a time, the costliest
   first, as long as it passes: at most 2 + flagged evaluations in all.
3. Otherwise squared sensitivities are measured (`sense`), and the exact optima of the cost model for growing prices on
   error (`cut`) are bisected with real evaluations, starting where the additive model predicts the target.

A node that only comes near the end of the range on the search samples is never taken out of the kept set in step 2:
that it passes on these samples says nothing about others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.cut import cheapest, path
from parityscope.repairs.search.network import price
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.records import Point
from parityscope.repairs.search.sense import sense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.recording import Progress
    from parityscope.repairs.search.cut import Assignment
    from parityscope.repairs.search.network import Network
    from parityscope.repairs.search.oracle import Oracle
    from parityscope.repairs.search.records import Flag
    from parityscope.repairs.search.sense import Sensed

__all__ = ["Finder", "Found", "find"]

_CUTS = 14  # evaluations of cuts. Chosen: 40 prices take 6, the rest narrows the last step down


@dataclass(slots=True, kw_only=True)
class Finder:
    """What is known so far; it grows from one target to the next, so that nothing is measured twice.

    `trail` has every evaluated assignment as a point, `assignments` the same as bool, (nodes,), by the kept names.
    `sensing` bounds the evaluations for sensitivities (0: as many as nodes). `spent`: time or evaluations ran out.
    """

    oracle: Oracle
    network: Network
    flags: Sequence[Flag]
    progress: Progress
    sensing: int = 0
    sensed: Sensed | None = None
    trail: list[Point] = field(default_factory=list)
    assignments: dict[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    spent: bool = False

    def evaluate(self, step: str, low: np.ndarray, *, probe: bool = False) -> Point:
        """Evaluates an assignment and puts it on the trail."""
        kept = tuple(name for name, each in zip(self.oracle.names, low, strict=True) if not each)
        known = next((point for point in self.trail if point.kept == kept), None)
        if known is not None:
            return known
        reading = self.oracle.evaluate(low, probe=probe)
        cost = price(self.network, low)
        point = Point(
            step=step, kept=kept, excess=reading.worst, seconds=cost.seconds, flops=cost.flops, casts=cost.casts
        )
        self.trail.append(point)
        self.assignments[kept] = low
        return point

    @property
    def forced(self) -> np.ndarray:
        """The nodes whose operator does not take the format: bool, (nodes,)."""
        names = {flag.node for flag in self.flags if flag.blame == "operator"}
        return ~self.oracle.without(names)

    @property
    def pinned(self) -> np.ndarray:
        """All flagged nodes: bool, (nodes,)."""
        return ~self.oracle.without({flag.node for flag in self.flags})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The cheapest assignment that reaches the target (all in FP32 if no other does); `spent`: the search was cut short."""

    point: Point
    spent: bool = False


def find(finder: Finder, target: float, *, careful: bool = False) -> Found:
    """The cheapest assignment whose worst excess is at most `target`; `careful` keeps every flagged node."""
    spent = False
    try:
        _search(finder, target, careful=careful)
    except Spent:
        spent = finder.spent = True
    allowed = [
        point
        for point in finder.trail
        if point.excess <= target and not (careful and bool((finder.assignments[point.kept] & finder.pinned).any()))
    ]
    whole = finder.oracle.names
    best = min(allowed, key=lambda point: (point.kept == whole, point.seconds, len(point.kept)), default=None)
    if best is None:
        # Everything in full precision computes what the reference does: it needs no evaluation to be known.
        best = _all_full(finder)
    return Found(point=best, spent=spent)


def _search(finder: Finder, target: float, *, careful: bool) -> None:
    pinned = finder.pinned
    if not careful and finder.evaluate("all low", ~finder.forced, probe=True).excess <= target:
        return
    probed = bool((pinned & ~finder.forced).any()) or careful
    if probed and finder.evaluate("all low but the flagged", ~pinned, probe=True).excess <= target:
        if not careful:
            _shrink(finder, target)
        return
    _cut(finder, target, pinned)


def _shrink(finder: Finder, target: float) -> None:
    """Takes flagged nodes that are beyond the range out of the kept set, one at a time, as long as it passes."""
    place = {name: index for index, name in enumerate(finder.oracle.names)}
    seconds = {vertex.name: vertex.times.full - vertex.times.low for vertex in finder.network.vertices}
    droppable = [
        flag.node for flag in finder.flags if flag.overflows and flag.blame != "operator" and flag.node in place
    ]
    low = ~finder.pinned
    for name in sorted(droppable, key=lambda one: (-seconds.get(one, 0.0), one)):
        tried = low.copy()
        tried[place[name]] = True
        if finder.evaluate(f"without {name}", tried).excess <= target:
            low = tried


def _cut(finder: Finder, target: float, pinned: np.ndarray) -> None:
    if finder.sensed is None:
        candidates = [int(place) for place in np.flatnonzero(~pinned)]
        finder.sensed = sense(
            finder.oracle,
            candidates,
            target**2,
            min(finder.sensing or len(candidates), len(candidates)),
            lambda done, most: finder.progress("measuring sensitivities", done, most),
        )
    squared = finder.sensed.squared
    optima = path(finder.network, squared, pinned)
    first = next((at for at, one in enumerate(optima) if _predicted(one, squared) <= target**2), len(optima) - 1)
    failing, passing = -1, len(optima)
    probe = first
    for number in range(_CUTS):
        if passing - failing <= 1:
            _narrow(finder, optima, (failing, passing), target, pinned, _CUTS - number)
            return
        finder.progress("cutting", number, _CUTS)
        if finder.evaluate(f"cut {optima[probe].multiplier:.2g}", optima[probe].low).excess <= target:
            passing = probe
        else:
            failing = probe
        probe = (failing + passing) // 2


def _narrow(
    finder: Finder,
    optima: list[Assignment],
    ends: tuple[int, int],
    target: float,
    pinned: np.ndarray,
    left: int,
) -> None:
    """Goes on between the last price that failed and the first that passed, as long as there are optima between."""
    failing, passing = ends
    if finder.sensed is None or failing < 0 or passing >= len(optima):
        return
    one, other = optima[failing], optima[passing]
    for _ in range(left):
        between = cheapest(finder.network, finder.sensed.squared, math.sqrt(one.multiplier * other.multiplier), pinned)
        if any(np.array_equal(between.low, end.low) for end in (one, other)):
            return
        if finder.evaluate(f"cut {between.multiplier:.2g}", between.low).excess <= target:
            other = between
        else:
            one = between


def _predicted(assignment: Assignment, squared: np.ndarray) -> float:
    return float(squared[assignment.low].sum())


def _all_full(finder: Finder) -> Point:
    low = np.zeros(len(finder.oracle.names), np.bool_)
    cost = price(finder.network, low)
    point = Point(
        step="all in full precision",
        kept=finder.oracle.names,
        excess=finder.oracle.plain_excess(),
        seconds=cost.seconds,
        flops=cost.flops,
        casts=cost.casts,
    )
    finder.assignments.setdefault(point.kept, low)
    if all(one.kept != point.kept for one in finder.trail):
        finder.trail.append(point)
    return point
