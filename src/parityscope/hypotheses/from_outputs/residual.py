"""What is to be explained: the candidate's outputs less the reference's, as one vector over outputs and samples.

Every output's channel is divided by its size in the reference, so that pixels and probabilities count alike. Where one side
is not finite the pattern is what counts: elements that are so on one side only. The share of a response is the part of the
squared error that it takes away, times the overlap of the patterns.

Outputs with as many rows as values say may have more on one side. The vector then holds the reference's rows, each with its
partner of the candidate (`comparison.rows`; without one there is no error), and a share is taken over all rows of both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from parityscope.comparison.rows import flatten_rows, lone_axis_apart, pair_rows
from parityscope.hypotheses.from_outputs.spending import RESPONSE_S, ROWS_S
from parityscope.hypotheses.power import MOST_NUMBERS
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Arrays = Mapping[str, np.ndarray]

_FEW = 512  # channels: a longer axis is one of positions; chosen
_LEAST = 1e-3  # of the output's size: what an almost silent channel is divided by; chosen
_SAME_SUM = 1e-5  # of an error's size, chosen: what FP32 leaves of a sum that is to be zero
# What leaves no more than this part of the squared error, or than so many times what rounding may leave, is exact: numbers that
# were fitted leave 1e-9 of it, and what only comes near 1e-4 and more (measured on drawn faults).
_NOTHING, _OF_ROUNDING = 1e-5, 4.0
_ROUGH = 0.1  # of the error: a response that leaves more is weighed in float32, which takes a tenth of the time; chosen


def _counted_axes(reference: Sequence[Arrays], candidate: Sequence[Arrays], outputs: Sequence[str]) -> dict[str, int]:
    """The axis of the rows, by output: that along which alone the sides' shapes differ on a sample."""
    found = {}
    for mine, its in zip(reference, candidate, strict=True):
        for name in (name for name in outputs if name in mine and name in its):
            axis = lone_axis_apart(mine[name].shape, its[name].shape)
            if axis is not None:
                found[name] = axis
    return found


def _beside_rows(reference: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """What lies beside each row of the reference, in its shape; where nothing does, the row itself. Rows of both are alike."""
    partners = pair_rows([(reference, array, axis)])
    there = partners < array.shape[axis]
    found = np.moveaxis(reference, axis, 0).astype(array.dtype)
    found[there] = np.moveaxis(array, axis, 0)[partners[there]]
    return np.moveaxis(found, 0, axis)


class _RowsError(NamedTuple):
    """The squared error of an output, how many elements are off, and how many are finite on one side alone."""

    squares: float = 0.0
    wrong: int = 0
    lost: int = 0


def _error_in_rows(outputs: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> list[_RowsError]:
    """The error of each output over all rows of both sides.

    `outputs` are (expected, found, axis of the rows), float64, alike in all else. Rows are paired, those of outputs with as many
    rows on either side together; one without a partner is off by its own size.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for place, (expected, found, axis) in enumerate(outputs):
        groups.setdefault((expected.shape[axis], found.shape[axis]), []).append(place)
    told = [_RowsError()] * len(outputs)
    for places in groups.values():
        members = [outputs[place] for place in places]
        if all(np.array_equal(expected, found) for expected, found, _ in members):
            continue
        partners = pair_rows(members)
        for place in places:
            told[place] = _error_of_pairs(*outputs[place], partners)
    return told


def _error_of_pairs(expected: np.ndarray, found: np.ndarray, axis: int, partners: np.ndarray) -> _RowsError:
    mine, its = (flatten_rows(one, axis) for one in (expected, found))
    there = partners < len(its)
    left = np.setdiff1d(np.arange(len(its)), partners)
    held, given = np.isfinite(mine), np.isfinite(its)
    lost = int((held[there] != given[partners[there]]).sum())
    mine, its = np.where(held, mine, 0.0), np.where(given, its, 0.0)
    rest = np.concatenate([mine[there] - its[partners[there]], mine[~there], its[left]])
    return _RowsError(float(np.square(rest).sum()), int(np.count_nonzero(rest)), lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much a response explains: of all squares together, and of the part (output and sample) of which it explains least.

    `left` and `whole` are squared errors; `count` numbers that are free of each other were explained.
    `pattern` is the overlap of NaN and Inf.
    """

    pooled: float
    least: float
    left: float
    whole: float
    count: int
    pattern: float = 1.0

    def is_exact(self, noise: float) -> bool:
        """Whether what is left can be rounding, whose squared error is `noise`; what leaves more stands in for something else."""
        return self.left <= max(_NOTHING * self.whole, _OF_ROUNDING * noise)

    def bits(self, floor: float) -> float:
        """What is saved by it: n/2 log2 of what it leaves, with `floor` as the least squared error that counts."""
        numbers = min(self.count, MOST_NUMBERS) / 2
        return numbers * math.log2(max(self.whole, floor) / max(self.left, floor)) if self.whole > floor else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OutputPart:
    """One output of one sample: float64 arrays, flat. `noise` is the squared error that rounding may leave.

    `rows` are all of the candidate's and their axis, where the two have not equally many on every sample.
    `error` is the candidate less the reference, scaled: zero where the candidate is not finite, and less nothing where the
    reference is not. `fit` says where both are finite, `broken` where one alone is. `single` are reference, candidate and scale,
    where all are finite and float32.
    """

    name: str
    scale: np.ndarray
    reference: np.ndarray
    candidate: np.ndarray
    shape: tuple[int, ...]
    noise: float
    error: np.ndarray
    fit: np.ndarray
    broken: np.ndarray
    whole: float
    wrong: int
    single: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    rows: tuple[np.ndarray, int] | None = None

    def beside(self, array: np.ndarray) -> np.ndarray:
        """What a response gives in the reference's shape: where rows are counted, those that belong to the reference's."""
        if self.rows is None or array.shape == self.shape:
            return array
        return _beside_rows(self.reference.reshape(self.shape), array, self.rows[1])

    def difference(self, array: np.ndarray) -> np.ndarray:
        """What a response adds to the reference, scaled: float32 where the outputs are, else float64."""
        if self.single is not None and array.dtype == np.float32:
            return np.asarray((array.reshape(-1) - self.single[0]) * self.single[2])
        return np.asarray((np.asarray(array, np.float64).ravel() - self.reference) * self.scale)

    def left(self, array: np.ndarray) -> tuple[float, int, int]:
        """The squared error left over what is finite on both; elements that both lose or find, and that either does."""
        if self.single is not None and array.dtype == np.float32:
            rest = (self.single[1] - array.reshape(-1)) * self.single[2]
            size = float(rest @ rest)
            if math.isfinite(size) and size > _ROUGH * self.whole:
                return size, 0, 0
        response = np.asarray(array, np.float64).ravel()
        given = np.isfinite(response)
        if given.all() and not self.broken.any() and self.fit.all():
            rest = (self.candidate - response) * self.scale
            return float(rest @ rest), 0, 0
        rest = np.where(np.isfinite(self.candidate) & given, (self.candidate - response) * self.scale, 0.0)
        also = np.isfinite(self.reference) != given
        return float(rest @ rest), int((self.broken & also).sum()), int((self.broken | also).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residual:
    """The parts of each sample."""

    samples: Sequence[Sequence[_OutputPart]]

    @property
    def whole(self) -> float:
        """All squared error."""
        return sum(part.whole for parts in self.samples for part in parts)

    @property
    def noise(self) -> float:
        """The squared error that rounding may leave."""
        return sum(part.noise for parts in self.samples for part in parts)

    @property
    def is_broken(self) -> bool:
        """Whether one side has NaN or Inf where the other has none."""
        return any(bool(part.broken.any()) for parts in self.samples for part in parts)

    def still(self) -> frozenset[str]:
        """Outputs that are what the reference gives, on every sample, up to rounding: no edit that reaches them is at fault."""
        moved = {part.name for parts in self.samples for part in parts if part.whole > part.noise or part.broken.any()}
        return frozenset(part.name for parts in self.samples for part in parts if part.scale.size > 1) - moved

    def seeds(self, sample: int, signs: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Directions of a sweep, by output: random signs and the residual, (shape, directions + 1), scaled.

        `signs` is float32, (numbers of the sample, directions); given back beside them: the residual's products with it.
        """
        found, at, products = {}, 0, np.zeros(signs.shape[1])
        for part in self.samples[sample]:
            size = part.reference.size
            own = signs[at : at + size]
            at += size
            products += own.T.astype(np.float64) @ part.error
            both = np.concatenate([own, part.error[:, None].astype(np.float32)], 1) * part.scale[:, None].astype(
                np.float32
            )
            found[part.name] = both.reshape((*part.shape, -1))
        return found, products

    def numbers(self, sample: int) -> int:
        """How many there are of a sample."""
        return sum(part.reference.size for part in self.samples[sample])

    def price(self, sample: int) -> float:
        """Estimated seconds in which a response is held against what is wanted."""
        counted = ((part.shape[part.rows[1]], *part.rows) for part in self.samples[sample] if part.rows)
        pairs = sum(ours * int(given.shape[axis]) for ours, given, axis in counted)
        return RESPONSE_S * self.numbers(sample) + ROWS_S * pairs

    def size(self, sample: int) -> float:
        """The squared error of a sample."""
        return sum(part.whole for part in self.samples[sample])

    def difference(self, sample: int, response: Arrays) -> np.ndarray:
        """What a response adds to the reference's outputs, scaled, zero where it is not finite: float32 where all outputs are."""
        rows = [part.difference(part.beside(np.asarray(response[part.name]))) for part in self.samples[sample]]
        row = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return row if math.isfinite(float(row @ row)) else np.where(np.isfinite(row), row, 0.0)

    def wanted(self, sample: int) -> np.ndarray:
        """What the candidate adds to the reference's outputs, as `difference`."""
        return np.concatenate([part.error for part in self.samples[sample]])

    def taken(self, responses: Mapping[int, Arrays], slopes: Mapping[int, np.ndarray]) -> float:
        """The part of the squared error that goes beside a response where numbers are free, each the best it can be.

        `slopes` say by sample what each number adds: floats, (numbers of the sample, free numbers), as `difference`.
        """
        whole = sum(self.size(sample) for sample in responses)
        if not whole or not slopes:
            return 0.0
        rest = np.concatenate([self.wanted(sample) - self.difference(sample, one) for sample, one in responses.items()])
        table = np.concatenate([slopes[sample] for sample in responses])
        basis = np.linalg.qr(table)[0]
        return float(np.square(basis.T @ rest).sum()) / whole

    def share(self, responses: Mapping[int, Arrays]) -> Share:
        """How much of the error of some samples their responses explain; nothing where a shape is another one."""
        left = whole = 0.0
        both = either = count = 0
        least = 1.0
        for sample, response in responses.items():
            counted = _left_of_counted(self.samples[sample], response)
            for part in self.samples[sample]:
                array = response.get(part.name)
                if array is None or (part.name not in counted and array.shape != part.shape):
                    return Share(pooled=-1.0, least=-1.0, left=self.whole, whole=self.whole, count=0)
                rows = counted.get(part.name)
                now, same, lost = part.left(np.asarray(array)) if rows is None else (rows.squares, 0, rows.lost)
                left, whole, both, either = left + now, whole + part.whole, both + same, either + lost
                count += part.wrong
                rounding = _OF_ROUNDING * part.noise
                if part.whole > rounding or now > rounding:
                    least = min(least, 1 - max(now - rounding, 0.0) / part.whole if part.whole else -1.0)
                if lost:
                    least = min(least, same / lost)
        pattern = both / either if either else 1.0
        pooled = (1 - left / whole if whole > 0 else 1.0 if either else 0.0) * pattern
        return Share(pooled=pooled, least=least, left=left, whole=whole, count=count, pattern=pattern)


def residual_of(
    reference: Sequence[Arrays], candidate: Sequence[Arrays], noise: Mapping[str, float], outputs: Sequence[str]
) -> Residual:
    """The residual of some outputs.

    Args:
        reference: By sample, the reference's outputs.
        candidate: By sample, the candidate's, under the reference's names.
        noise: By output, the relative L2 error that rounding may leave.
        outputs: Those that count: of numbers, in one shape on both sides.
    """
    samples = []
    counted = _counted_axes(reference, candidate, outputs)
    for mine, its in zip(reference, candidate, strict=True):
        parts = []
        for name in outputs:
            if name not in mine or name not in its:
                continue
            rows = (np.asarray(its[name], np.float64), counted[name]) if name in counted else None
            beside = its[name] if rows is None else _beside_rows(mine[name], its[name], rows[1])
            if mine[name].shape == beside.shape:
                parts.append(replace(_make_part(name, mine[name], beside, noise.get(name, 0.0)), rows=rows))
        left = _left_of_counted(parts, mine)
        samples.append(
            [
                replace(part, whole=left[part.name].squares, wrong=left[part.name].wrong) if part.name in left else part
                for part in parts
            ]
        )
    news = {name: _part_of_news([part for parts in samples for part in parts if part.name == name]) for name in outputs}
    return Residual(
        samples=[[replace(part, wrong=math.ceil(part.wrong * news[part.name])) for part in parts] for parts in samples]
    )


def _left_of_counted(parts: Sequence[_OutputPart], response: Arrays) -> dict[str, _RowsError]:
    """What is left of the outputs whose rows are counted, scaled, over all rows of the candidate and of the response."""
    counted, outputs = [], []
    for part in parts:
        array = response.get(part.name)
        if part.rows is None or array is None or array.ndim != len(part.shape):
            continue
        given, axis = part.rows
        if all(
            one == other for at, (one, other) in enumerate(zip(given.shape, array.shape, strict=True)) if at != axis
        ):
            counted.append(part)
            outputs.append((given, np.asarray(array, np.float64), axis))
    errors = zip(counted, _error_in_rows(outputs), strict=True)
    return {
        part.name: error._replace(squares=error.squares * float(np.median(part.scale)) ** 2) for part, error in errors
    }


def _part_of_news(parts: Sequence[_OutputPart]) -> float:
    """Of the numbers of an output, the part that does not follow from the others: in (0, 1].

    Scores that add up to one say a number less a row: of two classes one. A matrix of rank r, of n rows and c columns, is told by
    r (n + c - r) numbers; where there are fewer rows than columns its rank says nothing.
    """
    columns = min((part.shape[-1] for part in parts if part.shape), default=1)
    if not 1 < columns <= _FEW or any(part.shape[-1:] != (columns,) for part in parts):
        return 1.0
    errors = np.concatenate(
        [np.where(part.fit, part.candidate - part.reference, 0.0).reshape(-1, columns) for part in parts]
    )
    errors = errors[np.abs(errors).max(1) > 0][:MOST_NUMBERS]
    rows = len(errors)
    if not rows:
        return 1.0
    sizes = np.linalg.norm(errors, axis=1)
    free = columns - 1 if np.all(np.abs(errors.sum(1)) <= _SAME_SUM * sizes) else columns
    numbers = rows * free
    if rows >= columns:
        singular = np.linalg.svd(errors / sizes[:, None], compute_uv=False)
        rank = min(free, int((singular > _SAME_SUM * singular[0]).sum()))
        numbers = rank * (rows + free - rank)
    return max(1, numbers) / (rows * columns)


def _make_part(name: str, reference: np.ndarray, candidate: np.ndarray, noise: float) -> _OutputPart:
    known = np.asarray(reference, np.float64)
    scale = _scale_by_channel(known)
    mine, its, factor = known.ravel(), np.asarray(candidate, np.float64).ravel(), scale.ravel()
    held, found = np.isfinite(mine), np.isfinite(its)
    fit = held & found
    error = np.where(found, (its - np.where(held, mine, 0.0)) * factor, 0.0)
    size = np.where(np.isfinite(mine), mine * factor, 0.0)
    is_single = reference.dtype == candidate.dtype == np.float32 and fit.all()
    single = (mine.astype(np.float32), its.astype(np.float32), factor.astype(np.float32)) if is_single else None
    return _OutputPart(
        name=name,
        scale=factor,
        reference=mine,
        candidate=its,
        shape=known.shape,
        noise=noise**2 * float(size @ size),
        error=error,
        fit=fit,
        broken=held != found,
        whole=float(error @ error),
        wrong=int(np.count_nonzero(error)),
        single=single,
    )


def _scale_by_channel(array: np.ndarray) -> np.ndarray:
    """One over the size of each channel, and over the square root of the count: float64, of the array's shape."""
    finite = np.where(np.isfinite(array), array, 0.0)
    whole = math.sqrt(float(np.square(finite).mean())) if array.size else 0.0
    size = np.full(array.shape, whole or 1.0)
    if array.ndim >= 3 and 1 < array.shape[1] <= _FEW and array.shape[1] * 4 <= array.size // array.shape[1]:
        others = tuple(axis for axis in range(array.ndim) if axis != 1)
        channel = np.sqrt(np.square(finite).mean(others, keepdims=True))
        size = np.broadcast_to(np.maximum(channel, _LEAST * (whole or 1.0)), array.shape)
    return 1 / size / math.sqrt(max(1, array.size))
