"""How many decisions of an output changed, beside how many the declared arithmetic changes by itself; and how clear each was.

An error that is small by size turns every choice that was nearly even, or none. So where a candidate within its expectation
takes other decisions, honest draws of the declared arithmetic (`expectation.drawing`) are asked for theirs on the same
samples. As an error may exceed what is expected by a margin, so may that of a draw. Ties and near ties need no rule: they fall
either way in the draws too.

**Each flip** (a decision that is another): the reference was for what it was by a gap, and the draws lean there by numbers that
scatter with a root mean square s about the gap. It is explained if

    gap <= margin · t · s,     t: Student's quantile, of as many degrees of freedom as draws, at 0.001 / decisions of the output.

One that is not is beyond, in whatever crowd of others. Not asked is where the gap is below margin · sqrt(2) · e |r| / sqrt(n),
the expected error of two numbers of an output of n. What cannot be drawn (INT8) is judged as if the whole expected error of
the sample fell on these two alone, margin · sqrt(2) · e |r|. What an output of ArgMax or TopK chose is held against the
scores that it was chosen from: where all that differs is explained so, nothing is wrong with it.

**All of them together**: the candidate is beyond where it changes more decisions than any of `_DRAWS` such draws, moved away from
the network's own by the margin, more than they vary by (`_AWAY`
standard deviations: one rounding of a weight moves many rows at once), and more than a binomial distribution of their share
allows (`_CHANCE`, divided by the outputs that are looked at). Pixels and boxes move with their neighbours, so
that nothing tells how many are independent: of these it is told how many changed, and each is judged by itself alone.

FP32's draws are TF32's, scaled to the floor: errors of rounding are proportional to the unit roundoff to first order. To
each draw the last bits of another FP32 kernel are added, so that what is exactly even falls either way too.
"""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import QUANTIZED
from parityscope.case.deciding import rules_of_outputs
from parityscope.comparison.decisions import NOTICED, measure_decisions
from parityscope.comparison.rows import align_as_given
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, FORMATS, margin_of
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.study.flips import Flips, describe_flip, doubtful_flips, judge_by_size, part_scaled, sure_flip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.comparison.decisions import Decided
    from parityscope.comparison.rows import Align
    from parityscope.examination import Examination
    from parityscope.records import DecisionRule, Flip

    _Outputs = Mapping[str, np.ndarray]

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

    Of 0 nobody counted any. `many` says that no honest execution changes as many as the candidate does; `flip` is the least
    explained one. `whole`: every decision that changed was asked about. `kind` as in `Decided`.
    """

    kind: str
    count: int = 0
    changed: int = 0
    usual: float = 0.0
    many: bool = False
    flip: Flip | None = None
    whole: bool = False

    @property
    def is_beyond(self) -> bool:
        """Whether the declared arithmetic does not explain what changed."""
        return self.many or (self.flip is not None and not self.flip.explained)

    def words(self, declared: str) -> str:
        """Why the output is beyond."""
        if not self.many and self.flip is not None:
            return describe_flip(self.flip, declared)
        return (
            f"{self.changed} of {self.count} decisions ({self.kind}) are others; {declared} rounding alone changes "
            f"{self.usual:.0f} of these"
        )

    def words_of_excuse(self, declared: str) -> str:
        """Why nothing is wrong with an output whose choices differ."""
        least = f"; the least even one: {describe_flip(self.flip, declared)}" if self.flip is not None else ""
        return f"{self.changed} choices are others, between scores that {declared} rounding does not tell apart{least}"


def is_told(decided: Decided) -> bool:
    """Whether a share of the decisions changed that nobody may overlook."""
    return decided.others >= max(1.0, NOTICED * decided.count)


def count_honest_changes(examination: Examination, outputs: Sequence[str], align: Align) -> dict[str, HonestChanges]:
    """Of `outputs`, those of whose decisions some changed clearly or many at all, beside what the declared arithmetic changes.

    None of them where nothing is known of what that costs.
    """
    run, declared = examination.compared, examination.case.policy.declared
    decided = {
        name: found for name in outputs if (found := run.decisions.get(name)) is not None and found.kind != "rows"
    }
    rules = rules_of_outputs(examination.case.model.outputs, examination.case.model.decides, examination.case.policy)
    flips = {
        name: doubtful
        for name, found in decided.items()
        if (doubtful := doubtful_flips(examination, name, found, rules[name])) is not None
    }
    told = [name for name, found in decided.items() if is_told(found) and not rules[name].scores]
    sure = {
        name: HonestChanges(kind=held.kind, flip=flip)
        for name, held in decided.items()
        if name not in flips and (flip := sure_flip(examination, name, held)) is not None
    }
    if declared in QUANTIZED:
        by_size = {name: judge_by_size(examination, one) for name, one in flips.items()}
        return sure | {
            name: HonestChanges(kind=decided[name].kind, flip=flip)
            for name, flip in by_size.items()
            if flip is not None
        }
    if not (told or flips) or declared not in {_EXACT, *FORMATS}:
        return sure
    tallies = {name: _tally_of(examination, name, decided[name].kind) for name in told}
    try:
        _add_draws(examination, tallies, flips, align)
    except ParityError:
        return sure
    level = _CHANCE / max(1, len(tallies))
    return sure | {
        name: _judge_output(
            decided[name], tallies.get(name), flips.get(name), sure[name].flip if name in sure else None, level
        )
        for name in dict.fromkeys((*tallies, *flips))
    }


def worst_of_draws(examination: Examination, flips: Flips) -> Flip | None:
    """The flip that honest draws explain least; None where they say nothing of any.

    Raises:
        ParityError: they cannot be drawn.
    """
    _add_draws(examination, {}, {flips.tensor: flips}, align_as_given)
    return flips.find_worst(_CHANCE / max(1, flips.decided.count))


def _judge_output(
    decided: Decided, tally: _DecisionTally | None, flips: Flips | None, known: Flip | None, level: float
) -> HonestChanges:
    flip = known if flips is None else flips.find_worst(_CHANCE / max(1, decided.count))
    found = HonestChanges(
        kind=decided.kind,
        changed=decided.others,
        flip=flip,
        whole=flips is not None and flips.count_drawn == decided.others,
    )
    if tally is None or not tally.count:
        return found
    return replace(
        found,
        count=tally.count,
        changed=tally.changed,
        usual=float(np.mean(tally.usual)),
        many=decided.kind in _JUDGED and tally.is_beyond(level),
    )


def _tally_of(examination: Examination, name: str, kind: str) -> _DecisionTally:
    declared = examination.case.policy.declared
    samples = _spread_evenly(examination.case.inputs.indices)
    changed = examination.compared.changed.get(name, {})
    return _DecisionTally(
        name=name,
        kind=kind,
        rule=rules_of_outputs(examination.case.model.outputs, examination.case.model.decides, examination.case.policy)[
            name
        ],
        samples=frozenset(samples),
        changed=sum(changed.get(index, 0) for index in samples),
        error=None if declared in FORMATS else _floor_of(examination, name),
        margin=margin_of(declared),
    )


def _floor_of(examination: Examination, name: str) -> float:
    floors = examination.expectation.errors.get(_EXACT, {}) if examination.expectation is not None else {}
    return floors.get(name, FLOAT32_ROUNDING)


def _add_draws(
    examination: Examination, tallies: Mapping[str, _DecisionTally], flips: Mapping[str, Flips], align: Align
) -> None:
    """Adds draws, as many as there is a question about.

    Raises:
        ParityError: they cannot be drawn.
    """
    from parityscope.expectation.drawing import drawn_outputs

    case, declared = examination.case, examination.case.policy.declared
    samples = {index for tally in tallies.values() for index in tally.samples}
    samples |= {index for found in flips.values() for index in found.asked_samples}
    drawn = drawn_outputs(
        case.model,
        case.inputs,
        sorted(samples),
        declared if declared in FORMATS else "tf32",
        list(dict.fromkeys((*tallies, *(one.tensor for one in flips.values())))),
        _DRAWS,
        bounded=False,
        align=align,
        progress=examination.progress,
    )
    for _, draw in groupby(drawn, itemgetter(0)):
        _add_draw(tallies, flips, draw)
        judged = (tally for tally in tallies.values() if tally.kind in _JUDGED)
        if not any(tally.exceeds_all() for tally in judged) and all(one.is_settled() for one in flips.values()):
            break  # honest runs change as many, or nothing is judged


@dataclass(slots=True, kw_only=True)
class _DecisionTally:
    """Changed decisions of an output: the candidate's on the drawn samples, and of each draw as it is and moved by the margin.

    `count` are the decisions of a draw. With `error`, draws are scaled to that relative error first.
    """

    name: str
    kind: str
    rule: DecisionRule
    samples: frozenset[int]
    changed: int
    error: float | None
    margin: float
    count: int = 0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_SEED))
    usual: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)

    def add(self, expected: np.ndarray, given: np.ndarray) -> None:
        """Adds a sample to the last draw."""
        wide, away = part_scaled(expected, given, self.error)
        away += FLOAT32_ROUNDING * wide * self.generator.standard_normal(wide.shape)
        for held, margin in ((self.usual, 1.0), (self.moved, self.margin)):
            found = measure_decisions(expected, (wide + margin * away).astype(expected.dtype), self.name, self.rule)
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


def _add_draw(
    tallies: Mapping[str, _DecisionTally],
    flips: Mapping[str, Flips],
    draw: Iterable[tuple[int, int, _Outputs, _Outputs]],
) -> None:
    for tally in tallies.values():
        tally.usual.append(0)
        tally.moved.append(0)
    for one in flips.values():
        one.begin_draw()
    for _, sample, expected, given in draw:
        both = {name for name in given if given[name].shape == expected[name].shape}
        for name, tally in tallies.items():
            if name in both and sample in tally.samples:
                tally.add(expected[name], given[name])
        for one in flips.values():
            if one.tensor in both and sample in one.asked_samples:
                one.add_sample(sample, expected[one.tensor], given[one.tensor])


def _spread_evenly(indices: Sequence[int]) -> list[int]:
    """Samples that are chosen without a look at what they gave."""
    count = min(_SAMPLES, len(indices))
    return [indices[place * len(indices) // count] for place in range(count)]
