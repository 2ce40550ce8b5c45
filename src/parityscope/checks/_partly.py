"""Which of a network's products were computed in a coarser format, from the outputs alone.

Each product that is computed so moves the outputs in a direction of its own, and small errors add up: the candidate's error is
held against the sum of the directions of a set of products, each as large as simulated and none fitted. The set is improved by
one product at a time, from none and from all, until no change of one makes what is left smaller; where much is left, also with
all of a set computed at once, since what is rounded already is not rounded again. What is found is computed on samples that it
was not found on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.evaluation.partly import PartlyRounded
    from parityscope.examination import Examination

_RUNS, _RUNNING_S = 600, 6.0  # of the network, at most, for one format, and estimated seconds; chosen
# Of the squared error: what need not be explained better, and what a product must explain. Chosen.
_NOTHING, _BETTER = 0.1, 0.01
_LEFT = 1e-12  # of the squared error, at least: what FP32 tells apart


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLikeness:
    """The cosine of two errors, how many numbers carry what they share, and what the one leaves of the other, in squares."""

    cosine: float
    numbers: float
    left: float

    @property
    def bits(self) -> float:
        """What the one saves of saying the other, its size fitted: half the logarithm of what is left, for each number."""
        return -0.5 * self.numbers * math.log2(max(1.0 - self.cosine**2, _LEFT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductsFound:
    """The products that were computed in a format, of all, and how alike the errors are; `bits` without those that say which."""

    format: str
    products: tuple[str, ...]
    all: int
    likeness: ErrorLikeness

    @property
    def explained(self) -> float:
        """The part of the squared error that is gone."""
        return max(0.0, 1.0 - self.likeness.left)

    @property
    def bits(self) -> float:
        """What the set saves beyond saying which products it holds."""
        chosen, every = len(self.products), self.all
        said = (math.lgamma(every + 1) - math.lgamma(chosen + 1) - math.lgamma(every - chosen + 1)) / math.log(2)
        return self.likeness.bits - said


def find_products(known: Examination, bench: Bench, precision: str) -> ProductsFound | Skip | None:
    """The products in `precision` whose errors add up to the candidate's; None where no set of some of them does.

    A `Skip` where each alone would take too long.

    Raises:
        ParityError: the model cannot be simulated.
    """
    if bench.partly is None:
        return None
    partly = bench.partly()
    count = len(partly.products)
    # Of a run with one product changed what lies behind it is computed again: half of it, on average.
    runs = min(_RUNS, int(2 * _RUNNING_S / partly.seconds(bench.inputs(bench.samples[0]))))
    if count > runs:
        what = f"which of {count} convolutions and matrix products compute in {precision}"
        return Skip(what=what, reason="each would be computed alone, which takes too long", fix="record layers too")
    if count < 2:
        return None
    samples = bench.samples[: max(1, min(len(bench.samples) // 2, runs // (2 * count)))]
    trial = _Trial(known=known, bench=bench, partly=partly, format=precision, samples=samples)
    chosen = _set_of_sums(trial)
    chosen = chosen if chosen is None else _improve_by_runs(trial, chosen, runs - count * len(samples))
    if chosen is None or not chosen.any() or chosen.all():
        return None
    products = trial.name_products(chosen)
    likeness = likeness_of_errors(known, bench, lambda index: next(trial.run(index, [products])))
    if likeness is None:
        return None
    return ProductsFound(format=precision, products=products, all=count, likeness=likeness)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trial:
    """Sets of products in the format, held against the candidate on `samples`."""

    known: Examination
    bench: Bench
    partly: PartlyRounded
    format: str
    samples: Sequence[int]

    def run(self, index: int, groups: Sequence[Collection[str]]) -> Iterator[Mapping[str, np.ndarray]]:
        """The outputs of a sample with the products of each group in the format."""
        return self.partly.run(self.bench.inputs(index), groups, self.format)

    def name_products(self, chosen: np.ndarray) -> tuple[str, ...]:
        """The products of a set (bool, (products,))."""
        return tuple(product for product, taken in zip(self.partly.products, chosen, strict=True) if taken)

    def error(self, index: int, answer: Mapping[str, np.ndarray]) -> np.ndarray:
        """How far an answer is from the reference, flat over the outputs that are wrong."""
        return np.concatenate([*_errors(self.known, self.bench.reference(index), answer), np.zeros(0)])

    def left(self, sets: Sequence[np.ndarray]) -> np.ndarray:
        """What each set leaves of the squared error, float64 (sets,), each computed with all of its products at once."""
        left, whole = np.zeros(len(sets)), 0.0
        for index in self.samples:
            error = self.error(index, self.bench.candidate(index))
            answers = self.run(index, [self.name_products(one) for one in sets])
            left += [float(np.square(error - self.error(index, answer)).sum()) for answer in answers]
            whole += float(error @ error)
        return left / whole


def _set_of_sums(trial: _Trial) -> np.ndarray | None:
    """The set (bool, (products,)) whose single errors add up best; None where the outputs cannot be held against each other."""
    count = len(trial.partly.products)
    shared, projected = np.zeros((count, count)), np.zeros(count)
    for index in trial.samples:
        groups = [(), *((product,) for product in trial.partly.products)]
        plain, *answers = (trial.error(index, one) for one in trial.run(index, groups))
        error = trial.error(index, trial.bench.candidate(index))
        if not error.size or error.shape != plain.shape:
            return None
        moved = np.stack(answers) - plain
        shared += moved @ moved.T
        projected += moved @ error
    found = [_improve_set(shared, projected, np.full(count, start)) for start in (False, True)]
    return min(found, key=lambda one: float(one @ shared @ one - 2 * projected @ one))


def _improve_by_runs(trial: _Trial, chosen: np.ndarray, runs: int) -> np.ndarray:
    """The set that no change of one product makes better when all are computed at once; errors of neighbours do not just add."""
    (left,) = trial.left([chosen])
    count = len(chosen)
    while left > _NOTHING and runs >= count * len(trial.samples):
        flipped = [chosen ^ (np.arange(count) == place) for place in range(count)]
        others = trial.left(flipped)
        runs -= count * len(trial.samples)
        best = int(np.argmin(others))
        if not others[best] < left - _BETTER:
            break
        chosen, left = flipped[best], float(others[best])
    return chosen


def _improve_set(shared: np.ndarray, projected: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The set (bool, (products,)) that no change of one product makes better, from `start`."""
    chosen = start.copy()
    while True:
        # What adding a product adds to the squared error that is left; what taking it out adds is the other way round.
        sums = shared @ chosen
        added = np.where(
            chosen, 2 * projected - 2 * sums + np.diag(shared), -2 * projected + 2 * sums + np.diag(shared)
        )
        best = int(np.argmin(added))
        if not added[best] < 0:
            return chosen
        chosen[best] = not chosen[best]


def _errors(
    known: Examination, reference: Mapping[str, np.ndarray], answer: Mapping[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """Of each output that is wrong the error, flat, in units of the reference's norm; what is not finite is no error here."""
    for name in (pair.site.tensor for pair in known.beyond):
        if name not in reference or name not in answer or reference[name].shape != answer[name].shape:
            continue
        right = np.asarray(reference[name], np.float64)
        error = np.asarray(answer[name], np.float64) - right
        norm = float(np.linalg.norm(right[np.isfinite(right)])) or 1.0
        yield np.where(np.isfinite(error), error, 0.0).reshape(-1) / norm


def likeness_of_errors(
    known: Examination, bench: Bench, simulated: Callable[[int], Mapping[str, np.ndarray]]
) -> ErrorLikeness | None:
    """How the candidate's error points where that of a simulation does, over the samples that are looked at; None if nowhere.

    An engine that cuts off where another rounds errs the other way: the sign of the cosine says nothing.
    """
    its: list[np.ndarray] = []
    made: list[np.ndarray] = []
    for index in bench.samples:
        reference = bench.reference(index)
        answer, candidate = simulated(index), bench.candidate(index)
        both = {name: one for name, one in answer.items() if name in candidate and one.shape == candidate[name].shape}
        its += _errors(known, reference, {name: candidate[name] for name in both})
        made += _errors(known, reference, both)
    if not its:
        return None
    wrong, simulation = np.concatenate(its), np.concatenate(made)
    both_sizes = float(np.linalg.norm(wrong) * np.linalg.norm(simulation))
    if not both_sizes > 0:
        return None
    products = wrong * simulation
    total, squares = abs(float(products.sum())), float(np.square(products).sum())
    return ErrorLikeness(
        cosine=min(1.0, total / both_sizes),
        numbers=total**2 / squares if squares > 0 else 0.0,
        left=float(np.square(wrong - simulation).sum() / np.square(wrong).sum()),
    )
