"""How the answers to rows part from each other: what runs on changed batches, and a recording, tell.

A kernel for k rows that is run on more gives the answers of the first k again and again. That predicts the whole output from
the reference's alone, so that a recording is enough, and nothing in it is fitted but k. Everything else is asked of both
sides, the reference first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._reproducing import bad_samples, limit_of, measure_misfit
from parityscope.comparison.distance import distance_between

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.bench import Bench
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]
    Run = Callable[[Arrays], Mapping[str, np.ndarray]]
    Sides = tuple[Arrays, Arrays]

__all__ = [
    "MOST_ALONE",
    "Uneven",
    "find_repeated_rows",
    "find_uneven_row",
    "furthest_row",
    "is_open",
    "uneven_in_recording",
]

MOST_ALONE = 8  # rows run one by one
_REPEATED = 4.0  # times the spread between two runs. Chosen: of one row it may be larger than of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Where one row's answers part: in words, the output, the row, and by how much, relative."""

    words: str
    output: str
    row: int
    error: float


def find_repeated_rows(known: Examination, bench: Bench, rows: int) -> tuple[int, Misfit] | None:
    """How many first rows the candidate's answers repeat in the first sample, and what that leaves of its error.

    None where no number below `rows` explains the error, or where the outputs tell too little to judge by.
    """
    index = bench.samples[0]
    if index not in bad_samples(known, bench):
        return None
    reference, candidate = bench.reference(index), bench.candidate(index)
    before = measure_misfit(known, reference, candidate)
    # An output that is right has its own rows; only of the others can something be explained.
    wrong = {name for name in reference if not measure_misfit(known, {name: reference[name]}, candidate).fits}
    for count in range(1, rows):
        again = np.arange(rows) % count
        changed = {name: _take_rows(array, again) if name in wrong else array for name, array in reference.items()}
        left = measure_misfit(known, changed, candidate)
        if left.explains(before):
            return count, left
    return None


def _take_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Those rows of an output that has one for each of the batch; any other output as it is."""
    return array[rows] if array.ndim and len(array) == len(rows) else array


def furthest_row(reference: Arrays, candidate: Arrays, start: int) -> Uneven:
    """The row from `start` on that is furthest from its own answer."""
    parted = [
        Uneven(words="", output=name, row=row, error=distance_between(array[row], candidate[name][row]))
        for name, array in reference.items()
        if name in candidate and array.ndim and candidate[name].shape == array.shape
        for row in range(start, len(array))
    ]
    return max(parted, key=lambda each: each.error)


def find_uneven_row(
    known: Examination, answers: Run, reference: Run, arrays: Arrays, same: Arrays, rows: int
) -> Uneven | None:
    """The first way in which the candidate's answer to one row parts and the reference's does not."""
    theirs, ours = answers(same), reference(same)
    count = len(next(iter(same.values())))
    if _uneven_among_equals(known, ours, count) is None and (found := _uneven_among_equals(known, theirs, count)):
        return found
    if rows > 1:
        whole_theirs, whole_ours = answers(arrays), reference(arrays)
        words = "the first row's answer changes with its neighbours"
        if _compare_two_rows(known, whole_ours, ours, 0, 0, words) is None:
            found = _compare_two_rows(known, whole_theirs, theirs, 0, 0, words)
            if found:
                return found
        further = {name: np.roll(array, 1, axis=0) for name, array in arrays.items()}
        found = _row_moved_along(known, (answers(further), whole_theirs), (reference(further), whole_ours), rows)
        if found:
            return found
    if not is_open(known):
        return None
    for row in range(min(rows, MOST_ALONE)):
        one = {name: array[row : row + 1] for name, array in arrays.items()}
        whole_theirs, whole_ours = (answers(arrays), reference(arrays)) if rows > 1 else (theirs, ours)
        words = "a row alone gets another answer than in the batch"
        if _compare_two_rows(known, whole_ours, reference(one), row, 0, words) is None:
            found = _compare_two_rows(known, whole_theirs, answers(one), row, 0, words)
            if found:
                return found
    return None


def _row_moved_along(known: Examination, candidate: Sides, reference: Sides, rows: int) -> Uneven | None:
    """The first row whose answer in the candidate does not go with it to its next place, as it does in the reference.

    `candidate` and `reference` are outputs of the rows one place further on, and of the rows as they were.
    """
    words = "a row gets another answer in the next place of the batch"
    places = [((row + 1) % rows, row) for row in range(rows)]
    moved, still = ({name: one for name, one in side.items() if one.ndim and len(one) == rows} for side in reference)
    if any(_compare_two_rows(known, moved, still, new, old, words) for new, old in places):
        return None
    after, before = ({name: side[name] for name in moved if name in side} for side in candidate)
    return next(
        (found for new, old in places if (found := _compare_two_rows(known, after, before, new, old, words))), None
    )


def _limit_between_rows(known: Examination, output: str) -> float:
    """How far two answers to one row may be apart: by arithmetic, and by what the candidate does from run to run."""
    return max(limit_of(known, output), _REPEATED * known.compared.spread)


def _uneven_among_equals(known: Examination, outputs: Arrays, rows: int) -> Uneven | None:
    """The row of a batch of identical rows that is furthest from row 0, if it is too far."""
    worst: Uneven | None = None
    for name, array in outputs.items():
        if array.ndim == 0 or len(array) != rows:
            continue
        for row in range(1, rows):
            error = distance_between(array[0], array[row])
            if error > _limit_between_rows(known, name) and (worst is None or error > worst.error):
                worst = Uneven(words="identical rows get different answers", output=name, row=row, error=error)
    return worst


def _compare_two_rows(
    known: Examination, first: Arrays, second: Arrays, row: int, other: int, words: str
) -> Uneven | None:
    for name, array in first.items():
        if name not in second or array.ndim == 0 or len(array) <= row or len(second[name]) <= other:
            continue
        error = distance_between(array[row], second[name][other])
        if error > _limit_between_rows(known, name):
            return Uneven(words=words, output=name, row=row, error=error)
    return None


def uneven_in_recording(known: Examination, arrays: Arrays, outputs: Arrays, rows: int) -> Uneven | None:
    """Rows that are identical in the data and different in a recording."""
    for row in range(1, rows):
        for earlier in range(row):
            if all(array[row].tobytes() == array[earlier].tobytes() for array in arrays.values()):
                found = _compare_two_rows(known, outputs, outputs, row, earlier, "identical rows get different answers")
                if found:
                    return found
    return None


def is_open(known: Examination) -> bool:
    """Whether the model takes any batch size."""
    return all(
        value.shape is not None and value.shape and not isinstance(value.shape[0], int) for value in known.model.inputs
    )
