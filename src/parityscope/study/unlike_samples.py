"""Samples with a part that errs more than is expected of others: they are predicted too, so that each is judged by its own.

What an arithmetic makes of a network is predicted on few samples. On the others the largest errors of each part are known
(`LargestParts`), and held against what the predicted samples say of that part, in two ways: an error may be as large a part of
its own reference, or of its whole sample, as is expected at the median. A sample with an error beyond the first way is unlike the
others; those furthest beyond both come first, and the first `_MOST` are predicted, `_AT_ONCE` at a time as long as there are
any. An error beyond both ways on a sample that nobody predicted is told.

Where the samples that are predicted hold parts beyond their own expectation (choices flip), only what is further off is unlike
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.policy import budgets_for
from parityscope.expectation.grades import graded_error, margin_of
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.study.output_parts import Limits, finest_of_outputs, known_parts, largest_errors, worst_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.comparison.parts import Parts
    from parityscope.examination import Examination, OutputRun
    from parityscope.expectation.records import Expectation

_AT_ONCE = 2  # samples; as many as tell a floor
_MOST = 6  # chosen: one bad sample comes first, and of many bad ones one is enough


def expect_unlike(
    examination: Examination, expectation: Expectation, expect: Callable[[Sequence[int]], Expectation]
) -> Expectation:
    """`expectation` with what is expected by part on samples that are unlike those predicted so far; `expect` predicts some.

    Asked are outputs without a budget that are not beyond as a whole, and what is not predicted is told.

    Raises:
        ParityError: as `expect`.
    """
    run, declared = examination.compared, examination.case.policy.declared
    known = expectation.errors.get(declared, {})
    outputs = [
        name
        for name in run.statistics
        if graded_error(run.statistics[name]) <= margin_of(declared) * known.get(name, 0.0)
        and not budgets_for(examination.case.policy, name)
    ]
    if not expectation.parts.get(declared) or not outputs:
        return expectation
    finest_of = finest_of_outputs(examination.case.model)
    asked: set[int] = set()
    while unlike := _find_unlike(run, expectation.parts[declared], declared, outputs, finest_of):
        some = [sample for sample in unlike if sample not in asked][: min(_AT_ONCE, _MOST - len(asked))]
        if not some:
            return replace(expectation, skipped=(*expectation.skipped, *_skips_of(unlike)))
        asked.update(some)
        more = expect(sorted(some))
        both = {**expectation.parts[declared], **more.parts.get(declared, {})}
        expectation = replace(expectation, parts={**expectation.parts, declared: both})
    return expectation


def _skips_of(unlike: Mapping[int, float]) -> tuple[Skip, ...]:
    told = [sample for sample, ratio in unlike.items() if ratio > 1.0]
    if not told:
        return ()
    return (
        Skip(
            what=f"the expected error of {len(told)} more samples by part, first sample {min(told)}",
            reason=f"they hold parts that err more than is expected of other samples, and {_MOST} such samples were predicted",
            fix="compare some of these samples by themselves",
        ),
    )


def _find_unlike(
    run: OutputRun,
    expected: Mapping[tuple[int, str], Parts],
    declared: str,
    outputs: Iterable[str],
    finest_of: Callable[[str], float],
) -> dict[int, float]:
    """The samples that are unlike those predicted, and how far beyond both ways their furthest part is, furthest first."""
    found: dict[int, float] = {}
    for output in outputs:
        known = known_parts(run, output, expected)
        if not known:
            continue
        limits = Limits(declared=declared, samples=len(run.per_sample[output]))
        unlike = _unlike_at_output(run, output, known, limits)
        if unlike and (finest := finest_of(output)):
            unlike = _unlike_at_output(run, output, known, replace(limits, finest=finest))
        for sample, ratio in unlike.items():
            found[sample] = max(found.get(sample, 0.0), ratio)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usual:
    """What predicted samples say at the median: of an axis, expected squared errors over references and over whole references."""

    of_part: np.ndarray
    of_whole: np.ndarray


def _unlike_at_output(
    run: OutputRun, output: str, known: Mapping[int, tuple[Parts, Parts]], limits: Limits
) -> dict[int, float]:
    parts = [own for _, own in known.values()]
    shape = parts[0].shape
    floor = max(1.0, *(worst_ratio(*pair, limits) for pair in known.values()))
    whole = _usual_of(parts, -1, 1)
    share = float(whole.of_part[0])
    size = float(np.median([own.references_of(-1)[0] for own in parts]))
    found: dict[int, float] = {}
    for axis, beside, (errors, references, wholes, samples) in largest_errors(run, output, shape, size, share):
        usual = whole if axis < 0 else _usual_of(parts, axis, len(errors))
        own = usual.of_part * references
        strict = limits.ratios(errors, own, references, beside=beside, shape=shape)
        beyond = np.flatnonzero((strict > floor) & ~np.isin(samples, list(known)) & (samples >= 0))
        if not len(beyond):
            continue
        either = np.maximum(own, usual.of_whole * wholes)
        ratios = limits.ratios(errors, either, references, beside=beside, shape=shape) / floor
        for place in beyond.tolist():
            sample = int(samples[place])
            found[sample] = max(found.get(sample, 0.0), float(ratios[place]))
    return found


def _usual_of(parts: Sequence[Parts], axis: int, length: int) -> _Usual:
    """The medians over samples (the lower of two) of an axis of this length; where no sample has that part, those over it."""
    of_part, of_whole = (np.full((len(parts), length), np.nan) for _ in range(2))
    with np.errstate(divide="ignore", invalid="ignore"):
        for place, own in enumerate(parts):
            errors, references = own.errors_of(axis)[:length], own.references_of(axis)[:length]
            of_part[place, : len(errors)] = errors / references
            of_whole[place, : len(errors)] = errors / own.references_of(-1)
        medians = []
        for held in (of_part, of_whole):
            held[~np.isfinite(held)] = np.nan
            median = _lower_median(held)
            medians.append(np.nan_to_num(np.where(np.isnan(median), _lower_median(held.reshape(-1, 1)), median)))
    return _Usual(of_part=medians[0], of_whole=medians[1])


def _lower_median(held: np.ndarray) -> np.ndarray:
    """Of each column that which is no NaN; NaN of a column without any. numpy's own takes column after column, in Python."""
    ordered = np.sort(held, axis=0)  # NaN come last
    middle = np.maximum(np.count_nonzero(~np.isnan(ordered), axis=0) - 1, 0) // 2
    found: np.ndarray = np.take_along_axis(ordered, middle[None], axis=0)[0]
    return found
