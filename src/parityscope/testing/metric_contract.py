"""The contract of metrics, for those who write them.

`check_metric(METRIC)` measures small pairs of every kind of tensor and raises AssertionError with a sentence for the
first promise that is broken: equal tensors are perfect, unequal ones are on the right side of that, a candidate that is
NaN is never perfect, and accumulating block by block, in any cut, gives the same number. The metric need not be registered.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.contract import require_promise
from parityscope.comparison import can_be_scores, channel_axis, measure_pair, merge_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.comparison import Metric, Statistics
    from parityscope.records import Measurement

# Sums of a dozen numbers in another order differ by a few roundings of float64, 1.1e-16 each; chosen well above.
_REORDERED = 1e-12


def check_metric(metric: Metric) -> None:
    """Checks a metric on pairs of floats, scores, integers and strings.

    Raises:
        AssertionError: a sentence that says what the metric does not keep.
    """
    parts = (metric.start, metric.update, metric.combine)
    require_promise(
        all(parts) or not any(parts), f"{metric.name}: of start, update and combine all are needed, or none"
    )
    _check_equal(metric)
    _check_unequal(metric)
    if all(parts):
        _check_accumulation(metric)


def _check_equal(metric: Metric) -> None:
    applied = 0
    for array in _tensors_of_each_kind():
        for one in _finish_metric(metric, [(array, array)]):
            applied += one.metric == metric.name
            require_promise(bool(one.metric and one.unit), f"{metric.name}: a measurement needs a name and a unit")
            require_promise(one.count >= 0, f"{metric.name}: {one.metric} is over {one.count} elements")
            if one.metric == metric.name:
                require_promise(
                    one.value == metric.perfect,
                    f"{metric.name} is {one.value} for equal {array.dtype} of shape {array.shape}, not {metric.perfect}",
                )
    require_promise(applied > 0, f"{metric.name} gives no measurement of its own name for any kind of tensor")


def _check_unequal(metric: Metric) -> None:
    """A candidate that is larger everywhere is not better than perfect; one that is NaN everywhere is not perfect."""
    for array in _tensors_of_each_kind():
        if array.dtype.kind != "f" or not array.size:
            continue
        for one in _finish_metric(metric, [(array, 1.5 * array + np.float32(0.25))]):
            if one.metric == metric.name:
                worse = one.value >= metric.perfect if metric.better == "lower" else one.value <= metric.perfect
                require_promise(
                    worse, f"{metric.name} is {one.value} for unequal tensors, better than {metric.perfect}"
                )
        for one in _finish_metric(metric, [(array, np.full_like(array, math.nan))]):
            hidden = one.metric == metric.name and one.value == metric.perfect
            require_promise(not hidden, f"{metric.name} is perfect for a candidate that is NaN everywhere")


def _check_accumulation(metric: Metric) -> None:
    reference = np.linspace(-3.0, 5.0, 13)
    candidate = reference * np.where(np.arange(13) % 3, 1.01, -1.0)
    whole = _finish_metric(metric, [(reference, candidate)])
    for cut in (0, 1, 6):
        pairs = [(reference[:cut], candidate[:cut]), (reference[cut:], candidate[cut:])]
        parted = _finish_metric(metric, pairs)
        for one, other in zip(whole, parted, strict=True):
            same = one.value == other.value or math.isclose(one.value, other.value, rel_tol=_REORDERED)
            require_promise(
                same, f"{one.metric} is {one.value} in one block and {other.value} when cut at {cut} and combined"
            )


def _finish_metric(metric: Metric, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Measurement, ...]:
    """The measurements over samples that are merged."""
    statistics = _measure_with_metric(*pairs[0], metric)
    for reference, candidate in pairs[1:]:
        further = _measure_with_metric(reference, candidate, metric)
        states = {**statistics.states, **further.states}
        if metric.combine is not None and metric.name in states:
            states[metric.name] = metric.combine(statistics.states[metric.name], further.states[metric.name])
        statistics = replace(merge_statistics(statistics, further), states=states)
    found = metric.finish(statistics)
    return () if found is None else found if isinstance(found, tuple) else (found,)


def _measure_with_metric(reference: np.ndarray, candidate: np.ndarray, metric: Metric) -> Statistics:
    statistics = measure_pair(
        reference,
        candidate,
        channel_axis=channel_axis(reference.ndim),
        as_scores=reference.ndim == 2 and can_be_scores(reference.dtype, reference.shape),
    )
    if metric.start is None or metric.update is None or not statistics.is_float:
        return statistics
    state = metric.start()
    before = pickle.dumps(state)
    after = state
    if reference.size:
        after = metric.update(state, reference.ravel().astype(np.float64), candidate.ravel().astype(np.float64))
    require_promise(pickle.dumps(state) == before, f"{metric.name}: update changes the state that it is given")
    return replace(statistics, states={**statistics.states, metric.name: after})


def _tensors_of_each_kind() -> tuple[np.ndarray, ...]:
    """One of each kind: feature map, scores, scalar, empty, half precision, integers, booleans, strings."""
    ramp = np.linspace(0.5, 4.0, 24)
    return (
        ramp.reshape(2, 3, 2, 2).astype(np.float32),
        np.array([[0.5, 0.25, 0.25], [0.25, 0.125, 0.625]], np.float32),
        np.array(2.0),
        np.zeros((0, 3), np.float32),
        ramp.astype(np.float16),
        np.arange(6).reshape(2, 3),
        np.array([True, False]),
        np.array(["a", "b"]),
    )
