"""Loops that the kernels share: numbers told apart by their bits, and the squares of a block added to its channels.

What `_kernel` says of compiling holds here too.
"""

from __future__ import annotations

import numpy as np

from parityscope.compiling import compile_loop

MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
NONFINITE = np.int64(0x7FF0_0000_0000_0000)  # all bits of the exponent set
_SHORT = 16  # runs below this length cost more to cut out than to sum one by one (measured)


@compile_loop()
def largest_bits(bits: np.ndarray) -> np.int64:
    """The bits of the largest magnitude of int64 (n,), which order like magnitudes; from `NONFINITE` on one is not finite."""
    largest = np.int64(0)
    for i in range(bits.shape[0]):
        largest = max(largest, bits[i] & MAGNITUDE)
    return largest


@compile_loop()
def first_with(bits: np.ndarray, wanted: np.int64) -> int:
    """The first index at which the bits of the magnitude, int64 (n,), are `wanted`; -1 where none are."""
    for i in range(bits.shape[0]):
        if bits[i] & MAGNITUDE == wanted:
            return i
    return -1


@compile_loop()
def is_nonfinite(bits: np.int64) -> np.bool:
    """Whether the bits of a float64 are those of NaN or of an infinity."""
    return (bits & MAGNITUDE) >= NONFINITE


@compile_loop()
def agree_nonfinite(one: np.int64, other: np.int64) -> np.bool | bool:
    """Whether two non-finite values are the same infinity or both NaN (of any payload)."""
    return one == other or ((one & MAGNITUDE) > NONFINITE and (other & MAGNITUDE) > NONFINITE)


@compile_loop(reassociate=True)
def _square_sum(values: np.ndarray) -> float:
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i] * values[i]
    return total


@compile_loop()
def _add_squares(values: np.ndarray, totals: np.ndarray) -> None:
    for i in range(values.shape[0]):
        totals[i] += values[i] * values[i]


@compile_loop()
def add_channels(error: np.ndarray, reference: np.ndarray, first: int, inner: int, squares: np.ndarray) -> None:
    """Adds squares of a block that starts at flat index `first` to its channels: errors to row 0, reference to 1."""
    channels = squares.shape[1]
    n = error.shape[0]
    done = 0
    channel = (first // inner) % channels
    run = inner - first % inner
    if inner == 1 and channels >= _SHORT:  # channels lie side by side: the inner loop runs over channels
        while done < n:
            run = min(n - done, channels - channel)
            _add_squares(error[done : done + run], squares[0, channel : channel + run])
            _add_squares(reference[done : done + run], squares[1, channel : channel + run])
            done += run
            channel = 0
    elif inner >= _SHORT:
        while done < n:
            end = min(n, done + run)
            squares[0, channel] += _square_sum(error[done:end])
            squares[1, channel] += _square_sum(reference[done:end])
            done = end
            run = inner
            channel = channel + 1 if channel + 1 < channels else 0
    else:
        for i in range(n):
            add_scattered(error[i], reference[i], channel, squares)
            run -= 1
            if run == 0:
                run = inner
                channel = channel + 1 if channel + 1 < channels else 0


@compile_loop()
def add_scattered(error: float, reference: float, channel: int, squares: np.ndarray) -> None:
    """Adds the squares of one element to its channel of `squares`, float64 (2, channels): errors to row 0, reference to 1."""
    squares[0, channel] += error * error
    squares[1, channel] += reference * reference
