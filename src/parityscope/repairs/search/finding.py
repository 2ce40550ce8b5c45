"""Probes, sensitivities and cuts: from a target to the cheapest assignment that reaches it on the search samples.

1. All low. If that passes, nothing is to be kept.
2. All low without the flagged nodes. If that passes, flagged ones are taken out of the set one at a time, the costliest
   first, as long as it passes: at most 2 + flagged evaluations in all.
3. Otherwise squared sensitivities are measured (`sense`), and assignments are cut, improved and evaluated (`cutting`).

What is to be chosen is confirmed on all search samples. Where one of them misses, it becomes active, and the search goes on.

A node that only comes near the end of the range on the search samples is never taken out of the kept set in step 2:
that it passes on these samples says nothing about others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.repairs.search.cutting import cut_out
from parityscope.repairs.search.network import price_assignment
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.records import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.recording import Progress
    from parityscope.repairs.search.network import CutNetwork
    from parityscope.repairs.search.oracle import Oracle
    from parityscope.repairs.search.records import Flag
    from parityscope.repairs.search.reverse import Reverse
    from parityscope.repairs.search.sense import Sensed

# Evaluations of all search samples beyond those for sensitivities and for flagged nodes. Chosen: half of them find the first
# cut that passes, the others better it.
_ALLOWED = 15.0
# Of the least modelled time: assignments as near as this are as fast for all that a roofline can tell. Chosen.
_TIE = 0.01


@dataclass(slots=True, kw_only=True)
class Finder:
    """What is known so far; it grows from one target to the next, so that nothing is measured twice.

    `trail` has every evaluated assignment as a point, `assignments` the same as bool, (nodes,), by the kept names.
    `sensing` bounds the evaluations for sensitivities (0: chosen), `reverse` is what backward passes need for them.
    `offers` are points with a third label, which stand beside the trail since their kept nodes alone do not tell them, and
    their nodes in BF16. `spent`: time or evaluations ran out. `excused`:
    what was evaluated for sensitivities and for flagged nodes, in evaluations of all search samples.
    """

    oracle: Oracle
    network: CutNetwork
    flags: Sequence[Flag]
    progress: Progress
    sensing: int = 0
    reverse: Reverse | None = None
    sensed: Sensed | None = None
    trail: list[Point] = field(default_factory=list)
    assignments: dict[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    offers: dict[Point, frozenset[str]] = field(default_factory=dict)
    spent: bool = False
    excused: float = 0.0

    def evaluate(self, step: str, low: np.ndarray, *, probe: bool = False) -> Point:
        """Evaluates an assignment and puts it on the trail."""
        return self._put(step, low, self.oracle.evaluate(low, probe=probe).worst)

    def confirm(self, point: Point, target: float) -> Point:
        """Evaluates an assignment of the trail on the samples that it has not been run on, while they meet the target."""
        low = self.assignments[point.kept]
        return self._put(point.step, low, self.oracle.confirm(low, target).worst)

    def best(self, target: float, *, careful: bool = False) -> Point | None:
        """The cheapest assignment that meets the target on the samples that it was run on; None if there is none.

        Of those that are as fast within a hundredth, the one with the fewest FLOPs in full precision, then with the fewest
        Casts. Everything in full precision comes last. `careful`: every flagged node is kept.
        """
        allowed = [
            point
            for point in self.trail
            if point.excess <= target and not (careful and bool((self.assignments[point.kept] & self.pinned).any()))
        ]
        some = [point for point in allowed if point.kept != self.oracle.names] or allowed
        least = min(some, key=lambda point: point.seconds, default=None)
        tied = [point for point in some if least is None or self.as_fast(point.seconds, least)]
        return min(tied, key=lambda one: (one.flops, one.casts, one.seconds, len(one.kept)), default=None)

    def as_fast(self, seconds: float, point: Point) -> bool:
        """Whether a modelled time is that of a point, for all that a roofline can tell."""
        return seconds <= point.seconds * (1 + _TIE)

    @property
    def left(self) -> float:
        """The evaluations of all search samples that may still be spent on something cheaper."""
        return _ALLOWED - (self.oracle.passes - self.excused)

    @property
    def forced(self) -> np.ndarray:
        """The nodes whose operator does not take the format: bool, (nodes,)."""
        names = {flag.node for flag in self.flags if flag.blame == "operator"}
        return ~self.oracle.without(names)

    def _put(self, step: str, low: np.ndarray, worst: float) -> Point:
        kept = tuple(name for name, each in zip(self.oracle.names, low, strict=True) if not each)
        known = next((place for place, point in enumerate(self.trail) if point.kept == kept), None)
        if known is not None:
            self.trail[known] = replace(self.trail[known], excess=worst)
            return self.trail[known]
        cost = price_assignment(self.network, low)
        point = Point(step=step, kept=kept, excess=worst, seconds=cost.seconds, flops=cost.flops, casts=cost.casts)
        self.trail.append(point)
        self.assignments[kept] = low
        return point

    @property
    def pinned(self) -> np.ndarray:
        """All flagged nodes: bool, (nodes,)."""
        return ~self.oracle.without({flag.node for flag in self.flags})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestFound:
    """The cheapest assignment that reaches the target (all in FP32 if no other does); `spent`: the search was cut short."""

    point: Point
    spent: bool = False


def find_cheapest(finder: Finder, target: float, *, careful: bool = False) -> CheapestFound:
    """The cheapest assignment whose worst excess is at most `target`; `careful` keeps every flagged node."""
    spent = False
    try:
        while True:
            _search_target(finder, target, careful=careful)
            best = finder.best(target, careful=careful)
            if best is None or finder.confirm(best, target).excess <= target:
                break
    except Spent:
        spent = finder.spent = True
    best = finder.best(target, careful=careful)
    if best is None:
        # Everything in full precision computes what the reference does: it needs no evaluation to be known.
        best = _all_full_point(finder)
    return CheapestFound(point=best, spent=spent)


def _search_target(finder: Finder, target: float, *, careful: bool) -> None:
    pinned = finder.pinned
    if not careful and finder.evaluate("all low", ~finder.forced, probe=True).excess <= target:
        return
    probed = bool((pinned & ~finder.forced).any()) or careful
    if probed and finder.evaluate("all low but the flagged", ~pinned, probe=True).excess <= target:
        if not careful:
            _shrink_kept(finder, target)
        return
    cut_out(finder, target, pinned)


def _shrink_kept(finder: Finder, target: float) -> None:
    """Takes flagged nodes that are beyond the range out of the kept set, one at a time, as long as it passes."""
    place = {name: index for index, name in enumerate(finder.oracle.names)}
    seconds = {vertex.name: vertex.times.full - vertex.times.low for vertex in finder.network.vertices}
    droppable = [
        flag.node for flag in finder.flags if flag.overflows and flag.blame != "operator" and flag.node in place
    ]
    low, before = ~finder.pinned, finder.oracle.passes
    for name in sorted(droppable, key=lambda one: (-seconds.get(one, 0.0), one)):
        tried = low.copy()
        tried[place[name]] = True
        if finder.evaluate(f"without {name}", tried).excess <= target:
            low = tried
    finder.excused += finder.oracle.passes - before


def _all_full_point(finder: Finder) -> Point:
    low = np.zeros(len(finder.oracle.names), np.bool_)
    cost = price_assignment(finder.network, low)
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
