"""Compositions of steps tried one after the other: greedy, with backtracking, under a budget of inferences.

A composition is tried by running the reference on what it makes of the worst sample. First every step alone, and the usual ones
in twos. Then from what comes nearest: slot by slot, the slots that promise most first, the step that comes nearest is put in,
exchanged or taken out again, first where it changes much, until no slot changes anything. From there back to the next best
start. Starts are taken in turns by the error and by the direction (the cosine of the centred outputs), because a wrong scale
hides everything from the error and nothing from the direction; each walk goes on by what its start was taken by.

What is tried depends on the numbers of the outputs alone and never on a clock: a slow machine tries the same as a fast one.
An array that was tried before is not run again. What was measured is kept in `kept`, by a digest of the arrays: a search that
was cut off and begins again reads it there, counts it, and does not run it.

Outputs held against each other, and marks of inputs: what the search compares.

Errors are relative to the larger of the two norms, so that no scale of the input makes the error without a step look large.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks.preprocessing.steps import apply_steps, model_inputs, order_steps
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    from parityscope.checks.preprocessing.steps import PreprocessingStep

    Arrays = Mapping[str, np.ndarray]
    # Inputs of the model -> error, excess and cosine of what the reference makes of them; None where it cannot take them.
    Measure = Callable[[Arrays], tuple[float, float, float] | None]
    from collections.abc import Mapping


def norm_of(array: np.ndarray) -> float:
    """The Euclidean norm of all elements. Not by BLAS, whose threads wait for each other where the processors are busy."""
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.square(array).sum()))


def measure_outputs(outputs: Arrays, candidate: Arrays, bounds: Mapping[str, float]) -> tuple[float, float, float]:
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
        size = max(norm_of(mine), norm_of(its))
        off = norm_of(mine - its)
        error = off / size if size else 0.0
        errors.append(error)
        excesses.append(error / bound)
        centred = [each - each.mean() if each.size > 1 else each for each in (mine, its)]
        norms = norm_of(centred[0]) * norm_of(centred[1])
        cosines.append(float((centred[0] * centred[1]).sum()) / norms if norms else 0.0)
    return max(errors), max(excesses), sum(cosines) / max(1, len(cosines))


def is_informative(array: np.ndarray) -> bool:
    """Whether an array says something: one whose finite elements are all the same is another fault's trace."""
    if array.size < 2 or array.dtype.kind != "f":
        return array.dtype.kind != "f" or bool(np.isfinite(array).all())
    values = array[np.isfinite(array)]
    return values.size > 0 and bool((values != values[0]).any())


def mark_of(inputs: Arrays, weights: dict[int, np.ndarray]) -> tuple[object, ...]:
    """The same for arrays that differ by rounding, and by next to no accident for others: norm and two projections.

    `weights` holds the directions by size, and gets those that it lacks.
    """
    marks: list[object] = []
    for name in sorted(inputs):
        array = np.asarray(inputs[name], np.float64).ravel()
        if array.size not in weights:
            weights[array.size] = np.random.default_rng(array.size).standard_normal((2, array.size))
        norm = norm_of(array)
        if not math.isfinite(norm) or not norm:
            marks.append((name, array.size, str(norm)))
            continue
        projected = (weights[array.size] * array).sum(axis=1) / norm
        marks.append((name, inputs[name].shape, f"{norm:.4e}", *(round(float(each), 4) for each in projected)))
    return tuple(marks)


_STARTS = 4  # from which a walk goes on, of each kind, at most; chosen
_PROMISING = 2  # of each kind that are walked from whatever they promise
# What is left of the error by a step that is worth going on with, at most: first what changes much, or a detail that is wrong
# makes up for a large part that is. Chosen.
_FALLS = (0.7, 0.85, 0.98)
_PROMISE = 0.7  # of the error: where a walk's end leaves less, other starts are tried too; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsTrial:
    """Steps and how near they come on the worst sample, by the worst output: `error`, its `excess` over the bound, cosine."""

    steps: tuple[PreprocessingStep, ...]
    error: float
    excess: float
    alike: float

    def left(self, *, by_direction: bool) -> float:
        """What a walk makes smaller."""
        return 1.0 - self.alike if by_direction else self.error


@dataclass(slots=True, kw_only=True)
class Walk:
    """What is tried on `sample`: at most `budget` inferences, which `runs` counts; `left_out` were not tried for want of them."""

    sample: Arrays
    measure: Measure
    budget: int
    kept: MutableMapping[str, tuple[float, float, float] | None] = field(default_factory=dict)
    trials: list[StepsTrial] = field(default_factory=list)
    runs: int = 0
    left_out: int = 0
    _seen: dict[tuple[object, ...], StepsTrial | None] = field(default_factory=dict)
    _weights: dict[int, np.ndarray] = field(default_factory=dict)

    def attempt(self, steps: tuple[PreprocessingStep, ...]) -> StepsTrial | None:
        """One composition; an earlier trial where it makes the same array, None where nothing can be told of it."""
        if not steps:
            return None
        made = apply_steps(steps, self.sample)
        inputs = None if made is None else model_inputs(made)
        if inputs is None or not all(is_informative(array) for array in inputs.values()):
            return None
        mark = mark_of(inputs, self._weights)
        if mark in self._seen:
            return self._seen[mark]
        if self.runs >= self.budget:
            self.left_out += 1
            return None
        self.runs += 1
        measured = self._measure_inputs(inputs)
        if measured is None:
            self._seen[mark] = None
            return None
        error, excess, alike = measured
        trial = self._seen[mark] = StepsTrial(steps=steps, error=error, excess=excess, alike=alike)
        self.trials.append(trial)
        return trial

    def _measure_inputs(self, inputs: Arrays) -> tuple[float, float, float] | None:
        key = _digest_inputs(inputs)
        if key not in self.kept:
            self.kept[key] = self.measure(inputs)
        return self.kept[key]

    def begin(self, steps: Sequence[PreprocessingStep]) -> None:
        """The sample as it is says nothing; then every step alone."""
        self._seen[mark_of(model_inputs(self.sample), self._weights)] = None
        for step in steps:
            self.attempt((step,))

    def compose(self, steps: Sequence[PreprocessingStep], settled: Callable[[StepsTrial], bool], before: float) -> None:
        """Compositions of several steps, until one settles the question or none promises more; `before` is the error of none."""
        singles = [trial for trial in self.trials if len(trial.steps) == 1]
        slots = _steps_by_slot(steps, singles)
        for pair in _usual_pairs(steps):
            trial = self.attempt(pair)
            if trial is not None and settled(trial):
                return
        least = min((trial.error for trial in self.trials), default=0.0)
        for place, (trial, by_direction) in enumerate(_list_starts(self.trials)):
            if place >= 2 * _PROMISING and least > _PROMISE * before:
                return
            end = self._walk_slots(trial, slots, settled, by_direction=by_direction)
            least = min(least, end.error)
            if settled(end):
                return

    def _walk_slots(
        self,
        start: StepsTrial,
        slots: Mapping[str, list[PreprocessingStep]],
        settled: Callable[[StepsTrial], bool],
        *,
        by_direction: bool,
    ) -> StepsTrial:
        """From one composition to one that no change of a single slot makes better."""
        here = start
        for falls in _FALLS:
            before = None
            while here is not before:
                before = here
                for slot, choices in slots.items():
                    if settled(here):
                        return here
                    best = self._best_of_slot(here, slot, choices, by_direction=by_direction)
                    if best.left(by_direction=by_direction) < falls * here.left(by_direction=by_direction):
                        here = best
        return here

    def _best_of_slot(
        self, here: StepsTrial, slot: str, choices: Sequence[PreprocessingStep], *, by_direction: bool
    ) -> StepsTrial:
        """The composition with another step of one slot, or none, that comes nearest; itself where none can be tried."""
        rest = [step for step in here.steps if step.slot != slot]
        tried = [self.attempt(order_steps(rest)), *(self.attempt(order_steps([*rest, step])) for step in choices)]
        found = [trial for trial in tried if trial is not None]
        return min(found, key=lambda trial: trial.left(by_direction=by_direction), default=here)


def _steps_by_slot(
    steps: Sequence[PreprocessingStep], singles: Sequence[StepsTrial]
) -> dict[str, list[PreprocessingStep]]:
    """The steps of each slot; the slot whose best step comes nearest first."""
    found: dict[str, list[PreprocessingStep]] = {}
    for step in steps:
        found.setdefault(step.slot, []).append(step)
    nearest = {
        slot: min((trial.error for trial in singles if trial.steps[0].slot == slot), default=float("inf"))
        for slot in found
    }
    return {slot: found[slot] for slot in sorted(found, key=lambda slot: nearest[slot])}


def _usual_pairs(steps: Sequence[PreprocessingStep]) -> Iterator[tuple[PreprocessingStep, ...]]:
    usual = [step for step in steps if step.usual]
    for first, second in itertools.combinations(usual, 2):
        if first.slot != second.slot:
            yield order_steps((first, second))


def _list_starts(trials: Sequence[StepsTrial]) -> list[tuple[StepsTrial, bool]]:
    """Compositions to start from, and whether by direction: in turns, each once."""
    by_error = sorted(trials, key=lambda trial: trial.left(by_direction=False))[:_STARTS]
    by_direction = sorted(trials, key=lambda trial: trial.left(by_direction=True))[:_STARTS]
    return [start for one, other in zip(by_error, by_direction, strict=True) for start in ((one, False), (other, True))]


def _digest_inputs(inputs: Arrays) -> str:
    found = hashlib.sha256()
    for name in sorted(inputs):
        array = inputs[name]
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()
