"""How the answers to rows part from each other: what runs on changed batches, and a recording, tell.

A kernel for k rows that is run on more gives the answers of the first k again and again; a batch that is filled wrongly has a
row twice, or one of zeros. That predicts the whole output from the reference's alone, so that a recording is enough.
Everything else is asked of both sides, the reference first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._reproducing import bad_samples, limit_of, measure_misfit
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]
    Run = Callable[[Arrays], Mapping[str, np.ndarray]]
    Sides = tuple[Arrays, Arrays]

MOST_ALONE = 8  # rows run one by one
_MOST_TAKEN = 64  # wrong rows, each of which is held against every other; chosen
_REPEATED = 4.0  # times the spread between two runs. Chosen: of one row it may be larger than of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Where one row's answers part: in words, the output, the row, and by how much, relative."""

    words: str
    output: str
    row: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRows:
    """Which row's answer each wrong row has (None: the answer to zeros), and what that leaves of the error."""

    sources: Mapping[int, int | None]
    left: Misfit


def find_taken_rows(known: Examination, bench: Bench, rows: int) -> TakenRows | None:
    """Whose answers the wrong rows of the first sample have.

    None where one has no other row's answer, nor the reference's to zeros, or where the outputs tell too little to judge by.
    """
    index = bench.samples[0]
    if index not in bad_samples(known, bench):
        return None
    reference, candidate = bench.reference(index), bench.candidate(index)
    before = measure_misfit(known, reference, candidate)
    # An output that is right has its own rows; only of the others can something be explained.
    wrong = {
        name: array
        for name, array in reference.items()
        if name in candidate and array.ndim and len(array) == rows and candidate[name].shape == array.shape
        if not measure_misfit(known, {name: array}, candidate).fits
    }
    sources: dict[int, int | None] = {}
    own = {row: _misfit_of_row(known, wrong, row, candidate, row) for row in range(rows)}
    bad = [row for row, misfit in own.items() if not misfit.fits] if wrong else []
    for row in bad[:_MOST_TAKEN]:
        others = (other for other in range(rows) if other != row)
        fits = [one for one in others if _misfit_of_row(known, wrong, one, candidate, row).explains(own[row])]
        if len(fits) > 1:
            return None  # rows that cannot be told apart
        sources[row] = fits[0] if fits else None
    order = [source if (source := sources.get(row)) is not None else row for row in range(rows)]
    changed = {name: array[order] if name in wrong else array for name, array in reference.items()}
    empty = [row for row, source in sources.items() if source is None]
    if empty:
        answers = _answers_to_zeros(bench, bench.inputs(index), empty)
        if any(name not in answers or answers[name].shape != array.shape for name, array in wrong.items()):
            return None
        for name in wrong:
            changed[name][empty] = answers[name][empty]
    left = measure_misfit(known, changed, candidate)
    return TakenRows(sources=sources, left=left) if sources and left.explains(before) else None


def take_row(arrays: Arrays, row: int) -> dict[str, np.ndarray]:
    """One row of each, as a batch of one."""
    return {name: array[row : row + 1] for name, array in arrays.items()}


def _misfit_of_row(known: Examination, reference: Arrays, row: int, candidate: Arrays, other: int) -> Misfit:
    return measure_misfit(
        known, take_row(reference, row), take_row({name: candidate[name] for name in reference}, other)
    )


def _answers_to_zeros(bench: Bench, arrays: Arrays, rows: Sequence[int]) -> Arrays:
    """What the reference gives where the inputs of some rows are zeros; nothing where it cannot be run so."""
    given = {name: array.copy() for name, array in arrays.items()}
    for array in given.values():
        if array.dtype.kind not in "fiub":
            return {}
        array[list(rows)] = 0
    try:
        return bench.outputs(given)
    except ParityError:
        return {}


def furthest_row(reference: Arrays, candidate: Arrays, start: int) -> Uneven:
    """The row from `start` on that is furthest from its own answer."""
    parted = [
        Uneven(words="", output=name, row=row, error=distance_between(array[row, ...], candidate[name][row, ...]))
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
        one = take_row(arrays, row)
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
            error = distance_between(array[0, ...], array[row, ...])
            if error > _limit_between_rows(known, name) and (worst is None or error > worst.error):
                worst = Uneven(words="identical rows get different answers", output=name, row=row, error=error)
    return worst


def _compare_two_rows(
    known: Examination, first: Arrays, second: Arrays, row: int, other: int, words: str
) -> Uneven | None:
    for name, array in first.items():
        if name not in second or array.ndim == 0 or len(array) <= row or len(second[name]) <= other:
            continue
        error = distance_between(array[row, ...], second[name][other, ...])
        if error > _limit_between_rows(known, name):
            return Uneven(words=words, output=name, row=row, error=error)
    return None


def uneven_in_recording(known: Examination, arrays: Arrays, sides: Sides, rows: int) -> Uneven | None:
    """Rows that are identical in the data, have one answer in the reference, and others in a recording.

    `sides` are the reference's outputs and the recording's. Where the rows are moments of one sample the reference, too, answers
    by what came before.
    """
    reference, recorded = sides
    words = "identical rows get different answers"
    for row in range(1, rows):
        for earlier in range(row):
            if all(array[row].tobytes() == array[earlier].tobytes() for array in arrays.values()):
                found = _compare_two_rows(known, recorded, recorded, row, earlier, words)
                if found and _compare_two_rows(known, reference, reference, row, earlier, words) is None:
                    return found
    return None


def is_open(known: Examination) -> bool:
    """Whether the model takes any batch size."""
    return all(
        value.shape is not None and value.shape and not isinstance(value.shape[0], int) for value in known.model.inputs
    )
