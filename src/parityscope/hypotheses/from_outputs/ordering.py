"""The order in which guesses are evaluated: groups of kinds by turns, in each its kinds, in each of these the best score first.

What has a free number comes near many errors, and would crowd out what has none. Between them come edits that could not be
predicted, shortest first, and others at the sites where something explains a part already.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.trying import Trials

# Whose turn it is. "near" is what stands at a promising site, "odd" what has no prediction.
# "short" is what says least in the least time: far from what a derivative can see, every simple edit deserves to be run.
# "functions" are other operators of one variable with numbers to be fitted, which are crowded out by scales and indices else.
_TURNS = (
    "structure",
    "functions",
    "fitted",
    "constants",
    "near",
    "short",
    "values",
    "structure",
    "odd",
    "constants",
    "functions",
    "everywhere",
)
_GROUPS = {
    **dict.fromkeys(
        ("neighbours", "inputs", "layouts", "attributes", "operands", "relatives", "operators", "inside"), "structure"
    ),
    **dict.fromkeys(("constants", "changed constants", "near constants", "joint", "exchanged"), "constants"),
    **dict.fromkeys(("values", "changed inputs"), "values"),
}
_FUNCTIONS = "operator fitted"
PART_OF_TIME = 0.5  # of the bits of the time that an edit takes, beside its own; chosen: what costs less is no likelier
_SHORT_BITS = 8.0  # of an edit that is tried for its shortness; chosen
_SCORE_BITS = 6.0  # what a perfect score counts there; chosen
_CROWDED = 0.01  # of a score for each better one of the same site in its group; chosen


class GuessQueues:
    """Guesses in the order in which they are evaluated."""

    def __init__(self, scored: Sequence[Guess], odd: Sequence[Guess], reference: Reference) -> None:
        self._groups: dict[str, deque[Guess]] = {
            "odd": deque(odd),
            "short": deque(_shortest_edits((*scored, *odd), reference)),
            "functions": deque(
                shortest_first([one for one in (*scored, *odd) if one.kind == _FUNCTIONS], reference, PART_OF_TIME)
            ),
        }
        ranked: dict[str, dict[str, list[tuple[float, int, Guess]]]] = {}
        crowd: Counter[tuple[str, str]] = Counter()
        for number, one in enumerate(scored):
            if one.kind == _FUNCTIONS:
                continue
            group, kind = _group_of(one), one.kind.rstrip("0123456789")  # those of any axis are one kind
            behind = _CROWDED * crowd[group, one.site.output]
            crowd[group, one.site.output] += 1
            ranked.setdefault(group, {}).setdefault(kind, []).append((behind - (one.score or 0.0), number, one))
        for group, by_kind in ranked.items():
            # Of a kind that comes near many errors the best is no likelier than the best of another.
            each = ([one for _, _, one in sorted(kind, key=lambda entry: entry[:2])] for kind in by_kind.values())
            self._groups[group] = deque(one for turn in itertools.zip_longest(*each) for one in turn if one is not None)
        self._of_site: dict[str, list[tuple[float, int, Guess]]] = {}
        for number, one in enumerate((*scored, *odd)):
            entry = (-(one.score if one.score is not None else 0.0), number, one)
            self._of_site.setdefault(one.site.output, []).append(entry)
        for queue in self._of_site.values():
            heapq.heapify(queue)
        self._asked: dict[str, int] = {}

    def next(self, turn: int, trials: Trials) -> Guess | None:
        """The guess that is evaluated next; None when there is none."""
        for ahead in range(len(_TURNS)):
            name = _TURNS[(turn + ahead) % len(_TURNS)]
            found = self._next_near(trials) if name == "near" else self._next_of(name, trials)
            if found is not None:
                return found
        return None

    def _next_of(self, group: str, trials: Trials) -> Guess | None:
        queue = self._groups.get(group)
        while queue:
            guess = queue.popleft()
            if not trials.was_tried(guess):
                return guess
        return None

    def _next_near(self, trials: Trials) -> Guess | None:
        worth = sorted(
            (math.log1p(self._asked.get(key, 0)) * 0.1 - value, key)
            for key, value in trials.by_site.items()
            if value > 0
        )
        for _, key in worth[:3]:
            queue = self._of_site.get(key, [])
            while queue:
                guess = heapq.heappop(queue)[2]
                if not trials.was_tried(guess):
                    self._asked[key] = self._asked.get(key, 0) + 1
                    return guess
        return None


def _shortest_edits(guesses: Sequence[Guess], reference: Reference) -> list[Guess]:
    """Edits in few words, by these and by what it costs to run them, what is predicted well before others."""
    short = (one for one in guesses if one.edit is not None and not one.others and one.edit.bits <= _SHORT_BITS)
    return shortest_first([one for one in short if _group_of(one) == "structure"], reference)


def shortest_first(guesses: Sequence[Guess], reference: Reference, part: float = 1.0) -> list[Guess]:
    """By the bits that an edit takes and a part of those of the time to run it, less what its score counts."""
    costs: dict[int, float] = {}
    for one in guesses:
        step = one.site.step
        if step.index not in costs:
            costs[step.index] = part * math.log2(reference.cost(step))
    return sorted(
        guesses,
        key=lambda one: one.made().bits + costs[one.site.step.index] - _SCORE_BITS * max(one.score or 0.0, 0.0),
    )


def _group_of(guess: Guess) -> str:
    if guess.others:
        return "everywhere"
    return "fitted" if guess.family is not None else _GROUPS.get(guess.kind, "values")
