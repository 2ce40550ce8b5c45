"""Rounding of what a step gives, fast: float32 numbers to a narrower format, still held in float32.

`arithmetic.rounding.round_to` is the definition (and does every mode, in float64 too); this is the same for float32, to
nearest even, about ten times as fast: integer arithmetic on the bits of the numbers, compiled into one pass of vector
instructions (`_rounding_kernel`), where that is worth loading (`loading`). Tests hold both against each other on every kind of
number.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from parityscope.arithmetic.formats import Format, format_named
from parityscope.arithmetic.rounding import Overflow, round_to
from parityscope.forking import kept_pool
from parityscope.light_dataclasses import dataclass
from parityscope.loading import pays_to_load

_INFINITY = np.uint32(0x7F80_0000)
_NAN = np.uint32(0x7FC0_0000)
_EMIN, _PRECISION = -126, 24  # of float32
_SHARED = 1 << 18  # elements, chosen: 1 MiB, from which a second thread gains more than handing over the work costs
_PLAIN_S = 1.5e-8  # of an element, by the definition: measured, as what follows
_PLAIN_CALL_S = 3e-5


@dataclass(frozen=True, slots=True)
class FloatRounding:
    """Rounds floats to `format` (a short name of `arithmetic.formats`), to nearest even; other dtypes pass unchanged.

    `overflow` says what becomes of numbers beyond the largest finite one (`arithmetic.rounding.Overflow`). Equal records
    round equally: worlds that share one share its results.
    """

    format: str
    overflow: Overflow = "infinity"

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A rounded copy, of the dtype and shape of `array`."""
        if array.dtype == np.float32:
            return round_float32(array, format_named(self.format), self.overflow)
        if array.dtype == np.float64:
            return round_to(array, format_named(self.format), overflow=self.overflow)
        return array


def round_float32(array: np.ndarray, number_format: Format, overflow: Overflow = "infinity") -> np.ndarray:
    """The numbers of `array` (float32, any shape) in `number_format`: a copy, by two threads where it is large."""
    if number_format.precision >= _PRECISION and number_format.emin <= _EMIN:
        return array.copy()
    if not pays_to_load(_PLAIN_CALL_S + _PLAIN_S * array.size):
        return round_to(array, number_format, overflow=overflow)
    from parityscope.evaluation._rounding_kernel import round_bits

    values = np.ascontiguousarray(array).reshape(-1)
    rounded = np.empty_like(values)
    shape = _shape_of(number_format, overflow)
    if values.size < _SHARED:
        round_bits(values, values.view(np.uint32), rounded.view(np.uint32), *shape)
    else:
        middle = values.size // 2
        halves = [slice(0, middle), slice(middle, None)]
        parts = [(values[part], values[part].view(np.uint32), rounded[part].view(np.uint32)) for part in halves]
        other = kept_pool("rounding", 1).submit(round_bits, *parts[1], *shape)
        round_bits(*parts[0], *shape)
        other.result()
    return rounded.reshape(array.shape)


@cache
def _shape_of(number_format: Format, overflow: Overflow) -> tuple[Any, ...]:
    """Bits dropped, bits of the smallest normal number, the smallest subnormal, bits of the largest and of what is beyond."""
    bits = [np.float32(number).view(np.uint32) for number in (number_format.smallest_normal, number_format.largest)]
    beyond = bits[1] if overflow == "saturate" else _INFINITY if number_format.infinities else _NAN
    # Where the format's exponents go down as far as float32's, subnormal numbers are rounded by their bits as well.
    smallest = bits[0] if number_format.emin > _EMIN else np.uint32(0)
    unit = np.float32(number_format.smallest_subnormal if smallest else 1.0)
    return np.uint32(_PRECISION - number_format.precision), smallest, unit, bits[1], beyond
