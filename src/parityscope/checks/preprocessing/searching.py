"""The search: which composition of steps makes the reference reproduce the candidate.

What is tried says `walking.py`; here is what is believed. What comes near on the worst sample has to hold on the others.

Acceptance: the error of reference(T(x)) against the candidate, per output in relative L2 (over the larger of the two
norms, so that no scale of the input makes the error without T look large), is at most what the declared arithmetic
explains on x or on T(x) (which may amplify rounding more), or a thousandth of what it is without T; it is a third of that at
most; and chance is excluded: m trials that miss the candidate's outputs by e0 in d independent directions come as near
as e by chance with probability at most m (e / e0)^d. So is a step of a composition that is no accident beside the others: each
has to pay for itself in the same way. Where an honest deployment of the declared arithmetic on T(x) comes
nearer than the reference, its error counts: a saturated network answers in FP16 what it answers in no other format.

A single step that only chance speaks against is given as well, as one that is possible; not where most steps would do, for
then the outputs tell nothing. Where the candidate has NaN or Inf and the reference has not, the honest deployment is
searched with in place of the reference.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._reproducing import grain_of
from parityscope.checks.preprocessing.steps import UNEXPLAINED, apply_steps, model_inputs
from parityscope.checks.preprocessing.walking import StepsTrial, Walk, is_informative, measure_outputs
from parityscope.comparison.rows import align_as_given
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    from parityscope.checks.preprocessing.steps import PreprocessingStep
    from parityscope.comparison.rows import Align

    Arrays = Mapping[str, np.ndarray]

_FAR = 1.0 / 3.0  # chosen: below it, two formats of neighbouring precision (a factor of 4 to 8) can be told apart
_DOUBTFUL = (
    0.7  # of the error: what leaves less may be all of it, once the declared arithmetic itself is run on it; chosen
)
_CHANCE = 0.01  # probability of an accident that is accepted
_DIRECTIONS = 4  # directions in which one output of one sample is taken to vary, at most; chosen low
_AS_NEAR = 1.5  # times the least error, of two steps: one step is then as good (chosen)
_HELD = 8  # compositions that come nearest and are held against the other samples (chosen)
_TELLING = 0.5  # of the single steps: where more reproduce the candidate, it tells nothing of its inputs
_UNRELATED = (
    1.0  # an infinite error counts as that of outputs that have nothing in common: getting rid of it explains nothing
)
_BROKEN = 60  # honest runs, each some ten of the reference's, that are made for outputs with NaN or Inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PreprocessingQuestion:
    """What is searched for: `samples` of reference inputs, and the candidate's outputs on each.

    `run` runs the reference and gives None where it cannot take such inputs. `bounds` is, by output, the relative L2
    that the declared arithmetic explains. At most `runs` runs are made on the worst sample; `kept` holds what earlier ones gave.
    `align` puts the candidate's
    rows beside the reference's, where they have no order of their own. `honest` runs the declared arithmetic on any inputs:
    a deployment may err by `margin` times as much.
    """

    samples: Sequence[Arrays]
    candidate: Sequence[Arrays]
    run: Callable[[Arrays], Arrays | None]
    bounds: Mapping[str, float]
    runs: int
    align: Align = align_as_given
    honest: Callable[[Arrays], Arrays | None] | None = None
    margin: float = 1.0
    kept: MutableMapping[str, tuple[float, float, float] | None] = field(default_factory=dict)

    def measured(self, outputs: Arrays, index: int) -> tuple[float, float, float]:
        """What `measure_outputs` gives for the outputs of a run on sample `index`."""
        return measure_outputs(*self.align(outputs, self.candidate[index]), self.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What the search gave.

    `before` and `after` are the worst relative L2 over outputs and samples without and with `best` (None: nothing was
    accepted; then `after` is that of the nearest trial on the worst sample). `others` cannot be told from it. `runs`
    were made on the worst sample and `left_out` compositions were not tried. `exact`: `after` is within the bounds.
    `certain`: chance is excluded. `honest`: it is an honest deployment that reproduces the candidate with `best`.
    """

    best: StepsTrial | None
    nearest: StepsTrial | None
    others: tuple[StepsTrial, ...]
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

    trial: StepsTrial
    error: float
    excess: float
    chance: float
    honest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepSearch:
    """`wrong` tells of which samples the candidate is further off than its arithmetic explains.

    `broken`: it has NaN or Inf, and an honest deployment is run in place of the reference.
    """

    question: PreprocessingQuestion
    walk: Walk
    before: float
    wrong: tuple[bool, ...]
    broken: bool

    def near(self, trial: StepsTrial) -> bool:
        return _is_accepted(trial, trial.error, trial.excess, self.before)

    def settled(self, trial: StepsTrial) -> bool:
        """Whether nothing is left that another step could explain."""
        return self.near(trial) and (trial.excess <= 1.0 or trial.error <= UNEXPLAINED * self.before)


def search_preprocessing(question: PreprocessingQuestion, steps: Sequence[PreprocessingStep]) -> SearchResult:
    """Searches `steps` alone and composed."""
    found, before = _search_composed(question, steps)
    return replace(found, before=before)


def _search_composed(question: PreprocessingQuestion, steps: Sequence[PreprocessingStep]) -> tuple[SearchResult, float]:
    """What was found, and the error without a step."""
    measured = [_error_without_steps(question, index) for index in range(len(question.samples))]
    broken = not math.isfinite(max(error for error, _ in measured)) and question.honest is not None
    if broken and question.honest is not None:
        question = replace(question, run=question.honest, honest=None, runs=min(question.runs, _BROKEN), kept={})
        measured = [_error_without_steps(question, index) for index in range(len(question.samples))]
    before = max(error for error, _ in measured)
    # The worst sample first: one on which nothing is wrong says nothing about a step.
    order = sorted(range(len(measured)), key=lambda index: -measured[index][0])
    question = replace(
        question,
        samples=[question.samples[index] for index in order],
        candidate=[question.candidate[index] for index in order],
    )
    state = _StepSearch(
        question=question,
        walk=_start_walk(question),
        before=before if math.isfinite(before) else _UNRELATED,
        wrong=tuple(measured[index][1] > 1.0 for index in order),
        broken=broken,
    )
    if max(excess for _, excess in measured) <= 1.0:
        return _result_of_nothing(state, before), before
    state.walk.begin(steps)
    possible, alone = _trials_that_hold(state), len(state.walk.trials)
    certain = [one for one in possible if one.chance <= _CHANCE]
    found = _choose_best(
        state, [one for one in certain if one.excess <= 1.0 or one.error <= UNEXPLAINED * state.before]
    )
    if found is not None:
        return found, before
    if not broken:
        state.walk.compose(steps, state.settled, state.before)
        composed_too = [one for one in _trials_that_hold(state, _DOUBTFUL) if one.chance <= _CHANCE]
        found = _choose_best(state, _simplest_first(state, composed_too or certain, len(steps)))
    if found is None and len(possible) <= _TELLING * alone:
        found = _choose_best(state, possible)
    return found or _result_of_nothing(state, before), before


def _start_walk(question: PreprocessingQuestion) -> Walk:
    def measured(inputs: Arrays) -> tuple[float, float, float] | None:
        outputs = question.run(inputs)
        return None if outputs is None else question.measured(outputs, 0)

    return Walk(sample=question.samples[0], measure=measured, budget=question.runs, kept=question.kept)


def _run_on_steps(
    question: PreprocessingQuestion,
    steps: tuple[PreprocessingStep, ...],
    index: int,
    run: Callable[[Arrays], Arrays | None],
) -> Arrays | None:
    """The outputs on what `steps` make of a sample."""
    made = apply_steps(steps, question.samples[index])
    return None if made is None else run(model_inputs(made))


def _error_without_steps(question: PreprocessingQuestion, index: int) -> tuple[float, float]:
    """Error and excess of the reference on its own inputs."""
    outputs = question.run(model_inputs(question.samples[index]))
    if outputs is None:
        return math.inf, math.inf
    return question.measured(outputs, index)[:2]


def _trials_that_hold(state: _StepSearch, far: float = _FAR) -> list[_Held]:
    """The trials that hold on every sample, the best first; an honest deployment is asked of those that leave less than `far`."""
    near = sorted(filter(state.near, state.walk.trials), key=lambda trial: (trial.excess > 1.0, trial.error))
    # What T(x) itself costs in the declared arithmetic is only measured where it could make the difference.
    close = sorted((one for one in state.walk.trials if one.error <= far * state.before), key=lambda trial: trial.error)
    held = [_hold_on_samples(state, trial) for trial in near[:_HELD] or close[: _HELD // 2]]
    return sorted((one for one in held if one is not None), key=lambda one: (one.excess > 1.0, one.error))


def _hold_on_samples(state: _StepSearch, trial: StepsTrial) -> _Held | None:
    """One trial on every sample; None where it does not hold there."""
    measured = [_measure_sample_again(state.question, index, trial) for index in range(len(state.question.samples))]
    error, excess = max(one[0] for one in measured), max(one[1] for one in measured)
    honest = False
    # What T(x) itself costs in the declared arithmetic may be all that is left: bytes in place of [0, 1] amplify rounding.
    if excess > 1.0 or _chance_of_accident(state, error) > _CHANCE:
        other, beyond = _error_of_honest(state.question, trial)
        excess, honest = min(excess, beyond), other < error
        error = min(error, other)
    if not _is_accepted(trial, error, excess, state.before):
        return None
    return _Held(trial=trial, error=error, excess=excess, chance=_chance_of_accident(state, error), honest=honest)


def _simplest_first(state: _StepSearch, held: list[_Held], kinds: int) -> list[_Held]:
    """The best without the steps that do not pay for themselves, then those that are no more than it and another step."""
    if not held:
        return []
    best = held[0]
    while (simpler := _drop_accidental_step(state, best, kinds)) is not None:
        best = simpler
    wanted = {step.key for step in best.trial.steps}
    return [best, *(one for one in held if one is not best and not wanted <= {step.key for step in one.trial.steps})]


def _drop_accidental_step(state: _StepSearch, best: _Held, kinds: int) -> _Held | None:
    """The composition without one of its steps, where what that step explains is an accident of so many `kinds`; or None."""
    for step in best.trial.steps:
        without = state.walk.attempt(tuple(one for one in best.trial.steps if one is not step))
        if without is None or not state.near(without):
            continue
        gained = max(best.trial.error, FLOAT32_ROUNDING) / max(without.error, FLOAT32_ROUNDING)
        if (
            kinds * gained ** _count_wrong_directions(state)[0] > _CHANCE
            and (held := _hold_on_samples(state, without)) is not None
        ):
            return held
    return None


def _choose_best(state: _StepSearch, held: Sequence[_Held]) -> SearchResult | None:
    """The best of what is held, and what cannot be told from it."""
    if not held:
        return None
    best = held[0]
    alike = [
        one.trial
        for one in held[1:]
        if (one.excess > 1.0) == (best.excess > 1.0) and one.error <= 2.0 * max(best.error, FLOAT32_ROUNDING)
    ]
    return SearchResult(
        best=best.trial,
        nearest=best.trial,
        others=tuple(alike),
        before=state.before,
        after=best.error,
        chance=best.chance,
        runs=state.walk.runs,
        left_out=state.walk.left_out,
        exact=best.excess <= 1.0,
        certain=best.chance <= _CHANCE,
        honest=best.honest or state.broken,
    )


def _error_of_honest(question: PreprocessingQuestion, trial: StepsTrial) -> tuple[float, float]:
    """How far an honest deployment on T(x) is from the candidate, at worst, and how far the reference is over its bound.

    That bound is what the declared arithmetic costs on T(x) itself, which may be more than it costs on x, and what the last bit
    of x does there: T(x) is made of it, and so is known no better.
    """
    apart = worst = 0.0
    for index in range(len(question.samples)):
        outputs = _run_on_steps(question, trial.steps, index, question.run)
        honest = None if question.honest is None else _run_on_steps(question, trial.steps, index, question.honest)
        bit = _run_on_steps(
            replace(question, samples=list(map(_next_to, question.samples))), trial.steps, index, question.run
        )
        if outputs is None or honest is None or bit is None:
            return math.inf, math.inf
        costs = {
            name: max(measure_outputs(outputs, {name: other[name]}, {name: 1.0})[0] for other in (honest, bit))
            for name in question.bounds
        }
        bounds = {name: max(bound, question.margin * costs[name]) for name, bound in question.bounds.items()}
        apart = max(apart, question.measured(honest, index)[0])
        if not all(map(math.isfinite, bounds.values())):
            return apart, math.inf
        worst = max(worst, measure_outputs(*question.align(outputs, question.candidate[index]), bounds)[1])
    return apart, worst


def _next_to(sample: Arrays) -> Arrays:
    """A sample whose every float is the next one above or below it, by turns."""
    return {
        name: np.nextafter(array, np.resize(np.array([np.inf, -np.inf], array.dtype), array.shape))
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in sample.items()
    }


def _result_of_nothing(state: _StepSearch, before: float) -> SearchResult:
    nearest = min(state.walk.trials, key=lambda trial: trial.error, default=None)
    # A second step that changes next to nothing is an accident.
    alone = [
        one for one in state.walk.trials if nearest and len(one.steps) == 1 and one.error <= _AS_NEAR * nearest.error
    ]
    nearest = min(alone, key=lambda trial: trial.error, default=nearest)
    return SearchResult(
        best=None,
        nearest=nearest,
        others=(),
        before=before,
        after=before if nearest is None else nearest.error,
        chance=1.0,
        runs=state.walk.runs,
        left_out=state.walk.left_out,
        exact=False,
    )


def _measure_sample_again(question: PreprocessingQuestion, index: int, trial: StepsTrial) -> tuple[float, float]:
    if index == 0:
        return trial.error, trial.excess
    outputs = _run_on_steps(question, trial.steps, index, question.run)
    return (math.inf, math.inf) if outputs is None else question.measured(outputs, index)[:2]


def _is_accepted(trial: StepsTrial, error: float, excess: float, before: float) -> bool:
    if not math.isfinite(error):  # which is no less than an infinite one before
        return False
    leaves = max(step.leaves for step in trial.steps)
    return (excess <= 1.0 or error <= leaves * before) and error <= _FAR * before


def _chance_of_accident(state: _StepSearch, error: float) -> float:
    """The probability that one of the trials comes so near by accident, at most."""
    directions, grain = _count_wrong_directions(state)
    return float(min(1.0, max(1, state.walk.runs) * (max(error, grain) / state.before) ** directions))


def _count_wrong_directions(state: _StepSearch) -> tuple[int, float]:
    """In how many independent directions the candidate's outputs are wrong, and the least distance that they tell."""
    directions, grain = 0, 0.0
    # A sample that is right as it is is right with many a step.
    wrong = [arrays for arrays, off in zip(state.question.candidate, state.wrong, strict=True) if off]
    for name in state.question.bounds:
        # A saturated network repeats itself, and a dead one gives one value: neither says anything more.
        telling = [np.asarray(arrays[name]) for arrays in wrong if is_informative(arrays[name])]
        told = {array.tobytes() for array in telling}
        grain = max([grain, *map(grain_of, telling)])
        directions += len(told) * min(_DIRECTIONS, max(1, state.question.candidate[0][name].size - 1))
    return directions, grain
