"""What cannot be told from the best: edits that explain as much of all samples, the shortest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_outputs.families import PLACES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.searching import OutputsSearch
    from parityscope.hypotheses.from_outputs.trying import TriedGuess

STEPS_ABOVE = 6  # above the best, at which what is said in fewer bits is tried too; chosen
_CLASS = 40  # evaluations that look for what cannot be told from the best
_LEAST_S = 2.0  # estimated seconds for them, at least; chosen
_EQUAL = 1e-9  # of the squared error: what leaves less is as good as what leaves nothing; chosen
_BESIDE = 1e-5  # of the squared error more than the best leaves: it cannot be told from it; chosen


def try_alike(found: OutputsSearch) -> None:
    """Tries what may explain as much as the best, where that is a claim."""
    trials = found.trials
    best = trials.best
    if best is None or not trials.is_claim(best):
        return
    trials.seconds = max(trials.seconds, _LEAST_S)
    _try_class(found, best.guess, _shorter_above(found, best)[:_CLASS])
    known = [one.guess for one in trials.tried if one.guess.sketch is not None and trials.is_claim(one)]
    if (
        best.guess.sketch is None and known
    ):  # what was run before it was predicted: another one at its place says where to look
        _try_class(found, known[0])


def list_alike(found: OutputsSearch) -> list[TriedGuess]:
    """What cannot be told from the best: explains as much, of all samples, where that is a claim."""
    trials = found.trials
    if trials.best is None or not trials.is_claim(trials.best):
        return []
    held = [one for one in trials.tried if trials.is_claim(one)]
    top = max(one.explained for one in held)
    left = 1 - top
    alike = [one for one in held if 1 - one.explained <= max(3 * left, _BESIDE)]
    floor = max(found.residual.noise, _EQUAL * found.residual.whole)
    alike.sort(key=lambda one: one.edit.bits - (one.share.bits(floor) if one.share else 0.0))
    # Fitted from two starts, one edit is found twice.
    return list({(one.guess.site.output, one.edit.words): one for one in reversed(alike)}.values())[::-1]


def _try_class(found: OutputsSearch, best: Guess, more: Sequence[Guess] = ()) -> None:
    """Tries what is predicted to do what a guess does, and some more."""
    trials = found.trials
    near = [one for one in found.guesses if not trials.was_tried(one) and _is_near(one, best)]
    near.sort(key=lambda one: -(one.score or 0.0))
    for guess in (*near[:_CLASS], *more):
        if not trials.is_spent:
            trials.attempt(guess)


def _shorter_above(found: OutputsSearch, best: TriedGuess) -> list[Guess]:
    """Edits in fewer bits than the best takes, of its step and those that it is computed from, the nearest and shortest first."""
    program = found.reference.program
    hops, front = {best.guess.site.step.index: 0}, [best.guess.site.step]
    for hop in range(1, STEPS_ABOVE + 1):
        made = [program.steps_of[name] for step in front for name in step.reads if name in program.steps_of]
        front = [step for step in made if hops.setdefault(step.index, hop) == hop]
    shorter = [
        (one.edit.bits, hops[one.site.step.index], number, one)
        for number, one in enumerate(found.guesses)
        if one.edit is not None and not one.others and not found.trials.was_tried(one)
        if one.site.step.index in hops and one.edit.bits < best.edit.bits
    ]
    return [one for *_, one in sorted(shorter, key=lambda entry: entry[:3])]


def _is_near(guess: Guess, best: Guess) -> bool:
    """Whether a guess is expected to do what the best does; one with a free number, at the number at which it comes nearest."""
    if guess.sketch is None or best.sketch is None:
        return guess.site is best.site
    mine, other = _expected_sketch(best), np.asarray(guess.sketch)
    if _is_multiple(guess):
        other = other * ((mine.ravel() @ other.ravel()) / max(float(np.square(other).sum()), 1e-300))
    return bool(np.linalg.norm(other - mine) <= 0.02 * np.linalg.norm(mine) + 1e-30)


def _expected_sketch(guess: Guess) -> np.ndarray:
    """The sketch at the amount that was found."""
    family, sketch = guess.family, np.asarray(guess.sketch)
    return sketch * (guess.amounts[0] / family.step) if family is not None and _is_multiple(guess) else sketch


def _is_multiple(guess: Guess) -> bool:
    """Whether what it does is a multiple of its sketch."""
    family = guess.family
    return family is not None and not family.grid and len(guess.amounts) == 1 and guess.kind != PLACES
