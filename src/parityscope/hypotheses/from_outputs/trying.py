"""Exact evaluation of what was guessed: best first, within a budget of estimated seconds, on all samples before it counts.

The order is that of the guesses' scores. Between them come edits that could not be predicted, shortest first, and others at the
sites where something explains a part already: a large change is misjudged by a derivative, but its neighbours tell.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.reference import READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from parityscope.hypotheses.edits import Edit
    from parityscope.hypotheses.from_outputs.families import Family
    from parityscope.hypotheses.from_outputs.predicting import Guess
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.residual import Residual, Share
    from parityscope.hypotheses.from_outputs.sites import Site

    Responses = Mapping[int, Mapping[str, np.ndarray]]

__all__ = ["Trials", "Tried", "fitted"]

ENOUGH = 0.985  # of the squared error, on all samples: below it a description is no cause (measured)
_EXACT = 0.9995
_PROMISING = (
    0.2  # of the error of the first samples: from here on a number is fitted further, and other samples are asked
)
_FITTINGS = 6  # Gauss-Newton steps
_FITTED = 1 - 1e-10  # of the squared error: what FP32 leaves of it
_WIDER = 0.3  # of what one number leaves is what a further one must explain to be worth saying; chosen
_NEAR_TURN, _ODD_TURN = 3, 4  # one evaluation in so many is about a promising site, about what has no prediction
_AFTER = 12  # evaluations that go on when all is explained: a better or shorter one may stand beside it
_CONVERGED = 1e-3  # of what is left


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
    sites: Sequence[Site] = ()
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

    def responses(self, guess: Guess, edit: Edit, samples: Iterable[int]) -> Responses | None:
        """The outputs with an edit, and with all that is made together with it; None where it cannot be run."""
        found = {}
        self.evaluations += 1
        for sample in samples:
            self.seconds -= self.reference.cost(guess.site.step)
            try:
                with np.errstate(all="ignore"):
                    found[sample] = self._response(sample, guess, edit)
            except ParityError:
                return None
        return found

    def _response(self, sample: int, guess: Guess, edit: Edit) -> Mapping[str, np.ndarray]:
        if guess.others or guess.rule:
            redone = {site.step.index: site.redo(one) for site, one in guess.everything(edit)}
            changed = self.reference.changed_with(sample, redone)
            known = self.reference.values[sample]
            return {name: changed.get(name, known[name]) for name in self.reference.program.outputs if name in known}
        results = guess.site.results(sample, edit)
        if results is None:
            raise ParityError("it cannot be computed")
        return self.reference.respond(sample, guess.site.step, results)

    def _of(self, guess: Guess, edit: Edit) -> Tried | None:
        responses = self.responses(guess, edit, self.samples)
        if responses is None:
            return None
        return self._confirmed(guess, edit, responses)

    def _confirmed(self, guess: Guess, edit: Edit, responses: Responses) -> Tried:
        """The share on the first samples, and where that is much on all of them."""
        first = self.residual.share(responses)
        others = [sample for sample in range(len(self.reference.values)) if sample not in responses]
        if first.pooled < max(_PROMISING, self._least()):
            return Tried(guess=guess, edit=edit, first=first.pooled)
        if others:
            more = self.responses(guess, edit, others)
            if more is None:
                return Tried(guess=guess, edit=edit, first=0.0)
            responses = {**responses, **more}
        return Tried(guess=guess, edit=edit, first=first.pooled, share=self.residual.share(responses))

    def _least(self) -> float:
        """What is worth asking all samples: nearly as much as the best."""
        best = self.best
        return 0.0 if best is None else min(best.explained, ENOUGH) - 0.05

    def _fitted(self, guess: Guess) -> Tried | None:
        """A family at the amounts that explain most, from those that were guessed; a wider one where that explains more."""
        family = guess.family
        if family is None:
            return None
        found = self._best_of(guess, family, guess.amounts)
        if found is None:
            return None
        for wide, start, rule in self._wider(guess, family, found[1]) if _PROMISING <= found[0] < _EXACT else ():
            more = self._best_of(replace(guess, rule=rule), wide, start)
            if more is not None and more[0] > found[0] + _WIDER * (1 - found[0]):
                family, found, guess.rule = wide, more, rule
        guess.family, guess.kind, guess.amounts = family, family.kind, found[1]
        return self._confirmed(guess, guess.made(), found[2])

    def _wider(
        self, guess: Guess, family: Family, amounts: tuple[float, ...]
    ) -> Iterator[tuple[Family, tuple[float, ...], tuple[Site, ...]]]:
        """Families that contain it: with a further number, or as one rule for all sites of the operator."""
        if family.wider is not None and len(amounts) == 1:
            yield *family.wider(amounts[0]), ()
        alike = tuple(site for site in self.sites if _are_alike(site, guess.site)) if family.anywhere else ()
        if alike:
            yield family, amounts, alike

    def _best_of(
        self, guess: Guess, family: Family, start: tuple[float, ...]
    ) -> tuple[float, tuple[float, ...], Responses] | None:
        """The share, amounts and responses of a family's best member on the first samples."""

        def respond(amounts: np.ndarray) -> Responses | None:
            return self.responses(guess, guess.of_family(family, [float(one) for one in amounts]), self.samples)

        found = fitted(respond, self.residual, np.array(start), np.full(len(start), family.step))
        return None if found is None else (found[0], tuple(map(float, found[1])), found[2])


def _are_alike(site: Site, other: Site) -> bool:
    """Whether these are two of one operator in the network itself, and not what is read of two inputs."""
    apart = site.step is not other.step and not site.output.endswith(READ)
    return apart and site.step.op_type == other.step.op_type and not (site.inner or other.inner)


def fitted(
    respond: Callable[[np.ndarray], Responses | None], residual: Residual, start: np.ndarray, steps: np.ndarray
) -> tuple[float, np.ndarray, Responses] | None:
    """The numbers whose responses explain most, from `start` on, with that share and the responses; None where none can be had.

    Gauss-Newton: `steps` are what the slopes are measured over. Nothing is fitted where the start explains next to nothing.
    """
    responses = respond(start)
    if responses is None:
        return None
    best = residual.share(responses).pooled, start, responses
    for _ in range(_FITTINGS):
        if not _PROMISING <= best[0] < _FITTED:
            break
        change = _change_of(respond, residual, best[1], best[2], steps)
        if change is None:
            break
        better = None
        for part in (1.0, 0.3):
            responses = respond(best[1] + part * change)
            share = -1.0 if responses is None else residual.share(responses).pooled
            if responses is not None and share > best[0]:
                better = share, best[1] + part * change, responses
                break
        if better is None:
            break
        gained, best = better[0] - best[0], better
        if gained < _CONVERGED * (1 - best[0]):
            break
    return best


def _change_of(
    respond: Callable[[np.ndarray], Responses | None],
    residual: Residual,
    at: np.ndarray,
    here: Responses,
    steps: np.ndarray,
) -> np.ndarray | None:
    """What to add to the numbers: least squares over their slopes."""
    now = {sample: residual.difference(sample, response) for sample, response in here.items()}
    left = np.concatenate([residual.wanted(sample) - now[sample] for sample in now])
    slopes = []
    for index, step in enumerate(steps):
        beside = at.copy()
        beside[index] += step
        responses = respond(beside)
        if responses is None:
            return None
        slopes.append(np.concatenate([residual.difference(s, responses[s]) - now[s] for s in now]) / step)
    table = np.stack(slopes, 1)
    if not np.isfinite(table).all() or not table.any():
        return None
    return np.asarray(np.linalg.lstsq(table, left, rcond=1e-9)[0])


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
