"""The compiled operator `Round`: float32 rounded to a narrower format, to nearest even, in one pass over memory.

float16 is left to the processor's conversions. Otherwise half of the last kept place, less one if that place is even, is
added to the integer that holds the number, and what lies below the last place is cleared; the carry goes into the
exponent as IEEE 754 wants (section 4.3). Below a format's smallest normal number a power of two is added whose last place
is its smallest subnormal, and taken off again: that addition rounds. NaN stays NaN.
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
    integers,
    room,
    through_half,
)

__all__ = ["ANY", "HALF", "IN_RANGE", "compute", "format_of", "part", "round_block"]

ANY, HALF, IN_RANGE = 0, 1, 2  # ways to round

_MAGNITUDE, _SIGN = np.uint32(0x7FFF_FFFF), np.uint32(0x8000_0000)
_INFINITY, _QUIET = np.uint32(0x7F80_0000), np.uint32(0x0040_0000)
_ONE = np.uint32(1)
_HALF_DROPPED, _HALF_TINY = np.uint32(13), np.uint32(0x3880_0000)  # of float16: 24 - 11 bits, 2^-14
_ALONE = 1 << 16  # elements, chosen: up to 256 KiB one thread is done sooner than others are woken
_MOST_PARTS = 16  # chosen: more than enough for the threads of one operator
_PART = 1 << 15  # elements, chosen: half of what one thread does alone


@compiled
def _to_half(source: np.ndarray, target: np.ndarray) -> None:
    """float16, by the processor's own conversions."""
    for index in range(source.shape[0]):
        target[index] = through_half(source[index])


@compiled
def _in_range(source: np.ndarray, target: np.ndarray, dropped: np.uint32) -> None:
    """Formats with float32's range: there are no subnormal numbers of their own, and the carry overflows to infinity."""
    half = np.uint32((_ONE << np.uint32(dropped - _ONE)) - _ONE)
    kept = np.uint32(~np.uint32((_ONE << dropped) - _ONE))
    for index in range(source.shape[0]):
        number = source[index]
        found = np.uint32(np.uint32(number + half + np.uint32((number >> dropped) & _ONE)) & kept)
        target[index] = np.uint32(number | _QUIET) if np.uint32(number & _MAGNITUDE) > _INFINITY else found


@compiled
def _any(
    source: np.ndarray,
    target: np.ndarray,
    dropped: np.uint32,
    tiny: np.uint32,
    step: np.uint32,
    largest: np.uint32,
    beyond: np.uint32,
) -> None:
    half = np.uint32((_ONE << np.uint32(dropped - _ONE)) - _ONE)
    kept = np.uint32(~np.uint32((_ONE << dropped) - _ONE))
    offset = np.uint32(step).view(np.float32)
    for index in range(source.shape[0]):
        number = source[index]
        magnitude = np.uint32(number & _MAGNITUDE)
        found = np.uint32(np.uint32(magnitude + half + np.uint32((magnitude >> dropped) & _ONE)) & kept)
        small = np.float32(np.float32(magnitude.view(np.float32) + offset) - offset)
        found = np.float32(small).view(np.uint32) if magnitude < tiny else found
        found = beyond if found > largest else found
        found = np.uint32(magnitude | _QUIET) if magnitude > _INFINITY else found
        target[index] = np.uint32(found | np.uint32(number & _SIGN))


@compiled
def format_of(state: np.ndarray) -> int:
    """Which of the ways below rounds to the format of `state`."""
    if np.uint32(state[2]) == _HALF_DROPPED and np.uint32(state[3]) == _HALF_TINY:
        return HALF
    return IN_RANGE if state[3] == 0 and np.uint32(state[6]) == _INFINITY else ANY


@compiled
def round_block(source: np.ndarray, target: np.ndarray, state: np.ndarray) -> None:
    """Rounds bits of float32, both (n,), as `state` says (see `_operators.rounding`)."""
    dropped, tiny, step = np.uint32(state[2]), np.uint32(state[3]), np.uint32(state[4])
    way = format_of(state)
    if way == HALF:
        _to_half(source, target)
    elif way == IN_RANGE:
        _in_range(source, target, dropped)
    else:
        _any(source, target, dropped, tiny, step, np.uint32(state[5]), np.uint32(state[6]))


def part(work: int, index: int) -> None:
    """Rounds one of several stretches; `work` holds source, target, elements, stretches and the operator's state."""
    job = carray(integers(work), (5,))
    state = carray(integers(job[4]), (7,))
    start, stop = job[2] * index // job[3], job[2] * (index + 1) // job[3]
    round_block(
        carray(bits(job[0] + 4 * start), (stop - start,)),
        carray(bits(job[1] + 4 * start), (stop - start,)),
        state,
    )


def compute(held: int, context: int) -> int:
    """The kernel: `held` is the address of the state, `context` ONNX Runtime's. Gives a status, 0 for success."""
    state = carray(integers(held), (7,))
    api = carray(integers(state[0]), (16,))
    value = ask2(api[0], (context, 0))
    facts = ask1(api[3], (value,))
    rank = ask1(api[4], (facts,))
    dimensions = room()
    call3(api[5], (facts, dimensions, rank))
    work = room()
    job = carray(integers(work), (5,))
    job[2] = ask1(api[6], (facts,))
    call1(api[7], (facts,))
    target = ask4(api[1], (context, 0, dimensions, rank))
    job[0] = ask1(api[2], (value,))
    job[1] = ask1(api[2], (target,))
    job[4] = held
    job[3] = 1 if job[2] < _ALONE else min(job[2] // _PART, _MOST_PARTS)
    if job[3] == 1:
        call2(state[1], (work, 0))
    else:
        call5(api[8], (context, state[1], job[3], 0, work))
    return 0
