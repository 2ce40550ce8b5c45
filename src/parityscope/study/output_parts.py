"""Each part of an output against its own expectation: every sample, channel, field and row, so that none is excused by another.

A part is what one index of one axis holds on one sample, or the sample as a whole. Its squared error may be

    margin^2 · (E + e^2 R) · t · s,       t = 1 + 2 sqrt(L / n) + 2 L / n,   L = log(m / 0.001)

E: what the declared arithmetic is expected to make of that part; R: the part's squared reference, and e the expected relative
error of the whole sample, as one draw of a rounding may be small by chance. t bounds the largest of m sums of n squares of
normal numbers (B. Laurent and P. Massart, "Adaptive estimation of a quadratic functional", Annals of Statistics 28, 2000,
lemma 1); s is for numbers that are neither independent nor normal. Parts of fewer than `_FEWEST` elements have no
expectation of their own.

Where a choice flips (an index, a threshold), rounding moves a whole row at once, and not the same one in two honest runs. So a
part that is too far off is held against several draws of the declared arithmetic: it must be further off than any part of any
draw is, by the same measure, from the mean of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import formats
from parityscope.comparison.distance import error_distance
from parityscope.comparison.parts import measure_parts
from parityscope.errors import ParityError
from parityscope.expectation.grades import BOTH_ROUND, FLOAT32_ROUNDING, FORMATS, margin_of
from parityscope.operators import MOVING, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.case import Model
    from parityscope.comparison.parts import Parts
    from parityscope.comparison.rows import Align
    from parityscope.examination import Examination, OutputRun

__all__ = ["Deviation", "covers_parts", "find_deviations", "finest_of_outputs", "one_rounding_explains"]

_FEWEST = 16  # elements: the mean square of fewer normal numbers is off by a factor of two once in ten times
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


def one_rounding_explains(run: OutputRun) -> bool:
    """Whether the least that FP32 makes, one rounding on each side, covers every output and every part that was kept."""
    least = {
        (sample, output): part.scaled(0.0, BOTH_ROUND)
        for output, found in run.parts.items()
        for sample, part in found.items()
    }
    exact = all(error_distance(found) <= margin_of("f32") * FLOAT32_ROUNDING for found in run.statistics.values())
    return exact and covers_parts(run.parts, least)


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
        _worst_ratio(found, part, "f32", 0.0) <= 1.0
        or ((least := finest(output)) > 0 and _worst_ratio(found, part, "f32", least) <= 1.0)
        for output, found, part in pairs
    )


def find_deviations(examination: Examination, outputs: Sequence[str], align: Align) -> dict[str, Deviation]:
    """Of `outputs`, those that hold a part beyond the declared arithmetic, with the worst one."""
    declared = examination.case.policy.declared
    expected = examination.expectation.parts.get(declared, {}) if examination.expectation is not None else {}
    found = {}
    finest_of = finest_of_outputs(examination.case.model)
    for output in outputs:
        both = {
            sample: (parts, expected[sample, output])
            for sample, parts in examination.compared.parts.get(output, {}).items()
            if (sample, output) in expected
        }
        if max((_worst_ratio(*pair, declared, 0.0) for pair in both.values()), default=0.0) <= 1.0:
            continue
        finest = finest_of(output)
        if finest and max(_worst_ratio(*pair, declared, finest) for pair in both.values()) <= 1.0:
            continue
        honest = 0.0
        if declared in FORMATS:
            drawn = _draw_parts(examination, output, sorted(both), align)
            both = {sample: (pair[0], _mean_parts([pair[1], *drawn.get(sample, ())])) for sample, pair in both.items()}
            honest = max((_strangest_draw(parts, declared, finest) for parts in drawn.values()), default=0.0)
        if max(_worst_ratio(*pair, declared, finest) for pair in both.values()) > max(1.0, _BEYOND_NULL * honest):
            sample = max(both, key=lambda one: _worst_ratio(*both[one], declared, finest))
            found[output] = _deviation_of(sample, *both[sample], declared, finest)
    return found


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


def _ratios_by_axis(measured: Parts, expected: Parts, declared: str, finest: float) -> Iterator[tuple[int, np.ndarray]]:
    """Of each axis, and of the whole (-1), squared error over what is allowed; `finest` is the least error of an element."""
    size = math.prod(measured.shape)
    axes = [axis for axis, length in enumerate(measured.shape) if length > 1 and size // length >= _FEWEST]
    tests = 1 + sum(measured.shape[axis] for axis in axes)
    share = _divide_safely(expected.errors[0].sum(), expected.references[0].sum())
    whole = expected.references[0].sum() / size
    tiny = FLOAT32_ROUNDING**2 * whole  # of an element, where everything else is nothing
    # A format stores nothing finer than its grid.
    grid = formats.FORMATS[declared].smallest_subnormal / 2.0 if declared in formats.FORMATS else 0.0
    finest = max(finest, grid) ** 2
    level = math.log(tests / _CHANCE)
    for axis in (-1, *axes):
        count = size // measured.shape[axis] if axis >= 0 else size
        errors, own, references = (
            sums[axis] if axis >= 0 else np.array([sums[0].sum()])
            for sums in (measured.errors, expected.errors, expected.references)
        )
        tail = 1.0 + 2.0 * math.sqrt(level / count) + 2.0 * level / count
        # What is lost of a part with numbers and an expectation of its own is not excused by its neighbours, however large.
        lost = (own > 0) & (errors > _LOST * references) & (references > 0)
        nothing = np.where(lost, finest, max(tiny, finest)) * count
        usual = own + nothing + (share * references if axis >= 0 else 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = errors / (margin_of(declared) ** 2 * _SPREAD * tail * usual)
        yield axis, np.where(errors > 0, ratio, 0.0)


def _divide_safely(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _worst_ratio(measured: Parts, expected: Parts, declared: str, finest: float) -> float:
    return max(float(ratio.max(initial=0.0)) for _, ratio in _ratios_by_axis(measured, expected, declared, finest))


def _deviation_of(sample: int, measured: Parts, expected: Parts, declared: str, finest: float) -> Deviation:
    ratios = dict(_ratios_by_axis(measured, expected, declared, finest))
    axis = max(ratios, key=lambda one: float(ratios[one].max(initial=0.0)))
    index = int(ratios[axis].argmax())
    error, own, size = (
        float(sums[axis][index] if axis >= 0 else sums[0].sum())
        for sums in (measured.errors, expected.errors, measured.references)
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
    examination: Examination, output: str, samples: Sequence[int], align: Align
) -> Mapping[int, Sequence[Parts]]:
    """Parts of several draws of the declared arithmetic, by sample; none where it cannot be simulated so."""
    from parityscope.expectation.drawing import drawn_outputs

    case = examination.case
    found: dict[int, list[Parts]] = {}
    try:
        drawn = drawn_outputs(
            case.model,
            case.inputs,
            samples,
            case.policy.declared,
            [output],
            _DRAWS,
            bounded=False,
            align=align,
            progress=examination.progress,
        )
        for _, sample, expected, given in drawn:
            parts = measure_parts(expected[output], given[output]) if output in given else None
            if parts is not None:
                found.setdefault(sample, []).append(parts)
    except ParityError:
        return {}
    return found


def _mean_parts(draws: Sequence[Parts]) -> Parts:
    total = draws[0]
    for one in draws[1:]:
        total = total.plus(one)
    return total.scaled(1.0 / len(draws), 0.0)


def _strangest_draw(draws: Sequence[Parts], declared: str, finest: float) -> float:
    """How far the strangest of honest draws is from what the others expect."""
    if len(draws) < 2:
        return 0.0
    return max(
        _worst_ratio(one, _mean_parts([other for other in draws if other is not one]), declared, finest)
        for one in draws
    )
