"""Each part of an output against its own expectation: every sample, channel, field and row, so that none is excused by another.

A part is what one index of one axis holds on one sample, or the sample as a whole. Its squared error may be

    margin^2 · (E + e^2 R) · t · s,       t = 1 + 2 sqrt(L / n) + 2 L / n,   L = log(m / 0.001)

E: what the declared arithmetic is expected to make of that part; R: the part's squared reference, and e the expected relative
error of the whole sample, as one draw of a rounding may be small by chance. t bounds the largest of m sums of n squares of
normal numbers (B. Laurent and P. Massart, "Adaptive estimation of a quadratic functional", Annals of Statistics 28, 2000,
lemma 1), m being the parts of all samples that were compared; s is for numbers that are neither independent nor normal. Parts
of few elements have no expectation of their own (`axes_with_parts`).

The errors of all parts are known of the first samples and the worst as a whole, and of any other sample that was predicted
(`unlike_samples`) those that are the largest of their part.

Where a choice flips (an index, a threshold), rounding moves a whole row at once, and not the same one in two honest runs. So a
part that is too far off is held against several draws of the declared arithmetic: it must be further off than any part of any
draw is, by the same measure, from the mean of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import formats
from parityscope.arithmetic.formats import QUANTIZED
from parityscope.comparison.distance import error_distance
from parityscope.comparison.parts import Parts, axes_with_parts, measure_parts
from parityscope.errors import ParityError
from parityscope.expectation.grades import BOTH_ROUND, FLOAT32_ROUNDING, FORMATS, margin_of
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import MOVING, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.case import Model
    from parityscope.comparison.parts import LargestParts
    from parityscope.comparison.rows import Align
    from parityscope.examination import Examination, OutputRun

_CHANCE = 1e-3  # of a part too far off in one honest output; chosen
_SPREAD = 4.0  # chosen: elements of a part share their error, so that they count as few; a factor of two in the error
_DRAWS = (
    6  # chosen: of 6 honest draws one is as far off as a seventh is in six of seven cases, and twice that is allowed
)
_LOST = 1e-2  # chosen, of a part in squares: a tenth of it
_BOUNDED = (with_trait("saturates") - with_trait("bounds")) | (of_kind("softmax") - {"LogSoftmax"})  # by one
_BEYOND_NULL = 4.0  # in squares: the margin of the grades, on top of what honest draws show


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The part of an output that is furthest beyond its own expectation.

    `axis` and `index` are -1 where it is the sample as a whole; `share` counts the parts of that axis that are beyond theirs.
    """

    sample: int
    axis: int
    index: int
    measured: float
    expected: float
    share: float

    def words(self, declared: str) -> str:
        """What is said of it."""
        part = f", index {self.index} of axis {self.axis}" if self.axis >= 0 else ""
        others = f" ({self.share:.0%} of that axis are beyond theirs)" if self.axis >= 0 and self.share > 0 else ""
        return (
            f"sample {self.sample}{part}: measured {self.measured:.3g}; {declared} rounding explains {self.expected:.3g} there"
            f"{others}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What parts are held against: an arithmetic, the least error of an element, how many samples were compared."""

    declared: str
    finest: float = 0.0
    samples: int = 1

    def ratios(
        self, errors: np.ndarray, own: np.ndarray, references: np.ndarray, *, beside: Whole, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Squared errors of parts over what is allowed; `own`: what is expected of each, `beside`: of their sample."""
        size = max(1, math.prod(shape))
        tests = self.samples * (1 + sum(shape[axis] for axis in axes_with_parts(shape)))
        level = math.log(tests / _CHANCE)
        tiny = FLOAT32_ROUNDING**2 * beside.reference / size  # of an element, where everything else is nothing
        # A format stores nothing finer than its grid.
        known = formats.FORMATS.get(self.declared)
        finest = max(self.finest, known.smallest_subnormal / 2.0 if known else 0.0) ** 2
        count = max(1, beside.count)
        tail = 1.0 + 2.0 * math.sqrt(level / count) + 2.0 * level / count
        # What is lost of a part with numbers and an expectation of its own is not excused by its neighbours, however large.
        lost = (own > 0) & (errors > _LOST * references) & (references > 0)
        nothing = np.where(lost, finest, np.maximum(tiny, finest)) * count
        with np.errstate(divide="ignore", invalid="ignore"):
            usual = own + nothing + beside.share * references
            ratio = errors / (margin_of(self.declared) ** 2 * _SPREAD * tail * usual)
        return np.where(errors > 0, ratio, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Of the sample that parts are of: its squared reference, the squared relative error expected of it, elements of a part."""

    reference: float | np.ndarray
    share: float
    count: int


def one_rounding_explains(run: OutputRun) -> bool:
    """Whether the least that FP32 makes, one rounding on each side, covers every output and every part on every sample."""
    if any(error_distance(found) > margin_of("f32") * FLOAT32_ROUNDING for found in run.statistics.values()):
        return False
    least = {
        (sample, output): part.scaled(0.0, BOTH_ROUND)
        for output, found in run.parts.items()
        for sample, part in found.items()
    }
    floats = [output for output, found in run.statistics.items() if found.is_float]
    return covers_parts(run.parts, least) and all(_one_rounding_covers(run, output) for output in floats)


def _one_rounding_covers(run: OutputRun, output: str) -> bool:
    """Whether one rounding on each side covers each sample as a whole, and the largest error of each part."""
    limits = Limits(declared="f32", samples=len(run.per_sample[output]))
    shape = run.statistics[output].shape
    return all(
        limits.ratios(errors, BOTH_ROUND * references, references, beside=beside, shape=shape).max(initial=0.0) <= 1.0
        for _, beside, (errors, references, _, _) in largest_errors(run, output, shape, 1.0, BOTH_ROUND)
    )


def largest_errors(
    run: OutputRun, output: str, shape: tuple[int, ...], whole: float, share: float
) -> Iterator[tuple[int, Whole, np.ndarray]]:
    """The largest errors of an output as in `LargestParts`, by axis, and of axis -1 those of all samples as wholes.

    `shape` is that of one sample, `whole` the squared reference of one, `share` the squared relative error expected of it.
    """
    distances = np.array(run.per_sample[output], np.float64).reshape(-1, 2)
    squares = np.where(np.isfinite(distances[:, 1]), distances[:, 1], 0.0) ** 2
    known = np.full(len(squares), whole)
    beside = Whole(reference=whole, share=0.0, count=math.prod(shape))
    yield -1, beside, np.stack([squares * whole, known, known, distances[:, 0]])
    for (axis, _), entry in run.largest[output].found.items() if output in run.largest else ():
        if axis < len(shape):
            count = math.prod(shape[:axis] + shape[axis + 1 :])
            yield axis, Whole(reference=entry[2], share=share, count=count), entry


def covers_parts(
    measured: Mapping[str, Mapping[int, Parts]],
    expected: Mapping[tuple[int, str], Parts],
    finest: Callable[[str], float] = lambda _output: 0.0,
) -> bool:
    """Whether what is `expected` of FP32, by sample and output, covers every part of the `measured` that it is about.

    `finest` is the least error of an element of an output, asked only of those that are not covered without.
    """
    pairs = (
        (output, measured[output][sample], part)
        for (sample, output), part in expected.items()
        if sample in measured.get(output, {})
    )
    return all(
        worst_ratio(found, part, Limits(declared="f32")) <= 1.0
        or ((least := finest(output)) > 0 and worst_ratio(found, part, Limits(declared="f32", finest=least)) <= 1.0)
        for output, found, part in pairs
    )


def find_deviations(examination: Examination, outputs: Sequence[str], align: Align) -> dict[str, Deviation]:
    """Of `outputs`, those that hold a part beyond the declared arithmetic, with the worst one."""
    declared = examination.case.policy.declared
    expected = examination.expectation.parts.get(declared, {}) if examination.expectation is not None else {}
    found = {}
    finest_of = finest_of_outputs(examination.case.model)
    for output in outputs:
        both = known_parts(examination.compared, output, expected)
        if declared in QUANTIZED:
            both = _beside_all_samples(both)
        plain = Limits(declared=declared, samples=len(examination.compared.per_sample[output]))
        if max((worst_ratio(*pair, plain) for pair in both.values()), default=0.0) <= 1.0:
            continue
        limits = replace(plain, finest=finest_of(output))
        if limits.finest and max(worst_ratio(*pair, limits) for pair in both.values()) <= 1.0:
            continue
        honest = 0.0
        if declared in FORMATS or output in {one.name for one in examination.case.policy.counted}:
            shapes = {sample: own.shape for sample, (_, own) in both.items()}
            drawn = _draw_parts(examination, output, shapes, align)
            both = {sample: (pair[0], _mean_parts([pair[1], *drawn.get(sample, ())])) for sample, pair in both.items()}
            honest = max((_strangest_draw(parts, limits) for parts in drawn.values()), default=0.0)
        if max(worst_ratio(*pair, limits) for pair in both.values()) > max(1.0, _BEYOND_NULL * honest):
            sample = max(both, key=lambda one: worst_ratio(*both[one], limits))
            found[output] = _deviation_of(sample, *both[sample], limits)
    return found


def _beside_all_samples(both: Mapping[int, tuple[Parts, Parts]]) -> dict[int, tuple[Parts, Parts]]:
    """Measured and expected parts by sample, with the error of all samples together expected of each.

    What cannot be drawn anew is expected by one simulation, which says little of one sample: a probability near one may be off by
    ten times as much in another honest run. The samples together tell how far such runs are off.
    """
    expected = [own for _, own in both.values()]
    error, size = (
        sum(float(one[0]) for one in sums)
        for sums in ([own.errors_of(-1) for own in expected], [own.references_of(-1) for own in expected])
    )
    share = error / size if size > 0 else 0.0
    return {sample: (found, own.scaled(1.0, share)) for sample, (found, own) in both.items()}


def known_parts(
    run: OutputRun, output: str, expected: Mapping[tuple[int, str], Parts]
) -> dict[int, tuple[Parts, Parts]]:
    """The parts of an output, measured and `expected`, by sample, of the samples that were predicted.

    Not of those where the two have another number of rows.
    """
    kept, distances = run.parts.get(output, {}), dict(run.per_sample[output])
    found = {}
    for (sample, name), own in expected.items():
        if name != output:
            continue
        if sample in kept:
            if kept[sample].shape == own.shape:
                found[sample] = (kept[sample], own)
        elif sample in distances:
            found[sample] = (_largest_of_sample(run.largest.get(output), sample, distances[sample], own), own)
    return found


def _largest_of_sample(largest: LargestParts | None, sample: int, distance: float, own: Parts) -> Parts:
    """What is known of a sample: its error as a whole, and those of its parts that are the largest of any sample."""
    errors = tuple(np.zeros(length) for length in own.shape)
    for (axis, _), (sizes, _, _, samples) in largest.found.items() if largest is not None else ():
        if axis < len(errors):
            places = np.flatnonzero(samples[: len(errors[axis])] == sample)
            errors[axis][places] = sizes[places]
    whole = distance**2 * float(own.references_of(-1)[0])
    return Parts(
        shape=own.shape, errors=errors, references=own.references, whole=whole if math.isfinite(whole) else 0.0
    )


def finest_of_outputs(model: Model) -> Callable[[str], float]:
    """What gives the least error of an element of an output; the graph is looked at when it is first asked."""
    bounded: list[frozenset[str]] = []

    def finest(output: str) -> float:
        if not bounded:
            bounded.append(_bounded_outputs(model))
        return FLOAT32_ROUNDING if output in bounded[0] else 0.0

    return finest


def _bounded_outputs(model: Model) -> frozenset[str]:
    """Outputs that hold what functions bounded by one give (Sigmoid, Softmax): kernels are exact to a rounding of one.

    They clamp their argument, or approximate within an absolute error: what is 1e-11 in one honest runtime is 0 in another.
    """
    found = set()
    for output in model.shared_graph().graph.outputs:
        waiting, seen = [output], set()
        while waiting:
            value = waiting.pop()
            node = value.producer()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.op_type in _BOUNDED:
                found.add(str(output.name))
            elif node.op_type in MOVING:
                waiting.extend(before for before in node.inputs if before is not None)
    return frozenset(found)


def _ratios_by_axis(measured: Parts, expected: Parts, limits: Limits) -> Iterator[tuple[int, np.ndarray]]:
    """Of each axis, and of the whole (-1), squared error over what is allowed."""
    size = math.prod(measured.shape)
    whole = float(expected.references_of(-1)[0])
    share = float(expected.errors_of(-1)[0]) / whole if whole > 0 else 0.0
    for axis in (-1, *axes_with_parts(measured.shape)):
        beside = Whole(
            reference=whole,
            share=share if axis >= 0 else 0.0,
            count=size // measured.shape[axis] if axis >= 0 else size,
        )
        errors, own = measured.errors_of(axis), expected.errors_of(axis)
        yield (
            axis,
            limits.ratios(errors, own, expected.references_of(axis), beside=beside, shape=measured.shape),
        )


def worst_ratio(measured: Parts, expected: Parts, limits: Limits) -> float:
    """The largest squared error of a part over what is allowed there."""
    return max(float(ratio.max(initial=0.0)) for _, ratio in _ratios_by_axis(measured, expected, limits))


def _deviation_of(sample: int, measured: Parts, expected: Parts, limits: Limits) -> Deviation:
    ratios = dict(_ratios_by_axis(measured, expected, limits))
    axis = max(ratios, key=lambda one: float(ratios[one].max(initial=0.0)))
    index = int(ratios[axis].argmax())
    error, own, size = (
        float(sums[index])
        for sums in (measured.errors_of(axis), expected.errors_of(axis), measured.references_of(axis))
    )
    scale = size or 1.0  # of a part that is zero in the reference, in the output's own unit
    return Deviation(
        sample=sample,
        axis=axis,
        index=index if axis >= 0 else -1,
        measured=math.sqrt(error / scale),
        expected=math.sqrt(own / scale),
        share=float((ratios[axis] > 1.0).mean()),
    )


def _draw_parts(
    examination: Examination, output: str, shapes: Mapping[int, tuple[int, ...]], align: Align
) -> Mapping[int, Sequence[Parts]]:
    """Parts of several draws of the declared arithmetic in these shapes, by sample; none where it cannot be simulated so."""
    from parityscope.expectation.drawing import drawn_outputs

    case = examination.case
    found: dict[int, list[Parts]] = {}
    try:
        drawn = drawn_outputs(
            case.model,
            case.inputs,
            sorted(shapes),
            case.policy.declared,
            [output],
            _DRAWS,
            bounded=False,
            align=align,
            progress=examination.progress,
        )
        for _, sample, expected, given in drawn:
            parts = measure_parts(expected[output], given[output]) if output in given else None
            if parts is not None and parts.shape == shapes[sample]:
                found.setdefault(sample, []).append(parts)
    except ParityError:
        return {}
    return found


def _mean_parts(draws: Sequence[Parts]) -> Parts:
    total = draws[0]
    for one in draws[1:]:
        total = total.plus(one)
    return total.scaled(1.0 / len(draws), 0.0)


def _strangest_draw(draws: Sequence[Parts], limits: Limits) -> float:
    """How far the strangest of honest draws is from what the others expect."""
    if len(draws) < 2:
        return 0.0
    return max(worst_ratio(one, _mean_parts([other for other in draws if other is not one]), limits) for one in draws)
