"""The compiled operator `Chain`: a stretch of pointwise nodes on both sides, each rounded and measured while in the cache.

What `programs` says is done for a block of elements at a time. Only what is read elsewhere is written to memory; all else
of the chain, up to a dozen tensors of each side, never leaves the cache. Additions, products, quotients, minima and maxima
of float32 are those of ONNX Runtime's own kernels, bit for bit (IEEE 754; tests compare them).
"""

from __future__ import annotations

import numpy as np
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
from parityscope.forecast._pointwise_kernels import with_number, with_tensor
from parityscope.forecast.observing import ALONE, COUNTS, DIMENSIONS, ENDS, PART, PARTS, SUMS, WIDTH, WORK
from parityscope.forecast.programs import HEADER, INPUTS, OPERAND, STEP, STEPS

__all__ = ["compute", "part"]

_BLOCK = 2048  # elements, chosen: with all slots of both sides 56 KiB, most of which is in the L1 cache
_STATE, _PROGRAM = 8, 7
_THIRD = 2  # f is computed, and not e
_CLIP = 9  # `programs.Code`: this and later ones are computed with numbers alone
# Of the work of all threads: state, elements, parts; then of each operand its address, how many numbers it has (0: as many
# as the tensor) and for how many elements each of them holds; then addresses of outputs.
_JOB, _PLACE = 3, 3
_OUTPUTS = _JOB + _PLACE * INPUTS
_ALL = _OUTPUTS + 2 * STEPS
_PAD = 320  # bytes between blocks, chosen: addresses alike in their last 12 bits would wait for each other
_ALWAYS = 1 << 62  # a number that is the same for all elements
_FAILED = 1  # ORT_FAIL


@compiled
def _number(address: int, size: int, each: int, element: int) -> np.float32:
    """What an operand is at an element."""
    at = 0 if size == 1 else element // each % size
    return np.float32(carray(numbers(address), (size,))[at])


@compiled
def _computed(code: int, a: int, b: int, d: int, first: int, count: int, job: np.ndarray, out: int) -> None:
    """One node on one side: `a` is an address, `b` and `d` are operands, or for a tensor of the chain -1 - its address."""
    if b < 0:
        block = carray(numbers(-1 - b), (count,))
        with_tensor(code, carray(numbers(a), (count,)), block, carray(numbers(out), (count,)))
        return
    at = _JOB + _PLACE * b
    address, size, each = job[at], job[at + 1], job[at + 2]
    other = _JOB + _PLACE * d
    alike = each > 1 or size == 1 or code >= _CLIP
    done = 0
    while done < count:
        element = first + done
        if size == 1:
            stop = count
        elif alike:
            stop = min(count, done + each - element % each)
        else:
            stop = min(count, done + size - element % size)
        length = stop - done
        x, y = carray(numbers(a + 4 * done), (length,)), carray(numbers(out + 4 * done), (length,))
        if alike:
            number = _number(address, size, each, element)
            second = _number(job[other], job[other + 1], job[other + 2], element) if d >= 0 else number
            with_number(code, x, number, second, y)
        else:
            with_tensor(code, x, carray(numbers(address + 4 * (element % size)), (length,)), y)
        done = stop


@compiled
def _place(read: int, side: int, first: int, places: np.ndarray, job: np.ndarray) -> int:
    """Where input a of a step is: an address."""
    return int(places[2 * read + side]) if read >= 0 else int(job[_JOB + _PLACE * (-2 - read)]) + 4 * first


@compiled
def _second(read: int, side: int, first: int, places: np.ndarray, job: np.ndarray) -> int:
    """Where input b or d of a step is, as `_computed` takes it."""
    if read >= 0:
        return -1 - int(places[2 * read + side])
    operand = -2 - read
    if operand >= 0 and job[_JOB + _PLACE * operand + 1] == 0:
        return -1 - (int(job[_JOB + _PLACE * operand]) + 4 * first)
    return operand


@compiled
def _side(
    step: np.ndarray, at: int, side: int, first: int, count: int, places: np.ndarray, job: np.ndarray, out: int
) -> None:
    """Computes a step on one side; `at` is where it names its inputs."""
    a = _place(step[at], side, first, places, job)
    b = _second(step[at + 1], side, first, places, job)
    d = -1 if step[at + 2] == -1 else _second(step[at + 2], side, first, places, job)
    _computed(step[0], a, b, d, first, count, job, out)


def part(work: int, index: int) -> None:
    """One of several stretches."""
    job = carray(integers(work), (_ALL,))
    state = carray(integers(job[0]), (_STATE,))
    head = carray(integers(state[_PROGRAM]), (HEADER,))
    steps = carray(integers(state[_PROGRAM] + 8 * (HEADER + OPERAND * head[0])), (head[1], STEP))
    start, end = job[1] * index // job[2], job[1] * (index + 1) // job[2]
    places = carray(integers(room()), (2 * STEPS,))
    at = carray(integers(room()), (4,))
    held = scratch()
    bytes_ = 4 * _BLOCK + _PAD
    for first in range(start, end, _BLOCK):
        count = min(_BLOCK, end - first)
        for number in range(head[1]):
            step = steps[number]
            slot = held + (2 + 2 * step[13]) * bytes_
            c = job[_OUTPUTS + step[14]] + 4 * first if step[14] >= 0 else slot
            r = job[_OUTPUTS + step[15]] + 4 * first if step[15] >= 0 else slot + bytes_
            e = held if step[10] else c
            f = held + bytes_
            if step[0] == 0:
                r = _place(step[1], 0, first, places, job)
                e = _place(step[4], 1, first, places, job)
                c = c if step[10] else e
                f = _place(step[7], 1, first, places, job) if step[11] == _THIRD else e
            else:
                _side(step, 1, 0, first, count, places, job, r)
                _side(step, 4, 1, first, count, places, job, e)
                if step[11] == _THIRD:
                    _side(step, 7, 1, first, count, places, job, f)
                else:
                    f = e
            at[0], at[1], at[2], at[3] = r, e, c, f
            added(at, step[12] + 8 * WIDTH * index, state, step[10], step[11], first, count)
            places[2 * number], places[2 * number + 1] = r, c


@compiled
def _shape(api: np.ndarray, value: int, dimensions: int) -> int:
    """The rank of a tensor, whose dimensions are written to `dimensions`."""
    facts = ask1(api[3], (value,))
    rank = ask1(api[4], (facts,))
    call3(api[5], (facts, dimensions, rank))
    call1(api[7], (facts,))
    return int(rank)


@compiled
def _spread(own: np.ndarray, rank: int, main: np.ndarray, of: int, place: np.ndarray) -> bool:
    """How a tensor of dimensions `own` lies under one of `main`, see `_JOB`; whether it does so along one run of axes."""
    if rank > of:
        return False
    size, each, ended, same = 1, 1, False, rank == of
    for back in range(1, of + 1):
        mine = own[rank - back] if back <= rank else 1
        whole = main[of - back]
        if mine == whole and not ended:
            size *= mine
        elif mine == 1:
            same = False
            if size == 1:
                each *= whole
            else:
                ended = True
        else:
            return False
    place[1], place[2] = (0, 1) if same else (size, each if size > 1 else _ALWAYS)
    return True


@compiled
def _opened(state: np.ndarray, context: int, job: np.ndarray, lengths: int) -> int:
    """Finds the operands; gives the tensors' rank, or -1 where they are not of the shapes that the chain was made for."""
    api = carray(integers(state[0]), (16,))
    head = carray(integers(state[_PROGRAM]), (HEADER,))
    operands = carray(integers(state[_PROGRAM] + 8 * HEADER), (head[0], OPERAND))
    own, main = room(), carray(integers(lengths), (64,))
    rank = 0
    for number in range(head[0]):
        operand = operands[number]
        place = job[_JOB + _PLACE * number : _JOB + _PLACE * (number + 1)]
        if operand[0] >= 0:
            value = ask2(api[0], (context, operand[0]))
            place[0] = ask1(api[2], (value,))
            if number == 0:
                rank = _shape(api, value, lengths)
                place[1], place[2] = 0, 1
            elif not _spread(carray(integers(own), (64,)), _shape(api, value, own), main, rank, place):
                return -1
            if operand[3] and place[1]:
                return -1
            continue
        each = 1 if operand[2] > 1 else _ALWAYS
        for back in range(1, min(operand[3], rank) + 1 if operand[2] > 1 else 1):
            each *= main[rank - back]
        place[0], place[1], place[2] = operand[1], operand[2], each
        if operand[2] > 1 and (operand[3] >= rank or main[rank - 1 - operand[3]] != operand[2]):
            return -1
    return rank


def compute(held: int, context: int) -> int:
    """The kernel: `held` is the address of the state, `context` ONNX Runtime's. Gives a status, 0 for success."""
    state = carray(integers(held), (_STATE,))
    api = carray(integers(state[0]), (16,))
    head = carray(integers(state[_PROGRAM]), (HEADER,))
    steps = carray(integers(state[_PROGRAM] + 8 * (HEADER + OPERAND * head[0])), (head[1], STEP))
    work, lengths = scratch(), room()
    job, main = carray(integers(work), (_ALL,)), carray(integers(lengths), (64,))
    rank = _opened(state, context, job, lengths)
    if rank < 0:
        return int(call2(api[9], (_FAILED, head[3])))
    job[0] = held
    count = 1
    for axis in range(rank):
        count *= main[axis]
    job[1] = count
    job[2] = 1 if count < ALONE else min(count // PART, PARTS)
    for number in range(head[2]):
        job[_OUTPUTS + number] = ask1(api[2], (ask4(api[1], (context, number, lengths, rank)),))
    for number in range(head[1]):
        shape = carray(integers(steps[number, 12] + 8 * (SUMS + COUNTS + ENDS + WORK)), (2 + DIMENSIONS,))
        shape[0], shape[1] = count, rank
        for axis in range(min(rank, DIMENSIONS)):
            shape[2 + axis] = main[axis]
    if job[2] == 1:
        call2(state[1], (work, 0))
    else:
        call5(api[8], (context, state[1], job[2], 0, work))
    return 0
