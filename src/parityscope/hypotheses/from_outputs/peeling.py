"""Two faults at once: what was tried is added up in pairs, then one is put into the reference and the remainder searched.

Neither of two faults explains enough alone. Of all that was tried alone the pairs whose responses add up to the error are
run together (`superposing`). Where none of them is all of it, members of the best pairs and what explains most alone, one of
each that does the same to the outputs, are put into the reference one after the other; the sweep, the prediction and the
trials are repeated there. The numbers of both are fitted together in the end. Both are claimed where they explain what one is
asked to explain, in fewer bits than both take to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.predicting import Predictor
from parityscope.hypotheses.from_outputs.residual import residual_of
from parityscope.hypotheses.from_outputs.sites import EARLY, EditSite, sites_of
from parityscope.hypotheses.from_outputs.superposing import rank_pairs
from parityscope.hypotheses.from_outputs.trying import ENOUGH, Trials, fit_amounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.reference import Redo, Reference
    from parityscope.hypotheses.from_outputs.residual import Residual, Share
    from parityscope.hypotheses.from_outputs.trying import Responses, TriedGuess

__all__ = ["GuessPair", "Peeling", "search_second_fault"]

_FIRSTS = 6  # faults that are put in; chosen
_RUN_PAIRS, _FITTED_PAIRS = 60, 6  # pairs that are run together, and those of them that are fitted; chosen
_ADDED = (
    0.2  # of the time goes into running pairs of what was tried alone, and as much of the rest into fitting; chosen
)
_EACH = 0.5  # of what is left of the time goes into what stands beside each first one, half of it into guessing; chosen
_ALIKE = 0.02  # of a response; chosen
_PATIENCE = 200  # evaluations beside one that find nothing better than what explains most of the rest; chosen
_SECONDS = 3  # of each of these, what is fitted together with it; chosen
_LEAST = 0.1  # of the error: what explains less of it alone is not put in; chosen
_NEAR = 0.5  # of the remainder: what explains less is not fitted together with the first; chosen


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

    `sure` are bits that a claim must save beyond what it takes. `until` is where the reference's meter stands when it ends.
    """

    trials: Trials
    predictor: Predictor
    candidate: Sequence[Mapping[str, np.ndarray]]
    noise: Mapping[str, float]
    sites: int
    sure: float
    until: float

    @property
    def is_spent(self) -> bool:
        """Whether all that it may spend is spent."""
        return self.trials.reference.meter.spent > self.until


def search_second_fault(peeling: Peeling) -> GuessPair | None:
    """The first pair that is a claim; None where none was found in the time."""
    run = _run_pairs(peeling)
    meter = peeling.trials.reference.meter
    fitted = meter.share_of(peeling.until, _ADDED)
    for first, second, _ in run[:_FITTED_PAIRS]:
        if meter.spent > fitted:
            break
        pair = _fitted_together(peeling, first, second)
        if pair is not None and _is_claim(peeling, pair):
            return pair
    for first in _first_candidates(peeling.trials, run):
        if peeling.is_spent:
            return None
        for pair in _pairs_with_first(peeling, first):
            if _is_claim(peeling, pair):
                return pair
    return None


def _run_pairs(peeling: Peeling) -> list[tuple[TriedGuess, TriedGuess, float]]:
    """Pairs that explain most by the sum of their responses, with what they explain of the worst sample when both are made."""
    trials = peeling.trials
    meter = trials.reference.meter
    until = meter.share_of(peeling.until, _ADDED)
    found = []
    for first, second, _ in rank_pairs(trials.tried, trials.wanted_sketch(), _RUN_PAIRS):
        if meter.spent > until:
            break
        made = ((first.guess, first.edit), (second.guess, second.edit))
        responses = _responses_together(trials, made, (trials.worst,))
        if responses is not None:
            found.append((first, second, trials.residual.share(responses).pooled))
    return sorted(found, key=lambda one: -one[2])


def _first_candidates(trials: Trials, run: Sequence[tuple[TriedGuess, TriedGuess, float]]) -> list[TriedGuess]:
    """Of the best pair the member that explains more, and what explains most alone, one of each kind of response."""
    chosen: dict[tuple[str, bool], TriedGuess] = {}
    members = [max(pair[:2], key=lambda one: one.explained) for pair in run[:_FIRSTS] if pair[2] > _NEAR]
    alone = sorted((one for one in trials.tried if one.explained >= _LEAST), key=lambda one: -one.explained)
    for one in (*members[: _FIRSTS // 2], *alone):
        known = [other for other in chosen.values() if _are_alike(one, other)]
        if not known:
            chosen.setdefault((one.guess.site.output, one.guess.family is not None), one)
        if len(chosen) == _FIRSTS:
            break
    return list(chosen.values())


def _are_alike(one: TriedGuess, other: TriedGuess) -> bool:
    """Whether both do nearly the same to the outputs: what is left behind the one is left behind the other."""
    if one.sketch is None or other.sketch is None:
        return False
    mine, its = one.sketch.astype(np.float64), other.sketch.astype(np.float64)
    return float(np.linalg.norm(mine - its)) <= _ALIKE * float(np.linalg.norm(its))


def _redo_steps(guess: Guess, edit: StretchEdit) -> dict[int, Redo]:
    return {site.step.index: site.redo(one) for site, one in guess.everything(edit)}


def _pairs_with_first(peeling: Peeling, first: TriedGuess) -> Iterator[GuessPair]:
    """Pairs with a first one, those that leave least first."""
    trials = peeling.trials
    redone = _redo_steps(first.guess, first.edit)
    try:
        reference = trials.reference.moved(redone)
    except ParityError:
        return
    names = [part.name for part in trials.residual.samples[0]]
    residual = residual_of(reference.values, peeling.candidate, peeling.noise, names)
    if residual.whole <= residual.noise:
        return
    sites = [site for site in sites_of(reference, residual.still()) if site.step.index not in redone]
    meter = reference.meter
    until = meter.share_of(peeling.until, _EACH)
    guessed = meter.share_of(until, _EACH)
    predictor = Predictor(
        reference=reference,
        residual=residual,
        samples=trials.samples,
        trying=trials.trying,
        banned=trials.banned,
        until=guessed,
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
        pair = _fitted_together(peeling, first, second)
        if pair is not None:
            yield pair


def _fitted_together(peeling: Peeling, first: TriedGuess, second: TriedGuess) -> GuessPair | None:
    """Both with their numbers fitted at once, on the first samples, and what they explain of all."""
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
    if found is None:
        return None
    responses = respond(found[1], range(len(trials.reference.values)))
    if responses is None:
        return None
    return GuessPair(
        guesses=guesses,
        edits=edits(found[1]),
        share=trials.residual.share(responses),
        first=first.explained,
    )


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
        redone |= _redo_steps(guess, edit)
    trials.evaluations += 1
    found: dict[int, Mapping[str, np.ndarray]] = {}
    for sample in samples:
        try:
            with np.errstate(all="ignore"):
                found[sample] = reference.respond(sample, redone)
        except ParityError:
            return None
    return found


def _is_claim(peeling: Peeling, pair: GuessPair) -> bool:
    """Whether both explain all, in fewer bits than both take to say and to place."""
    residual: Residual = peeling.trials.residual
    if min(pair.share.least, pair.share.pooled) < ENOUGH:
        return False
    if not pair.share.is_exact(residual.noise):  # two with fitted numbers come near much that is something else
        return False
    said = sum(edit.bits + math.log2(max(2, peeling.sites)) for edit in pair.edits)
    return pair.share.bits(max(residual.noise, 1e-300)) >= said + peeling.sure
