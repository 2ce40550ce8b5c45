"""The Pareto front of error against cost, of every assignment that was evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parityscope.repairs.search.records import Point

__all__ = ["pareto_front"]


def pareto_front(points: Iterable[Point]) -> tuple[Point, ...]:
    """Those that no other one beats in both modelled seconds and excess, cheapest first; of equals the first found."""
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.seconds, one.excess)):
        if point.excess != point.excess:  # NaN compares with nothing
            continue
        if not found or point.excess < found[-1].excess:
            found.append(point)
    return tuple(found)
