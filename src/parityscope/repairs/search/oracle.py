"""Evaluates assignments on the search samples: one evaluation is one run of the switchable graph over all of them.

Errors against budgets are taken from the reference model's own outputs; sensitivities from the switchable graph with
nothing low, whose bits are those of the plain model without an optimizer, so that FP32 noise is no part of them.
The same assignment is never run twice on a sample. When the time or the number of evaluations is used up, `Spent` is
raised. What was run is written into the journal at once, and what the journal of an interrupted search holds is not run
again; both count alike.

Of many samples a few decide. Those with the largest errors in the probes are *active*: sensitivities are measured on
them, and other assignments are run on them alone, until one sample misses the budget, which the next assignment is tried
on first. The one that is to be chosen is confirmed on all; a sample that misses then becomes active as well. What all
of this costs is `passes`: runs of the graph, divided by the number of search samples.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.journal import Journal
from parityscope.repairs.search.judging import squared_error, worst_excess
from parityscope.repairs.search.reverse import Estimate, cost_of_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.backends.onnxruntime_running import Run
    from parityscope.case import Sample
    from parityscope.evaluation.switching import Switchboard
    from parityscope.repairs.search.judging import Yardstick
    from parityscope.repairs.search.reverse import Reverse

# Of a text recogniser's lines one in ten is three times, one in a hundred twenty times as sensitive as the median one, in
# single characters that hang in the balance; eight of a hundred and more reach into that tail. Chosen.
ACTIVE = 8
# (excess, squared error or None), one assignment on one sample.
_Measured = tuple[float, float | None]


class Spent(Exception):  # noqa: N818 - it reads as a state: `except Spent`
    """The search has used up its time or its evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessReading:
    """One assignment: the excess, in units of the budget, of each sample that it has been run on so far, by place."""

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
        self._journal = Journal(None) if journal is None else journal
        self._active = list(range(len(self._samples)))
        self._counted: set[bytes] = set()
        self._asked: set[tuple[bytes, int, bool]] = set()
        self._reversed = 0.0
        self._known: dict[bytes, dict[int, _Measured]] = {}
        self._labelled: dict[bytes, dict[int, float]] = {}
        self._plain: dict[int, Mapping[str, np.ndarray]] = {}

    @property
    def passes(self) -> float:
        """What was spent: runs on a sample, an earlier search's among them, divided by the search samples."""
        labelled = sum(len(held) for held in self._labelled.values())
        return (len(self._asked) + labelled + self._reversed) / len(self._samples)

    @property
    def samples(self) -> int:
        """How many search samples there are."""
        return len(self._samples)

    @property
    def active(self) -> int:
        """How many samples are active."""
        return len(self._active)

    def evaluate(self, low: np.ndarray, *, probe: bool = False) -> ExcessReading:
        """The errors with the nodes of `low` (bool, (nodes,)) in the format, on the active samples up to the first that misses.

        A probe is run on all samples, and says which of them are active.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        if self._count_evaluation(low) and probe:
            self._active = _hardest_samples(
                {place: self._excess_on_sample(low, place) for place in range(len(self._samples))}, ACTIVE
            )
        else:
            self._run_until_beyond(low, tuple(self._active), 1.0)
        return self._reading(low)

    def confirm(self, low: np.ndarray, limit: float) -> ExcessReading:
        """The errors on all samples, up to the first beyond `limit`, which becomes active.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        self._count_evaluation(low)
        self._run_until_beyond(low, (*self._active, *self._inactive_places()), limit)
        return self._reading(low)

    def squared(self, low: np.ndarray) -> float:
        """The mean over the active samples of the squared error in units of the budget, away from the plain graph.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        self._count_evaluation(low)
        squares = [self._measure_sample(low, place, squared=True)[1] or 0.0 for place in sorted(self._active)]
        return sum(squares) / len(squares)

    def estimated(self, reverse: Reverse, needed: int = 1) -> Estimate | None:
        """Squared sensitivities of all nodes on the active samples by backward passes, counted as what they cost.

        None where they cannot be had of at least `needed` nodes, or time or evaluations do not reach for them.

        Raises:
            ParityError: the runtime fails.
        """
        price = cost_of_passes(reverse.passes)
        if self.count + price > self._most or self._clock() >= self._deadline:
            return None
        places = sorted(self._active)
        found = self._answer_of_passes(reverse, needed, places)
        if found is not None:
            self.count += price
            self._reversed += price * len(places)
        return found

    def labelled(self, labels: np.ndarray, limit: float, opened: Callable[[], Run]) -> float:
        """The worst excess of an assignment of more than two labels, on all samples up to the first beyond `limit`.

        labels: int, (nodes,), each below 256. `opened` gives what runs it, and is asked only if something is to be run.

        Raises:
            Spent: the search has used up what it was given.
            ParityError: the runtime fails.
        """
        key = labels.astype(np.uint8).tobytes()
        if key not in self._labelled:
            self._spend_run()
            self._labelled[key] = {}
        held, run = self._labelled[key], None
        for place in (*self._active, *self._inactive_places()):
            over = held.get(place)
            asked = {"labels": key.hex(), "sample": place}
            if over is None and (told := self._journal.get(asked)) is not None:
                over = float(told["excess"])
                self.resumed += 1
            if over is None:
                run = opened() if run is None else run
                over = worst_excess(self._held, self._references[place], run(self._samples[place].arrays))
                self.runs += 1
                self._journal.add(asked, {"excess": over})
            held[place] = over
            if not over <= limit:
                break
        return max(held.values())

    def rest(self) -> None:
        """Gives back the memory of the switchable graph until something is to be run."""
        self._board.close()

    def plain_excess(self) -> float:
        """The worst excess with nothing low: what FP32 itself misses of the budget."""
        return max(
            worst_excess(self._held, reference, self._plain_outputs(place))
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

    def _inactive_places(self) -> list[int]:
        return [place for place in range(len(self._samples)) if place not in self._active]

    def _run_until_beyond(self, low: np.ndarray, places: Sequence[int], limit: float) -> None:
        """Runs an assignment on these samples until one is beyond `limit`: it comes first from then on."""
        for place in places:
            if not self._excess_on_sample(low, place) <= limit:
                self._active = [place, *(one for one in self._active if one != place)]
                return

    def _excess_on_sample(self, low: np.ndarray, place: int) -> float:
        return self._measure_sample(low, place, squared=False)[0]

    def _reading(self, low: np.ndarray) -> ExcessReading:
        return ExcessReading(
            excess={place: held[0] for place, held in sorted(self._known[_assignment_key(low)].items())}
        )

    def _count_evaluation(self, low: np.ndarray) -> bool:
        """Counts an assignment that is evaluated for the first time, and says whether it is."""
        key = _assignment_key(low)
        if key in self._counted:
            return False
        self._spend_run()
        self._counted.add(key)
        return True

    def _spend_run(self) -> None:
        if self.count >= self._most or self._clock() >= self._deadline:
            raise Spent
        self.count += 1

    def _answer_of_passes(self, reverse: Reverse, needed: int, places: list[int]) -> Estimate | None:
        """What backward passes say of the samples at `places`, or have said before the search was interrupted."""
        asked = {"estimate": reverse.asked(), "needed": needed, "places": places}
        if (told := self._journal.get(asked)) is not None:
            self.resumed += len(places)
            return None if told["squared"] is None else Estimate(squared=told["squared"])
        plain = [self._plain_outputs(place) for place in places]
        found = reverse.estimate([self._samples[place] for place in places], plain, needed)
        self.runs += len(places)
        self._journal.add(asked, {"squared": None if found is None else dict(found.squared)})
        return found

    def _measure_sample(self, low: np.ndarray, place: int, *, squared: bool) -> _Measured:
        key = _assignment_key(low)
        self._asked.add((key, place, squared))
        known = self._known.setdefault(key, {}).get(place)
        asked = {"low": key.hex(), "sample": place}
        if known is None and (told := self._journal.get(asked)) is not None:
            known = told["excess"], told["squared"]
            self.resumed += 1
        if known is None or (squared and known[1] is None):
            self.runs += 1
            outputs = self._board.run(self._samples[place], low)
            over = worst_excess(self._held, self._references[place], outputs)
            known = over, squared_error(self._held, self._plain_outputs(place), outputs) if squared else None
            self._journal.add(asked, {"excess": known[0], "squared": known[1]})
        self._known[key][place] = known
        return known

    def _plain_outputs(self, place: int) -> Mapping[str, np.ndarray]:
        if place not in self._plain:
            none = np.zeros(len(self.names), np.bool_)
            self._plain[place] = self._board.run(self._samples[place], none)
        return self._plain[place]


def _assignment_key(low: np.ndarray) -> bytes:
    return np.packbits(low).tobytes()


def _hardest_samples(over: Mapping[int, float], count: int) -> list[int]:
    """The places with the largest excess; of equals the first."""
    return sorted(over, key=lambda place: (-over[place], place))[:count]
