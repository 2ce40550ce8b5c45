"""(reference, candidate, what came before) -> what of the candidate's output is old or was never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from parityscope.comparison.distance import distance_between
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.bench import Bench

# Elements that are old and ought not to be. Chosen: four floats that are equal bit for bit are no chance, unless it is one
# value over and over, which a saturated network gives too; two equally likely integers are equal sixteen times in a row once
# in 65,536.
_FLOATS = 4
_TELLING = 16

# How much nearer to the sample before than to its own reference an output is that is old: 99 % in squares.
_NEARER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is old: "before" (the sample before), "zero" or "repeated" (one value), from flat element `start` on.

    `error` is the relative L2 error of what stands before `start`, 0 if nothing does.
    """

    kind: Literal["before", "zero", "repeated"]
    words: str
    start: int
    error: float


def remains_by_sample(bench: Bench, output: str, limit: float) -> Iterator[tuple[int, float, Remains | None]]:
    """Of each sample of the bench whose `output` is wrong: its place there, its error, and what of the output is old.

    The error is infinite where nothing can be compared. Of the first sample nobody knows what came before.
    """
    previous: list[np.ndarray] = []
    for place, index in enumerate(bench.samples):
        reference, candidate = bench.reference(index).get(output), bench.candidate(index).get(output)
        error = np.inf if reference is None or candidate is None else distance_between(reference, candidate)
        if reference is None or candidate is None or reference.shape != candidate.shape:
            yield place, error, None
        elif error > limit:
            yield place, error, remains_of(reference, candidate, previous, limit)
        previous = [side for side in (candidate, reference) if side is not None]


def remains_of(
    reference: np.ndarray, candidate: np.ndarray, previous: Sequence[np.ndarray], limit: float
) -> Remains | None:
    """What of a wrong output is old or was never written; None unless all that is wrong is.

    Args:
        reference: the right output.
        candidate: the wrong one, of the same shape.
        previous: outputs of the sample before, in any number.
        limit: the relative L2 error that arithmetic explains.
    """
    for found in (
        _longest_equal_tail(reference, candidate, previous, limit),
        *_whole_old_answers(reference, candidate, previous, limit),
        *_longest_near_tail(reference, candidate, previous, limit),
    ):
        if found is not None:
            return found
    return None


def _whole_old_answers(
    reference: np.ndarray, candidate: np.ndarray, previous: Sequence[np.ndarray], limit: float
) -> Iterator[Remains]:
    """The candidate as the sample before's, as near as arithmetic is: the old answer has its own rounding."""
    for values in previous:
        near = distance_between(values, candidate)
        if near <= limit and near * _NEARER <= distance_between(reference, candidate):
            yield Remains(kind="before", words="is the sample before's", start=0, error=0.0)


def _longest_near_tail(
    reference: np.ndarray, candidate: np.ndarray, previous: Sequence[np.ndarray], limit: float
) -> Iterator[Remains]:
    """The longest tail that is the sample before's as near as arithmetic is, if what stands before it is right.

    The buffer may hold what no side recorded: the answer before as the engine gave it and nobody read it.
    """
    right, found = reference.reshape(-1), candidate.reshape(-1)
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        return
    for values in previous:
        held = values.reshape(-1)
        if held.shape != found.shape or held.dtype != found.dtype:
            continue
        off = limit * float(np.sqrt(np.square(held, dtype=np.float64).mean()))
        start = _find_tail_start(np.abs(found - held) > off)
        if not 0 < start < found.size or int((np.abs(right - found)[start:] > off).sum()) < _FLOATS:
            continue
        near, far = distance_between(held[start:], found[start:]), distance_between(right[start:], found[start:])
        error = distance_between(right[:start], found[:start])
        if near <= limit and near * _NEARER <= far and error <= limit:
            words = f"is right up to element {start} of {found.size} and is the sample before's from there on"
            yield Remains(kind="before", words=words, start=start, error=error)


def _longest_equal_tail(
    reference: np.ndarray, candidate: np.ndarray, previous: Sequence[np.ndarray], limit: float
) -> Remains | None:
    """The longest tail that is one value or, bit for bit, the sample before's, if what stands before it is right."""
    right, found = reference.reshape(-1), candidate.reshape(-1)
    for kind, whose, held in _list_old_sources(found, previous):
        start = _find_tail_start(found != held)
        wrong = int((right[start:] != found[start:]).sum())
        if wrong < (_FLOATS if found.dtype.kind == "f" and kind != "repeated" else _TELLING):
            continue
        if kind == "repeated" and (right[start:] == right[-1]).all():
            continue  # the right answer is one value there too: a wrong one was computed as well as not
        error = distance_between(right[:start], found[:start]) if start else 0.0
        if error <= limit:
            words = f"was never written: it is {whose} throughout" if kind != "before" else f"is {whose}"
            if start:
                words = f"is right up to element {start} of {found.size} and is {whose} from there on"
            return Remains(kind=kind, words=words, start=start, error=error)
    return None


def _list_old_sources(
    found: np.ndarray, previous: Sequence[np.ndarray]
) -> Iterator[tuple[Literal["before", "zero", "repeated"], str, np.ndarray]]:
    # Never written comes first: then the sample before's is as empty, and would fit as well.
    if found.size and found.dtype.kind in "fiu":
        last = found[-1]
        if last == 0:
            yield "zero", "zero", np.broadcast_to(last, found.shape)
        elif np.isfinite(last):
            yield "repeated", f"{last:g}", np.broadcast_to(last, found.shape)
    for values in previous:
        if values.size == found.size and values.dtype == found.dtype:
            yield "before", "the sample before's", values.reshape(-1)


def _find_tail_start(differs: np.ndarray) -> int:
    """Where the longest tail begins in which no element differs."""
    places = np.flatnonzero(differs)
    return int(places[-1]) + 1 if places.size else 0
