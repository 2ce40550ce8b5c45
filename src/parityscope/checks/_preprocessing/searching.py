"""The search: which one or two steps make the reference reproduce the candidate.

Steps are tried alone on the worst sample. If none is accepted, the usual ones are tried in twos, and those that come
nearest, by error and by direction (the cosine of the centred outputs, which a wrong scale leaves alone), are composed with
all others, in the order of their stages. An array that was tried before is not run again. What is accepted there has to
hold on the others.

Acceptance: the error of reference(T(x)) against the candidate, per output in relative L2 (over the larger of the two
norms, so that no scale of the input makes the error without T look large), is at most what the declared arithmetic
explains on x or on T(x) (which may amplify rounding more), or a thousandth of what it is without T; it is a third of that at
most; and chance is excluded: m trials that miss the candidate's outputs by e0 in d independent directions come as near
as e by chance with probability at most m (e / e0)^d. Where an honest deployment of the declared arithmetic on T(x) comes
nearer than the reference, its error counts: a saturated network answers in FP16 what it answers in no other format.

A single step that only chance speaks against is given as well, as one that is possible; not where most steps would do, for
then the outputs tell nothing. Where the candidate has NaN or Inf and the reference has not, the honest deployment is
searched with in place of the reference.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._preprocessing.measuring import informative, mark_of, measure
from parityscope.checks._preprocessing.steps import NORMALIZING, apply_steps
from parityscope.checks._reproducing import grain_of
from parityscope.comparison.rows import as_given
from parityscope.expectation import FLOAT32_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.checks._preprocessing.steps import Step
    from parityscope.comparison.rows import Align

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Found", "Question", "Trial", "search"]

_FAR = 1.0 / 3.0  # chosen: below it, two formats of neighbouring precision (a factor of 4 to 8) can be told apart
_CHANCE = 0.01  # probability of an accident that is accepted
_DIRECTIONS = 4  # directions in which one output of one sample is taken to vary, at most; chosen low
_AS_NEAR = 1.5  # times the least error, of two steps: one step is then as good (chosen)
_SEEDS = 4  # of each kind that are composed with all others: by error, and by direction
_TELLING = 0.5  # of the single steps: where more reproduce the candidate, it tells nothing of its inputs
_BROKEN = 60  # honest runs, each some ten of the reference's, that are made for outputs with NaN or Inf


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
        """What `measure` gives for the outputs of a run on sample `index`."""
        return measure(outputs, self.align(outputs, self.candidate[index]), self.bounds)


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
    `certain`: chance is excluded. `honest`: it is an honest deployment that reproduces the candidate with `best`.
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
    certain: bool = True
    honest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A trial that holds on every sample: its worst error, the error over its bound, and whose outputs these are of."""

    trial: Trial
    error: float
    excess: float
    chance: float
    honest: bool


@dataclass(slots=True, kw_only=True)
class _Search:
    """`wrong` tells of which samples the candidate is further off than its arithmetic explains.

    `broken`: it has NaN or Inf, and an honest deployment is run in place of the reference.
    """

    question: Question
    before: float
    wrong: tuple[bool, ...]
    broken: bool
    trials: list[Trial] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    weights: dict[int, np.ndarray] = field(default_factory=dict)
    runs: int = 0
    left_out: int = 0

    def attempt(self, steps: tuple[Step, ...]) -> None:
        """Runs one trial, if its inputs are new."""
        inputs = apply_steps(steps, self.question.samples[0])
        if inputs is None or not all(informative(array) for array in inputs.values()):
            return
        mark = mark_of(inputs, self.weights)
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
    broken = not math.isfinite(max(error for error, _ in measured)) and question.honest is not None
    if broken and question.honest is not None:
        question = replace(question, run=question.honest, honest=None, runs=min(question.runs, _BROKEN))
        measured = [_plain(question, index) for index in range(len(question.samples))]
    before = max(error for error, _ in measured)
    # The worst sample first: one on which nothing is wrong says nothing about a step.
    order = sorted(range(len(measured)), key=lambda index: -measured[index][0])
    question = replace(
        question,
        samples=[question.samples[index] for index in order],
        candidate=[question.candidate[index] for index in order],
    )
    wrong = tuple(measured[index][1] > 1.0 for index in order)
    state = _Search(question=question, before=before, wrong=wrong, broken=broken)
    state.seen.add(mark_of(question.samples[0], state.weights))
    if max(excess for _, excess in measured) <= 1.0:
        return _nothing(state, before)
    for step in steps:
        state.attempt((step,))
    possible, alone = _held(state, before), len(state.trials)
    found = _best(state, [one for one in possible if one.chance <= _CHANCE])
    if found is not None:
        return found
    if not broken:
        usual = [step for step in steps if step.usual]
        for pair in itertools.chain(_pairs(usual, usual), _pairs(_seeds(state.trials), steps)):
            state.attempt(pair)
        found = _best(state, [one for one in _held(state, before) if one.chance <= _CHANCE])
    if found is None and len(possible) <= _TELLING * alone:
        found = _best(state, possible)
    return found or _nothing(state, before)


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
            # Memory is laid out before or after channels are exchanged; of two normalizations one order is odd enough.
            if first.stage == second.stage != NORMALIZING:
                yield second, first


def _held(state: _Search, before: float) -> list[_Held]:
    """The trials that hold on every sample, the best first."""
    held: list[_Held] = []
    near = sorted(filter(state.near, state.trials), key=lambda trial: (trial.excess > 1.0, trial.error))
    # What T(x) itself costs in the declared arithmetic is only measured where it could make the difference.
    close = sorted((one for one in state.trials if one.error <= _FAR * before), key=lambda trial: trial.error)
    for trial in near[: 2 * _SEEDS] or close[:_SEEDS]:
        measured = [_again(state.question, index, trial) for index in range(len(state.question.samples))]
        error, excess = max(one[0] for one in measured), max(one[1] for one in measured)
        honest = False
        if not _accepted(trial, error, excess, before) or _chance(state, error, before) > _CHANCE:
            other, beyond = _honestly(state.question, trial)
            excess, honest = min(excess, beyond), other < error
            error = min(error, other)
        if _accepted(trial, error, excess, before):
            chance = _chance(state, error, before)
            held.append(_Held(trial=trial, error=error, excess=excess, chance=chance, honest=honest))
    return sorted(held, key=lambda one: (one.excess > 1.0, one.error))


def _best(state: _Search, held: Sequence[_Held]) -> Found | None:
    """The best of what is held, and what cannot be told from it."""
    if not held:
        return None
    best = held[0]
    alike = [
        one.trial
        for one in held[1:]
        if (one.excess > 1.0) == (best.excess > 1.0) and one.error <= 2.0 * max(best.error, FLOAT32_ROUNDING)
    ]
    return Found(
        best=best.trial,
        nearest=best.trial,
        others=tuple(alike),
        before=state.before,
        after=best.error,
        chance=best.chance,
        runs=state.runs,
        left_out=state.left_out,
        exact=best.excess <= 1.0,
        certain=best.chance <= _CHANCE,
        honest=best.honest or state.broken,
    )


def _honestly(question: Question, trial: Trial) -> tuple[float, float]:
    """How far an honest deployment on T(x) is from the candidate, at worst, and how far the reference is over its bound.

    That bound is what the declared arithmetic costs on T(x) itself, which may be more than it costs on x.
    """
    apart = worst = 0.0
    for index, sample in enumerate(question.samples):
        inputs = apply_steps(trial.steps, sample)
        outputs = None if inputs is None else question.run(inputs)
        honest = None if question.honest is None or inputs is None else question.honest(inputs)
        if outputs is None or honest is None:
            return math.inf, math.inf
        costs = {name: measure(outputs, {name: honest[name]}, {name: 1.0})[0] for name in question.bounds}
        bounds = {name: max(bound, question.margin * costs[name]) for name, bound in question.bounds.items()}
        apart = max(apart, question.measured(honest, index)[0])
        if not all(map(math.isfinite, bounds.values())):
            return apart, math.inf
        worst = max(worst, measure(outputs, question.align(outputs, question.candidate[index]), bounds)[1])
    return apart, worst


def _nothing(state: _Search, before: float) -> Found:
    nearest = min(state.trials, key=lambda trial: trial.error, default=None)
    # A second step that changes next to nothing is an accident.
    alone = [one for one in state.trials if nearest and len(one.steps) == 1 and one.error <= _AS_NEAR * nearest.error]
    nearest = min(alone, key=lambda trial: trial.error, default=nearest)
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
    if not math.isfinite(error):  # which is no less than an infinite one before
        return False
    leaves = max(step.leaves for step in trial.steps)
    return (excess <= 1.0 or error <= leaves * before) and error <= _FAR * before


def _chance(state: _Search, error: float, before: float) -> float:
    """The probability that one of the trials comes so near by accident, at most."""
    directions, grain = 0, 0.0
    # A sample that is right as it is is right with many a step.
    wrong = [arrays for arrays, off in zip(state.question.candidate, state.wrong, strict=True) if off]
    for name in state.question.bounds:
        # A saturated network repeats itself, and a dead one gives one value: neither says anything more.
        telling = [np.asarray(arrays[name]) for arrays in wrong if informative(arrays[name])]
        told = {array.tobytes() for array in telling}
        grain = max([grain, *map(grain_of, telling)])
        directions += len(told) * min(_DIRECTIONS, max(1, state.question.candidate[0][name].size - 1))
    return float(min(1.0, max(1, state.runs) * (max(error, grain) / before) ** directions))
