"""The compiled operators that measure a tensor inside the session in which it is computed.

`Observe` takes the reference's tensor r and what the simulation computed, e; it rounds e to what the simulation stores, c,
gives that back, and adds what r and c (and f, what the reference computes of the simulation's inputs) differ by to its
accumulators. All of it happens block by block while the block is in the cache, and no tensor has to be kept.
`_pass.measure_block` defines the numbers.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from parityscope.backends._operators._calls import (
    ask1,
    ask2,
    ask4,
    bits,
    call1,
    call2,
    call3,
    call5,
    compiled,
    doubles,
    integers,
    numbers,
    room,
    through_half,
)
from parityscope.backends._operators._rounding import ANY, HALF, format_of, round_block
from parityscope.forecast._one_by_one import reassociated
from parityscope.forecast._pass import BLOCK, measure_block, settle_block
from parityscope.forecast.observing import ALONE, COUNTS, DIMENSIONS, ENDS, PART, PARTS, SUMS, WIDTH, WORK

__all__ = ["added", "compute", "part"]

# Behind the numbers of `Round`: what is done, where the accumulators are.
_SPLIT, _ROUNDS, _ADDRESS, _STATE = 7, 8, 9, 10
_THIRD = 2  # f is the third input, and not e
_MAGNITUDE_64, _MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF), np.uint32(0x7FFF_FFFF)
_ONE, _ALL = np.uint32(1), np.uint32(0xFFFF_FFFF)
_INFINITY, _QUIET = np.uint32(0x7F80_0000), np.uint32(0x0040_0000)


@reassociated
def _to_half(r: np.ndarray, e: np.ndarray, f: np.ndarray, c: np.ndarray, work: np.ndarray) -> np.int64:
    """Rounds bits of float32 to float16 and sums up: `_rounding` and `_pass._all_sums` in one loop."""
    e2 = r2 = d2 = h2 = 0.0
    worst = np.int64(0)
    largest, smallest, zeros = np.uint32(0), _ALL, np.uint32(0)
    for i in range(r.shape[0]):
        rounded = through_half(e[i])
        c[i] = rounded
        wide, exact = np.float64(np.uint32(r[i]).view(np.float32)), np.float64(np.uint32(f[i]).view(np.float32))
        stored = np.float64(np.uint32(rounded).view(np.float32))
        x, d, h = stored - wide, stored - exact, exact - wide
        e2 += x * x
        r2 += wide * wide
        d2 += d * d
        h2 += h * h
        worst = max(worst, np.float64(x).view(np.int64) & _MAGNITUDE_64)
        magnitude = np.uint32(r[i] & _MAGNITUDE)
        largest = np.uint32(max(largest, magnitude))
        smallest = np.uint32(min(smallest, np.uint32(magnitude - _ONE)))
        zeros = np.uint32(zeros + np.uint32(magnitude == 0))
    work[0], work[1], work[2], work[3] = e2, r2, d2, h2
    work[4], work[5], work[6] = largest, smallest, zeros
    return worst


@reassociated
def _in_range(
    r: np.ndarray, e: np.ndarray, f: np.ndarray, c: np.ndarray, dropped: np.uint32, work: np.ndarray
) -> np.int64:
    """The same for formats with float32's range, as `_rounding._in_range` rounds to them."""
    half = np.uint32((_ONE << np.uint32(dropped - _ONE)) - _ONE)
    kept = np.uint32(~np.uint32((_ONE << dropped) - _ONE))
    e2 = r2 = d2 = h2 = 0.0
    worst = np.int64(0)
    largest, smallest, zeros = np.uint32(0), _ALL, np.uint32(0)
    for i in range(r.shape[0]):
        number = e[i]
        rounded = np.uint32(np.uint32(number + half + np.uint32((number >> dropped) & _ONE)) & kept)
        rounded = np.uint32(number | _QUIET) if np.uint32(number & _MAGNITUDE) > _INFINITY else rounded
        c[i] = rounded
        wide, exact = np.float64(np.uint32(r[i]).view(np.float32)), np.float64(np.uint32(f[i]).view(np.float32))
        stored = np.float64(np.uint32(rounded).view(np.float32))
        x, d, h = stored - wide, stored - exact, exact - wide
        e2 += x * x
        r2 += wide * wide
        d2 += d * d
        h2 += h * h
        worst = max(worst, np.float64(x).view(np.int64) & _MAGNITUDE_64)
        magnitude = np.uint32(r[i] & _MAGNITUDE)
        largest = np.uint32(max(largest, magnitude))
        smallest = np.uint32(min(smallest, np.uint32(magnitude - _ONE)))
        zeros = np.uint32(zeros + np.uint32(magnitude == 0))
    work[0], work[1], work[2], work[3] = e2, r2, d2, h2
    work[4], work[5], work[6] = largest, smallest, zeros
    return worst


@compiled
def added(at: np.ndarray, row: int, state: np.ndarray, rounds: int, split: int, first: int, count: int) -> None:
    """Rounds e to c as `state` says if `rounds`, and adds a block to the accumulators at the address `row`.

    `at` are the addresses of r, e, c (that of e without `rounds`) and f; `split` is not 0 if f is wanted.
    """
    sums = carray(doubles(row), (SUMS,))
    counts = carray(integers(row + 8 * SUMS), (COUNTS,))
    ends = carray(integers(row + 8 * (SUMS + COUNTS)), (ENDS,))
    work = carray(doubles(row + 8 * (SUMS + COUNTS + ENDS)), (WORK,))
    r, c, f = carray(numbers(at[0]), (count,)), carray(numbers(at[2]), (count,)), carray(numbers(at[3]), (count,))
    if not rounds:
        measure_block(r, c, f, split, 1, first, sums, counts, ends, work)
        return
    e, kept = carray(bits(at[1]), (count,)), carray(bits(at[2]), (count,))
    way = format_of(state)
    if split and way != ANY:
        given, exact = carray(bits(at[0]), (count,)), carray(bits(at[3]), (count,))
        if way == HALF:
            largest = _to_half(given, e, exact, kept, work)
        else:
            largest = _in_range(given, e, exact, kept, np.uint32(state[2]), work)
        settle_block(r, c, f, 1, 1, first, largest, sums, counts, ends, work)
    else:
        round_block(e, kept, state)
        measure_block(r, c, f, split, 1, first, sums, counts, ends, work)


@compiled
def _measure(job: np.ndarray, state: np.ndarray, index: int) -> None:
    start, stop = job[4] * index // job[5], job[4] * (index + 1) // job[5]
    row = state[_ADDRESS] + 8 * WIDTH * index
    at = carray(integers(room()), (4,))
    for first in range(start, stop, BLOCK):
        at[0], at[1] = job[0] + 4 * first, job[1] + 4 * first
        at[2] = job[3] + 4 * first if state[_ROUNDS] else at[1]
        at[3] = job[2] + 4 * first if state[_SPLIT] == _THIRD else at[1]
        added(at, row, state, state[_ROUNDS], state[_SPLIT], first, min(BLOCK, stop - first))


def part(work: int, index: int) -> None:
    """One of several stretches; `work` holds r, e, f, c, elements, stretches and the operator's state."""
    job = carray(integers(work), (7,))
    _measure(job, carray(integers(job[6]), (_STATE,)), index)


@compiled
def _length(api: np.ndarray, value: int, dimensions: int) -> tuple[int, int]:
    """Elements and rank of a tensor, whose dimensions are written to `dimensions`."""
    facts = ask1(api[3], (value,))
    rank = ask1(api[4], (facts,))
    call3(api[5], (facts, dimensions, rank))
    count = ask1(api[6], (facts,))
    call1(api[7], (facts,))
    return count, rank


@compiled
def _passed(source: int, target: int, count: int) -> None:
    """Copies a tensor that is given back as it came, where the runtime did not let both be the same memory."""
    if source != target:
        taken, given = carray(bits(source), (count,)), carray(bits(target), (count,))
        for index in range(count):
            given[index] = taken[index]


def compute(held: int, context: int) -> int:
    """The kernel: `held` is the address of the state, `context` ONNX Runtime's. Gives a status, 0 for success.

    Its outputs are c, and r as it came: what the reference computes next is computed next, and not before.
    """
    state = carray(integers(held), (_STATE,))
    api = carray(integers(state[0]), (16,))
    work, first, second, third = room(), room(), room(), room()
    job = carray(integers(work), (7,))
    reference, candidate = ask2(api[0], (context, 0)), ask2(api[0], (context, 1))
    job[0], job[1] = ask1(api[2], (reference,)), ask1(api[2], (candidate,))
    job[4], rank = _length(api, reference, first)
    count, other = _length(api, candidate, second)
    agree = count == job[4]
    if state[_SPLIT] == _THIRD:
        replayed = ask2(api[0], (context, 2))
        job[2] = ask1(api[2], (replayed,))
        agree = agree and _length(api, replayed, third)[0] == job[4]
    passed = ask1(api[2], (ask4(api[1], (context, 1, first, rank)),))
    _passed(job[0], passed, job[4])
    job[3] = ask1(api[2], (ask4(api[1], (context, 0, second, other)),))
    if not state[_ROUNDS]:
        _passed(job[1], job[3], count)
    shape = carray(integers(state[_ADDRESS] + 8 * (SUMS + COUNTS + ENDS + WORK)), (2 + DIMENSIONS,))
    lengths = carray(integers(first), (DIMENSIONS,))
    shape[0] = job[4] if agree else -1
    shape[1] = rank
    for index in range(min(rank, DIMENSIONS)):
        shape[2 + index] = lengths[index]
    job[6] = held
    job[5] = 1 if job[4] < ALONE else min(job[4] // PART, PARTS)
    if state[_SPLIT] < 0:
        return 0  # another shape of a tensor that is measured
    if not agree:
        _rounded(job, state, count)
    elif job[5] == 1:
        call2(state[1], (work, 0))
    else:
        call5(api[8], (context, state[1], job[5], 0, work))
    return 0


@compiled
def _rounded(job: np.ndarray, state: np.ndarray, count: int) -> None:
    """Rounds without measuring: the reference's tensor is of another size."""
    if state[_ROUNDS]:
        round_block(carray(bits(job[1]), (count,)), carray(bits(job[3]), (count,)), state)
