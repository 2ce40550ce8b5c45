"""What every edit would do to the outputs, to first order, from one sweep backwards a sample.

A sweep carries random signs and the residual r back to each site. There the change d that an edit makes of the site's own
result (computed exactly) is multiplied with them: <J d, r> exactly, and |J d| as the mean of <J d, signs>^2. The part along r
is taken out first, so that the sketch has no error where nothing else is left. Where a derivative is missing nothing is
predicted, and what stands there is tried by its length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.evaluation.backward import Sweep
from parityscope.hypotheses.from_outputs.guess import SIZE_COUNTS, Guess
from parityscope.hypotheses.from_outputs.rules import find_alike, join_alike
from parityscope.hypotheses.from_outputs.site_guesses import SiteGuesses
from parityscope.hypotheses.from_outputs.spending import DERIVATIVE_S, SWEPT
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_outputs.reference import Reference
    from parityscope.hypotheses.from_outputs.residual import Residual
    from parityscope.hypotheses.from_outputs.sites import EditSite

# Random directions; with four the worst rank of the truth was ten times larger (measured). So few numbers need no chance.
DIRECTIONS = 8


@dataclass(slots=True, kw_only=True, eq=False)
class Predictor:
    """Sweeps over some samples. `refused` says which operators have no derivative, `until` where the meter ends it.

    `parts` says whether edits of a part of a result are looked for.
    """

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
    parts: bool = True
    _sizes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    _to_sweep: float = 0.0  # estimated seconds of the sweeps that are left, over all samples
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
        work: dict[str, SiteGuesses] = {}
        # The worst first: what explains nothing of it is not looked at on the others.
        order = sorted(range(len(self.samples)), key=lambda place: -self.residual.size(self.samples[place]))
        self._sizes = np.array([self.residual.size(sample) for sample in self.samples]) + 1e-300
        share = seconds / max(1, len(sites))
        counts = {self.residual.numbers(sample) for sample in self.samples}
        self.directions = min(DIRECTIONS, *counts) if len(counts) == 1 else DIRECTIONS
        self._to_sweep = self._estimate_sweeps(min((site.step.index for site in sites), default=0))
        spare, ahead = 0.0, len(sites)
        for turn, place in enumerate(order):
            seen = 0
            for site, adjoint in self._sweep_backwards(self.samples[place], by_key):
                if turn == 0:
                    # Each site has the same part of what is left beside the sweeps, so that the first ones are looked at too.
                    now = self.reference.meter.spent
                    if now > self.until:
                        break
                    part = (self.until - now - self._to_sweep) / max(1, ahead)
                    ahead -= 1
                    own = work[site.output] = SiteGuesses(site=site, samples=len(self.samples), until=now + part)
                    spare = own.draw(self, kinds, min(most_each, share + spare), fitted=fitted)
                found = work.get(site.output)
                if found is not None:
                    found.look(self, place, adjoint, is_first=turn == 0)
                    seen += 1
                if (seen == len(work)) if turn else ahead <= 0:
                    break  # nothing before it is looked at
        guesses = []
        for found in work.values():
            guesses += found.guesses(self)
        return guesses + self._guess_together(guesses)

    def _guess_together(self, guesses: Sequence[Guess]) -> list[Guess]:
        """The same edit at every site of an operator at once: what they do is to first order the sum of what each does."""
        known = [one for one in guesses if one.sketch is not None and one.edit is not None]
        found = []
        for members in find_alike((one, edit) for one in known for edit in (one.made(), *one.names)):
            guess = join_alike(members)
            guess.sketch = np.sum([one.sketch for one, _ in members if one.sketch is not None], axis=0)
            score, amount = (float(one[0]) for one in self.judged(guess.sketch[None]))
            guess.score = score - SIZE_COUNTS * abs(math.log10(max(abs(amount), 1e-12)))
            found.append(guess)
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
        # What is counted has no slope: a class beside its scores would leave unknown what both come of.
        seeds = {name: seed for name, seed in seeds.items() if self.reference.values[sample][name].dtype.kind == "f"}
        if self._sweep is None:
            self._sweep = Sweep(program=self.reference.program, threads=1, refused=self.refused)
        values = self.reference.values[sample]
        met = set()
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
        taken = DERIVATIVE_S * (opened - self._opened) + self._price_of_sweep(step)
        meter.charge(taken)
        self._to_sweep = max(0.0, self._to_sweep - taken)
        self._opened = opened

    def _estimate_sweeps(self, first: int) -> float:
        """Estimated seconds of the sweeps over all samples, back to the step of that index."""
        steps = [step for step in self.reference.live if step.index >= first]
        opened = max(0, len({step.kind for step in steps}) - self._opened)
        return len(self.samples) * sum(map(self._price_of_sweep, steps)) + DERIVATIVE_S * opened

    def _price_of_sweep(self, step: ProgramStep) -> float:
        return SWEPT * (self.directions + 1) * self.reference.seconds.get(step.index, 0.0)

    def judged(self, sketch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores and best amounts of changes: sketches float64, (changes, samples, signs + 1) -> (changes,) each.

        A sample that was not looked at is NaN in a sketch, and does not count.
        """
        known = ~np.isnan(sketch[..., 0])
        seen = np.where(known[..., None], sketch, 0.0)
        signs, along = seen[..., : self.directions], seen[..., self.directions].sum(1)
        whole = known @ self._sizes
        alpha = along / whole
        nothing = np.zeros(self.directions)
        products = np.stack([self._products.get(sample, nothing) for sample in self.samples])
        rest = signs - alpha[:, None, None] * products * known[..., None]
        beside = np.square(rest).mean(2).sum(1) / whole
        size = np.sqrt(alpha**2 + beside) + 1e-30
        amount = alpha / (alpha**2 + beside + 1e-30)
        return alpha / size, np.where(size > 1e-12, amount, 0.0)
