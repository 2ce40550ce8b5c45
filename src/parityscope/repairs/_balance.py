"""How far a tensor that overflows is scaled down: the middle of what is admissible, where weights behind it are too small.

Everything that takes part is proportional to the exponent e of the tensor: a constant or a tensor that goes with its r-th
power is 2^(r e) times as large. From the least exponent that brings the tensor into range one may go on until

* a constant that shrinks, or the tensor, is no longer a normal number of the format at its largest element;
* a constant that grows leaves the range.

A tensor that goes with the r-th power of the tensor is taken to be as large as the r-th power of it. The middle of that
interval of exponents is the geometric middle of the scales.

It is taken only where there is something to gain. Rounding a subnormal number is off by at most half of the smallest one,
u times the smallest normal number. Where the root mean square of a weight is below the smallest normal number, that is
more, relative to its typical element, than the unit roundoff u that normal numbers are rounded by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.repairs._editing import array_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.arithmetic import Format
    from parityscope.repairs._exponents import ExponentScaling

__all__ = ["balance_exponent"]


def balance_exponent(least: int, scaling: ExponentScaling, reached: float, number_format: Format) -> int:
    """The exponent to scale a tensor by: `least`, or one further below it.

    `scaling` is what scaling by 2^least takes, and `reached` the largest magnitude of the tensor as it stands.
    """
    if least >= 0 or not reached or not _too_small(scaling, number_format):
        return least
    floor, top = math.log2(number_format.smallest_normal), math.log2(number_format.largest)
    powers = [exponent / least for exponent in scaling.values.values() if exponent < 0]
    further = [math.log2(reached) + least - floor / power for power in powers]
    for size, exponent in _sizes_of_constants(scaling):
        now, power = math.log2(size) + exponent, exponent / least
        further.append((now - floor) / power if power > 0 else (top - now) / -power)
    # Every exponent of the segment stays an integer.
    step = -least // math.gcd(least, *scaling.values.values(), *scaling.constants.values())
    return least - step * max(0, math.floor(min(further) / 2 / step))


def _too_small(scaling: ExponentScaling, number_format: Format) -> bool:
    """Whether a typical element of a weight that grows is subnormal still."""
    for (node, (kind, position)), exponent in scaling.constants.items():
        array = array_of(node.inputs[int(position)]) if kind == "in" and exponent > 0 else None
        if array is not None and array.size:
            root_mean_square = math.sqrt(float(np.mean(array.astype(np.float64) ** 2)))
            if 0.0 < math.ldexp(root_mean_square, exponent) < number_format.smallest_normal:
                return True
    return False


def _sizes_of_constants(scaling: ExponentScaling) -> Iterator[tuple[float, int]]:
    """The largest magnitude of every constant and attribute that takes part (those that are not 0), and its exponent."""
    for (node, (kind, position)), exponent in scaling.constants.items():
        array = (
            array_of(node.inputs[int(position)])
            if kind == "in"
            else np.float64(node.attributes.get_float(str(position), DEFAULT_EPSILON))
        )
        size = 0.0 if array is None else float(np.abs(np.asarray(array, np.float64)).max(initial=0.0))
        if exponent and size:
            yield size, exponent
