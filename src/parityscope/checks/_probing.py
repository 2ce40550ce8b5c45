"""Where a candidate that can be run puts each input: 2 n runs, exact for any network, however many inputs are exchanged.

All inputs of equal shape and type are given the same data, so that it does not matter which is which, and one of them other
data. What the candidate answers is what the reference answers with the other data in the place where the candidate puts
that input. Each place of n is tried on the reference once, and each input on the candidate once.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._reproducing import measure_misfit
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]

_PAIRS = 6  # of data that are tried: a table of two rows refuses token numbers, and masks are ones everywhere
_TOLD_APART = 10.0  # how much nearer an answer is to its own place than to the next


def probed_order(known: Examination, bench: Bench, groups: Sequence[Sequence[str]], index: int) -> dict[str, str]:
    """Place -> the input whose data the candidate has there, for the places that are not their own.

    Empty if the candidate cannot be run, if it is right, or if two places cannot be told apart.
    """
    if bench.answers is None:
        return {}
    arrays = bench.inputs(index)
    alike = dict(arrays)
    for group in groups:
        alike.update(dict.fromkeys(group, arrays[group[0]]))
    found: dict[str, str] = {}
    for group in groups:
        placed = _place_by_runs(known, bench, arrays, alike, group)
        if placed is None:
            return {}
        found.update(placed)
    return {place: name for place, name in found.items() if place != name}


def _place_by_runs(
    known: Examination, bench: Bench, arrays: Arrays, alike: Mapping[str, np.ndarray], group: Sequence[str]
) -> dict[str, str] | None:
    pairs = [
        (base, other)
        for base, other in itertools.permutations(group, 2)
        if not np.array_equal(arrays[base], arrays[other])
    ]
    for base, other in pairs[:_PAIRS]:
        plain = {**alike, **dict.fromkeys(group, arrays[base])}
        try:
            reference = {name: bench.outputs({**plain, name: arrays[other]}) for name in group}
            candidate = {name: bench.answers({**plain, name: arrays[other]}) for name in group} if bench.answers else {}
        except ParityError:
            continue
        found = {}
        for name, answer in candidate.items():
            errors = {
                place: measure_misfit(known, outputs, answer, coarser=True) for place, outputs in reference.items()
            }
            nearest, *others = sorted(errors, key=lambda place: errors[place].error)
            clear = all(errors[place].error > _TOLD_APART * errors[nearest].error for place in others)
            if errors[nearest].fits and clear:
                found[nearest] = name
        if len(found) == len(group):
            return found
    return None
