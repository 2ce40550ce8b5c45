"""The compiled operator `Thin`: r and e at every k-th position along some axes, beside f(c_in), which is known there alone.

Positions are gathered block by block; no thinner copy of a tensor is written. Two rows of accumulators are added to: of
f(c_in), and of e in its place, so that what the reference's weights change is known from the same positions
(`together._Where`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import carray

from parityscope.backends._operators._calls import (
    ask1,
    ask2,
    ask4,
    call1,
    call2,
    call3,
    call5,
    compiled,
    integers,
    numbers,
    room,
    scratch,
)
from parityscope.forecast._observing import added
from parityscope.forecast.observing import ALONE, COUNTS, DIMENSIONS, ENDS, PART, PARTS, SUMS, WIDTH, WORK

if TYPE_CHECKING:
    import numpy as np

__all__ = ["compute", "part"]

_BLOCK = 2048  # elements, chosen: four of them are 32 KiB
_ROUNDS, _ADDRESS, _STEP, _AXES, _STATE = 7, 8, 9, 10, 11
# Of the work of all threads: state, elements, parts, addresses of r, e and f, rank; then the dimensions of f, and how far
# apart neighbours lie in r and e along each.
_RANK, _LENGTHS, _APART, _ALL = 6, 8, 16, 24


@compiled
def _gathered(job: np.ndarray, source: int, first: int, count: int, target: np.ndarray) -> None:
    rank = job[_RANK]
    last = job[_LENGTHS + rank - 1]
    apart = job[_APART + rank - 1]
    done = 0
    while done < count:
        row, column = (first + done) // last, (first + done) % last
        offset = column * apart
        for axis in range(rank - 2, -1, -1):
            offset += row % job[_LENGTHS + axis] * job[_APART + axis]
            row //= job[_LENGTHS + axis]
        length = min(count - done, last - column)
        held = carray(numbers(source + 4 * offset), (1 + (length - 1) * apart,))
        for index in range(length):
            target[done + index] = held[index * apart]
        done += length


def part(work: int, index: int) -> None:
    """One of several stretches."""
    job = carray(integers(work), (_ALL,))
    state = carray(integers(job[0]), (_STATE,))
    start, stop = job[1] * index // job[2], job[1] * (index + 1) // job[2]
    held, at = scratch(), carray(integers(room()), (4,))
    row = state[_ADDRESS] + 8 * WIDTH * index
    for first in range(start, stop, _BLOCK):
        count = min(_BLOCK, stop - first)
        r, e = carray(numbers(held), (count,)), carray(numbers(held + 4 * _BLOCK), (count,))
        _gathered(job, job[3], first, count, r)
        _gathered(job, job[4], first, count, e)
        at[0], at[1], at[3] = held, held + 4 * _BLOCK, job[5] + 4 * first
        at[2] = held + 8 * _BLOCK if state[_ROUNDS] else at[1]
        added(at, row, state, state[_ROUNDS], 1, first, count)
        at[3] = at[1]
        added(at, row + 8 * WIDTH * PARTS, state, state[_ROUNDS], 1, first, count)


@compiled
def _tensor(api: np.ndarray, context: int, index: int, dimensions: int) -> tuple[int, int]:
    """Address and rank of an input, whose dimensions are written to `dimensions`."""
    value = ask2(api[0], (context, index))
    facts = ask1(api[3], (value,))
    rank = ask1(api[4], (facts,))
    call3(api[5], (facts, dimensions, rank))
    call1(api[7], (facts,))
    return ask1(api[2], (value,)), rank


@compiled
def _agree(job: np.ndarray, state: np.ndarray, lengths: np.ndarray, others: np.ndarray) -> bool:
    """Whether f is what is left of r and of e, and where it lies in them; `lengths` are r's dimensions, `others` e's."""
    rank, apart = job[_RANK], 1
    for back in range(1, rank + 1):
        axis = rank - back
        step = state[_STEP] if state[_AXES] >> back & 1 else 1
        if job[_LENGTHS + axis] != (lengths[axis] + step - 1) // step or lengths[axis] != others[axis]:
            return False
        job[_APART + axis] = apart * step
        apart *= lengths[axis]
        job[1] *= job[_LENGTHS + axis]
    return True


def compute(held: int, context: int) -> int:
    """The kernel: `held` is the address of the state, `context` ONNX Runtime's. Gives a status, 0 for success.

    Its output is a number to wait for.
    """
    state = carray(integers(held), (_STATE,))
    api = carray(integers(state[0]), (16,))
    work, first, second, third = room(), room(), room(), room()
    job, lengths = carray(integers(work), (_ALL,)), carray(integers(first), (64,))
    others, left = carray(integers(second), (64,)), carray(integers(third), (64,))
    job[3], rank = _tensor(api, context, 0, first)
    job[4], other = _tensor(api, context, 1, second)
    job[5], thin = _tensor(api, context, 2, third)
    job[0], job[1], job[_RANK] = held, 1, rank
    agree = rank == other == thin and 0 < rank <= DIMENSIONS
    if agree:
        for axis in range(rank):
            job[_LENGTHS + axis] = left[axis]
        agree = _agree(job, state, lengths, others)
    for row in range(2):
        place = state[_ADDRESS] + 8 * (row * WIDTH * PARTS + SUMS + COUNTS + ENDS + WORK)
        shape = carray(integers(place), (2 + DIMENSIONS,))
        shape[0], shape[1] = job[1] if agree else -1, rank
    lengths[0] = 1
    token = carray(numbers(ask1(api[2], (ask4(api[1], (context, 0, first, 1)),))), (1,))
    token[0] = 0
    job[2] = 1 if job[1] < ALONE else min(job[1] // PART, PARTS)
    if not agree or job[1] == 0:
        return 0
    if job[2] == 1:
        call2(state[1], (work, 0))
    else:
        call5(api[8], (context, state[1], job[2], 0, work))
    return 0
