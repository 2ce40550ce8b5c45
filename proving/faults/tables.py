"""Outcomes -> figures: shares with Wilson intervals for each part of the suite, and the matrix of what was taken for what."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proving.faults.records import Outcome

_Z = 1.959964  # the normal quantile of 97.5 %
PARTS = ("all", "tuning", "kept apart: parameters", "kept apart: models")
_PART = {"": PARTS[1], "parameter": PARTS[2], "model": PARTS[3]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`hits` of `count`, with the 95 % Wilson interval of the share."""

    hits: int
    count: int
    low: float
    high: float


def wilson(hits: int, count: int) -> Share:
    """The share and its interval; E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209-212."""
    if not count:
        return Share(hits=0, count=0, low=0.0, high=1.0)
    share, z2 = hits / count, _Z * _Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count)) / (1 + z2 / count)
    return Share(hits=hits, count=count, low=max(0.0, middle - half), high=min(1.0, middle + half))


def part_of(outcome: Outcome) -> str:
    """The part of the suite that an outcome belongs to, besides "all"."""
    return _PART[outcome.case.held]


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of each part: cause first, among three, region, repair, blamed twins; seconds and experiments."""
    found = {}
    for part in PARTS:
        chosen = [one for one in outcomes if part in ("all", part_of(one))]
        faulty = [one for one in chosen if not one.case.clean and not one.error]
        clean = [one for one in chosen if one.case.clean and not one.error]
        found[part] = {
            "faulty": len(faulty),
            "clean": len(clean),
            "not examined": sum(bool(one.error) for one in chosen),
            "first": _of(one.first for one in faulty),
            "three": _of(one.three for one in faulty),
            "region": _of(one.region for one in faulty),
            "repair": _of(one.repaired for one in faulty),
            "false causes": _of(bool(set(one.blamed) - {"verdict"}) for one in clean),
            "false verdicts": _of(bool(one.blamed) for one in clean),
            "seconds": _quantiles([one.seconds for one in chosen if not one.error]),
            "experiments": _quantiles([float(one.experiments) for one in faulty]),
        }
    return found


def matrix(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """What was said first, by fault: the expected code (or another right one), another code, or "nothing"."""
    found: dict[str, Counter[str]] = {}
    for one in outcomes:
        if one.case.clean or one.error:
            continue
        said = one.findings[0][0] if one.findings else "nothing"
        found.setdefault(one.case.fault, Counter())[said] += 1
    return found


def _of(values: Iterable[bool | None]) -> Share:
    known = [value for value in values if value is not None]
    return wilson(sum(known), len(known))


def _quantiles(values: list[float]) -> tuple[float, float, float]:
    """Median, ninth decile and largest."""
    if not values:
        return (0.0, 0.0, 0.0)
    ordered = sorted(values)
    return (ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], ordered[-1])
