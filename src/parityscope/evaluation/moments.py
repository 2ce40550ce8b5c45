"""What somebody who watches gets to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.evaluation._lanes import Lane
    from parityscope.evaluation.program import ProgramStep


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """What worlds gave at one step (None: before the first, at inputs and constants).

    `sites` are those of its results that are watched; `iteration` says how often each loop around it went round before, from
    the outermost inwards. Arrays are read only, and may be kept no longer than until the next moment without a copy being made:
    keeping one keeps its memory.
    """

    step: ProgramStep | None
    sites: tuple[str, ...]
    iteration: tuple[int, ...]
    lanes: Mapping[str, Lane] = field(repr=False)

    def stored(self, world: str, site: str) -> Any:
        """What readers see of `site` in `world`; None where that world has no such value."""
        lane = self.lanes.get(world)
        return None if lane is None else lane.find(site)

    def computed(self, world: str, site: str) -> Any:
        """What the step gave in `world`, before it was stored; None where that world has no such value."""
        lane = self.lanes.get(world)
        if lane is None:
            return None
        return lane.computed[site] if site in lane.computed else lane.find(site)
