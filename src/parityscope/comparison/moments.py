"""The sums over a pair of tensors that metrics are computed from: what they are, and both loops that add them up.

One more sum is a field here, with the power of a value that it is a sum of, and a line in each of the two loops, in the order
of the fields; nothing else names them. `_kernel` compiles `loop_over_moments`, `_plain_kernel` calls `add_moments` where numba
is not worth loading.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parityscope.light_dataclasses import dataclass, field, fields


def _sum_of(power: int) -> Any:  # a dataclass's field, whose type is that of its value
    return field(default=0.0, metadata={"power": power})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Float64 sums over the pairs whose values are both finite; r the reference, c the candidate, e = c - r.

    Values were divided by 2^exponent first: sums of values are in that unit, sums of squares in its square. It is 0
    for everything but float64 tensors with magnitudes beyond 2^100 or all below 2^-100.
    """

    error: float = _sum_of(1)
    abs_error: float = _sum_of(1)
    error2: float = _sum_of(2)
    reference: float = _sum_of(1)
    candidate: float = _sum_of(1)
    reference2: float = _sum_of(2)
    candidate2: float = _sum_of(2)
    product: float = _sum_of(2)
    exponent: int = 0

    def at(self, exponent: int) -> Moments:
        """The same sums in the unit 2^exponent."""
        steps = self.exponent - exponent
        sums = {name: scale_by_power(getattr(self, name), power * steps) for name, power in _POWERS.items()}
        return Moments(exponent=exponent, **sums)

    @property
    def holds_values(self) -> bool:
        """Whether anything but zeros was added up."""
        return self.reference2 > 0 or self.candidate2 > 0


_POWERS: dict[str, int] = {one.name: one.metadata["power"] for one in fields(Moments) if one.metadata}
SUMS = len(_POWERS)


def add_moments(r: np.ndarray, c: np.ndarray, e: np.ndarray, sums: np.ndarray) -> None:
    """Adds up three float64 rows, (n,), of finite values; `sums`: float64, (SUMS,), in the order of the fields."""
    sums[0] += e.sum()
    sums[1] += np.abs(e).sum()
    sums[2] += (e * e).sum()
    sums[3] += r.sum()
    sums[4] += c.sum()
    sums[5] += (r * r).sum()
    sums[6] += (c * c).sum()
    sums[7] += (r * c).sum()


def loop_over_moments(reference: np.ndarray, candidate: np.ndarray, error: np.ndarray, sums: np.ndarray) -> None:
    """`add_moments` as a loop to be compiled. Each sum is a number of its own, which stays in a register."""
    e1 = a1 = e2 = r1 = c1 = r2 = c2 = rc = 0.0
    for i in range(error.shape[0]):
        r = reference[i]
        c = candidate[i]
        e = error[i]
        e1 += e
        a1 += abs(e)
        e2 += e * e
        r1 += r
        c1 += c
        r2 += r * r
        c2 += c * c
        rc += r * c
    sums[0] += e1
    sums[1] += a1
    sums[2] += e2
    sums[3] += r1
    sums[4] += c1
    sums[5] += r2
    sums[6] += c2
    sums[7] += rc


def read_moments(sums: np.ndarray, exponent: int) -> Moments:
    """What the loops added up, of values that were divided by 2^exponent."""
    return Moments(exponent=exponent, **dict(zip(_POWERS, map(float, sums), strict=True)))


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Sums over both, in the larger unit of those that hold anything but zeros."""
    unit = max((moments.exponent for moments in (first, second) if moments.holds_values), default=0)
    one, two = first.at(unit), second.at(unit)
    return Moments(exponent=unit, **{name: getattr(one, name) + getattr(two, name) for name in _POWERS})


def scale_by_power(value: float, exponent: int) -> float:
    """Gives value * 2^exponent; infinite where float64 ends."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
