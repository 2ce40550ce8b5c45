"""Parts of outputs that a repair lost: a field, channel, row or sample that is far worse after it than the whole was before.

The pooled error of an output is that of its largest numbers: class scores beside boxes in pixels may all be nought and the error
smaller than before. A part is what one index of one axis holds over all samples, or one sample as a whole. It is lost where
its relative L2 error is `LOST_ERROR` or more after and was not before; or, in a part of `_MANY` elements, is `_MARGIN` times what
it was before, and what the output as a whole was.

A part of fewer than `_FEWEST` elements may lose most of itself by cancellation alone, and one whose reference is below
FP32's rounding of the whole output is noise: nothing is said of either.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.parts import measure_parts
from parityscope.expectation.forecasts import LOST_ERROR
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from parityscope.comparison.parts import Parts

_FEWEST = 8  # chosen: so many numbers do not all cancel by chance
_MANY = 64  # chosen: the error of so many is no accident of a draw (docs/fidelity.md, outputs of few numbers)
_MARGIN = 4.0  # as for FP32's grade: twice what honest evaluations were measured to be apart, rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPart:
    """The worst part that was lost of an output: relative L2 errors of it; `count` are all that were lost like it.

    `sample` is the name of a sample where that is the part, else "", and `axis` and `index` say which.
    """

    output: str
    sample: str
    axis: int
    index: int
    before: float
    after: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """Squares of one kind of part: float64 (n,) each; `elements` is how many numbers each part has."""

    sample: str
    axis: int
    before: np.ndarray
    after: np.ndarray
    references: np.ndarray
    elements: int


def lost_parts(output: str, samples: Iterable[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> LostPart | None:
    """The worst part of an output that was lost, over `samples` (name, reference, before, after); None if none was."""
    sums = list(_sums_by_part(samples))
    elements = sum(one.elements for one in sums if one.axis < 0)
    squares = sum(float(one.references.sum()) for one in sums if one.axis < 0)
    noise = FLOAT32_ROUNDING**2 * squares / elements if elements else 0.0
    whole = sum(float(one.before.sum()) for one in sums if one.axis < 0) / squares if squares else 0.0
    found = [one for one in (_find_lost(output, each, noise, whole) for each in sums) if one is not None]
    return max(found, key=lambda one: one.after, default=None)


def _sums_by_part(samples: Iterable[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> Iterator[_Sums]:
    """Each sample as a whole, then the indices of each axis over all samples, where those have one shape."""
    pooled: dict[int, _Sums] = {}
    shapes = set()
    for name, reference, before, after in samples:
        first, second = measure_parts(reference, before), measure_parts(reference, after)
        if first is None or second is None:
            continue
        shapes.add(first.shape)
        for axis in range(len(first.shape)):
            one = _sums_of_axis(axis, first, second)
            if axis == 0:
                yield _sum_whole(name, one)
            if len(shapes) == 1:
                pooled[axis] = _add_sums(pooled[axis], one) if axis in pooled else one
    if len(shapes) == 1:
        yield from pooled.values()


def _sums_of_axis(axis: int, before: Parts, after: Parts) -> _Sums:
    elements = math.prod(before.shape) // before.shape[axis]
    return _Sums(
        sample="",
        axis=axis,
        before=before.errors[axis],
        after=after.errors[axis],
        references=after.references[axis],
        elements=elements,
    )


def _sum_whole(name: str, one: _Sums) -> _Sums:
    before, after, references = (sums.sum(keepdims=True) for sums in (one.before, one.after, one.references))
    count = one.elements * len(one.references)
    return _Sums(sample=name, axis=-1, before=before, after=after, references=references, elements=count)


def _add_sums(one: _Sums, other: _Sums) -> _Sums:
    return _Sums(
        sample="",
        axis=one.axis,
        before=one.before + other.before,
        after=one.after + other.after,
        references=one.references + other.references,
        elements=one.elements + other.elements,
    )


def _find_lost(output: str, sums: _Sums, noise: float, whole: float) -> LostPart | None:
    if sums.elements < _FEWEST:
        return None
    told = sums.references > noise * sums.elements
    limit = LOST_ERROR**2 * sums.references
    lost = told & (sums.after >= limit) & (sums.before < limit)
    if sums.elements >= _MANY:
        usual = np.maximum(np.maximum(sums.before, whole * sums.references), FLOAT32_ROUNDING**2 * sums.references)
        lost |= told & (sums.after > _MARGIN**2 * usual)
    if not lost.any():
        return None
    ratios = np.divide(sums.after, sums.references, out=np.zeros_like(sums.after), where=lost)
    index = int(ratios.argmax())
    before, after = (math.sqrt(float(one[index] / sums.references[index])) for one in (sums.before, sums.after))
    return LostPart(
        output=output,
        sample=sums.sample,
        axis=sums.axis,
        index=index,
        before=before,
        after=after,
        count=int(np.count_nonzero(lost)),
    )
