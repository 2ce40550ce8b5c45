"""What every edit would do to the outputs, to first order, from one sweep backwards a sample.

A sweep carries random signs and the residual r back to each site. There the change d that an edit makes of the site's own
result (computed exactly) is multiplied with them: <J d, r> exactly, and |J d| as the mean of <J d, signs>^2. The part along r
is taken out first, so that the sketch has no error where nothing else is left. Where a derivative is missing nothing is
predicted, and what stands there is tried by its length.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.evaluation.backward import Sweep
from parityscope.hypotheses.from_outputs.families import (
    EditFamily,
    bounds_of,
    exchange_edit,
    families_of,
    index_family,
    operators_of,
)
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_outputs.slopes import Slopes, constant_adjoints, effects_of_exchanges
from parityscope.hypotheses.from_outputs.spending import (
    APPLY_S,
    DERIVATIVE_S,
    ELEMENT_S,
    LOOKED_UP_S,
    PRODUCT_S,
    SWEPT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.residual import Residual
    from parityscope.hypotheses.from_outputs.sites import EditSite

__all__ = ["DIRECTIONS", "Guess", "Predictor"]

# Random directions; with four the worst rank of the truth was ten times larger (measured). So few numbers need no chance.
DIRECTIONS = 8
_LONGEST = 1024  # indices of an axis that are looked at one by one; chosen
_LEAST_EACH = 24  # edits of a site that are run whatever they cost, beside those that are looked up; chosen
_KEPT_INDICES = 6  # of an axis' indices
_KEPT_PAIRS = 4  # of the pairs of indices of an axis that are exchanged
_DIGITS = 4  # to which products of the same change agree
RULE_BITS = 4.0  # which operator a rule is about: some sixteen kinds in a network
_ABOUT_ONE = re.compile(
    r" ?\('[^']*'\)|'[^']*'| = \S+(?= left out)|(?<=in place of )-?[\d.e+-]+$|\b[\d.e+-]+ becomes \S+"
)
_LOOKED_UP = frozenset(
    {"operator fitted", "result scaled", "result shifted", "negative part scaled", "upper bound", "lower bound"}
)
_FITTED_TOO = re.compile(r"the result (times|plus) ")  # families say the same
_OF_CONSTANTS = frozenset({"constants", "changed constants", "input scaled", "input shifted", "input cut off"})
_SIZE_COUNTS = 0.1  # of the score for each factor of ten that a response is larger or smaller than the residual


@dataclass(slots=True, kw_only=True, eq=False)
class Guess:
    """An edit, or a family with its amounts, and what is expected of it.

    `others` are edits of other sites that are made together with it, `rule` other sites where the very same edit is made: one
    rule, wherever it holds. `score` is the cosine between response and residual, less what its size is off; None where nothing
    can be said. `names` are other edits of the site that change it in the same way. `sketch` are the response's products with
    the signs.
    """

    site: EditSite
    kind: str
    edit: StretchEdit | None = None
    family: EditFamily | None = None
    amounts: tuple[float, ...] = (0.0,)
    others: tuple[tuple[EditSite, StretchEdit], ...] = ()
    rule: tuple[EditSite, ...] = ()
    score: float | None = None
    names: list[StretchEdit] = field(default_factory=list)
    sketch: np.ndarray | None = None

    def take_name(self, other: Guess, edit: StretchEdit) -> None:
        """Another guess's edit does the same: the shorter one is the guess's own from then on."""
        if self.edit is not None and edit.bits < self.edit.bits:
            self.kind, self.edit, edit = other.kind, edit, self.edit
        self.names.append(edit)

    def made(self) -> StretchEdit:
        """The edit."""
        if self.edit is not None:
            return self.edit
        if self.family is None:
            raise ValueError("neither an edit nor a family")
        return self.of_family(self.family, self.amounts)

    def of_family(self, family: EditFamily, amounts: Sequence[float]) -> StretchEdit:
        """A family's edit as it is told here."""
        edit = family.make(*amounts)
        if not self.rule:
            return edit
        words = f"at each of {len(self.rule) + 1} {self.site.changed_step.op_type}: {edit.words}"
        return replace(edit, words=words, bits=edit.bits + RULE_BITS)

    def everything(self, edit: StretchEdit) -> tuple[tuple[EditSite, StretchEdit], ...]:
        """All that is changed where this guess's own edit is that."""
        return ((self.site, edit), *self.others, *((site, edit) for site in self.rule))


@dataclass(slots=True, kw_only=True, eq=False)
class Predictor:
    """Sweeps over some samples. `refused` says which operators have no derivative, `until` where the meter ends it."""

    reference: Reference
    residual: Residual
    samples: Sequence[int]
    trying: Callable[[str], None] = lambda _: None
    banned: frozenset[str] = frozenset()
    until: float = math.inf
    refused: dict[str, str] = field(default_factory=dict)
    generated: int = 0
    left_out: int = 0
    directions: int = DIRECTIONS
    _whole: float = 0.0
    _signs: dict[int, np.ndarray] = field(default_factory=dict)
    _products: dict[int, np.ndarray] = field(default_factory=dict)
    _sweep: Sweep | None = None
    _opened: int = 0

    def guess(
        self,
        sites: Sequence[EditSite],
        kinds: Sequence[str],
        seconds: float,
        *,
        fitted: bool,
        most_each: float = math.inf,
    ) -> list[Guess]:
        """Guesses about edits of some kinds at some sites, within a budget of estimated seconds."""
        by_key: dict[str, list[EditSite]] = {}
        for site in sites:
            by_key.setdefault(site.step.key, []).append(site)
        work: dict[str, _SiteWork] = {}
        self._whole = sum(self.residual.size(sample) for sample in self.samples) or 1e-300
        share = seconds / max(1, len(sites))
        counts = {self.residual.numbers(sample) for sample in self.samples}
        self.directions = min(DIRECTIONS, *counts) if len(counts) == 1 else DIRECTIONS
        spare, ahead = 0.0, len(sites)
        for place, sample in enumerate(self.samples):
            seen = 0
            for site, adjoint in self._sweep_backwards(sample, by_key):
                if place == 0:
                    # Each site has the same part of what is left to be spent, so that the first ones are looked at too.
                    now = self.reference.meter.spent
                    if now > self.until:
                        break
                    part = (self.until - now) / (max(1, ahead) * len(self.samples))
                    ahead -= 1
                    own = work[site.output] = _SiteWork(site=site, samples=len(self.samples), until=now + part)
                    spare = own.draw(self, kinds, min(most_each, share + spare), fitted=fitted)
                found = work.get(site.output)
                if found is not None:
                    found.look(self, place, sample, adjoint)
                    seen += 1
                if place and seen == len(work):
                    break  # nothing before it was looked at
        guesses = []
        for found in work.values():
            guesses += found.guesses(self)
        return guesses + self._guess_together(guesses)

    def _guess_together(self, guesses: Sequence[Guess]) -> list[Guess]:
        """The same edit at every site of an operator at once: what they do is to first order the sum of what each does."""
        alike: dict[tuple[str, str, str], dict[str, tuple[Guess, StretchEdit]]] = {}
        for guess in guesses:
            # Inputs are no operator: what is done to all of them at once is for the checks of bindings to say.
            read = guess.site.output.endswith(READ)
            if guess.sketch is None or guess.edit is None or guess.site.inner is not None or read:
                continue
            for edit in (guess.edit, *guess.names):
                rule = _ABOUT_ONE.sub("", edit.words)
                alike.setdefault((guess.site.changed_step.op_type, guess.kind, rule), {})[guess.site.output] = (
                    guess,
                    edit,
                )
        found = []
        for (op_type, kind, rule), by_site in alike.items():
            members = sorted(by_site.values(), key=lambda one: one[0].site.step.index)
            steps = {one.site.step.index for one, _ in members}
            if not 1 < len(steps) == len(members):
                continue
            sketch = np.sum([one.sketch for one, _ in members if one.sketch is not None], axis=0)
            score, amount = (float(one[0]) for one in self.judged(sketch[None]))
            first, edit = members[0]
            words = f"at each of {len(members)} {op_type}: {' '.join(rule.replace('( taken)', '').split())}"
            found.append(
                Guess(
                    site=first.site,
                    kind=f"{kind}, everywhere",
                    edit=replace(edit, words=words, bits=edit.bits + RULE_BITS),
                    others=tuple((one.site, other) for one, other in members[1:]),
                    score=score - _SIZE_COUNTS * abs(math.log10(max(abs(amount), 1e-12))),
                    sketch=sketch,
                )
            )
        return found

    def _sweep_backwards(
        self, sample: int, by_key: dict[str, list[EditSite]]
    ) -> Iterator[tuple[EditSite, np.ndarray | None]]:
        """Each site with its adjoints: float32, (elements of its float32 results, signs + 1); None where not all is known."""
        if sample not in self._signs:
            generator = np.random.default_rng(sample)
            count = self.residual.numbers(sample)
            if count == self.directions:  # each number by itself: nothing is left to chance
                self._signs[sample] = np.eye(count, dtype=np.float32) * np.float32(math.sqrt(count))
            else:
                self._signs[sample] = generator.choice(np.array([-1, 1], np.float32), (count, self.directions))
        seeds, self._products[sample] = self.residual.seeds(sample, self._signs[sample])
        if self._sweep is None:
            self._sweep = Sweep(program=self.reference.program, threads=1, refused=self.refused)
        values = self.reference.values[sample]
        met = set()
        with np.errstate(all="ignore"):
            for step, own, complete in self._sweep.run(lambda site: self.reference.value(sample, site), seeds):
                self.trying(f"the derivative of {step.key}")
                self._charge_sweep(step)
                if step.key not in by_key:
                    continue
                met.add(step.key)
                names = [name for name in step.outputs if name in values and values[name].dtype == np.float32]
                shown = [
                    own[name].reshape(-1, self.directions + 1)
                    if name in own
                    else np.zeros((values[name].size, self.directions + 1), np.float32)  # nobody reads it
                    for name in names
                ]
                known = complete and bool(names)
                joined = np.concatenate(shown) if known else None
                told = joined if joined is not None and np.isfinite(joined).all() else None
                yield from ((site, told) for site in by_key[step.key])
        for key in sorted(by_key.keys() - met):
            yield from ((site, None) for site in by_key[key])

    def _charge_sweep(self, step: ProgramStep) -> None:
        meter, sweep = self.reference.meter, self._sweep
        opened = 0 if sweep is None else sweep.opened
        meter.charge(DERIVATIVE_S * (opened - self._opened))
        meter.charge(SWEPT * (self.directions + 1) * self.reference.seconds.get(step.index, 0.0))
        self._opened = opened

    def judged(self, sketch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores and best amounts of changes: sketches float64, (changes, samples, signs + 1) -> (changes,) each."""
        signs, along = sketch[..., : self.directions], sketch[..., self.directions].sum(1)
        alpha = along / self._whole
        products = np.stack([self._products[sample] for sample in self.samples])
        rest = signs - alpha[:, None, None] * products
        beside = np.square(rest).mean(2).sum(1) / self._whole
        size = np.sqrt(alpha**2 + beside) + 1e-30
        amount = alpha / (alpha**2 + beside + 1e-30)
        return alpha / size, np.where(size > 1e-12, amount, 0.0)


@dataclass(slots=True, kw_only=True, eq=False)
class _SiteWork:
    """What is looked at at one site: guesses, each with its sketch by sample, and the indices of its axes."""

    site: EditSite
    samples: int
    edits: list[Guess] = field(default_factory=list)
    sketches: list[np.ndarray] = field(default_factory=list)
    odd: set[int] = field(default_factory=set)
    indices: dict[tuple[int, bool], np.ndarray] = field(default_factory=dict)
    pairs: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    predicted: bool = True
    fitted: bool = False
    until: float = math.inf
    looked_up: int = 0  # of the edits, the first ones

    def draw(self, predictor: Predictor, kinds: Sequence[str], seconds: float, *, fitted: bool) -> float:
        """Takes edits, shortest first, as far as the budget goes; what is left of it."""
        self.fitted = fitted
        each = self.site.price
        try:
            found: list[tuple[str, StretchEdit]] = []
            for kind in kinds:
                predictor.trying(f"{kind} of {self.site.output}")
                found += [one for one in self.site.edits([kind]) if not _FITTED_TOO.match(one[1].words)]
            found.sort(key=lambda one: one[1].bits)
        except Exception:  # noqa: BLE001 - a step that cannot be run alone has no edits, as any that is refused
            return seconds
        guesses = [Guess(site=self.site, kind=kind, edit=edit) for kind, edit in found]
        if fitted:
            for family in (*families_of(self.site), *bounds_of(self.site), *operators_of(self.site)):
                starts = [one if isinstance(one, tuple) else (one,) for one in family.grid or (family.step,)]
                guesses[:0] = [Guess(site=self.site, kind=family.kind, family=family, amounts=one) for one in starts]
        held = APPLY_S + 2 * ELEMENT_S * _size_of_constants(self.site)
        left = seconds
        for guess in guesses:
            cost = LOOKED_UP_S if _is_looked_up(guess) else min(held, each) if guess.kind in _OF_CONSTANTS else each
            if cost * self.samples <= left:
                left -= cost * self.samples
                self.edits.append(guess)
        # What is looked up costs next to nothing: it comes first, and what has to be run as far as the time goes.
        looked_up = {id(one) for one in self.edits if _is_looked_up(one)}
        self.edits.sort(key=lambda one: 0.0 if id(one) in looked_up else 1.0 + one.made().bits)
        self.looked_up = len(looked_up)
        predictor.left_out += len(guesses) - len(self.edits)
        predictor.generated += len(self.edits)
        return left

    def look(self, predictor: Predictor, place: int, sample: int, adjoint: np.ndarray | None) -> None:
        """Adds the products of a sample."""
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
        width = predictor.directions + 1
        slopes = None if adjoint is None else self._slopes_of_site(predictor, sample, names, adjoint)
        for number, guess in enumerate(self.edits):
            if place == 0 and number >= self.looked_up + _LEAST_EACH and meter.spent > self.until:
                left = len(self.edits) - number
                predictor.left_out += left
                predictor.generated -= left
                break
            edit = guess.made()
            if predictor.banned and edit.form in predictor.banned:
                continue
            predictor.trying(edit.words)
            meter.charge(LOOKED_UP_S)
            told = None if slopes is None or (place and number in self.odd) else slopes.of(edit)
            if told is not None and np.isfinite(told).all():
                if place == 0 and not told.any():
                    continue
                row = np.zeros((self.samples, width)) if place == 0 else self.sketches[number].copy()
                row[place] = told
                if place == 0 and guess.family is None:
                    same = seen.setdefault(_round_to_key(row[0]), guess)
                    if same is not guess:
                        same.take_name(guess, edit)
                        continue
                kept.append(guess)
                rows.append(row)
                continue
            results = self.site.results(sample, edit)
            if results is None:
                if place:  # it runs on one sample alone
                    odd.add(len(kept))
                    kept.append(guess)
                    rows.append(np.zeros((self.samples, width)))
                continue
            row = np.zeros((self.samples, width)) if place == 0 else self.sketches[number].copy()
            by_name = dict(zip(self.site.step.outputs, results, strict=True))
            change = _change_in_results(base, [by_name[name] for name in names])
            is_odd = number in self.odd if place else False
            if change is None or adjoint is None:
                is_odd = True
            elif not change.any():
                if place == 0 and _are_unchanged(values, by_name):
                    continue
            else:
                with np.errstate(all="ignore"):
                    row[place] = change @ adjoint
                meter.charge(PRODUCT_S * adjoint.size)
                is_odd = is_odd or not bool(np.isfinite(row[place]).all())
            if place == 0 and not is_odd and guess.family is None:
                same = seen.setdefault(_round_to_key(row[0]), guess)
                if same is not guess:
                    same.take_name(guess, edit)
                    continue
            if is_odd:
                odd.add(len(kept))
            kept.append(guess)
            rows.append(row)
        self.edits, self.sketches, self.odd = kept, rows, odd
        if self.fitted and slopes is not None:
            self._look_at_pairs(place, slopes)
        if self.fitted and adjoint is not None and self.site.output in names:
            start = sum(values[name].size for name in names[: names.index(self.site.output)])
            array = values[self.site.output]
            self._look_at_indices(place, array, adjoint[start : start + array.size])

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
        if wanted and len(names) == 1 and site.whole_step:
            inputs = [reference.value(sample, name) if name else None for name in site.step.inputs]
            predictor.trying(f"the derivative of the constants of {site.output}")
            reference.meter.charge(reference.seconds[site.step.index] * (predictor.directions + 1))
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
                        (name, axis), np.zeros((*table.shape[:2], self.samples, table.shape[-1]))
                    )
                    held[:, :, place] = table

    def _look_at_indices(self, place: int, array: np.ndarray, adjoint: np.ndarray) -> None:
        shaped = adjoint.reshape((*array.shape, -1))
        weighed = array[..., None] * shaped
        self.site.reference.meter.charge(6 * PRODUCT_S * shaped.size * array.ndim)
        for axis, length in enumerate(array.shape):
            if 1 < length <= _LONGEST:
                others = tuple(other for other in range(array.ndim) if other != axis)
                for scales, source in ((True, weighed), (False, shaped)):
                    sums = source.sum(others, dtype=np.float64)
                    key = axis, scales
                    if key not in self.indices and place == 0:  # indices are those of the first sample's axes
                        self.indices[key] = np.zeros((length, self.samples, sums.shape[-1]))
                    if key in self.indices and self.indices[key].shape[0] == length:
                        self.indices[key][:, place] = sums

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
                    guess.score -= _SIZE_COUNTS * abs(math.log10(max(abs(float(amounts[number])), 1e-12)))
                found.append(guess)
        if self.predicted:
            for (axis, scales), sketch in self.indices.items():
                found += self._best_indices(predictor, axis, scales, sketch)
            for (name, axis), table in self.pairs.items():
                found += self._best_exchanges(predictor, name, axis, table)
        return found

    def _best_exchanges(self, predictor: Predictor, name: str, axis: int, table: np.ndarray) -> Iterator[Guess]:
        """The pairs of indices of a constant whose exchange explains most."""
        length = table.shape[0]
        ones, others = np.triu_indices(length, 1)
        sketch = table[ones, others]
        scores, amounts = predictor.judged(sketch)
        with np.errstate(divide="ignore"):
            scores = scores - _SIZE_COUNTS * np.abs(np.log10(np.maximum(np.abs(amounts), 1e-12)))
        for place in np.argsort(-scores)[:_KEPT_PAIRS]:
            edit = exchange_edit(self.site, name, axis, int(ones[place]), int(others[place]))
            yield Guess(site=self.site, kind="exchanged", edit=edit, score=float(scores[place]), sketch=sketch[place])

    def _best_indices(self, predictor: Predictor, axis: int, scales: bool, sketch: np.ndarray) -> Iterator[Guess]:  # noqa: FBT001 - one of two ways
        scores, amounts = predictor.judged(sketch)
        array = predictor.reference.values[predictor.samples[0]][self.site.output]
        size = math.sqrt(float(np.square(array, dtype=np.float64).mean())) or 1.0
        for index in np.argsort(-np.abs(scores))[:_KEPT_INDICES]:
            if not amounts[index]:
                continue
            family = index_family(axis, int(index), array.shape, size, scales=scales)
            yield Guess(
                site=self.site,
                kind=family.kind,
                family=family,
                amounts=(float(amounts[index]),),
                score=float(abs(scores[index])),
                sketch=sketch[index] * amounts[index],
            )


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
            with np.errstate(all="ignore"):
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
