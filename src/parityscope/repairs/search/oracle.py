"""Evaluates assignments on the search samples: one evaluation is one run of the switchable graph over all of them.

Errors against budgets are taken from the reference model's own outputs; sensitivities from the switchable graph with
nothing low, whose bits are those of the plain model without an optimizer, so that FP32 noise is no part of them.
The same assignment is never run twice on a sample. When the time or the number of evaluations is used up, `Spent` is
raised.

Of many samples a few decide. Those with the largest errors in the probes are *active*: sensitivities are measured on
them, and an assignment that misses the budget on one of them is not run on the others. One that meets it is run on all;
what turns out to be worse becomes active as well. So every error below the budget is the worst over all samples, and one
above it a lower bound.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.judging import excess, squared_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.backends.switching import Switchboard
    from parityscope.case import Sample
    from parityscope.repairs.search.journal import Journal, Measured
    from parityscope.repairs.search.judging import Yardstick

__all__ = ["ACTIVE", "Oracle", "Reading", "Spent"]

# Of a text recogniser's lines one in ten is three times, one in a hundred twenty times as sensitive as the median one, in
# single characters that hang in the balance; eight of a hundred and more reach into that tail. Chosen.
ACTIVE = 8
_ADDED = 2  # samples that one assignment makes active. Chosen


class Spent(Exception):  # noqa: N818 - it reads as a state: `except Spent`
    """The search has used up its time or its evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One evaluation: the excess, in units of the budget, of each sample that it was run on, by place."""

    excess: Mapping[int, float]

    @property
    def worst(self) -> float:
        """The largest excess; above 1 misses a budget."""
        return max(self.excess.values())


class Oracle:
    """Runs assignments and counts them.

    Args:
        board: The switchable graph.
        samples: The search samples.
        references: The reference's outputs on them.
        held: The budgets.
        evaluations: How many evaluations there may be.
        deadline: When `clock` says that time is up.
        clock: Seconds from any start.
        journal: What an interrupted search measured, and where this one writes it down.
    """

    def __init__(
        self,
        board: Switchboard,
        samples: Sequence[Sample],
        references: Sequence[Mapping[str, np.ndarray]],
        held: Yardstick,
        *,
        evaluations: int | None = None,
        deadline: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        journal: Journal | None = None,
    ) -> None:
        self.names = tuple(node.name for node in board.graph.nodes)
        self.count = 0
        self.runs = 0
        self.resumed = 0
        self._board = board
        self._samples = tuple(samples)
        self._references = tuple(references)
        self._held = held
        self._most = math.inf if evaluations is None else evaluations
        self._deadline, self._clock = deadline, clock
        self._journal = journal
        self._active = list(range(len(self._samples)))
        self._counted: set[bytes] = set()
        self._known: dict[tuple[bytes, int], Measured] = {}
        self._plain: dict[int, Mapping[str, np.ndarray]] = {}

    def evaluate(self, low: np.ndarray, *, probe: bool = False) -> Reading:
        """The errors with the nodes of `low` (bool, (nodes,)) in the format; a probe says which samples are active.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        everything = range(len(self._samples))
        over = self._excesses(low, everything if probe else self._active)
        if probe:
            self._active = _hardest(over, ACTIVE)
        elif max(over.values()) <= 1:
            worst = max(over.values())
            rest = self._excesses(low, [place for place in everything if place not in over])
            self._active += [place for place in _hardest(rest, _ADDED) if rest[place] > worst]
            over |= rest
        return Reading(excess=over)

    def squared(self, low: np.ndarray) -> float:
        """The mean over the active samples of the squared error in units of the budget, away from the plain graph.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        self._count(low)
        squares = [self._measured(low, place, squared=True)[1] or 0.0 for place in self._active]
        return sum(squares) / len(squares)

    def plain_excess(self) -> float:
        """The worst excess with nothing low: what FP32 itself misses of the budget."""
        return max(
            excess(self._held, reference, self._plain_outputs(place))
            for place, reference in enumerate(self._references)
        )

    def only(self, places: Sequence[int]) -> np.ndarray:
        """The assignment with only the nodes at these places low: bool, (nodes,)."""
        low = np.zeros(len(self.names), np.bool_)
        low[list(places)] = True
        return low

    def without(self, names: set[str]) -> np.ndarray:
        """The assignment with everything low but the nodes called `names`: bool, (nodes,)."""
        return np.array([name not in names for name in self.names], np.bool_)

    def _excesses(self, low: np.ndarray, places: Iterable[int]) -> dict[int, float]:
        self._count(low)
        return {place: self._measured(low, place, squared=False)[0] for place in places}

    def _count(self, low: np.ndarray) -> None:
        """Counts an assignment that is evaluated for the first time."""
        key = _key(low)
        if key in self._counted:
            return
        if self.count >= self._most or self._clock() >= self._deadline:
            raise Spent
        self._counted.add(key)
        self.count += 1

    def _measured(self, low: np.ndarray, place: int, *, squared: bool) -> Measured:
        key = _key(low), place
        known = self._known.get(key)
        if known is None and self._journal is not None:
            known = self._journal.get(*key)
            self.resumed += known is not None
        if known is None or (squared and known[1] is None):
            self.runs += 1
            outputs = self._board.run(self._samples[place], low)
            over = excess(self._held, self._references[place], outputs)
            known = over, squared_error(self._held, self._plain_outputs(place), outputs) if squared else None
            if self._journal is not None:
                self._journal.add(*key, known)
        self._known[key] = known
        return known

    def _plain_outputs(self, place: int) -> Mapping[str, np.ndarray]:
        if place not in self._plain:
            none = np.zeros(len(self.names), np.bool_)
            self._plain[place] = self._board.run(self._samples[place], none)
        return self._plain[place]


def _key(low: np.ndarray) -> bytes:
    return np.packbits(low).tobytes()


def _hardest(over: Mapping[int, float], count: int) -> list[int]:
    """The places with the largest excess; of equals the first."""
    return sorted(over, key=lambda place: (-over[place], place))[:count]
