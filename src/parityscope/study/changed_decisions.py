"""How many decisions of an output changed, beside how many the declared arithmetic changes by itself.

An error that is small by size turns every choice that was nearly even, or none. So where a candidate within its expectation
takes other decisions, honest draws of the declared arithmetic (`expectation.drawing`) are asked for theirs on the same
samples. As an error may exceed what is expected by a margin, so may that of a draw: what is judged by is drawn
outputs moved away from the network's own by the margin. Ties and near ties need no rule: they fall either way in the draws too.

The candidate is beyond where it changes more decisions than any of `_DRAWS` such draws, more than they vary by (`_AWAY`
standard deviations: one rounding of a weight moves many rows at once), and more than a binomial distribution of their share
allows (`_CHANCE`, divided by the outputs that are looked at). Pixels and boxes move with their neighbours, so
that nothing tells how many are independent: of these it is told how many changed, and not judged.

FP32's draws are TF32's, scaled to the floor: errors of rounding are proportional to the unit roundoff to first order. To
each draw the last bits of another FP32 kernel are added, so that what is exactly even falls either way too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.decisions import NOTICED, measure_decisions
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, FORMATS, margin_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.comparison.decisions import Decided
    from parityscope.comparison.rows import Align
    from parityscope.examination import Examination

    _Outputs = Mapping[str, np.ndarray]

__all__ = ["HonestChanges", "count_honest_changes", "is_told"]

_EXACT = "f32"
_JUDGED = frozenset({"classes", "positions"})
_SAMPLES = 32  # that are drawn; chosen: enough rows where each sample has one
_DRAWS = 16  # chosen: that none of so many is as far off as an honest candidate, at a margin of two, happens once in 700 at worst
_AWAY = 3.8  # standard deviations: Student's distribution of 15 degrees of freedom has 0.001 above 3.73
_SEED = 20261127  # any would do, a fixed one can be repeated
_CHANCE = 1e-3  # as of parts (`output_parts`)


@dataclass(frozen=True, slots=True, kw_only=True)
class HonestChanges:
    """Of `count` decisions of an output, how many the candidate changes and how many, on average, honest draws do (`usual`).

    `beyond` says that no honest execution changes as many as the candidate does. `kind` is that of `Decided`.
    """

    kind: str
    count: int
    changed: int
    usual: float
    beyond: bool

    def words(self, declared: str) -> str:
        """Why the output is beyond."""
        return (
            f"{self.changed} of {self.count} decisions ({self.kind}) are others; {declared} rounding alone changes "
            f"{self.usual:.0f} of these"
        )


def is_told(decided: Decided) -> bool:
    """Whether a share of the decisions changed that nobody may overlook."""
    return decided.others >= max(1.0, NOTICED * decided.count)


def count_honest_changes(examination: Examination, outputs: Sequence[str], align: Align) -> dict[str, HonestChanges]:
    """Of `outputs`, those of whose decisions many changed, beside what draws of the declared arithmetic change.

    None of them where the declared arithmetic cannot be drawn.
    """
    run, case = examination.compared, examination.case
    declared = case.policy.declared
    decided = {name: found for name in outputs if (found := run.decisions.get(name)) is not None and is_told(found)}
    if not decided or declared not in {_EXACT, *FORMATS}:
        return {}
    from parityscope.expectation.drawing import drawn_outputs

    samples = _spread_evenly(case.inputs.indices)
    floors = examination.expectation.errors.get(_EXACT, {}) if examination.expectation is not None else {}
    tallies = {
        name: _DecisionTally(
            name=name,
            changed=sum(run.changed.get(name, {}).get(index, 0) for index in samples),
            error=None if declared in FORMATS else floors.get(name, FLOAT32_ROUNDING),
            margin=margin_of(declared),
        )
        for name in decided
    }
    drawn = drawn_outputs(
        case.model,
        case.inputs,
        samples,
        declared if declared in FORMATS else "tf32",
        list(decided),
        _DRAWS,
        bounded=False,
        align=align,
        progress=examination.progress,
    )
    try:
        for _, draw in groupby(drawn, itemgetter(0)):
            _add_draw(tallies, draw)
            if not any(tally.exceeds_all() for name, tally in tallies.items() if decided[name].kind in _JUDGED):
                break  # honest runs change as many, or nothing is judged
    except ParityError:
        return {}
    level = _CHANCE / len(tallies)
    return {
        name: HonestChanges(
            kind=decided[name].kind,
            count=tally.count,
            changed=tally.changed,
            usual=float(np.mean(tally.usual)),
            beyond=decided[name].kind in _JUDGED and tally.is_beyond(level),
        )
        for name, tally in tallies.items()
        if tally.count
    }


@dataclass(slots=True, kw_only=True)
class _DecisionTally:
    """Changed decisions of an output: the candidate's on the drawn samples, and of each draw as it is and moved by the margin.

    `count` are the decisions of a draw. With `error`, draws are scaled to that relative error first.
    """

    name: str
    changed: int
    error: float | None
    margin: float
    count: int = 0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_SEED))
    usual: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)

    def add(self, expected: np.ndarray, given: np.ndarray) -> None:
        """Adds a sample to the last draw."""
        wide = expected.astype(np.float64)
        away = given.astype(np.float64) - wide
        if self.error is not None:
            size = float(np.linalg.norm(away))
            away *= self.error * float(np.linalg.norm(wide)) / size if size > 0 else 0.0
        away += FLOAT32_ROUNDING * wide * self.generator.standard_normal(wide.shape)
        for held, margin in ((self.usual, 1.0), (self.moved, self.margin)):
            found = measure_decisions(expected, (wide + margin * away).astype(expected.dtype), self.name)
            if found is not None:
                held[-1] += found.others
                self.count += found.count if held is self.usual and len(held) == 1 else 0

    def exceeds_all(self) -> bool:
        """Whether the candidate changes more than any draw that is moved by the margin."""
        return self.changed > max(self.moved)

    def is_beyond(self, level: float) -> bool:
        """Whether no honest execution changes as many, but for a chance of `level`."""
        from parityscope.verification.exact import binomial_at_most

        draws = len(self.moved)
        if draws < _DRAWS or not self.exceeds_all():
            return False
        spread = float(np.std(self.moved, ddof=1)) * math.sqrt(1.0 + 1.0 / draws)
        if self.changed <= float(np.mean(self.moved)) + _AWAY * spread:
            return False
        share = (sum(self.moved) + 1) / (draws * self.count + 2)  # Laplace's: none among few draws is not never
        return 1.0 - binomial_at_most(self.changed - 1, self.count, share) < level


def _add_draw(tallies: Mapping[str, _DecisionTally], draw: Iterable[tuple[int, int, _Outputs, _Outputs]]) -> None:
    for tally in tallies.values():
        tally.usual.append(0)
        tally.moved.append(0)
    for _, _, expected, given in draw:
        for name, tally in tallies.items():
            if name in given and given[name].shape == expected[name].shape:
                tally.add(expected[name], given[name])


def _spread_evenly(indices: Sequence[int]) -> list[int]:
    """Samples that are chosen without a look at what they gave."""
    count = min(_SAMPLES, len(indices))
    return [indices[place * len(indices) // count] for place in range(count)]
