"""Orders in which tensors of equal shape and type may be bound, fewest moves first, and the search among them.

Of many tensors not every order is tried. First come those that lists are really in: by name, backwards, by natural number
("in10" behind "in2"), one place on, and the inverse of each. Then exchanges of two, the best kept, and so on from there.
Last, what every single exchange of data does to the outputs is measured, and the orders whose sum of effects comes nearest
to what was seen are tried (`_assignment`).
"""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._assignment import likely_orders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    # Name -> the name whose data is there instead; only names that are moved.
    Order = Mapping[str, str]

    # (error, whether the order explains it) for an order; None if it cannot be run or changes nothing.
    Try = Callable[[Order], tuple[float, bool] | None]

    # The outputs for an order, in one row of float64, less those that were seen; None if it cannot be run.
    Seen = Callable[[Order], np.ndarray | None]

__all__ = ["count_runs", "groups_of", "search"]

_FEW = 24  # orders that are all tried: those of four tensors
_RUNS = 256  # chosen: the most runs of the greedy search, enough for two rounds of sixteen inputs
_MODELLED = 20  # names: more have more than 380 single exchanges
_PROPOSED = 24  # orders of the model that are run, as many as are all tried of four names


def groups_of(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, ...]]:
    """Names that stand for each other: of equal shape and dtype."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, array in arrays.items():
        found.setdefault((array.shape, array.dtype), []).append(name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def count_runs(groups: Sequence[Sequence[str]]) -> int:
    """The most runs that `search` makes."""
    if _total(groups) <= _FEW:
        return _total(groups) - 1
    names = sum(map(len, groups))
    return _RUNS + (names**2 + _PROPOSED if names <= _MODELLED else 0)


def search(groups: Sequence[Sequence[str]], attempt: Try, start: float, seen: Seen | None = None) -> Order | None:
    """The first order that explains the error, `start` before any exchange; None if none is found.

    Few orders are all tried. Of many, never all: those of sorted lists, then every exchange of two, the best is kept if it
    lowers the error, and so on from there. An order of n moved tensors takes at most n - 1 such rounds. With `seen`, the
    orders that a model of single exchanges proposes come last.
    """
    if _total(groups) <= _FEW:
        return next((order for order in _all_orders(groups) if _fits(attempt, order)), None)
    for order in _sorted_orders(groups):
        if _fits(attempt, order):
            return order
    found = _greedy(groups, attempt, start)
    if found is None and seen is not None and sum(map(len, groups)) <= _MODELLED:
        return next((order for order in _modelled(groups, seen) if _fits(attempt, order)), None)
    return found


def _fits(attempt: Try, order: Order) -> bool:
    found = attempt(order)
    return found is not None and found[1]


def _sorted_orders(groups: Sequence[Sequence[str]]) -> list[Order]:
    """The orders of lists that somebody sorted, or counted from the other end, and of those that undo them."""
    keys: tuple[Callable[[Sequence[str]], list[str]], ...] = (
        sorted,
        lambda names: sorted(names, key=str.lower),
        lambda names: sorted(names, key=_natural),
        lambda names: list(reversed(names)),
        lambda names: sorted(names, reverse=True),
        lambda names: [*names[1:], names[0]],
    )
    found: dict[tuple[tuple[str, str], ...], Order] = {}
    for key in keys:
        order = {
            name: whose for group in groups for name, whose in zip(group, key(group), strict=True) if name != whose
        }
        for one in (order, {whose: name for name, whose in order.items()}):
            if one:
                found.setdefault(tuple(sorted(one.items())), one)
    return list(found.values())


def _natural(name: str) -> list[tuple[int, str]]:
    """Digits as numbers, everything else as text."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _modelled(groups: Sequence[Sequence[str]], seen: Seen) -> Iterator[Order]:
    """The orders that single exchanges of data propose, nearest first."""
    names = [name for group in groups for name in group]
    base = seen({})
    if base is None:
        return
    effects = np.zeros((len(names), len(names), base.size))
    allowed = np.eye(len(names), dtype=np.bool_)
    for group in groups:
        for name, whose in itertools.permutations(group, 2):
            place = names.index(name), names.index(whose)
            found = seen({name: whose})
            if found is not None and found.shape == base.shape:
                effects[place] = found - base
                allowed[place] = True
    allowed &= allowed.T
    for order in likely_orders(effects, -base, allowed, _PROPOSED):
        yield {names[place]: names[whose] for place, whose in enumerate(order) if place != whose}


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
