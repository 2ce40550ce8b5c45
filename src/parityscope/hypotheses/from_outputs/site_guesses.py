"""The guesses at one site: which edits are looked at, their products with what a sweep carried there, and the best of them."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_outputs.families import (
    bounds_of,
    exchange_edit,
    families_of,
    operators_of,
)
from parityscope.hypotheses.from_outputs.guess import SIZE_COUNTS, Guess
from parityscope.hypotheses.from_outputs.parts import PartTables
from parityscope.hypotheses.from_outputs.slopes import Slopes, constant_adjoints, effects_of_exchanges
from parityscope.hypotheses.from_outputs.spending import APPLY_S, ELEMENT_S, LOOKED_UP_S, PRODUCT_S
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.predicting import Predictor
    from parityscope.hypotheses.from_outputs.sites import EditSite

# What a site must have left for writing down and looking at all edits of kinds of which it has hundreds; chosen.
_WRITTEN_S = {"changed constants": 0.08, "values": 0.08}
_TURN = 3  # edits of constants for one that has to be run; chosen
_LEAST_EACH = 12  # edits of a site that are run whatever they cost, beside those that are looked up; chosen
_WORTH = 0.2  # of a score on the worst sample: what has less is not looked at on others; chosen
_SLOPED = (
    3.0  # runs of a step that one direction of the derivative of its constants costs: measured (2 of convolutions)
)
_KEPT_PAIRS = 4  # of the pairs of indices of an axis that are exchanged
_DIGITS = 4  # to which products of the same change agree
_LOOKED_UP = frozenset(
    {"operator fitted", "result scaled", "result shifted", "negative part scaled", "upper bound", "lower bound"}
)
_FITTED_TOO = re.compile(r"the result (times|plus) ")  # families say the same
_OF_CONSTANTS = frozenset({"constants", "grids", "changed constants", "input scaled", "input shifted", "input cut off"})


@dataclass(slots=True, kw_only=True, eq=False)
class SiteGuesses:
    """What is looked at at one site: guesses, each with its sketch by sample, and its parts."""

    site: EditSite
    samples: int
    edits: list[Guess] = field(default_factory=list)
    sketches: list[np.ndarray] = field(default_factory=list)
    odd: set[int] = field(default_factory=set)
    parts: PartTables = field(init=False)
    pairs: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    predicted: bool = True
    fitted: bool = False
    until: float = math.inf
    hurried: bool = False  # then parts and pairs are not looked at
    looked_up: int = 0  # of the edits, the first ones

    def __post_init__(self) -> None:
        """Nothing is known of its parts yet."""
        self.parts = PartTables(site=self.site, samples=self.samples)

    def draw(self, predictor: Predictor, kinds: Sequence[str], seconds: float, *, fitted: bool) -> float:
        """Takes edits, shortest first, as far as the budget goes; what is left of it."""
        self.fitted = fitted
        each = self.site.price
        try:
            found: list[tuple[str, StretchEdit]] = []
            for kind in kinds:
                if self.until - predictor.reference.meter.spent < _WRITTEN_S.get(kind, -math.inf):
                    break
                predictor.trying(f"{kind} of {self.site.output}")
                found += [one for one in self.site.edits([kind]) if not _FITTED_TOO.match(one[1].words)]
            found.sort(key=lambda one: one[1].bits)
        except ParityError:  # a step that cannot be run alone has no edits
            return seconds
        above = self.site.hands_on  # there each of its elements is looked at as well
        found = [one for one in found if not (above and one[1].pointwise)]
        guesses = [Guess(site=self.site, kind=kind, edit=edit) for kind, edit in found]
        if fitted and not above:
            for family in (*families_of(self.site), *bounds_of(self.site), *operators_of(self.site)):
                guesses[:0] = [
                    Guess(site=self.site, kind=family.kind, family=family, amounts=one) for one in family.starts
                ]
        held = APPLY_S + 2 * ELEMENT_S * _size_of_constants(self.site)
        left = seconds
        for guess in guesses:
            cost = LOOKED_UP_S if _is_looked_up(guess) else min(held, each) if guess.kind in _OF_CONSTANTS else each
            if cost * self.samples <= left:
                left -= cost * self.samples
                self.edits.append(guess)
        # What is looked up costs next to nothing: it comes first. What has to be run goes as far as the time does, by turns with
        # what derivatives of constants say, of which several take as long.
        looked_up = [one for one in self.edits if _is_looked_up(one)]
        known = {id(one) for one in looked_up}
        rest = sorted((one for one in self.edits if id(one) not in known), key=lambda one: one.made().bits)
        parts = [[one for one in rest if (one.kind in _OF_CONSTANTS) is of_constants] for of_constants in (False, True)]
        by_turns = _take_by_turns(*parts)
        self.edits, self.looked_up = [*looked_up, *by_turns], len(looked_up)
        predictor.left_out += len(guesses) - len(self.edits)
        predictor.generated += len(self.edits)
        return left

    def look(self, predictor: Predictor, place: int, adjoint: np.ndarray | None, *, is_first: bool) -> None:
        """Adds the products of a sample: of all edits on the first, then of those that explain a part of that."""
        sample = predictor.samples[place]
        worth = None if is_first else self._are_worth(predictor)
        if adjoint is None:
            self.predicted = False
        values = predictor.reference.values[sample]
        meter = predictor.reference.meter
        names = [name for name in self.site.step.outputs if name in values and values[name].dtype == np.float32]
        base = [values[name] for name in names]
        kept: list[Guess] = []
        rows: list[np.ndarray] = []
        odd: set[int] = set()
        seen: dict[bytes, Guess] = {}
        unseen = np.full((self.samples, predictor.directions + 1), np.nan)
        slopes = None if adjoint is None else self._slopes_of_site(predictor, sample, names, adjoint)
        if is_first and (slopes is None or not slopes.constants):  # then those of constants have to be run as well
            self.edits[self.looked_up :] = sorted(self.edits[self.looked_up :], key=lambda one: one.made().bits)
        ran = 0
        for number, guess in enumerate(self.edits):
            if is_first and number >= self.looked_up and ran >= _LEAST_EACH and meter.spent > self.until:
                left = len(self.edits) - number
                predictor.left_out += left
                predictor.generated -= left
                break
            if worth is not None and not worth[number]:
                if number in self.odd:
                    odd.add(len(kept))
                kept.append(guess)
                rows.append(self.sketches[number])
                continue
            edit = guess.made()
            if predictor.banned and edit.form in predictor.banned:
                continue
            predictor.trying(edit.words)
            meter.charge(LOOKED_UP_S)
            told = None if slopes is None else slopes.of(edit)
            if told is not None and np.isfinite(told).all():
                if is_first and not told.any():
                    continue
                row = unseen.copy() if is_first else self.sketches[number].copy()
                row[place] = told
                if is_first and guess.family is None:
                    same = seen.setdefault(_round_to_key(row[place]), guess)
                    if same is not guess:
                        same.take_name(guess, edit)
                        continue
                kept.append(guess)
                rows.append(row)
                continue
            ran += 1
            results = self.site.results(sample, edit)
            if results is None:
                if not is_first:  # it runs on one sample alone
                    odd.add(len(kept))
                    kept.append(guess)
                    rows.append(unseen)
                continue
            row = unseen.copy() if is_first else self.sketches[number].copy()
            by_name = dict(zip(self.site.step.outputs, results, strict=True))
            change = _change_in_results(base, [by_name[name] for name in names])
            is_odd = change is None or adjoint is None
            if change is not None and adjoint is not None:
                if is_first and not change.any() and _are_unchanged(values, by_name):
                    continue
                row[place] = change @ adjoint
                meter.charge(PRODUCT_S * adjoint.size)
                is_odd = not bool(np.isfinite(row[place]).all())
            if is_first and not is_odd and guess.family is None:
                same = seen.setdefault(_round_to_key(row[place]), guess)
                if same is not guess:
                    same.take_name(guess, edit)
                    continue
            if is_odd:
                odd.add(len(kept))
            kept.append(guess)
            rows.append(row)
        self.edits, self.sketches, self.odd = kept, rows, odd
        if is_first:
            self.hurried = meter.spent > self.until
        if self.hurried:
            return
        if self.fitted and slopes is not None:
            self._look_at_pairs(place, slopes)
        if self.fitted and predictor.parts and adjoint is not None and self.site.output in names:
            start = sum(values[name].size for name in names[: names.index(self.site.output)])
            array = values[self.site.output]
            self.parts.look(predictor, place, array, adjoint[start : start + array.size], self.until)

    def _are_worth(self, predictor: Predictor) -> np.ndarray:
        """Which edits are looked at on further samples: bools, (edits,)."""
        if not self.edits:
            return np.zeros(0, bool)
        scores, _ = predictor.judged(np.stack(self.sketches))
        # What has a free amount may explain as much with the other sign.
        free = np.array([one.family is not None and not one.family.grid for one in self.edits])
        worth = np.where(free, np.abs(scores), scores) > _WORTH
        worth[list(self.odd)] = False
        return np.asarray(worth)

    def _slopes_of_site(
        self, predictor: Predictor, sample: int, names: Sequence[str], adjoint: np.ndarray
    ) -> Slopes | None:
        """What is known without running edits; None where the result is not among what has adjoints."""
        site, reference = self.site, predictor.reference
        if site.inner is not None or site.output not in names:
            return None
        values = reference.values[sample]
        start = sum(values[name].size for name in names[: names.index(site.output)])
        own = adjoint[start : start + values[site.output].size]
        found: dict[str, np.ndarray] = {}
        constants = reference.program.constants
        wanted = [index for index, name in enumerate(site.step.inputs) if name in constants]
        price = _SLOPED * reference.seconds[site.step.index] * (predictor.directions + 1)
        if (
            wanted
            and len(names) == 1
            and site.whole_step
            and price < max(self.until - reference.meter.spent, _WRITTEN_S["values"])
        ):
            inputs = [reference.value(sample, name) if name else None for name in site.step.inputs]
            predictor.trying(f"the derivative of the constants of {site.output}")
            reference.meter.charge(price)
            made = constant_adjoints(site.step, inputs, values[site.output], own, wanted)
            found = {site.step.inputs[index]: table for index, table in made.items()}
        return Slopes(site=site, sample=sample, adjoint=own, constants=found)

    def _look_at_pairs(self, place: int, slopes: Slopes) -> None:
        for name, adjoint in slopes.constants.items():
            array = self.site.stretch.context.constants[name]
            for axis in range(array.ndim):
                table = effects_of_exchanges(array, adjoint, axis)
                if table is not None:
                    self.site.reference.meter.charge(PRODUCT_S / 10 * adjoint.size * array.shape[axis])
                    held = self.pairs.setdefault(
                        (name, axis), np.full((*table.shape[:2], self.samples, table.shape[-1]), np.nan)
                    )
                    held[:, :, place] = table

    def guesses(self, predictor: Predictor) -> list[Guess]:
        """Everything with its score."""
        found = []
        if self.edits:
            scores, amounts = predictor.judged(np.stack(self.sketches))
            for number, guess in enumerate(self.edits):
                if number in self.odd or not self.predicted:
                    found.append(guess)
                    continue
                guess.sketch = self.sketches[number]
                guess.score = float(scores[number])
                if guess.family is not None and not guess.family.grid:
                    guess.amounts = (float(amounts[number]) * guess.family.step,)
                    guess.score = abs(guess.score)
                else:
                    guess.score -= SIZE_COUNTS * abs(math.log10(max(abs(float(amounts[number])), 1e-12)))
                found.append(guess)
        if self.predicted:
            found += self.parts.guesses(predictor)
            for (name, axis), table in self.pairs.items():
                found += self._best_exchanges(predictor, name, axis, table)
        return found

    def _best_exchanges(self, predictor: Predictor, name: str, axis: int, table: np.ndarray) -> Iterator[Guess]:
        """The pairs of indices of a constant whose exchange explains most."""
        length = table.shape[0]
        ones, others = np.triu_indices(length, 1)
        sketch = table[ones, others]
        scores, amounts = predictor.judged(sketch)
        scores = scores - SIZE_COUNTS * np.abs(np.log10(np.maximum(np.abs(amounts), 1e-12)))
        for place in np.argsort(-scores)[:_KEPT_PAIRS]:
            edit = exchange_edit(self.site, name, axis, int(ones[place]), int(others[place]))
            yield Guess(site=self.site, kind="exchanged", edit=edit, score=float(scores[place]), sketch=sketch[place])


def _take_by_turns(run: Sequence[Guess], of_constants: Sequence[Guess]) -> Iterator[Guess]:
    """One that has to be run, then some of constants, and so on."""
    others = iter(of_constants)
    for one in run:
        yield one
        yield from itertools.islice(others, _TURN)
    yield from others


def _is_looked_up(guess: Guess) -> bool:
    return guess.kind in _LOOKED_UP or (guess.edit is not None and guess.edit.pointwise is not None)


def _size_of_constants(site: EditSite) -> int:
    constants = site.reference.program.constants
    return sum(constants[name].size for name in site.step.inputs if name in constants)


def _change_in_results(base: Sequence[np.ndarray], results: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """What an edit adds to the results, in one row; None where a shape is another one or something is not finite."""
    rows = []
    for known, array in zip(base, results, strict=True):
        if array is None:
            rows.append(np.zeros(known.size, np.float32))
        elif array.shape != known.shape:
            return None
        else:
            rows.append((array - known).astype(np.float32, copy=False).ravel())
    row = np.concatenate(rows) if rows else np.zeros(0, np.float32)
    return row if np.isfinite(row).all() else None


def _are_unchanged(values: object, by_name: dict[str, np.ndarray | None]) -> bool:
    """Whether an edit leaves everything as it was."""
    known = dict(values)  # type: ignore[call-overload]
    return all(
        array is None or (array.shape == known[name].shape and np.array_equal(array, known[name]))
        for name, array in by_name.items()
        if name in known
    )


def _round_to_key(row: np.ndarray) -> bytes:
    """The same for products that differ by rounding alone, mostly."""
    size = float(np.abs(row).max())
    if not size:
        return b"nothing"
    return np.append(np.round(row / size, _DIGITS), round(math.log10(size), _DIGITS)).tobytes()
