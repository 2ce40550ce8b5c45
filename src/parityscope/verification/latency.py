"""Latency of before and after, measured fairly: both open in one process, warmed up, and timed in turns.

Each round runs both sides once on the same sample; the order within a round changes from one round to the next (before,
after, after, before, ...), so that drift of the machine's clock and what one run leaves in the caches fall on both alike.
The samples take turns as well. Median, median absolute deviation and 95th percentile are of single runs as a caller sees
them, copies in and out of the runtime included; the speedup is the ratio of the medians, with a percentile interval over
rounds drawn again.

Not timed are simulations (they compute something, but not as a deployment would) and recorded outputs.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import open_target
from parityscope.records import Skip
from parityscope.verification.intervals import CONFIDENCE
from parityscope.verification.records import Latency, SideTiming

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.backends import Session
    from parityscope.case import Case, Sample
    from parityscope.records import Target

_WARM_UP = 3  # runs of each side before the first that counts. Chosen: lazy allocation and first pages happen in one
_FEWEST = 10  # rounds, however long they take. Chosen
_MOST = 200  # rounds: the 95th percentile then has ten runs above it. Chosen
_SAMPLES = 8  # that take turns, so that they all fit in memory. Chosen
_RESAMPLES = 1000


def why_not_timed(before: Target, after: Target) -> Skip | None:
    """Why these two are not timed; None if they are."""
    for target in (before, after):
        if reason := backend_named(target.backend).untimed:
            fix = "verify on the deployment itself: --before openvino:f16, ort?device=cuda, command?run=..."
            return Skip(what="latency", reason=reason, fix=fix)
    return None


def measure_latency(
    case: Case, before: Target, after: Target, *, budget: float, clock: Callable[[], float], seed: int
) -> Latency:
    """Times both sides for about `budget` seconds.

    Raises:
        ParityError: a side cannot run.
    """
    samples = [case.inputs.sample(index) for index in case.inputs.indices[:_SAMPLES]]
    with open_target(case.model, before, Capture()) as first, open_target(case.model, after, Capture()) as second:
        times = take_turns(first, second, samples, budget=budget, clock=clock)
    return summarize_latency(times, seed)


def take_turns(
    first: Session, second: Session, samples: list[Sample], *, budget: float, clock: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Seconds of each run of both sides, in rounds, after the warm-up."""
    for session in (first, second):
        for sample in itertools.islice(itertools.cycle(samples), _WARM_UP):
            session.run(sample)
    seconds: tuple[list[float], list[float]] = ([], [])
    began = clock()
    for number in range(_MOST):
        if number >= _FEWEST and clock() - began > budget:
            break
        sample = samples[number % len(samples)]
        sides = (0, 1) if number % 2 == 0 else (1, 0)
        for side in sides:
            start = clock()
            (first, second)[side].run(sample)
            seconds[side].append(clock() - start)
    return seconds


def summarize_latency(seconds: tuple[list[float], list[float]], seed: int) -> Latency:
    """Both sides' summaries, and the interval of the ratio of their medians."""
    before, after = (np.array(side) for side in seconds)
    draws = np.random.default_rng(seed).integers(0, len(before), (_RESAMPLES, len(before)))
    ratios = np.sort(np.median(before[draws], axis=1) / np.median(after[draws], axis=1))
    low, high = (ratios[round(share * (_RESAMPLES - 1))] for share in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return Latency(
        before=_summarize_side(before),
        after=_summarize_side(after),
        rounds=len(before),
        warm_up=_WARM_UP,
        speedup=float(np.median(before) / np.median(after)),
        low=float(low),
        high=float(high),
    )


def _summarize_side(seconds: np.ndarray) -> SideTiming:
    median = float(np.median(seconds))
    return SideTiming(
        median=median,
        mad=float(np.median(np.abs(seconds - median))),
        p95=float(np.quantile(seconds, 0.95, method="higher")),
        seconds=tuple(float(one) for one in seconds),
    )
