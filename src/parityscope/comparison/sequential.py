"""Samples one after the other until it is sure that a share of samples like these is good, or that it is not.

What is counted is whether a sample is bad, and the question is whether the rate of bad ones is below p0 or above. For each
answer there is an e-process: the likelihood of what was counted, averaged over the rates on that answer's side (uniformly),
over its likelihood at p0:

    for "below":  (1 / p0)       int_0^p0 q^k (1 - q)^(n - k) dq / (p0^k (1 - p0)^(n - k))
    for "above":  (1 / (1 - p0)) int_p0^1 q^k (1 - q)^(n - k) dq / (p0^k (1 - p0)^(n - k))

Where the rate is on the other side (or at p0), each is a nonnegative supermartingale that begins at 1, since the ratio of one
sample has an expectation of at most 1. By Ville's inequality it ever reaches 1 / alpha with a probability of at most alpha:
whoever stops when it does, whenever that is and however often was looked, is wrong with a probability of at most alpha. One
of both answers is right, so only the other can be given in error. The integrals are incomplete beta functions. Samples must
come in an order that says nothing of them (drawn at random).

Sources: J. Ville, Etude critique de la notion de collectif (1939); H. Robbins, Statistical methods related to the law of the
iterated logarithm, Ann. Math. Statist. 41 (1970); S. Howard, A. Ramdas, J. McAuliffe, J. Sekhon, Time-uniform, nonparametric,
nonasymptotic confidence sequences, Ann. Statist. 49 (2021).
"""

from __future__ import annotations

import math
from typing import Literal

Decision = Literal["below", "above", "open"]


def evidence_of_rate(bad: int, count: int, rate: float) -> tuple[float, float]:
    """Logarithms of the two e-processes, for "below" and for "above" `rate`, after `bad` of `count` samples."""
    from scipy.special import betainc, betaincc, betaln

    a, b = bad + 1, count - bad + 1
    whole = float(betaln(a, b)) - bad * math.log(rate) - (count - bad) * math.log1p(-rate)
    below, above = float(betainc(a, b, rate)), float(betaincc(a, b, rate))
    return (
        whole + math.log(below) - math.log(rate) if below else -math.inf,
        whole + math.log(above) - math.log1p(-rate) if above else -math.inf,
    )


def decide_rate(bad: int, count: int, rate: float, confidence: float) -> Decision:
    """What is sure at `confidence` (0.95: wrong in at most one of twenty such searches) of the rate of bad samples."""
    below, above = evidence_of_rate(bad, count, rate)
    enough = -math.log1p(-confidence)
    return "below" if below >= enough else "above" if above >= enough else "open"
