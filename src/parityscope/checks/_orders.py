"""Orders in which tensors of equal shape and type may be bound, fewest moves first, and the search among them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    # Name -> the name whose data is there instead; only names that are moved.
    Order = Mapping[str, str]

    # (error, whether the order explains it) for an order; None if it cannot be run or changes nothing.
    Try = Callable[[Order], tuple[float, bool] | None]

__all__ = ["count_runs", "groups_of", "search"]

_FEW = 24  # orders that are all tried: those of four tensors
_RUNS = 256  # chosen: the most runs of the greedy search, enough for two rounds of sixteen inputs


def groups_of(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, ...]]:
    """Names that stand for each other: of equal shape and dtype."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, array in arrays.items():
        found.setdefault((array.shape, array.dtype), []).append(name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def count_runs(groups: Sequence[Sequence[str]]) -> int:
    """The most runs that `search` makes."""
    return _total(groups) - 1 if _total(groups) <= _FEW else _RUNS


def search(groups: Sequence[Sequence[str]], attempt: Try, start: float) -> Order | None:
    """The first order that explains the error, `start` before any exchange; None if none is found.

    Few orders are all tried. Of many, never all: every exchange of two is tried, the best is kept if it lowers the error,
    and so on from there. An order of n moved tensors takes at most n - 1 such rounds.
    """
    if _total(groups) <= _FEW:
        for order in _all_orders(groups):
            found = attempt(order)
            if found is not None and found[1]:
                return order
        return None
    return _greedy(groups, attempt, start)


def _greedy(groups: Sequence[Sequence[str]], attempt: Try, start: float) -> Order | None:
    held: dict[str, str] = {name: name for group in groups for name in group}
    left = _RUNS
    while left > 0:
        nearest, best = start, None
        for first, second in _pairs(groups):
            left -= 1
            if left < 0:
                break
            turned = {**held, first: held[second], second: held[first]}
            order = {name: whose for name, whose in turned.items() if name != whose}
            found = attempt(order) if order else None
            if found is None:
                continue
            if found[1]:
                return order
            if found[0] < nearest:
                nearest, best = found[0], turned
        if best is None:
            return None
        held, start = best, nearest
    return None


def _pairs(groups: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for group in groups:
        yield from itertools.combinations(group, 2)


def _total(groups: Sequence[Sequence[str]]) -> int:
    return math.prod(math.factorial(len(group)) for group in groups)


def _all_orders(groups: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Every order but the right one, fewest moves first."""
    names = [name for group in groups for name in group]
    found = []
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        given = itertools.chain.from_iterable(choice)
        found.append({name: whose for name, whose in zip(names, given, strict=True) if name != whose})
    return sorted((order for order in found if order), key=len)
