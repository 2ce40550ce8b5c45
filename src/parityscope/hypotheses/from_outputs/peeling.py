"""Two faults at once: what was tried is added up in pairs, then one is put into the reference and the remainder searched.

Neither of two faults explains enough alone. Of all that was tried alone the pairs whose responses add up to the error are
run together (`superposing`). Where none of them is all of it, likely first ones are put into the reference, one after the other:
what was tried alone is run beside each (`beside`), then the sweep, the prediction and the trials are repeated there. The numbers
of both are fitted together in the end. Both are claimed where they explain what one is asked to explain, in fewer bits than both
take to say, and each is told in the shortest words that do the same.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.amounts import PROMISING, fit_amounts
from parityscope.hypotheses.from_outputs.beside import known_responses, redo_steps, run_beside
from parityscope.hypotheses.from_outputs.families import OF_PARTS, with_free_numbers
from parityscope.hypotheses.from_outputs.guess import PLAIN_BITS, Guess
from parityscope.hypotheses.from_outputs.predicting import Predictor
from parityscope.hypotheses.from_outputs.residual import Share, residual_of
from parityscope.hypotheses.from_outputs.sites import EARLY, EditSite, sites_of
from parityscope.hypotheses.from_outputs.superposing import rank_pairs
from parityscope.hypotheses.from_outputs.trying import ENOUGH, Trials, TriedGuess
from parityscope.hypotheses.power import SURE_BITS
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.amounts import Responses
    from parityscope.hypotheses.from_outputs.reference import Redo, Reference
    from parityscope.hypotheses.from_outputs.residual import Residual

# All of these are chosen.
_FIRSTS = 24  # faults that are put in
_RUN_PAIRS, _FITTED_PAIRS = 4000, 6  # pairs that are run together at most, and those of them that are fitted
_ADDED = 0.1  # of the time goes into running pairs of what was tried alone, and as much of the rest into fitting
_KNOWN = 0.5  # of the rest goes into what is known beside all first ones,
_EACH_KNOWN = 0.3  # and of what is left of that into each
_EACH = 0.35  # of what is left of the time goes into all else beside each first one,
_AT_ONE = 0.05  # or so much where only one step is looked at,
_GUESSED = 0.4  # and of that into guessing
_ALIKE = 0.02  # of a response
_PATIENCE = 200  # evaluations beside one that find nothing better than what explains most of the rest
_SECONDS = 3  # of each of these, what is fitted together with it
_AROUND, _SHORTER = 6, 20  # steps around each of a pair, and shorter edits there that are held against it
_SIMILAR = 0.3  # of the response: what differs by more alone does not do the same beside another
_LEAST = 0.1  # of the error: what explains less of it alone is not put in
# Beside what explains less only what is known is looked at: of two errors that are free of each other the larger one is half of
# both.
_LARGER = 0.5
_NEAR = 0.5  # of the remainder: what explains less is not fitted together with the first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessPair:
    """Two guesses with their edits, what both explain together (of all samples) and what the first explains alone."""

    guesses: tuple[Guess, Guess]
    edits: tuple[StretchEdit, StretchEdit]
    share: Share
    first: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Peeling:
    """What is known when it begins: the trials of single edits, with the candidate and the rounding of its outputs.

    `plain` are edits in few words at all sites. `until` is where the reference's meter stands when it ends.
    """

    trials: Trials
    predictor: Predictor
    candidate: Sequence[Mapping[str, np.ndarray]]
    noise: Mapping[str, float]
    plain: Sequence[Guess]
    sites: int
    until: float

    @property
    def is_spent(self) -> bool:
        """Whether all that it may spend is spent."""
        return self.trials.reference.meter.spent > self.until

    @property
    def tried(self) -> list[TriedGuess]:
        """What was tried alone of whole results: of a part so much can be said that it would crowd out the right pair."""
        return [one for one in self.trials.tried if one.guess.kind not in OF_PARTS]


def search_second_fault(peeling: Peeling) -> GuessPair | None:
    """The first pair that is a claim, in the shortest words that do the same; None where none was found in the time."""
    if _least_said(peeling) > _most_saved(peeling):
        return None
    found = next((pair for pair in _pairs(peeling) if _is_claim(peeling, pair)), None)
    return None if found is None or _holds_alone(peeling.trials, found) else _shortened(peeling, found)


def _holds_alone(trials: Trials, pair: GuessPair) -> bool:
    """Whether one of both is all of it, with the numbers that were fitted beside the other; then that was tried alone."""
    for guess, edit in zip(pair.guesses, pair.edits, strict=True):
        responses = trials.responses(guess, edit, range(len(trials.reference.values)))
        share = None if responses is None else trials.residual.share(responses)
        if share is not None and share.least >= ENOUGH and share.is_exact(trials.residual.noise):
            trials.best = TriedGuess(guess=guess, edit=edit, first=share.pooled, share=share)
            trials.tried.append(trials.best)
            return True
    return False


def _least_said(peeling: Peeling) -> float:
    """The bits that a claim of two in the fewest words takes."""
    edits = (*(one.edit for one in peeling.trials.tried), *(one.made() for one in peeling.plain))
    return 2 * (min((edit.bits for edit in edits), default=0.0) + math.log2(max(2, peeling.sites))) + SURE_BITS


def _most_saved(peeling: Peeling) -> float:
    """The bits that are saved by what leaves nothing: of few numbers so little that no two edits are a claim."""
    residual = peeling.trials.residual
    count = sum(part.wrong for parts in residual.samples for part in parts)
    whole = Share(pooled=1.0, least=1.0, left=0.0, whole=residual.whole, count=count)
    return whole.bits(max(residual.noise, 1e-300))


def _pairs(peeling: Peeling) -> Iterator[GuessPair]:
    """What was tried alone, in pairs that add up; then what stands beside each first one, of what is known and of all else."""
    meter = peeling.trials.reference.meter
    run = _run_pairs(peeling)
    fitted = meter.share_of(peeling.until, _ADDED)
    for first, second, _ in run[:_FITTED_PAIRS]:
        if meter.spent > fitted:
            break
        yield from _fitted_together(peeling, first, second)
    firsts = _first_candidates(peeling, run)
    yield from _known_beside(peeling, firsts)
    for first, at in firsts:
        if peeling.is_spent:
            return
        if first.explained >= _LARGER:
            yield from _pairs_with_first(peeling, first, at)


def _run_pairs(peeling: Peeling) -> list[tuple[TriedGuess, TriedGuess, float]]:
    """Pairs that explain most by the sum of their responses, with what they explain of the worst sample when both are made."""
    trials = peeling.trials
    meter = trials.reference.meter
    until = meter.share_of(peeling.until, _ADDED)
    found = []
    for first, second, _ in rank_pairs(peeling.tried, trials.wanted_sketch(), _RUN_PAIRS):
        if meter.spent > until:
            break
        made = ((first.guess, first.edit), (second.guess, second.edit))
        responses = _responses_together(trials, made, (trials.worst,))
        if responses is not None:
            found.append((first, second, trials.residual.share(responses).pooled))
    return sorted(found, key=lambda one: -one[2])


def _first_candidates(
    peeling: Peeling, run: Sequence[tuple[TriedGuess, TriedGuess, float]]
) -> list[tuple[TriedGuess, int | None]]:
    """What is put in, with the index of the only step that is changed beside it: None for all but its own.

    What does the same at another step leaves the step of the one before to the second.
    Of the best pairs the members that explain more; then by turns what explains most alone and what explains most in few words:
    what comes near by chance explains more than the right one, and takes more words.
    """
    chosen: list[list[TriedGuess]] = []
    members = [max(pair[:2], key=lambda one: one.explained) for pair in run[:_FIRSTS] if pair[2] > _NEAR]
    alone = sorted((one for one in peeling.tried if one.explained >= _LEAST), key=lambda one: -one.explained)
    short = [one for one in alone if one.edit.bits <= PLAIN_BITS]
    turns = (one for pair in itertools.zip_longest(alone, short) for one in pair if one is not None)
    for one in (*members[: _FIRSTS // 4], *turns):
        known = next((alike for alike in chosen if _are_alike(one, alike[0])), None)
        if known is not None:
            if one.edit.bits < known[0].edit.bits:
                known[:] = one, *(other for other in known if other.guess.site.step is not one.guess.site.step)
            elif all(one.guess.site.step is not other.guess.site.step for other in known):
                known.append(one)
        elif len(chosen) < _FIRSTS:
            chosen.append([one])
    return [
        (one, at)
        for alike in chosen
        for one, at in zip(alike[:2], (None, alike[0].guess.site.step.index), strict=False)
    ]


def _known_beside(peeling: Peeling, firsts: Sequence[tuple[TriedGuess, int | None]]) -> Iterator[GuessPair]:
    """Pairs of a first one and what was tried alone, or can be said in few words."""
    trials = peeling.trials
    meter = trials.reference.meter
    plain = [one for one in peeling.plain if not trials.was_tried(one) and not trials.is_idle(one)]
    known = known_responses(peeling.tried, plain, len(trials.wanted_sketch()))
    until = meter.share_of(peeling.until, _KNOWN)
    for first, at in firsts:
        own = meter.share_of(until, _EACH_KNOWN)
        near: list[TriedGuess] = []
        try:
            for one in run_beside(trials, first, known, own, at):
                free = None if one.guess.family is not None else with_free_numbers(one.guess.site, one.edit)
                if 1 - one.first < (1 - (_NEAR if free is None else PROMISING)) * (1 - first.explained):
                    near.append(one if free is None else replace(one, guess=one.guess.with_family(*free)))
                    if 1 - one.first < (1 - ENOUGH) * (1 - first.explained):
                        break
        except ParityError:
            continue
        for second in sorted(near, key=lambda one: -one.first)[:_SECONDS]:
            yield from _fitted_together(peeling, first, second)


def _are_alike(one: TriedGuess, other: TriedGuess) -> bool:
    """Whether both do nearly the same to the outputs: what is left behind the one is left behind the other."""
    if one.sketch is None or other.sketch is None:
        return False
    mine, its = one.sketch.astype(np.float64), other.sketch.astype(np.float64)
    return float(np.linalg.norm(mine - its)) <= _ALIKE * float(np.linalg.norm(its))


def _pairs_with_first(peeling: Peeling, first: TriedGuess, at: int | None = None) -> Iterator[GuessPair]:
    """Pairs with a first one, those that leave least first; `at` is the index of the only step that is changed beside it."""
    trials = peeling.trials
    redone = redo_steps(first.guess, first.edit)
    try:
        reference = trials.reference.moved(redone)
    except ParityError:
        return
    names = [part.name for part in trials.residual.samples[0]]
    residual = residual_of(reference.values, peeling.candidate, peeling.noise, names)
    if residual.whole <= residual.noise:
        return
    sites = [site for site in sites_of(reference, residual.still()) if site.step.index not in redone]
    sites = [site for site in sites if at is None or site.step.index == at]
    if not sites:
        return
    meter = reference.meter
    until = meter.share_of(peeling.until, _EACH if at is None else _AT_ONE)
    guessed = meter.share_of(until, _GUESSED)
    predictor = Predictor(
        reference=reference,
        residual=residual,
        samples=trials.samples,
        trying=trials.trying,
        banned=trials.banned,
        until=guessed,
        parts=False,
        refused=peeling.predictor.refused,
    )
    guesses = predictor.guess(sites, EARLY, guessed - meter.spent, fitted=True)
    seconds = Trials(
        reference=reference,
        residual=residual,
        samples=trials.samples,
        seconds=until - meter.spent,
        trying=trials.trying,
        banned=trials.banned,
        until=until,
    )
    seconds.run(guesses, patience=_PATIENCE)
    trials.evaluations += seconds.evaluations
    peeling.predictor.generated += predictor.generated
    near = sorted((one for one in seconds.tried if one.explained > _NEAR), key=lambda one: -one.explained)
    for second in near[:_SECONDS]:
        yield from _fitted_together(peeling, first, second)


def _fitted_together(peeling: Peeling, first: TriedGuess, second: TriedGuess) -> Iterator[GuessPair]:
    """Both with their numbers fitted at once, on the first samples, and what they explain of all; none where they cannot be."""
    trials, both = peeling.trials, (first, second)
    families = [one.guess.family for one in both]
    counts = [0 if family is None else len(one.guess.amounts) for one, family in zip(both, families, strict=True)]
    start = np.concatenate(
        [np.array(one.guess.amounts if count else ()) for one, count in zip(both, counts, strict=True)]
    )
    steps = np.concatenate(
        [np.full(count, 0.0 if family is None else family.step) for count, family in zip(counts, families, strict=True)]
    )

    def edits(amounts: np.ndarray) -> tuple[StretchEdit, StretchEdit]:
        parts = np.split(amounts, [counts[0]])
        made = [
            one.edit if family is None else one.guess.of_family(family, list(map(float, part)))
            for one, family, part in zip(both, families, parts, strict=True)
        ]
        return made[0], made[1]

    guesses = first.guess, _guess_in_reference(second.guess, trials.reference)

    def respond(amounts: np.ndarray, samples: Sequence[int] = trials.samples) -> Responses | None:
        return _responses_together(trials, tuple(zip(guesses, edits(amounts), strict=True)), samples)

    found = fit_amounts(respond, trials.residual, start, steps)
    responses = None if found is None else respond(found[1], range(len(trials.reference.values)))
    if found is not None and responses is not None:
        share = trials.residual.share(responses)
        yield GuessPair(guesses=guesses, edits=edits(found[1]), share=share, first=first.explained)


def _guess_in_reference(guess: Guess, reference: Reference) -> Guess:
    """The guess at the same sites of the reference as it was."""

    def moved(site: EditSite) -> EditSite:
        return EditSite(
            reference=reference, step=site.step, output=site.output, whole_step=site.whole_step, inner=site.inner
        )

    others = tuple((moved(site), edit) for site, edit in guess.others)
    return replace(guess, site=moved(guess.site), others=others, rule=tuple(map(moved, guess.rule)))


def _responses_together(
    trials: Trials, made: Sequence[tuple[Guess, StretchEdit]], samples: Sequence[int]
) -> Responses | None:
    reference = trials.reference
    redone: dict[int, Redo] = {}
    for guess, edit in made:
        redone |= redo_steps(guess, edit)
    trials.evaluations += 1
    found: dict[int, Mapping[str, np.ndarray]] = {}
    for sample in samples:
        try:
            found[sample] = reference.respond(sample, redone)
        except ParityError:
            return None
    return found


def _shortened(peeling: Peeling, pair: GuessPair) -> GuessPair:
    """The pair with each of the two in the fewest words, near where it stands, that do the same."""
    trials = peeling.trials
    for place in (0, 1):
        for other, edit in _shorter_edits(peeling, pair, place):
            guesses = (other, pair.guesses[1]) if place == 0 else (pair.guesses[0], other)
            edits = (edit, pair.edits[1]) if place == 0 else (pair.edits[0], edit)
            made = tuple(zip(guesses, edits, strict=True))
            responses = _responses_together(trials, made, (trials.worst,))
            if responses is None or trials.residual.share(responses).least < ENOUGH:
                continue
            responses = _responses_together(trials, made, range(len(trials.reference.values)))
            if responses is None:
                continue
            found = replace(pair, guesses=guesses, edits=edits, share=trials.residual.share(responses))
            if _is_claim(peeling, found):
                pair = found
                break
    return pair


def _shorter_edits(peeling: Peeling, pair: GuessPair, place: int) -> list[tuple[Guess, StretchEdit]]:
    """Edits near one of a pair in fewer bits: those that do alone what it does alone, the shortest first, then untried ones."""
    trials = peeling.trials
    guess, edit = pair.guesses[place], pair.edits[place]
    alone = _responses_together(trials, ((guess, edit),), (trials.worst,))
    if alone is None:
        return []
    sketch = trials.sketches.of(trials.residual.difference(trials.worst, alone[trials.worst])).astype(np.float64)
    near = trials.reference.around(guess.site.step, _AROUND)
    near -= {site.step.index for site, _ in pair.guesses[1 - place].everything(pair.edits[1 - place])}
    tried = [
        one
        for one in trials.tried
        if one.sketch is not None
        and one.guess.site.step.index in near
        and one.edit.bits < edit.bits
        and np.linalg.norm(one.sketch - sketch) <= _SIMILAR * np.linalg.norm(sketch)
    ]
    known = [(one.guess, one.edit) for one in sorted(tried, key=lambda one: one.edit.bits)]
    plain = [
        (one, one.made())
        for one in peeling.plain
        if one.site.step.index in near and one.made().bits < edit.bits and not trials.was_tried(one)
    ]
    return [*known[:_SHORTER], *sorted(plain, key=lambda one: one[1].bits)[:_SHORTER]]


def _is_claim(peeling: Peeling, pair: GuessPair) -> bool:
    """Whether both explain all, in fewer bits than both take to say and to place."""
    residual: Residual = peeling.trials.residual
    if min(pair.share.least, pair.share.pooled) < ENOUGH:
        return False
    if not pair.share.is_exact(residual.noise):  # two with fitted numbers come near much that is something else
        return False
    said = sum(edit.bits + math.log2(max(2, peeling.sites)) for edit in pair.edits)
    return pair.share.bits(max(residual.noise, 1e-300)) >= said + SURE_BITS
