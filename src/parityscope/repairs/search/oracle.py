"""Evaluates assignments on the search samples: one evaluation is one run of the switchable graph over all of them.

Errors against budgets are taken from the reference model's own outputs; sensitivities from the switchable graph with
nothing low, whose bits are those of the plain model without an optimizer, so that FP32 noise is no part of them.
The same assignment is never run twice. When the time or the number of evaluations is used up, `Spent` is raised.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.judging import excess, squared_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.backends.switching import Switchboard
    from parityscope.case import Sample
    from parityscope.repairs.search.judging import Yardstick

__all__ = ["Oracle", "Reading", "Spent"]


class Spent(Exception):  # noqa: N818 - it reads as a state: `except Spent`
    """The search has used up its time or its evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One evaluation: the excess of each sample in units of the budget, and the mean over samples of squared errors."""

    excess: tuple[float, ...]
    squared: float

    @property
    def worst(self) -> float:
        """The largest excess; above 1 misses a budget."""
        return max(self.excess)


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
    ) -> None:
        self.names = tuple(node.name for node in board.graph.nodes)
        self.count = 0
        self._board = board
        self._samples = tuple(samples)
        self._references = tuple(references)
        self._held = held
        self._most = math.inf if evaluations is None else evaluations
        self._deadline, self._clock = deadline, clock
        self._known: dict[bytes, Reading] = {}
        none = np.zeros(len(self.names), np.bool_)
        self._plain = [board.run(sample, none) for sample in self._samples]

    def evaluate(self, low: np.ndarray) -> Reading:
        """The errors with the nodes of `low` (bool, (nodes,)) in the format.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        key = np.packbits(low).tobytes()
        if key in self._known:
            return self._known[key]
        if self.count >= self._most or self._clock() >= self._deadline:
            raise Spent
        self.count += 1
        over, squares = [], []
        for sample, reference, plain in zip(self._samples, self._references, self._plain, strict=True):
            outputs = self._board.run(sample, low)
            over.append(excess(self._held, reference, outputs))
            squares.append(squared_error(self._held, plain, outputs))
        reading = Reading(excess=tuple(over), squared=sum(squares) / len(squares))
        self._known[key] = reading
        return reading

    def plain_excess(self) -> float:
        """The worst excess with nothing low: what FP32 itself misses of the budget."""
        return max(
            excess(self._held, reference, plain) for reference, plain in zip(self._references, self._plain, strict=True)
        )

    def only(self, places: Sequence[int]) -> np.ndarray:
        """The assignment with only the nodes at these places low: bool, (nodes,)."""
        low = np.zeros(len(self.names), np.bool_)
        low[list(places)] = True
        return low

    def without(self, names: set[str]) -> np.ndarray:
        """The assignment with everything low but the nodes called `names`: bool, (nodes,)."""
        return np.array([name not in names for name in self.names], np.bool_)
