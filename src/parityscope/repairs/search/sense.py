"""Squared sensitivities of nodes from the FP32 baseline, measured in groups that are split while it matters.

s²(G) = mean over the active samples of (output error with only the nodes of G low, in units of the budget)². Errors of nodes that
round independently add in squares (N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis,
SIAM J. Sci. Comput. 41, 2019), so that one evaluation measures a whole group, and its nodes share its error evenly.
Contiguous groups are split, largest first, until they are single nodes, or their label is settled: the small ones that
together use up less than `_SETTLED` of the budget can all be low. It also ends where no group stands out: of error that
is spread over the whole network single nodes tell the cut next to nothing that groups do not. At most as many
evaluations are made as there are nodes. Gains from the all-low side are never used: they are noise.

Where backward passes are cheaper than the groups that would be measured first, the sensitivities of all nodes at once
are estimated by them (`reverse`), to first order. They are checked against direct ones: in `CHECKS` groups of about the
same estimated error, each measured as a whole. Where estimate and measurement agree within `TRUSTED`, the nodes of the
group share what was measured as the estimate has it; where they do not, and where an operator without an adjoint stands
in the way, groups are measured and split as above.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.reverse import cost_of_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.repairs.search.oracle import Oracle
    from parityscope.repairs.search.reverse import Estimate, Reverse

_GROUPS = 24  # chosen: what a model of any size is divided into first
_PARTS = (
    4  # a group that is split: four parts cost a third more evaluations than single nodes at once, two as much again
)
# Of the error that is still to be divided between low and kept. Chosen by measurement: on a sentence encoder of 242 nodes
# 36 evaluations in place of 239 gave a plan with 42.1 % of the FLOPs in FP32 and 26 Casts in place of 40.5 % and 37.
_STANDS_OUT = 1 / 24
CHECKS = 4  # chosen: a quarter of the error each
# A factor of two in error, four in its square. Measured errors of random sets of nodes were 0.55 to 2.2 times the root
# of the sum of their squares on five models.
TRUSTED = 4.0
_SETTLED = 0.1  # of the squared budget. Chosen: a twentieth of the error in size, less than samples differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensed:
    """Squared sensitivities, float64 (nodes,) in units of the squared budget; infinite where an output is not finite.

    `settled` says that nothing more was to be split; otherwise evaluations ran out. `estimated` counts the nodes whose
    share of a measured group is from backward passes.
    """

    squared: np.ndarray
    evaluations: int
    settled: bool
    estimated: int = 0


def sense_nodes(
    oracle: Oracle,
    candidates: Sequence[int],
    target: float,
    limit: int,
    progress: Callable[[int, int], None],
    reverse: Reverse | None = None,
) -> Sensed:
    """Measures the nodes at the places `candidates` (in topological order); all others get 0.

    Args:
        oracle: What evaluates.
        candidates: Places of nodes that may be low.
        target: The squared budget that is searched for (1 / margin²).
        limit: The most evaluations.
        progress: Told (evaluations, limit).
        reverse: What backward passes need; None measures everything directly.
    """
    before = oracle.count
    squared = np.zeros(len(oracle.names))
    open_groups: list[tuple[float, int, tuple[int, ...]]] = []
    closed: list[tuple[float, tuple[int, ...]]] = []

    def measure(group: tuple[int, ...]) -> None:
        found = oracle.squared(oracle.only(group))
        if len(group) == 1:
            closed.append((found, group))
        else:
            heapq.heappush(open_groups, (-found, group[0], group))
        progress(oracle.count - before, limit)

    settled = False
    estimated = 0
    try:
        known = _estimate_by_passes(oracle, candidates, limit, reverse)
        for group in _group_for_checks(known, [place for place in candidates if place in known]):
            factor = _estimate_correction(sum(known[place] for place in group), oracle.squared(oracle.only(group)))
            progress(oracle.count - before, limit)
            if factor is None:
                for place in group:
                    del known[place]
                continue
            closed.extend((known[place] * factor, (place,)) for place in group)
            estimated += len(group)
        for group in _group_places([place for place in candidates if place not in known], len(candidates), limit):
            measure(group)
        while not (settled := _is_settled(open_groups, closed, target)) and oracle.count - before + _PARTS <= limit:
            _, _, group = open_groups[0]
            parts = _split_group(group, _PARTS)
            # A group leaves only when all of its parts are known, so that no error is lost when time runs out.
            measured = [oracle.squared(oracle.only(part)) for part in parts]
            heapq.heappop(open_groups)
            for part, _ in zip(parts, measured, strict=True):
                measure(part)
    except Spent:
        pass
    for value, group in [*closed, *((-negative, group) for negative, _, group in open_groups)]:
        squared[list(group)] = value / len(group)
    covered = {place for _, group in closed for place in group} | {p for _, _, g in open_groups for p in g}
    unknown = [place for place in candidates if place not in covered]
    squared[unknown] = np.inf  # never measured: never trusted to be low
    return Sensed(squared=squared, evaluations=oracle.count - before, settled=settled, estimated=estimated)


def _estimate_by_passes(
    oracle: Oracle, candidates: Sequence[int], limit: int, reverse: Reverse | None
) -> dict[int, float]:
    """Squared sensitivities by place, from backward passes where they are cheaper than groups; else none.

    Cheaper: `cost_of_passes` of the passes, the checks, and the groups of nodes without an adjoint, all together, against
    the groups that a direct search begins with.
    """
    direct = len(_group_places(candidates, len(candidates), limit))
    left = direct - 1 - CHECKS - (0 if reverse is None else cost_of_passes(reverse.passes))
    if reverse is None or left < 0:
        return {}
    needed = len(candidates) - left * -(-len(candidates) // direct)
    found: Estimate | None = oracle.estimated(reverse, max(1, needed))
    if found is None:
        return {}
    return {place: found.squared[name] for place in candidates if (name := oracle.names[place]) in found.squared}


def _group_for_checks(known: dict[int, float], places: Sequence[int]) -> list[tuple[int, ...]]:
    """`places` in at most `CHECKS` contiguous groups of about the same estimated error."""
    if not places:
        return []
    sums = np.cumsum([known[place] for place in places])
    if not sums[-1] > 0:
        return [tuple(places)]
    share = np.minimum((sums - np.array([known[place] for place in places]) / 2) / sums[-1] * CHECKS, CHECKS - 1)
    numbers = share.astype(np.intp)
    return [tuple(p for p, n in zip(places, numbers, strict=True) if n == number) for number in np.unique(numbers)]


def _estimate_correction(estimated: float, measured: float) -> float | None:
    """What the estimates of a group are to be multiplied by; None where they cannot be trusted."""
    if estimated == measured:
        return 1.0
    if not (np.isfinite(measured) and measured <= TRUSTED * estimated and estimated <= TRUSTED * measured):
        return None
    return measured / estimated


def _group_places(places: Sequence[int], whole: int, limit: int) -> list[tuple[int, ...]]:
    """`places` in contiguous groups as large as those that all `whole` candidates would be divided into."""
    most = min(_GROUPS, max(1, limit))
    size = max(1, -(-whole // most))
    return _split_group(tuple(places), max(1, -(-len(places) // size))) if places else []


def _is_settled(
    open_groups: list[tuple[float, int, tuple[int, ...]]], closed: list[tuple[float, tuple[int, ...]]], target: float
) -> bool:
    """Whether no open group stands out, or the largest one, and so all, belong to the small ones that can be low."""
    if not open_groups:
        return True
    largest = -open_groups[0][0]
    # Single nodes that are beyond the target by themselves are kept whatever the others are.
    rest = sum(-negative for negative, _, _ in open_groups) + sum(value for value, _ in closed if value <= target)
    if largest < _STANDS_OUT * rest:
        return True
    small = sum(-negative for negative, _, _ in open_groups) + sum(value for value, _ in closed if value <= largest)
    return bool(small <= _SETTLED * target)


def _split_group(group: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """`group` in at most `count` contiguous parts of nearly equal size."""
    return [
        tuple(int(place) for place in part) for part in np.array_split(np.array(group, np.intp), count) if part.size
    ]
