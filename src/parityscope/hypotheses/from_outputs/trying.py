"""Exact evaluation of what was guessed: best first, within a budget of estimated seconds, on all samples before it counts.

The order is that of the guesses' scores. Between them come edits that could not be predicted, shortest first, and others at the
sites where something explains a part already: a large change is misjudged by a derivative, but its neighbours tell.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.hypotheses.edits import Edit
    from parityscope.hypotheses.from_outputs.predicting import Guess
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.residual import Residual, Share
    from parityscope.hypotheses.from_outputs.sites import Site

__all__ = ["Trials", "Tried"]

ENOUGH = 0.985  # of the squared error, on all samples: below it a description is no cause (measured)
_EXACT = 0.9995
_PROMISING = (
    0.3  # of the error of the first samples: from here on a number is fitted further, and other samples are asked
)
_FITTINGS = 6  # Gauss-Newton steps
_NEAR_TURN, _ODD_TURN = 3, 4  # one evaluation in so many is about a promising site, about what has no prediction
_AFTER = 12  # evaluations that go on when all is explained: a better or shorter one may stand beside it
_CONVERGED = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tried:
    """A guess with what its edit explains, on the first samples (`first`) or on all (`share`)."""

    guess: Guess
    edit: Edit
    first: float
    share: Share | None = None

    @property
    def explained(self) -> float:
        """The share of the squared error."""
        return self.first if self.share is None else self.share.pooled


@dataclass(slots=True, kw_only=True, eq=False)
class Trials:
    """What was evaluated, within `seconds` (estimated). `best` explains most, of all samples where they were asked."""

    reference: Reference
    residual: Residual
    samples: Sequence[int]
    seconds: float
    trying: Callable[[str], None] = lambda _: None
    banned: frozenset[str] = frozenset()
    until: float = math.inf
    tried: list[Tried] = field(default_factory=list)
    evaluations: int = 0
    failed: int = 0
    seen: set[int] = field(default_factory=set)
    by_site: dict[str, float] = field(default_factory=dict)
    best: Tried | None = None

    @property
    def is_spent(self) -> bool:
        """Whether the processor time of the search is used up."""
        return time.process_time() > self.until

    def run(self, guesses: Sequence[Guess]) -> None:
        """Evaluates guesses until all is explained or the budget is spent."""
        scored = sorted((one for one in guesses if one.score is not None), key=lambda one: -(one.score or 0.0))
        odd = sorted((one for one in guesses if one.score is None), key=lambda one: one.made().bits)
        queues = _Queues(scored, odd)
        more, turn, least = _AFTER, 0, -math.inf
        while self.seconds > least and more > 0 and not self.is_spent:
            turn += 1
            guess = queues.next(turn, self)
            if guess is None:
                return
            self.attempt(guess)
            best = self.best
            if best is not None and best.share is not None and best.share.least >= ENOUGH:
                # What explains nearly all may stand in for what explains all: half of what is left goes into looking for it.
                least = max(least, self.seconds / 2)
                more -= 1 if best.share.pooled >= _EXACT else 0

    def attempt(self, guess: Guess) -> Tried | None:
        """Evaluates one guess, once."""
        if id(guess) in self.seen:
            return None
        self.seen.add(id(guess))
        edit = guess.made()
        if edit.words in self.banned:
            return None
        self.trying(edit.words)
        found = self._fitted(guess) if guess.family is not None else self._of(guess, edit)
        if found is None:
            self.failed += 1
            return None
        self.tried.append(found)
        if self.best is None or found.explained > self.best.explained:
            self.best = found
        key = guess.site.output
        self.by_site[key] = max(self.by_site.get(key, -1.0), found.explained)
        return found

    def responses(self, site: Site, edit: Edit, samples: Iterable[int]) -> dict[int, Mapping[str, np.ndarray]] | None:
        """The outputs with an edit; None where it cannot be run."""
        found = {}
        for sample in samples:
            self.seconds -= self.reference.cost(site.step)
            results = site.results(sample, edit)
            if results is None:
                return None
            try:
                with np.errstate(all="ignore"):
                    found[sample] = self.reference.respond(sample, site.step, results)
            except ParityError:
                return None
        self.evaluations += 1
        return found

    def _of(self, guess: Guess, edit: Edit) -> Tried | None:
        responses = self.responses(guess.site, edit, self.samples)
        if responses is None:
            return None
        return self._confirmed(guess, edit, responses)

    def _confirmed(self, guess: Guess, edit: Edit, responses: dict[int, Mapping[str, np.ndarray]]) -> Tried:
        """The share on the first samples, and where that is much on all of them."""
        first = self.residual.share(responses)
        others = [sample for sample in range(len(self.reference.values)) if sample not in responses]
        if first.pooled < max(_PROMISING, self._least()):
            return Tried(guess=guess, edit=edit, first=first.pooled)
        if others:
            more = self.responses(guess.site, edit, others)
            if more is None:
                return Tried(guess=guess, edit=edit, first=0.0)
            responses = {**responses, **more}
        return Tried(guess=guess, edit=edit, first=first.pooled, share=self.residual.share(responses))

    def _least(self) -> float:
        """What is worth asking all samples: nearly as much as the best."""
        best = self.best
        return 0.0 if best is None else min(best.explained, ENOUGH) - 0.05

    def _fitted(self, guess: Guess) -> Tried | None:
        """A family at the amount that explains most, from the one that was guessed."""
        family, amount = guess.family, guess.amount
        if family is None:
            return None
        best: tuple[float, float, dict[int, Mapping[str, np.ndarray]]] | None = None
        amounts = [amount]
        for _ in range(_FITTINGS):
            responses = self.responses(guess.site, family.make(amounts[-1]), self.samples)
            if responses is None:
                break
            share = self.residual.share(responses).pooled
            if best is None or share > best[0]:
                best = share, amounts[-1], responses
            if best[0] < _PROMISING or len(amounts) == _FITTINGS:
                break
            following = self._bisected(best[1], amounts, family.step) if family.grid else self._newton(best)
            if following is None or abs(following - amounts[-1]) <= _CONVERGED * abs(following):
                break
            amounts.append(following)
        if best is None:
            return None
        guess.amount = best[1]
        return self._confirmed(guess, family.make(best[1]), best[2])

    def _newton(self, best: tuple[float, float, dict[int, Mapping[str, np.ndarray]]]) -> float | None:
        """The amount times what makes its response the residual, along itself."""
        along = across = 0.0
        for sample, response in best[2].items():
            moved = self.residual.difference(sample, response)
            wanted = self.residual.wanted(sample)
            along += float(moved @ wanted)
            across += float(moved @ moved)
        return best[1] * along / across if across > 0 and along > 0 else None

    @staticmethod
    def _bisected(best: float, amounts: list[float], span: float) -> float:
        """An amount beside the best so far, nearer each time."""
        width = span * 0.5 ** (len(amounts) + 2)
        return best + width if best - width in amounts or len(amounts) % 2 else best - width


class _Queues:
    """Guesses in the order in which they are evaluated."""

    def __init__(self, scored: Sequence[Guess], odd: Sequence[Guess]) -> None:
        self._scored = list(scored)
        self._odd = list(odd)
        self._at = self._odd_at = 0
        self._of_site: dict[str, list[tuple[float, int, Guess]]] = {}
        for number, one in enumerate((*scored, *odd)):
            entry = (-(one.score if one.score is not None else 0.0), number, one)
            self._of_site.setdefault(one.site.output, []).append(entry)
        for queue in self._of_site.values():
            heapq.heapify(queue)
        self._asked: dict[str, int] = {}

    def next(self, turn: int, trials: Trials) -> Guess | None:
        """The guess that is evaluated next; None when there is none."""
        found = None
        if turn % _ODD_TURN == 0:
            found = self._next_odd(trials)
        elif turn % _NEAR_TURN == 0:
            found = self._next_near(trials)
        return found or self._next_scored(trials) or self._next_odd(trials)

    def _next_scored(self, trials: Trials) -> Guess | None:
        while self._at < len(self._scored):
            self._at += 1
            if id(self._scored[self._at - 1]) not in trials.seen:
                return self._scored[self._at - 1]
        return None

    def _next_odd(self, trials: Trials) -> Guess | None:
        while self._odd_at < len(self._odd):
            self._odd_at += 1
            if id(self._odd[self._odd_at - 1]) not in trials.seen:
                return self._odd[self._odd_at - 1]
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
                if id(guess) not in trials.seen:
                    self._asked[key] = self._asked.get(key, 0) + 1
                    return guess
        return None
