"""Orders in which tensors of equal shape and type may be bound, fewest moves first, and the search among them.

Of many tensors not every order is tried. First come those that lists are really in: by name, backwards, by natural number
("in10" behind "in2"), one place on, and the inverse of each. Then exchanges of two, the nearest few kept, and so on from
each of them: the one nearest alone leads astray where an exchange that belongs to a ring of five makes it worse at first.
Last, what every single exchange of data does to the outputs is measured, and the orders whose sum of effects comes nearest
to what was seen are tried.

Which input went where, among many: one-at-a-time runs, a quadratic model of them, and its best orders.

With n inputs of equal shape there are n! orders and only n (n - 1) ways to put one input's data into one other place. Each
of these is run once, which gives what it does to the outputs, D[i, j] = f(place i holds data j) - f. To first order an order
p changes the outputs by the sum of D[i, p(i)], and the p whose sum comes nearest to what was seen is found without a run:
its squared distance is a quadratic form in the inner products of the D, and exchanges of two descend it from many starts.
The model is exact where inputs are added, and a guide where they are not: what it proposes is run and judged as any order.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    # Name -> the name whose data is there instead; only names that are moved.
    Order = Mapping[str, str]

    # (error, whether the order explains it) for an order; None if it cannot be run or changes nothing.
    Try = Callable[[Order], tuple[float, bool] | None]

    # The outputs of all samples for an order, in one row of float64, less those that were seen; None if it cannot be run.
    Seen = Callable[[Order], np.ndarray | None]

_STARTS = 200  # chosen: of 16 inputs of additive networks every order is found from a few dozen
_SEED = 41


def likely_orders(effects: np.ndarray, wanted: np.ndarray, allowed: np.ndarray, most: int) -> Iterator[tuple[int, ...]]:
    """Orders whose summed effects come nearest to `wanted`, nearest first, at most `most`.

    Args:
        effects: (n, n, m) float64, what putting data j in place i does to m numbers of the outputs; zero where i = j.
        wanted: (m,), what was seen.
        allowed: (n, n) bool, symmetric: which places may exchange their data; true where i = j.
        most: how many are given.
    """
    count = len(effects)
    flat = effects.reshape(count * count, -1)
    gram = flat @ flat.T
    pull = flat @ wanted
    generator = np.random.default_rng(_SEED)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count) if allowed[i, j]]
    first, second = (np.array(side, np.intp) for side in zip(*pairs, strict=True))
    found: dict[tuple[int, ...], float] = {}
    for start in range(_STARTS):
        order = np.arange(count)
        if start:
            for _ in range(count):
                i, j = pairs[generator.integers(len(pairs))]
                order[[i, j]] = order[[j, i]]
        value = _exchange_best_pairs(order, gram, pull, (first, second))
        found[tuple(int(place) for place in order)] = value
    identity = tuple(range(count))
    yield from [order for order in sorted(found, key=found.__getitem__) if order != identity][:most]


def _exchange_best_pairs(
    order: np.ndarray, gram: np.ndarray, pull: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]
) -> float:
    """Exchanges pairs of `order` in place, the best each time, until none lowers |sum of effects - wanted|^2."""
    count = len(order)
    first, second = pairs
    places = np.arange(count) * count
    while True:
        chosen = places + order
        # What the present order already pulls at each effect: half the gradient of the quadratic form.
        held = gram[:, chosen].sum(axis=1) - pull
        out1, out2 = places[first] + order[first], places[second] + order[second]
        in1, in2 = places[first] + order[second], places[second] + order[first]
        step = held[in1] + held[in2] - held[out1] - held[out2]
        signs = ((in1, 1), (in2, 1), (out1, -1), (out2, -1))
        size = sum(a * b * gram[x, y] for x, a in signs for y, b in signs)
        change = 2 * step + size
        best = int(np.argmin(change))
        if change[best] >= -1e-12 * max(1.0, abs(float(gram.max()))):
            return float(gram[np.ix_(chosen, chosen)].sum() - 2 * pull[chosen].sum())
        i, j = first[best], second[best]
        order[[i, j]] = order[[j, i]]


_FEW = 24  # orders that are all tried: those of four tensors
_RUNS = 256  # chosen: the orders of the search by exchanges, enough for two rounds of sixteen inputs
# Orders that are kept of each round. Of eight, twelve and sixteen inputs of an additive network every ring of five was found
# with eight on three samples; the rest is for those that are harder.
_WIDTHS = (1, 24)
_ROUNDS = 5  # exchanges that the width is chosen for: those of a ring of six
_PATIENCE = 2  # rounds in a row that bring nothing nearer: one of a ring of five may
_NEAR = 3.0  # how many times nearer than the model's own order one is before it is judged
_MODELLED = 20  # names: more have more than 380 single exchanges
_PROPOSED = 24  # orders of the model that are run, as many as are all tried of four names


def groups_of(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, ...]]:
    """Names that stand for each other: of equal shape and dtype."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, array in arrays.items():
        found.setdefault((array.shape, array.dtype), []).append(name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def count_runs(groups: Sequence[Sequence[str]]) -> int:
    """The most runs that `search_order` makes."""
    if _count_all_orders(groups) <= _FEW:
        return _count_all_orders(groups) - 1
    names = sum(map(len, groups))
    return _RUNS + (names**2 + _PROPOSED if names <= _MODELLED else 0)


def search_order(
    groups: Sequence[Sequence[str]], attempt: Try, start: float, seen: Seen | None = None, most: int = _RUNS
) -> Order | None:
    """The first order that explains the error, `start` before any exchange; None if none is found.

    Few orders are all tried. Of many, never all: those of sorted lists, then every exchange of two, the nearest ones are
    kept, and so on from there, `most` orders in all. An order of n moved tensors takes at most n - 1 such rounds. With
    `seen` nearness is that of all samples together, and the orders that a model of single exchanges proposes come last.
    """
    if _count_all_orders(groups) <= _FEW:
        return next((order for order in _all_orders(groups) if _is_right_order(attempt, order)), None)
    for order in _sorted_orders(groups):
        if _is_right_order(attempt, order):
            return order
    found = _by_exchanges(groups, _Nearness(attempt, start, seen), most)
    if found is None and seen is not None and sum(map(len, groups)) <= _MODELLED:
        return next((order for order in _orders_from_exchanges(groups, seen) if _is_right_order(attempt, order)), None)
    return found


def _is_right_order(attempt: Try, order: Order) -> bool:
    found = attempt(order)
    return found is not None and found[1]


def _sorted_orders(groups: Sequence[Sequence[str]]) -> list[Order]:
    """The orders of lists that somebody sorted, or counted from the other end, and of those that undo them."""
    keys: tuple[Callable[[Sequence[str]], list[str]], ...] = (
        sorted,
        lambda names: sorted(names, key=str.lower),
        lambda names: sorted(names, key=_natural_sort_key),
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


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Digits as numbers, everything else as text."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _orders_from_exchanges(groups: Sequence[Sequence[str]], seen: Seen) -> Iterator[Order]:
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


class _Nearness:
    """How far an order is from what was seen, and whether it is the one; each order once."""

    def __init__(self, attempt: Try, start: float, seen: Seen | None) -> None:
        base = None if seen is None else seen({})
        self._attempt = attempt
        self._seen = None if base is None else seen
        self.start = start if base is None else float(np.linalg.norm(base))

    def of(self, order: Order) -> tuple[float, bool] | None:
        """As `Try`; where outputs can be had they are judged only if they come near."""
        if self._seen is None:
            return self._attempt(order)
        row = self._seen(order)
        if row is None:
            return None
        far = float(np.linalg.norm(row))
        return far, far * _NEAR <= self.start and _is_right_order(self._attempt, order)


def _by_exchanges(groups: Sequence[Sequence[str]], nearness: _Nearness, most: int) -> Order | None:
    names = [name for group in groups for name in group]
    pairs = [(names.index(first), names.index(second)) for first, second in _pairs_within_groups(groups)]
    rounds = min(len(names) - 1, _ROUNDS)
    width = int(np.clip(most // (rounds * len(pairs)), *_WIDTHS))
    own = tuple(range(len(names)))
    known = {own: nearness.start}
    kept = [own]
    least, waited = nearness.start, 0
    for _ in range(len(names) - 1):
        found: list[tuple[float, tuple[int, ...]]] = []
        for held, (first, second) in itertools.product(kept, pairs):
            turned = list(held)
            turned[first], turned[second] = held[second], held[first]
            key = tuple(turned)
            if key in known:
                continue
            if len(known) > most:
                return None
            order = {names[place]: names[whose] for place, whose in enumerate(key) if place != whose}
            said = nearness.of(order)
            known[key] = math.inf if said is None else said[0]
            if said is not None and said[1]:
                return order
            found.append((known[key], key))
        kept = [key for far, key in sorted(found)[:width] if math.isfinite(far)]
        nearest = known[kept[0]] if kept else math.inf
        least, waited = (nearest, 0) if nearest < least else (least, waited + 1)
        if not kept or waited == _PATIENCE:
            return None
    return None


def _pairs_within_groups(groups: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for group in groups:
        yield from itertools.combinations(group, 2)


def _count_all_orders(groups: Sequence[Sequence[str]]) -> int:
    return math.prod(math.factorial(len(group)) for group in groups)


def _all_orders(groups: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Every order but the right one, fewest moves first."""
    names = [name for group in groups for name in group]
    found = []
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        given = itertools.chain.from_iterable(choice)
        found.append({name: whose for name, whose in zip(names, given, strict=True) if name != whose})
    return sorted((order for order in found if order), key=len)
