"""Exact evaluation of what was guessed: best first, within a budget of estimated seconds, on all samples before it counts.

A large change is misjudged by a derivative, but its neighbours tell. One sample, the worst, is asked first; the others of those
that were predicted only where it is explained in part, and all where these are. `ordering` says what comes next.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.amounts import PROMISING
from parityscope.hypotheses.from_outputs.families import with_free_numbers
from parityscope.hypotheses.from_outputs.family_fits import EXACT, WIDER, fit_family
from parityscope.hypotheses.from_outputs.ordering import PART_OF_TIME, GuessQueues, shortest_first
from parityscope.hypotheses.from_outputs.sites import redo_edits
from parityscope.hypotheses.from_outputs.superposing import ResponseSketch
from parityscope.hypotheses.power import SURE_BITS, find_least_share
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.amounts import Responses
    from parityscope.hypotheses.from_outputs.families import EditFamily
    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.residual import Residual, Share
    from parityscope.hypotheses.from_outputs.sites import EditSite


ENOUGH = 0.985  # of the squared error, on all samples: below it a description is no cause (measured)
_PATTERN = 0.99  # of the elements that are lost on either side; where most are, few numbers are left to count
_MOST_OF_IT = 0.5
_SAME_SUM = 1e-9  # of the sum of all sizes: what sums in float64 in another order may differ by
_AFTER = 12  # evaluations that go on when all is explained: a better or shorter one may stand beside it
_BEHIND = 0.1  # of the error less than the best explains: the ends of such a place are moved; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TriedGuess:
    """A guess with what its edit explains, on the first samples (`first`) or on all (`share`).

    `sketch` is what it does to the outputs of the worst sample, as `Trials.sketches` shortens it.
    """

    guess: Guess
    edit: StretchEdit
    first: float
    share: Share | None = None
    sketch: np.ndarray | None = None

    @property
    def explained(self) -> float:
        """The share of the squared error."""
        return self.first if self.share is None else self.share.pooled


@dataclass(slots=True, kw_only=True, eq=False)
class Trials:
    """What was evaluated, within `seconds` (estimated).

    `best` explains most, of all samples where they were asked, a claim before what is none. `worst` is the sample that is
    furthest off, of those that are tried first. `seen` is what was evaluated, `idle` what gave the reference's own results.
    """

    reference: Reference
    residual: Residual
    samples: Sequence[int]
    seconds: float
    trying: Callable[[str], None] = lambda _: None
    banned: frozenset[str] = frozenset()
    until: float = math.inf
    sites: Sequence[EditSite] = ()
    tried: list[TriedGuess] = field(default_factory=list)
    evaluations: int = 0
    failed: int = 0
    seen: dict[int, object] = field(default_factory=dict)
    idle: dict[int, object] = field(default_factory=dict)
    by_site: dict[str, float] = field(default_factory=dict)
    best: TriedGuess | None = None
    worst: int = field(init=False)
    sketches: ResponseSketch = field(init=False)
    _made: tuple[StretchEdit, list[np.ndarray | None]] | None = (
        None  # an edit, and what its step gives on the worst sample
    )

    def __post_init__(self) -> None:
        """Finds the worst sample, and makes ready what shortens responses."""
        self.worst = max(self.samples, key=self.residual.size)
        self.sketches = ResponseSketch(self.residual.numbers(self.worst))

    def wanted_sketch(self) -> np.ndarray:
        """What there is to be explained of the worst sample."""
        return self.sketches.of(self.residual.wanted(self.worst)).astype(np.float64)

    @property
    def is_spent(self) -> bool:
        """Whether all that the search may spend is spent."""
        return self.reference.meter.spent > self.until

    @property
    def explains(self) -> bool:
        """Whether the best is a claim that leaves nothing anywhere but what rounding may leave."""
        best = self.best
        return (
            best is not None
            and best.share is not None
            and self.is_claim(best)
            and best.share.is_exact(self.residual.noise)
        )

    def is_claim(self, one: TriedGuess) -> bool:
        """Whether it explains enough everywhere, and saves more bits than it takes to say it and to choose its place."""
        share = one.share
        if share is None or min(share.least, share.pooled) < ENOUGH:
            return False
        if self.residual.is_broken and share.pattern >= _PATTERN:
            return True
        return share.bits(max(self.residual.noise, 1e-300)) >= self.bits_of(one) + SURE_BITS

    def bits_of(self, one: TriedGuess) -> float:
        """What it takes to say the edit and to choose its place."""
        return one.edit.bits + math.log2(max(2, len(self.reference.live)))

    def run(self, guesses: Sequence[Guess], patience: float = math.inf) -> None:
        """Evaluates guesses until all is explained or the budget is spent.

        Where the best explains most of the error, `patience` are the evaluations after which nothing better is expected.
        """
        scored = sorted((one for one in guesses if one.score is not None), key=lambda one: -(one.score or 0.0))
        odd = sorted((one for one in guesses if one.score is None), key=lambda one: one.made().bits)
        queues = GuessQueues(scored, odd, self.reference)
        more, turn, least, stale = _AFTER, 0, -math.inf, 0
        while self.seconds > least and more > 0 and not self.is_spent:
            turn += 1
            guess = queues.next(turn, self)
            if guess is None:
                return
            before = self.best
            self.attempt(guess)
            best = self.best
            stale = stale + 1 if best is before else 0
            if best is not None and best.explained > _MOST_OF_IT and stale >= patience:
                return
            if best is not None and best.share is not None and self.is_claim(best):
                # What explains nearly all may stand in for what explains all: half of what is left goes into looking for it.
                least = max(least, self.seconds / 2)
                more -= 1 if best.share.is_exact(self.residual.noise) else 0

    def run_plain(self, guesses: Sequence[Guess], part: float = PART_OF_TIME) -> None:
        """Evaluates edits until one explains all: by turns what is predicted to explain most, and by length and cost.

        Of those that give the same result only the first, and none that gives a shape that what follows cannot have meant. `part`
        is that of the bits of the time that an edit takes.
        """
        order = shortest_first(guesses, self.reference, part)
        scored = sorted((one for one in order if one.score is not None), key=lambda one: -(one.score or 0.0))
        self._run_each(one for pair in itertools.zip_longest(scored, order) for one in pair if one is not None)

    def run_rules(self, guesses: Sequence[Guess]) -> None:
        """Evaluates edits of several places, until one explains all: those in the fewest words first."""
        for guess in shortest_first(guesses, self.reference):
            if self.explains or self.is_spent:
                return
            if self.was_tried(guess):
                continue
            if not all(self._does_nothing(site, edit) for site, edit in guess.everything(guess.made())):
                self.attempt(guess)

    def _does_nothing(self, site: EditSite, edit: StretchEdit) -> bool:
        """Whether a step gives the reference's own results with an edit, on the worst sample."""
        results = site.results(self.worst, edit)
        return results is not None and self._are_known(site, results)

    def run_moves(self, guesses: Sequence[Guess]) -> None:
        """Evaluates the edits that put the same values elsewhere, until one explains all: those in the shortest words first."""
        self._run_each(sorted(guesses, key=lambda one: len(one.made().words)), moves=True)

    def _run_each(self, guesses: Iterable[Guess], *, moves: bool = False) -> None:
        given: dict[tuple[str, bytes], TriedGuess | None] = {}
        for guess in guesses:
            if self.explains or self.is_spent:
                return
            if self.was_tried(guess) or self.is_idle(guess):
                continue
            result = self._result_of_plain(guess)
            if result is not None and moves and not (self._made and _are_moved(guess.site, self.worst, self._made[1])):
                result = None
            key = guess.site.output, result or b""
            # The same on the worst sample: on the others it may be what explains the rest.
            if result is not None and (key not in given or self._is_near(given[key])):
                tried = self.attempt(guess)
                given.setdefault(key, tried)
            self._made = None

    def _is_near(self, one: TriedGuess | None) -> bool:
        return one is not None and one.share is not None and _MOST_OF_IT < one.explained < ENOUGH

    def _result_of_plain(self, guess: Guess) -> bytes | None:
        """The digest of what the step gives on the worst sample; None where that is the reference's, or of no shape for it."""
        edit = guess.made()
        self.trying(edit.words)
        results = None if edit.form in self.banned else guess.site.results(self.worst, edit)
        known = self.reference.values[self.worst]
        if results is None:
            return None
        self._made = edit, results
        digest = hashlib.blake2b()
        for name, array in zip(guess.site.step.outputs, results, strict=False):
            if array is None or name not in known:
                continue
            if not _may_stand_for(array.shape, known[name].shape, guess.site.counted_axes(name)):
                return None
            digest.update(np.ascontiguousarray(array).tobytes())
        if self._are_known(guess.site, results):
            _note(self.idle, guess)
            return None
        return digest.digest()

    def _are_known(self, site: EditSite, results: Sequence[np.ndarray | None]) -> bool:
        """Whether a step's results are the reference's own, on the worst sample."""
        known = self.reference.values[self.worst]
        return all(
            array is None or name not in known or np.array_equal(array, known[name], equal_nan=array.dtype.kind in "fc")
            for name, array in zip(site.step.outputs, results, strict=False)
        )

    def was_tried(self, guess: Guess) -> bool:
        """Whether its edit was evaluated, with this guess or another."""
        return id(_identity_of(guess)) in self.seen

    def is_idle(self, guess: Guess) -> bool:
        """Whether its step gave the reference's own result on the worst sample."""
        return id(_identity_of(guess)) in self.idle

    def attempt(self, guess: Guess) -> TriedGuess | None:
        """Evaluates one guess, once."""
        if self.was_tried(guess):
            return None
        _note(self.seen, guess)
        edit = guess.made()
        if self.banned and edit.form in self.banned:
            return None
        self.trying(edit.words)
        found = self._edits_of_guess(guess, edit) if guess.family is None else self._fit_family(guess, guess.family)
        if found is None:
            self.failed += 1
            return None
        freed = self._free_numbers(found)
        found = found if freed is None else freed
        self.tried.append(found)
        if self.best is None or self._rank(found) > self._rank(self.best):
            self.best = found
        key = guess.site.output
        self.by_site[key] = max(self.by_site.get(key, -1.0), found.explained)
        return found

    def _rank(self, one: TriedGuess) -> tuple[bool, float]:
        """A claim before what takes more to say than it saves: enough fitted numbers explain any few outputs."""
        return self.is_claim(one), one.explained

    def responses(self, guess: Guess, edit: StretchEdit, samples: Iterable[int]) -> Responses | None:
        """The outputs with an edit, and with all that is made together with it; None where it cannot be run."""
        found = {}
        self.evaluations += 1
        for sample in samples:
            self.seconds -= self.reference.cost(guess.site.step)
            self.reference.meter.charge(self.residual.price(sample))
            try:
                found[sample] = self._response(sample, guess, edit)
            except ParityError:
                return None
        return found

    def _response(self, sample: int, guess: Guess, edit: StretchEdit) -> Mapping[str, np.ndarray]:
        redone = redo_edits(guess.everything(edit))
        if self._made is not None and self._made[0] is edit and sample == self.worst and not guess.others:
            results = self._made[1]
            redone = {guess.site.step.index: lambda *_: results}
        return self.reference.respond(sample, redone)

    def _edits_of_guess(self, guess: Guess, edit: StretchEdit) -> TriedGuess | None:
        responses = self._respond_first(guess, edit)
        if responses is None:
            return None
        if len(responses) < len(self.samples):
            first = self.residual.share(responses).pooled
            return TriedGuess(guess=guess, edit=edit, first=first, sketch=self._sketch_if_alike(responses))
        return self._confirm_share(guess, edit, responses)

    def _respond_first(self, guess: Guess, edit: StretchEdit) -> Responses | None:
        """The outputs on the samples that were predicted; on the worst alone where that is not explained in part."""
        worst = self.worst
        responses = self.responses(guess, edit, (worst,))
        others = [sample for sample in self.samples if sample != worst]
        if responses is None or not others or self.residual.share(responses).pooled < PROMISING:
            return responses
        more = self.responses(guess, edit, others)
        return None if more is None else {**responses, **more}

    def _confirm_share(self, guess: Guess, edit: StretchEdit, responses: Responses) -> TriedGuess:
        """The share on the first samples, and where that is much on all of them."""
        first, sketch = self.residual.share(responses), self._sketch_if_alike(responses)
        others = [sample for sample in range(len(self.reference.values)) if sample not in responses]
        if first.pooled < max(PROMISING, self._least_share()):
            return TriedGuess(guess=guess, edit=edit, first=first.pooled, sketch=sketch)
        if others:
            more = self.responses(guess, edit, others)
            if more is None:
                return TriedGuess(guess=guess, edit=edit, first=0.0)
            responses = {**responses, **more}
        whole = self.residual.share(responses)
        return TriedGuess(guess=guess, edit=edit, first=first.pooled, share=whole, sketch=sketch)

    def _sketch_if_alike(self, responses: Responses) -> np.ndarray | None:
        """A response's sketch; None where its shapes are others."""
        given = responses[self.worst]
        names = {part.name: part.shape for part in self.residual.samples[self.worst]}
        same = all(name in given and given[name].shape == shape for name, shape in names.items())
        return self.sketches.of(self.residual.difference(self.worst, given)) if same else None

    def _free_numbers(self, one: TriedGuess) -> TriedGuess | None:
        """The same operator with its numbers fitted, where it explains a part and more so; None else."""
        guess = one.guess
        if not PROMISING <= one.explained < EXACT or guess.family is not None or guess.others or guess.rule:
            return None
        free = with_free_numbers(guess.site, one.edit)
        if free is None:
            return None
        other = guess.with_family(*free)
        fitted = self._fit_family(other, free[0])
        return fitted if fitted is not None and 1 - fitted.explained < (1 - WIDER) * (1 - one.explained) else None

    def comes_near(self, explained: float, bits: float) -> bool:
        """Whether so much is about as much as the best explains, and more than so many bits explain by chance."""
        numbers = sum(map(self.residual.numbers, self.samples))
        least = max(PROMISING, find_least_share(bits, numbers))
        return explained >= least and (self.best is None or explained >= self.best.explained - _BEHIND)

    def _least_share(self) -> float:
        """What is worth asking all samples: nearly as much as the best."""
        best = self.best
        return 0.0 if best is None else min(best.explained, ENOUGH) - 0.05

    def _fit_family(self, guess: Guess, family: EditFamily) -> TriedGuess | None:
        """A family at the amounts that explain most."""
        edit = guess.made()
        first = self._respond_first(guess, edit)
        if first is None:
            return None
        share = self.residual.share(first).pooled
        if share < PROMISING and family.kind != "filter":
            return TriedGuess(guess=guess, edit=edit, first=share, sketch=self._sketch_if_alike(first))
        found = fit_family(self, guess, family)
        if found is None:
            return None
        guess.family, guess.kind, guess.amounts, guess.rule = found.family, found.family.kind, found.amounts, found.rule
        return self._confirm_share(guess, guess.made(), found.responses)


def _may_stand_for(shape: Sequence[int], known: Sequence[int], counted: frozenset[int]) -> bool:
    """Whether a result of this shape broadcasts to the known one: an operand that is handed on alone may be shorter.

    Along the axes that are `counted` it may have any length.
    """
    return len(shape) == len(known) and all(
        one in {1, other} or axis in counted for axis, (one, other) in enumerate(zip(shape, known, strict=True))
    )


def _are_moved(site: EditSite, sample: int, results: Sequence[np.ndarray | None]) -> bool:
    """Whether the first of a step's results has the very values of the reference's, by their sum, least and largest."""
    known, found = site.result_on(sample), results[0]
    if found is None or not found.size or found.dtype != known.dtype or known.dtype.kind not in "fiu":
        return False
    size = np.abs(known).sum(dtype=np.float64)
    near = abs(float(found.sum(dtype=np.float64) - known.sum(dtype=np.float64))) <= _SAME_SUM * size
    return bool(near and found.min() == known.min() and found.max() == known.max())


def _identity_of(guess: Guess) -> object:
    """The same for guesses of one edit alone."""
    return guess if guess.edit is None or guess.others or guess.rule else guess.edit


def _note(noted: dict[int, object], guess: Guess) -> None:
    """Keeps what tells a guess from others: a number of what is gone may be given to something else."""
    identity = _identity_of(guess)
    noted[id(identity)] = identity
