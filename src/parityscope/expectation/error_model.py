"""The second-moment model of rounding errors: expected *squared* errors, in numpy, for any unit roundoff.

Rounding a generic number to nearest makes a relative error of mean 0 and root mean square 0.4247 u (`ROUNDING`): it is
uniform within half a unit in the last place, which is u²/3 E[1/m²], and significands m are spread logarithmically
(R. W. Hamming, "On the distribution of numbers", Bell System Technical Journal 49, 1970), so that
E[1/m²] = 3 / (8 ln 2). Errors of different operations are taken as uncorrelated (N. J. Higham and T. Mary, "A new
approach to probabilistic rounding error analysis", SIAM Journal on Scientific Computing 41, 2019): variances add. Of a
product s = Σ a_k b_k of n terms, with q = Σ (a_k b_k)²:

* rounding both inputs:   2 (0.4247 u_in)² q
* summing one by one:       (0.4247 u_acc)² Σ_k S_k²        with the partial sums S_k
* rounding the result:      (0.4247 u_out)² s²

The order of the terms is the engine's own, so that Σ S_k² is taken over a random one. The first k of n terms have the
expected squared sum k/n [(k-1)/(n-1) s² + (n-k)/(n-1) q] (drawing without replacement), and summed over k = 1 ... n

    E Σ S_k² = (n + 1) (2 s² + q) / 6.

A term that is zero adds no error: n counts the others. Equal terms, as in the blank part of a page, make equal errors
as long as the partial sum stays between two powers of two, and those add up: m of them cost m² s² / 9 (`repeated_terms_error`).
Being a second moment, the model needs no confidence level and,
unlike n u Σ|a_k b_k|, is no bound; honest sums in another order lie as often above it as below.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

# Root mean square of the relative error of one rounding to nearest, in units of the unit roundoff: 0.4247.
ROUNDING = 1.0 / sqrt(8.0 * log(2.0))

_Numbers = np.ndarray | float


def chain_error(total: _Numbers, squares: _Numbers, terms: _Numbers) -> np.ndarray:
    """E Σ S_k² over random orders.

    Args:
        total: s², the square of the sum; float64, any shape.
        squares: q, the sum of the squared terms; the shape of `total`.
        terms: n; one number, or one for each sum.
    """
    total, terms = np.asarray(total, np.float64), np.asarray(terms, np.float64)  # float32 squares need no copy then
    expected: np.ndarray = (2.0 * total + squares) * (terms + 1.0) / 6.0
    return expected


def repeated_terms_error(total: _Numbers, terms: _Numbers) -> np.ndarray:
    """What n equal terms add to E Σ S_k², because their errors are equal too: n² s² / 9.

    `total` is s² and `terms` n, float64 of one shape, as for `chain_error`.

    Between 2^j and 2^(j+1) all additions make one error, of variance u² 4^j / 3. With s = f 2^e, n (1 - 1/f) terms lie
    above 2^e and n 2^-i / f between 2^(e-i) and 2^(e-i+1); squaring these numbers, weighting them with the variances
    and averaging over logarithmically spread f gives n² s² u² / (72 ln 2), which is (0.4247 u)² n² s² / 9.
    """
    expected: np.ndarray = np.asarray(total, np.float64) * np.square(np.asarray(terms, np.float64)) / 9.0
    return expected
