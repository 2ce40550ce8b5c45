"""What stands beside a first fault, out of what was tried alone and what can be said in few words.

The first one is put into the reference on the worst sample. What was tried alone has shown its response: what adds up with the
first one's to the error comes first, what is short before what is long, and each is run where the first one holds. A number of
the first one's that was fitted alone is wrong beside another fault: it stays free, to first order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.sites import redo_edits
from parityscope.hypotheses.from_outputs.superposing import price_of_words
from parityscope.hypotheses.from_outputs.trying import TriedGuess
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.guess import Guess
    from parityscope.hypotheses.from_outputs.reference import Redo, Reference
    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_outputs.trying import Trials

_KEYS, _DIGITS = 4, 1e-4  # responses whose products with so many directions agree to this are one; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownEdits:
    """What may stand beside a first one: `edits` with their sketches, float32 (edits, numbers), and which do the same (`keys`).

    An edit that was not tried alone has a sketch of zeros. `squares` are the sketches' own, `bits` what it takes to say each.
    """

    edits: Sequence[tuple[Guess, StretchEdit]]
    sketches: np.ndarray
    squares: np.ndarray
    bits: np.ndarray
    keys: Sequence[object]

    def in_turns(self, rest: np.ndarray) -> np.ndarray:
        """The order in which they are run: by turns what leaves least of what is left (a sketch), and what is shortest to say.

        What nothing is seen of alone may be all that is left beside another fault.
        """
        size = float(rest @ rest) or 1e-300
        fit = (2 * (self.sketches @ rest.astype(np.float32)) - self.squares) / size
        by_fit = np.argsort(price_of_words(self.bits) - fit, kind="stable")
        by_length = by_fit[np.argsort(self.bits[by_fit], kind="stable")]
        return np.stack([by_fit, by_length], 1).ravel()


def run_beside(
    trials: Trials, first: TriedGuess, known: KnownEdits, until: float, at: int | None = None
) -> Iterator[TriedGuess]:
    """Each that was run beside a first one, with what both explain of the worst sample, until the meter stands there.

    `at` is the index of the only step that is changed beside the first.

    Raises:
        ParityError: the first one cannot be computed.
    """
    worst, slopes = trials.worst, _slopes_of(trials, first)
    redone = redo_steps(first.guess, first.edit)
    moved = trials.reference.moved(redone, (worst,))
    given = moved.respond(worst, {})
    rest = trials.wanted_sketch() - trials.sketches.of(trials.residual.difference(worst, given)).astype(np.float64)
    sites: dict[int, EditSite | None] = {}
    seen = set()
    for place in known.in_turns(rest):
        guess, edit = known.edits[place]
        if trials.reference.meter.spent > until:
            return
        step = guess.site.step.index
        if known.keys[place] in seen or step in redone or at not in {None, step}:
            continue
        if trials.banned and edit.form in trials.banned:
            continue
        seen.add(known.keys[place])
        if id(guess.site) not in sites:
            sites[id(guess.site)] = _site_beside(guess.site, moved, worst)
        site = sites[id(guess.site)]
        if site is None:
            continue
        trials.trying(edit.words)
        trials.evaluations += 1
        trials.reference.meter.charge(trials.residual.price(worst))
        try:
            responses = {worst: moved.respond(worst, {step: site.redo(edit)})}
        except ParityError:
            continue
        share = trials.residual.share(responses).pooled
        if share > -1:
            share += trials.residual.taken(responses, slopes)
        yield TriedGuess(guess=guess, edit=edit, first=share)


def known_responses(tried: Sequence[TriedGuess], plain: Sequence[Guess], numbers: int) -> KnownEdits:
    """What was tried alone (of one step, with a response of `numbers` numbers), and what can be said in few words beside it."""
    held = [one for one in tried if one.sketch is not None and np.isfinite(one.sketch).all() and one.sketch.any()]
    held = [one for one in held if not (one.guess.others or one.guess.rule or one.guess.site.inner)]
    sketches = np.zeros((len(held) + len(plain), numbers), np.float32)
    for place, one in enumerate(held):
        sketches[place] = one.sketch
    directions = np.random.default_rng(0).standard_normal((numbers, _KEYS), np.float32)
    squares = np.einsum("ij,ij->i", sketches, sketches)
    sizes = np.sqrt(squares) + np.float32(1e-30)
    products = np.round(sketches @ directions / sizes[:, None] / _DIGITS).astype(np.int64)
    scales = np.round(np.log(sizes) / _DIGITS).astype(np.int64)
    keys: list[object] = [(*row, scale) for row, scale in zip(products.tolist(), scales.tolist(), strict=True)]
    keys[len(held) :] = range(len(plain))
    edits = [(one.guess, one.edit) for one in held] + [(one, one.made()) for one in plain]
    bits = np.array([edit.bits for _, edit in edits])
    return KnownEdits(edits=edits, sketches=sketches, squares=squares, bits=bits, keys=keys)


def redo_steps(guess: Guess, edit: StretchEdit) -> dict[int, Redo]:
    """The steps that an edit changes, by index, with what is computed there."""
    return redo_edits(guess.everything(edit))


def _slopes_of(trials: Trials, one: TriedGuess) -> dict[int, np.ndarray]:
    """What each number that was fitted adds to the worst sample's outputs, to first order; empty where there is none."""
    family, worst = one.guess.family, trials.worst
    if family is None:
        return {}
    at = list(one.guess.amounts)
    base = trials.responses(one.guess, one.edit, (worst,))
    columns = []
    for index in range(len(at)):
        beside = [number + family.step * (place == index) for place, number in enumerate(at)]
        response = trials.responses(one.guess, one.guess.of_family(family, beside), (worst,))
        if base is None or response is None:
            return {}
        columns.append(
            trials.residual.difference(worst, response[worst]) - trials.residual.difference(worst, base[worst])
        )
    table = np.stack(columns, 1).astype(np.float64)
    return {worst: table} if np.isfinite(table).all() and table.any() else {}


def _site_beside(site: EditSite, moved: Reference, sample: int) -> EditSite | None:
    try:
        return site.beside(moved, sample)
    except ParityError:
        return None
