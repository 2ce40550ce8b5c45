"""Worlds measured while they advance: formats and noise against the plain one, another order against the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison import measure_replay
from parityscope.comparison.parts import measure_parts
from parityscope.comparison.rows import Align, align_as_given
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.room import check_room, nbytes_of_world, split_worlds
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.comparison import ReplayStatistics
    from parityscope.comparison.parts import Parts
    from parityscope.evaluation.sessions import Sessions
    from parityscope.evaluation.worlds import World
    from parityscope.expectation.records import Reference

PLAIN, REORDERED = "plain", "reordered"  # names of worlds; of other orders than the first, the latter begins


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlace:
    """Where in the pass a sample is, and a part of its worlds."""

    progress: Progress
    place: int
    samples: int
    steps: int
    part: int = 0
    parts: int = 1

    def at(self, step: int) -> None:
        """Tells that the pass is at a step of its sample."""
        done = (self.place * self.parts + self.part) * self.steps + step
        self.progress("predicting", done, self.samples * self.parts * self.steps)


@dataclass(slots=True, kw_only=True)
class Meter:
    """What was measured, by world and tensor.

    Formats and the disturbance are held against the plain world (where there is none, against the reference), another order of
    the sums against the reference; `still` holds that one against the plain world too.
    """

    model: Model
    reference: Reference | None
    align: Align
    by_part: bool = False
    totals: dict[str, dict[str, ReplayStatistics]] = field(default_factory=dict)
    parts: dict[str, dict[tuple[int, str], Parts]] = field(default_factory=dict)
    still: dict[str, dict[str, ReplayStatistics]] = field(default_factory=dict)

    def measure(
        self,
        worlds: Sequence[World],
        inputs: Inputs,
        index: int,
        watch: Sequence[str],
        sessions: Sessions,
        told: SamplePlace,
    ) -> None:
        """Adds one sample; worlds that do not fit into the memory together run one behind the other, the first beside each.

        Raises:
            ParityError: not even two of them fit, or a node cannot be run alone.
        """
        arrays = inputs.sample(index).arrays
        nbytes = nbytes_of_world(self.model, worlds[0].program, arrays)
        check_room(nbytes, min(len(worlds), 2))
        groups = split_worlds(worlds[0], [[world] for world in worlds[1:]], nbytes)
        for number, group in enumerate(groups):
            told = replace(told, part=number, parts=len(groups))
            self._measure_together(group, arrays, index, watch, sessions, told)

    def _measure_together(
        self,
        worlds: Sequence[World],
        arrays: Mapping[str, np.ndarray],
        index: int,
        watch: Sequence[str],
        sessions: Sessions,
        told: SamplePlace,
    ) -> None:
        names = [world.name for world in worlds]
        held: dict[str, dict[str, np.ndarray]] = {name: {} for name in names}
        for moment in evaluate_worlds(worlds, arrays, watch, sessions):
            told.at(0 if moment.step is None else moment.step.index)
            for name in names:
                for site in moment.sites:
                    value = moment.stored(name, site)
                    if isinstance(value, np.ndarray):
                        held[name][site] = value
            if self.align is align_as_given:  # what has no order of its own is put in order as a whole
                self._add_sample(held, index)
                held = {name: {} for name in names}
        self._add_sample(held, index)

    def _add_sample(self, held: Mapping[str, dict[str, np.ndarray]], index: int) -> None:
        plain = held.get(PLAIN, {})
        any_world = plain or next(iter(held.values()))
        own = {site: self._referred_to_reference(index, site, array) for site, array in any_world.items()}
        for name, found in held.items():
            if name == PLAIN or not found:
                continue
            expected = own if name == REORDERED or not plain else plain
            pairs = self._merge_sample(self.totals.setdefault(name, {}), expected, found)
            if self.by_part:
                each = ((site, measure_parts(*pair)) for site, pair in pairs.items())
                held_parts = self.parts.setdefault(name, {})
                held_parts.update({(index, site): part for site, part in each if part is not None})
            if name.startswith(REORDERED) and self.reference is not None:
                self._merge_sample(self.still.setdefault(name, {}), plain, found)

    def _referred_to_reference(self, index: int, site: str, array: np.ndarray) -> np.ndarray:
        found = None if self.reference is None else self.reference(index, site)
        return array if found is None else found

    def _merge_sample(
        self, totals: dict[str, ReplayStatistics], expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Adds what was `found` to the totals, and gives it beside what was expected, as far as they can be compared."""
        expected, found = self.align(expected, found)
        pairs = {site: (expected[site], array) for site, array in found.items() if site in expected}
        alike = {
            site: (own, array)
            for site, (own, array) in pairs.items()
            if (own.shape, own.dtype) == (array.shape, array.dtype)
        }
        for site, (own, array) in alike.items():
            part = measure_replay(own, array, own, channel_axis=None)
            totals[site] = totals[site].merge(part) if site in totals else part
        return alike
