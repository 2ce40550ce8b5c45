"""The search: which one or two steps make the reference reproduce the candidate.

Steps are tried alone on the worst sample. If none is accepted, those that come nearest, by error and by direction (the
cosine of the centred outputs, which a wrong scale leaves alone), are composed with all others, in the order of their
stages. An array that was tried before is not run again. What is accepted there has to hold on the others.

Acceptance: the error of reference(T(x)) against the candidate, per output in relative L2 (over the larger of the two
norms, so that no scale of the input makes the error without T look large), is at most what the declared arithmetic
explains on x or on T(x) (which may amplify rounding more), or a thousandth of what it is without T; it is a third of that at
most; and chance is excluded: m trials that miss the candidate's outputs by e0 in d independent directions come as near
as e by chance with probability at most m (e / e0)^d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._preprocessing.steps import apply_steps
from parityscope.comparison.rows import as_given
from parityscope.noise import FLOAT32_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.checks._preprocessing.steps import Step
    from parityscope.comparison.rows import Align

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Found", "Question", "Trial", "search"]

_FAR = 1.0 / 3.0  # chosen: below it, two formats of neighbouring precision (a factor of 4 to 8) can be told apart
_CHANCE = 0.01  # probability of an accident that is accepted
_DIRECTIONS = 4  # directions in which one output of one sample is taken to vary, at most; chosen low
_SEEDS = 4  # of each kind that are composed with all others: by error, and by direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched for: `samples` of reference inputs, and the candidate's outputs on each.

    `run` runs the reference and gives None where it cannot take such inputs. `bounds` is, by output, the relative L2
    that the declared arithmetic explains. At most `runs` runs are made on the worst sample. `align` puts the candidate's
    rows beside the reference's, where they have no order of their own. `honest` runs the declared arithmetic on any inputs:
    a deployment may err by `margin` times as much.
    """

    samples: Sequence[Arrays]
    candidate: Sequence[Arrays]
    run: Callable[[Arrays], Arrays | None]
    bounds: Mapping[str, float]
    runs: int
    align: Align = as_given
    honest: Callable[[Arrays], Arrays | None] | None = None
    margin: float = 1.0

    def measured(self, outputs: Arrays, index: int) -> tuple[float, float, float]:
        """What `_measure` gives for the outputs of a run on sample `index`."""
        return _measure(outputs, self.align(outputs, self.candidate[index]), self.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Steps and how near they come on the worst sample, by the worst output: `error`, its `excess` over the bound, cosine."""

    steps: tuple[Step, ...]
    error: float
    excess: float
    alike: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the search gave.

    `before` and `after` are the worst relative L2 over outputs and samples without and with `best` (None: nothing was
    accepted; then `after` is that of the nearest trial on the worst sample). `others` cannot be told from it. `runs`
    were made on the worst sample and `left_out` compositions were not tried. `exact`: `after` is within the bounds.
    """

    best: Trial | None
    nearest: Trial | None
    others: tuple[Trial, ...]
    before: float
    after: float
    chance: float
    runs: int
    left_out: int
    exact: bool


@dataclass(slots=True, kw_only=True)
class _Search:
    question: Question
    before: float
    trials: list[Trial] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    weights: dict[int, np.ndarray] = field(default_factory=dict)
    runs: int = 0
    left_out: int = 0

    def attempt(self, steps: tuple[Step, ...]) -> None:
        """Runs one trial, if its inputs are new."""
        inputs = apply_steps(steps, self.question.samples[0])
        if inputs is None or not all(_informative(array) for array in inputs.values()):
            return
        mark = _mark(inputs, self.weights)
        if mark in self.seen:
            return
        if self.runs >= self.question.runs:
            self.left_out += 1
            return
        self.seen.add(mark)
        self.runs += 1
        outputs = self.question.run(inputs)
        if outputs is None:
            return
        error, excess, alike = self.question.measured(outputs, 0)
        self.trials.append(Trial(steps=steps, error=error, excess=excess, alike=alike))

    def near(self, trial: Trial) -> bool:
        return _accepted(trial, trial.error, trial.excess, self.before)


def search(question: Question, steps: Sequence[Step]) -> Found:
    """Searches `steps` alone and in twos."""
    measured = [_plain(question, index) for index in range(len(question.samples))]
    before = max(error for error, _ in measured)
    # The worst sample first: one on which nothing is wrong says nothing about a step.
    order = sorted(range(len(measured)), key=lambda index: -measured[index][0])
    question = replace(
        question,
        samples=[question.samples[index] for index in order],
        candidate=[question.candidate[index] for index in order],
    )
    state = _Search(question=question, before=before)
    state.seen.add(_mark(question.samples[0], state.weights))
    if max(excess for _, excess in measured) <= 1.0:
        return _nothing(state, before)
    for step in steps:
        state.attempt((step,))
    found = _confirmed(state, before)
    if found is not None:
        return found
    for pair in _pairs(_seeds(state.trials), steps):
        state.attempt(pair)
    return _confirmed(state, before) or _nothing(state, before)


def _plain(question: Question, index: int) -> tuple[float, float]:
    """Error and excess of the reference on its own inputs."""
    outputs = question.run(question.samples[index])
    if outputs is None:
        return math.inf, math.inf
    return question.measured(outputs, index)[:2]


def _seeds(trials: list[Trial]) -> list[Step]:
    """The steps that come nearest, alternately by error and by direction."""
    by_error = sorted(trials, key=lambda trial: trial.error)[:_SEEDS]
    by_direction = sorted(trials, key=lambda trial: -trial.alike)[:_SEEDS]
    mixed = [trial for both in zip(by_error, by_direction, strict=True) for trial in both]
    return list({trial.steps[0].key: trial.steps[0] for trial in mixed}.values())


def _pairs(seeds: Sequence[Step], steps: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    for seed in seeds:
        for step in steps:
            if step.key == seed.key:
                continue
            first, second = sorted((seed, step), key=lambda one: one.stage)
            yield first, second


def _confirmed(state: _Search, before: float) -> Found | None:
    """The best trial that holds on every sample, and those that hold as well."""
    held: list[tuple[Trial, float, float]] = []
    near = sorted(filter(state.near, state.trials), key=lambda trial: (trial.excess > 1.0, trial.error))
    # What T(x) itself costs in the declared arithmetic is only measured where it could make the difference.
    close = sorted((one for one in state.trials if one.error <= _FAR * before), key=lambda trial: trial.error)
    for trial in near[: 2 * _SEEDS] or close[:_SEEDS]:
        measured = [_again(state.question, index, trial) for index in range(len(state.question.samples))]
        error, excess = max(one[0] for one in measured), max(one[1] for one in measured)
        if not _accepted(trial, error, excess, before):
            excess = min(excess, _excess_of_its_own(state.question, trial))
        chance = _chance(state, error, before)
        if _accepted(trial, error, excess, before) and chance <= _CHANCE:
            held.append((trial, error, excess))
    if not held:
        return None
    held.sort(key=lambda one: (one[2] > 1.0, one[1]))
    best, after, excess = held[0]
    alike = [trial for trial, error, beyond in held[1:] if (beyond > 1.0) == (excess > 1.0) and error <= 2.0 * after]
    return Found(
        best=best,
        nearest=best,
        others=tuple(alike),
        before=before,
        after=after,
        chance=_chance(state, after, before),
        runs=state.runs,
        left_out=state.left_out,
        exact=excess <= 1.0,
    )


def _excess_of_its_own(question: Question, trial: Trial) -> float:
    """The worst error over what the declared arithmetic costs on T(x) itself, which may be more than it costs on x."""
    worst = 0.0
    for index, sample in enumerate(question.samples):
        inputs = apply_steps(trial.steps, sample)
        outputs = None if inputs is None else question.run(inputs)
        honest = None if question.honest is None or inputs is None else question.honest(inputs)
        if outputs is None or honest is None:
            return math.inf
        costs = {name: _measure(outputs, {name: honest[name]}, {name: 1.0})[0] for name in question.bounds}
        bounds = {name: max(bound, question.margin * costs[name]) for name, bound in question.bounds.items()}
        if not all(map(math.isfinite, bounds.values())):
            return math.inf
        worst = max(worst, _measure(outputs, question.align(outputs, question.candidate[index]), bounds)[1])
    return worst


def _nothing(state: _Search, before: float) -> Found:
    nearest = min(state.trials, key=lambda trial: trial.error, default=None)
    return Found(
        best=None,
        nearest=nearest,
        others=(),
        before=before,
        after=before if nearest is None else nearest.error,
        chance=1.0,
        runs=state.runs,
        left_out=state.left_out,
        exact=False,
    )


def _again(question: Question, index: int, trial: Trial) -> tuple[float, float]:
    if index == 0:
        return trial.error, trial.excess
    inputs = apply_steps(trial.steps, question.samples[index])
    outputs = None if inputs is None else question.run(inputs)
    if outputs is None:
        return math.inf, math.inf
    return question.measured(outputs, index)[:2]


def _accepted(trial: Trial, error: float, excess: float, before: float) -> bool:
    leaves = max(step.leaves for step in trial.steps)
    return (excess <= 1.0 or error <= leaves * before) and error <= _FAR * before


def _chance(state: _Search, error: float, before: float) -> float:
    """The probability that one of the trials comes so near by accident, at most."""
    directions = 0
    for name in state.question.bounds:
        # A saturated network repeats itself, and a dead one gives one value: neither says anything more.
        told = {np.asarray(arrays[name]).tobytes() for arrays in state.question.candidate if _informative(arrays[name])}
        directions += len(told) * min(_DIRECTIONS, max(1, state.question.candidate[0][name].size - 1))
    return float(min(1.0, max(1, state.runs) * (max(error, FLOAT32_ROUNDING) / before) ** directions))


def _measure(outputs: Arrays, candidate: Arrays, bounds: Mapping[str, float]) -> tuple[float, float, float]:
    """The worst output's error, the worst error over its bound, and the mean cosine of the centred outputs.

    Elements that are not finite must be so on both sides: else the error is infinite.
    """
    errors, excesses, cosines = [0.0], [0.0], []
    for name, bound in bounds.items():
        mine, its = (np.asarray(each[name], np.float64) for each in (outputs, candidate))
        if mine.shape != its.shape or not np.array_equal(np.isfinite(mine), np.isfinite(its)):
            return math.inf, math.inf, 0.0
        finite = np.isfinite(its)
        mine, its = mine[finite], its[finite]
        size = max(float(np.linalg.norm(mine)), float(np.linalg.norm(its)))
        off = float(np.linalg.norm(mine - its))
        error = off / size if size else 0.0
        errors.append(error)
        excesses.append(error / bound)
        centred = [each - each.mean() if each.size > 1 else each for each in (mine, its)]
        norms = float(np.linalg.norm(centred[0]) * np.linalg.norm(centred[1]))
        cosines.append(float(centred[0] @ centred[1]) / norms if norms else 0.0)
    return max(errors), max(excesses), sum(cosines) / max(1, len(cosines))


def _informative(array: np.ndarray) -> bool:
    """Whether an array says something: one whose elements are all the same is another fault's trace."""
    return array.size < 2 or array.dtype.kind != "f" or bool((array != array.flat[0]).any())


def _mark(inputs: Arrays, weights: dict[int, np.ndarray]) -> tuple[object, ...]:
    """The same for arrays that differ by rounding, and by next to no accident for others: norm and two projections.

    `weights` holds the directions by size, and gets those that it lacks.
    """
    marks: list[object] = []
    for name in sorted(inputs):
        array = np.asarray(inputs[name], np.float64).ravel()
        if array.size not in weights:
            weights[array.size] = np.random.default_rng(array.size).standard_normal((2, array.size))
        norm = float(np.linalg.norm(array))
        if not math.isfinite(norm) or not norm:
            marks.append((name, array.size, str(norm)))
            continue
        projected = weights[array.size] @ array / norm
        marks.append((name, inputs[name].shape, f"{norm:.4e}", *(round(float(each), 4) for each in projected)))
    return tuple(marks)
