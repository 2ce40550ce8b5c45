"""(reference's output, candidate's) on several samples -> what was done to the output once more, or once less, in words.

Each is a function without parameters, or with one number that is the same for every element of every sample; a grid of decimals,
which is seen in the candidate's own values; or sums of fields.

A field is an index of the last axis, or of the second. Corners of a box written as its centre and size, colours in another
space: each wrong field is a sum of few of the model's, the same in every row of every sample. That a field is scaled or shifted
alone is nothing of that kind: a last layer does so itself. The factors are fitted on every second row, by least squares, and
judged on all.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.distance import distance_between
from parityscope.hypotheses.fitting import round_to_nice
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # One output of one sample, of the reference and of the candidate.
    Both = tuple[np.ndarray, np.ndarray]
    Function = Callable[[np.ndarray], np.ndarray]

_MOST_FIELDS = 128  # along an axis; chosen: detectors of 80 classes have 85
_TERMS = 3  # of a sum, and an offset; chosen: a centre is a half of two, a corner as well
_NOTHING = 1e-4  # of a field's size: what a term below it adds is left out; chosen
_ROWS_EACH = 4  # rows for each number that is fitted; chosen: three of them are predicted
# What a row is divided by to be of size one.
_SIZES: dict[str, Callable[..., np.ndarray]] = {
    "a normalization to length one": np.linalg.norm,
    "a normalization to a sum of one": np.sum,
    "a division by the largest": np.max,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFields:
    """What the changed fields are, in words, and the worst relative L2 error that is left of any sample."""

    words: str
    error: float


def explain_fields(pairs: Sequence[Both], limit: float) -> MixedFields | None:
    """Which sums of the reference's fields the candidate's are, to a relative L2 error of `limit`; None if they are none."""
    rank = pairs[0][0].ndim
    for axis in dict.fromkeys((rank - 1, 1)) if rank > 1 else ():
        count = pairs[0][0].shape[axis]
        if not 1 < count <= _MOST_FIELDS or any(mine.shape[axis] != count for mine, _ in pairs):
            continue
        mine, its = (np.concatenate([_rows_along(pair[side], axis) for pair in pairs]) for side in (0, 1))
        sums = _fit_sums(mine, its, limit)
        if not any(np.delete(factors[:-1], field).any() for field, factors in sums.items()):
            continue
        made = [_put_in(reference, axis, sums) for reference, _ in pairs]
        error = max(distance_between(one, candidate) for one, (_, candidate) in zip(made, pairs, strict=True))
        if error <= limit:
            said = "; ".join(f"field {field} = {_say_sum(factors)}" for field, factors in sums.items())
            return MixedFields(words=f"holds sums of the model's fields along axis {axis}: {said}", error=error)
    return None


def _rows_along(array: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _fit_sums(mine: np.ndarray, its: np.ndarray, limit: float) -> dict[int, np.ndarray]:
    """The factors of each field that differs, the offset last; nothing where one of them is no sum of few."""
    changed = [field for field in range(mine.shape[1]) if distance_between(mine[:, field], its[:, field]) > limit]
    table = np.column_stack([mine, np.ones(len(mine))])
    sizes = np.sqrt(np.square(table).mean(axis=0))
    used = sizes > 0
    fitted = table[::2, used] / sizes[used]
    if (
        len(fitted) < _ROWS_EACH * used.sum()
        or np.linalg.matrix_rank(fitted, tol=1e-5 * np.sqrt(len(fitted))) < used.sum()
    ):
        return {}
    found: dict[int, np.ndarray] = {}
    for field in changed:
        factors = np.zeros(len(sizes))
        factors[used] = np.linalg.lstsq(fitted, its[::2, field], rcond=None)[0] / sizes[used]
        whole = float(np.sqrt(np.square(its[:, field]).mean()))
        factors[np.abs(factors) * sizes < _NOTHING * whole] = 0.0
        if np.count_nonzero(factors[:-1]) > _TERMS:
            return {}
        found[field] = np.array([round_to_nice(float(factor))[0] if factor else 0.0 for factor in factors])
    return found


def _put_in(reference: np.ndarray, axis: int, sums: dict[int, np.ndarray]) -> np.ndarray:
    """The reference's output with these fields."""
    rows = np.moveaxis(reference, axis, -1)
    made = rows.copy()
    for field, factors in sums.items():
        made[..., field] = rows @ factors[:-1] + factors[-1]
    return np.moveaxis(made, -1, axis)


def _say_sum(factors: np.ndarray) -> str:
    """A sum in words, its positive terms first."""
    terms = [(float(factor), f"field {field}") for field, factor in enumerate(factors[:-1]) if factor]
    terms += [(float(factors[-1]), "")] if factors[-1] else []
    said = ""
    for factor, name in sorted(terms, key=lambda term: term[0] < 0):
        size = f"{abs(factor):.6g}" if not name or abs(factor) != 1 else ""
        sign = ("-" if factor < 0 else "") if not said else " - " if factor < 0 else " + "
        said += sign + " x ".join(filter(None, (size, name)))
    return said or "0"


_FALL = 10.0  # as in _reproducing: 99 % of the error in squares
_FEWEST = 8  # elements that one fitted number has to meet; chosen: seven of them are predicted
_TELLING = 4  # different values that are not saturated, or lie on a grid, of each sample
_BITS = 24.0  # of integers, as in _reproducing
_DECIMALS = range(7)  # of float32's seven digits
_STEPS = 64.0  # rounding steps of the candidate's type by which a value of the grid may miss it


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """What was done, in words behind the output's name, and the worst relative L2 error that is left of any sample.

    `factor` is the number that was multiplied by, 0 for other steps.
    """

    words: str
    error: float
    factor: float = 0.0


def explain_processing(pairs: Sequence[Both], limit: float) -> Processed | None:
    """What explains the candidate's outputs on all samples, to a relative L2 error of `limit`; None if nothing does."""
    if any(mine.shape != its.shape or mine.size == 0 for mine, its in pairs):
        return None
    before = min(distance_between(mine, its) for mine, its in pairs)
    tried = (
        _explain_integers(pairs) if all(mine.dtype.kind in "iu" for mine, _ in pairs) else _explain_floats(pairs, limit)
    )
    for found in tried:
        if found.error <= limit and found.error * _FALL <= before:
            return found
    return None


def _explain_floats(pairs: Sequence[Both], limit: float) -> Iterator[Processed]:
    if not all(side.dtype.kind == "f" and np.isfinite(side).all() for pair in pairs for side in pair):
        return
    wide = [(mine.astype(np.float64), its.astype(np.float64)) for mine, its in pairs]
    # Before what undoes it as well: a normalization of rows that are all a hundred times too large.
    yield from _fit_one_number(wide, limit)
    for words, function in _final_functions(wide[0][0].ndim):
        once_more = [distance_between(function(mine), its) for mine, its in wide]
        yield Processed(words=f"went through {words} once more than the model says", error=max(once_more))
        # What a function makes of the candidate says nothing where it is saturated.
        if all(_has_enough_values(mine) for mine, _ in wide):
            once_less = [distance_between(mine, function(its)) for mine, its in wide]
            yield Processed(words=f"is what {words} has yet to be applied to", error=max(once_less))
    yield from _fit_decimal_grid(pairs, wide, limit)
    if mixed := explain_fields(wide, limit):
        yield Processed(words=mixed.words, error=mixed.error)


def _final_functions(rank: int) -> Iterator[tuple[str, Function]]:
    """Functions that stand at the end of networks, with nothing to be fitted."""
    yield "a sigmoid", _apply_sigmoid
    # Before the softmax, which makes the same of the logarithm of what sums to one.
    yield "an exponential function", _apply_exponential
    for axis in dict.fromkeys((rank - 1, 1)) if rank > 1 else ():
        yield f"a softmax over axis {axis}", functools.partial(_apply_softmax, axis=axis)
        for words, size in _SIZES.items():
            yield f"{words} over axis {axis}", functools.partial(_divide_rows, axis=axis, size=size)
        yield f"a standardization over axis {axis}", functools.partial(_standardize_rows, axis=axis)


def _apply_sigmoid(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-array)))


def _apply_softmax(array: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(array - array.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _apply_exponential(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(array))


def _divide_rows(array: np.ndarray, axis: int, size: Callable[..., np.ndarray]) -> np.ndarray:
    """What lies along an axis, divided by its size; what has none stays."""
    divisor = size(array, axis=axis, keepdims=True)
    return np.asarray(array / np.where(divisor != 0, divisor, 1.0))


def _standardize_rows(array: np.ndarray, axis: int) -> np.ndarray:
    """What lies along an axis, less its mean and divided by its standard deviation."""
    return _divide_rows(array - array.mean(axis=axis, keepdims=True), axis, np.std)


def _has_enough_values(array: np.ndarray) -> bool:
    """Whether an output has enough values that no function at the end of a network has saturated."""
    values = array[(np.abs(array) > 1e-6) & (np.abs(array - 1.0) > 1e-6)]
    return len(np.unique(values)) >= _TELLING


def _fit_one_number(wide: Sequence[Both], limit: float) -> Iterator[Processed]:
    """One factor, or one number added, for all elements of all samples."""
    mine, its = (np.concatenate([pair[side].reshape(-1) for pair in wide]) for side in (0, 1))
    energy = float(mine @ mine)
    if mine.size < _FEWEST or not energy or np.ptp(mine) == 0:
        return
    factor = float(mine @ its) / energy
    if abs(factor) > limit:
        yield Processed(
            words=f"is {factor:.6g} times the model's throughout",
            error=max(distance_between(reference * factor, candidate) for reference, candidate in wide),
            factor=factor,
        )
    added = float((its - mine).mean())
    yield Processed(
        words=f"is the model's plus {added:.6g} throughout",
        error=max(distance_between(reference + added, candidate) for reference, candidate in wide),
    )


def _fit_decimal_grid(pairs: Sequence[Both], wide: Sequence[Both], limit: float) -> Iterator[Processed]:
    """Rounded, or cut, to so many decimals: every value lies on the grid, and none is further off than that makes."""
    for decimals in _DECIMALS:
        size = 10.0**decimals
        if not all(_lies_on_grid(its, size) for _, its in pairs) or any(_lies_on_grid(mine, size) for mine, _ in pairs):
            continue
        if any(len(np.unique(its)) < _TELLING for _, its in pairs):
            return
        to = f"{decimals} decimal{'' if decimals == 1 else 's'}" if decimals else "whole numbers"
        for words, most, whole in (("rounded", 0.5, np.rint), ("cut", 1.0, np.trunc)):
            slack = [limit * float(np.sqrt(np.square(mine).mean())) for mine, _ in wide]
            near = all(
                bool((np.abs(its - mine) <= most / size + one).all())
                for (mine, its), one in zip(wide, slack, strict=True)
            )
            # An element at the edge between two steps may fall either way: most have to fall as is said.
            equal = [np.isclose(whole(mine * size) / size, its, atol=0.01 / size).mean() for mine, its in wide]
            if near and min(equal) >= 1.0 - 1.0 / _FALL:
                yield Processed(words=f"was {words} to {to}", error=0.0)
        return


def _lies_on_grid(array: np.ndarray, size: float) -> bool:
    """Whether every value is a multiple of 1 / size, as near as its type can hold one."""
    values = array.astype(np.float64) * size
    step = _STEPS * float(np.finfo(array.dtype).eps) * np.maximum(np.abs(values), 1.0)
    return bool((np.abs(values - np.rint(values)) <= np.minimum(step, 0.01)).all())


def _explain_integers(pairs: Sequence[Both]) -> Iterator[Processed]:
    """One number added to all integers of all samples."""
    reference, candidate = (
        np.concatenate([pair[side].reshape(-1).astype(np.int64) for pair in pairs]) for side in (0, 1)
    )
    added = int(candidate[0] - reference[0])
    if reference.size * np.log2(1 + len(np.unique(reference))) < _BITS:
        return
    yield Processed(
        words=f"is the model's plus {added} throughout", error=float((reference + added != candidate).mean())
    )
