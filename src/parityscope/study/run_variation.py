"""How much of a candidate's error changes from run to run, where its answers vary.

With reference r, an error that is the same each time b and one that changes n_i of variance s2, two runs c_i = r + b + n_i
have E|c_1 - c_2|^2 = 2 s2 and E|c_i - r|^2 = |b|^2 + s2, so that |c_1 - c_2|^2 / (|c_1 - r|^2 + |c_2 - r|^2), summed over
several pairs of runs, estimates the part of the squared error that changes. One pair alone would not do: of an output with k
degrees of freedom the ratio of pure noise is 1 with a standard deviation of 1 / sqrt(k).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.backends.recording import ignore_progress
from parityscope.comparison import measure_pair
from parityscope.comparison.rows import make_aligner

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.backends.recording import Progress
    from parityscope.case import Sample
    from parityscope.comparison import Statistics
    from parityscope.study.sample_tasks import Asking

# Pairs of runs. Chosen: noise in a single number, the worst case, then has a ratio below 1/8, which is where RUN001 no longer
# calls it a cause, once in 2,000 (X / (X + Y) < 1/16 of two chi-squared variables with 8 degrees of freedom: Beta(4, 4)).
PAIRS = 8


def part_that_changes(
    samples: Sequence[Sample],
    asking: Asking,
    reference: Session,
    candidate: Session,
    progress: Progress = ignore_progress,
) -> float:
    """The part of the squared error that differs between runs of the candidate, from 0 to 1, by its worst output.

    `samples` are the first ones, at most `PAIRS` of them. Runs behind the comparison, so that what a candidate keeps from the
    call before is not changed for it.

    Raises:
        ParityError: a side cannot run.
    """
    align = make_aligner(asking.policy, asking.names)
    changed, whole = 0.0, 0.0
    for place in range(PAIRS):
        progress("repeating runs that vary", place, PAIRS)
        sample = samples[place % len(samples)]
        expected = reference.run(sample)
        runs = [align(expected, candidate.run(sample)) for _ in range(2)]
        found = [
            _squared_changes(*((own[name], run[asking.names.get(name, name)]) for own, run in runs))
            for name in asking.outputs
            if name in expected and all(asking.names.get(name, name) in run for _, run in runs)
        ]
        # Of each sample the worst output counts: one that is right but for rounding may vary as a whole.
        between, errors = max(found, key=lambda one: one[1], default=(0.0, 0.0))
        changed, whole = changed + between, whole + errors
    progress("repeating runs that vary", PAIRS, PAIRS)
    if math.isinf(changed):
        return 1.0
    return min(1.0, changed / whole) if whole else 0.0


def _squared_changes(*runs: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """|first - second|^2 and |first - expected|^2 + |second - expected|^2, in units of |expected|^2, of (expected, given) twice.

    Of integers the share of unequal elements. Infinite where one has a number and the other none, or another shape.
    """
    try:
        ones = [measure_pair(*run, channel_axis=None) for run in runs]
        between = measure_pair(*(given for _, given in runs), channel_axis=None)
    except ValueError:
        return math.inf, math.inf
    scale = ones[0].floats.moments.reference2 if ones[0].floats else 1.0
    return _squared_error(between) / (scale or 1.0), sum(_squared_error(one) for one in ones) / (scale or 1.0)


def _squared_error(found: Statistics) -> float:
    if found.floats is None:
        return found.mismatch_share
    return math.inf if found.floats.disagreeing else found.floats.moments.error2
