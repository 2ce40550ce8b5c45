"""Residual regression: does a predicted error *vector* explain an introduced one? Pure arithmetic on float64 arrays.

With r = c - f(c_in) and p = f_h(c_in) - f(c_in) over all elements where c, f and f_h are finite:

    slope             <r, p> / <p, p>
    its error         sqrt(|r - slope p|^2 / (n - 1) / <p, p>)
    explained share   1 - |r - p|^2 / |r|^2            the slope held at one

What is left, r - p, is held against the FP32 noise sigma of every element. Per channel, sum (r - p)^2 / sum sigma^2 is a
mean of squares that behaves as chi-square over its degrees of freedom m = (sum sigma^2)^2 / sum sigma^4 (Satterthwaite).
The noise model may be low by a factor of `MARGIN`, so sigma is multiplied by it first. Which of many channels are above
the floor is decided by the procedure of Benjamini and Hochberg.

Sources: F. E. Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2,
1946; E. B. Wilson and M. M. Hilferty, "The distribution of chi-square", PNAS 17, 1931; Y. Benjamini and Y. Hochberg,
"Controlling the false discovery rate", Journal of the Royal Statistical Society B 57, 1995.
"""

from __future__ import annotations

import math

import numpy as np

from parityscope.light_dataclasses import dataclass

# How far the second-moment model may be low: summation orders between sequential and blocks of 16 differ by 2.2 to 4.1
# in root mean square, and a block order was found a third below (numerics notes); rms z above 3 is a bug's.
MARGIN = 3.0

# Standard errors within which two numbers are the same: two-sided 99.9 % of a normal.
CONFIDENCE = 3.29

# False discoveries among the channels called above the floor. Chosen: one in a hundred.
RATE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionLine:
    """How a predicted error fits an introduced one; slope and its error are NaN where nothing is predicted.

    `error2`, `left2`, `predicted2`: squared norms of r, of r - p and of p.
    """

    share: float
    slope: float
    slope_error: float
    error2: float
    left2: float
    predicted2: float


def regress_through_origin(error: np.ndarray, predicted: np.ndarray) -> RegressionLine:
    """The line through the origin. `error`, `predicted`: float64, (n,), finite."""
    error2, predicted2 = _sum_of_products(error, error), _sum_of_products(predicted, predicted)
    left = error - predicted
    left2 = _sum_of_products(left, left)
    share = 1.0 - left2 / error2 if error2 > 0 else (1.0 if left2 == 0 else -math.inf)
    if predicted2 == 0:
        return RegressionLine(
            share=share, slope=math.nan, slope_error=math.nan, error2=error2, left2=left2, predicted2=0.0
        )
    slope = _sum_of_products(error, predicted) / predicted2
    rest = error - slope * predicted
    spread = math.sqrt(_sum_of_products(rest, rest) / (error.size - 1) / predicted2) if error.size > 1 else math.inf
    return RegressionLine(
        share=share, slope=slope, slope_error=spread, error2=error2, left2=left2, predicted2=predicted2
    )


def _sum_of_products(left: np.ndarray, right: np.ndarray) -> float:
    # Not BLAS: its threads wait for each other a thousand times longer than this takes where the cores are busy.
    return float((left * right).sum())


def above_floor(
    left: np.ndarray, sigma: np.ndarray, axis: int | None, margin: float = MARGIN
) -> tuple[np.ndarray, np.ndarray]:
    """Each channel's root mean square z, and the probability that noise alone gives as much.

    Args:
        left: What is left over, float64, any shape, finite.
        sigma: Standard deviation of the FP32 noise, float64, of that shape.
        axis: Where channels lie; None for one channel.
        margin: How far sigma may be low.

    Returns:
        rms z (without the margin) and p-value (with it), float64, (channels,).
    """
    if axis is None or left.ndim == 0:
        rows, noise = left.reshape(1, -1), sigma.reshape(1, -1)
    else:
        rows = np.moveaxis(left, axis, 0).reshape(left.shape[axis], -1)
        noise = np.moveaxis(sigma, axis, 0).reshape(left.shape[axis], -1)
    energy = np.square(rows).sum(axis=1)
    variance = np.square(noise)
    expected = variance.sum(axis=1)
    # Scaled first: the fourth power of a small noise would underflow.
    top = np.where(variance.max(axis=1, initial=0.0) > 0, variance.max(axis=1, initial=0.0), 1.0)
    scaled = variance / top[:, None]
    squares = np.square(scaled).sum(axis=1)
    freedom = np.where(squares > 0, np.square(scaled.sum(axis=1)) / np.where(squares > 0, squares, 1.0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(energy == 0, 0.0, energy / expected)
    # Numbers of Python: of arrays' own ones each step takes several times as long.
    tails = list(map(chi_square_tail, (ratio / margin**2 * freedom).tolist(), freedom.tolist()))
    return np.sqrt(ratio), np.array(tails)


def chi_square_tail(value: float, freedom: float) -> float:
    """P(chi-square with `freedom` degrees >= value), by Wilson and Hilferty's cube root."""
    if value <= 0:
        return 1.0
    if math.isinf(value):
        return 0.0
    width = 2.0 / (9.0 * freedom)
    normal = ((value / freedom) ** (1.0 / 3.0) - (1.0 - width)) / math.sqrt(width)
    return 0.5 * math.erfc(normal / math.sqrt(2.0))


def discovery_cutoff(chances: np.ndarray, rate: float = RATE) -> float:
    """The largest p-value that is a discovery at false discovery rate `rate`; -1 when none is.

    `chances` are p-values in [0, 1], of any shape. With p sorted ascending, the largest p_(i) <= i / m * rate (Benjamini
    and Hochberg, "Controlling the false discovery rate", 1995).
    """
    ordered = np.sort(np.asarray(chances, np.float64).ravel())
    steps = np.arange(1, ordered.size + 1) / max(1, ordered.size) * rate
    held = np.flatnonzero(ordered <= steps)
    return float(ordered[held[-1]]) if held.size else -1.0
