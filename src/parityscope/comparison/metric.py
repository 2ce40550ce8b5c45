"""What a metric is: one file whose last line is `METRIC = Metric(...)`.

`finish` turns statistics into measurements (None where the metric does not apply: ULPs of integers). A metric that
needs more than `Statistics` holds accumulates itself: `start()` gives a state, `update(state, reference, candidate)`
gives the state after a block of float64 values (non-finite ones included, 32768 at most, in order), `combine` joins the
states of two stretches or samples, and `finish` finds the state under `statistics.states[name]`. States are never
changed in place.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from parityscope.comparison.statistics import Statistics
    from parityscope.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number, or a few that are one idea, about a pair of tensors.

    `perfect` is its value for equal tensors; `better` says on which side of the others it lies.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    perfect: float
    finish: Callable[[Statistics], Measurement | tuple[Measurement, ...] | None]
    start: Callable[[], Any] | None = None
    update: Callable[[Any, np.ndarray, np.ndarray], Any] | None = None
    combine: Callable[[Any, Any], Any] | None = None


@functools.cache
def all_metrics() -> tuple[Metric, ...]:
    """Every metric there is, in the order of their modules' names.

    Raises:
        ParityError: one accumulates but lacks a part that accumulating needs.
    """
    found = discover_plugins("parityscope.comparison.metrics", "METRIC", Metric)
    for metric, module in found.values():
        parts = (metric.start, metric.update, metric.combine)
        if any(parts) and not all(parts):
            raise ParityError(
                f"the metric {metric.name!r} has only some of start, update and combine",
                where=str(module.__file__),
                fix="give all three, or none",
            )
    return tuple(metric for metric, _ in found.values())


@functools.cache
def accumulating_metrics() -> tuple[Metric, ...]:
    """The metrics that look at the elements themselves."""
    return tuple(metric for metric in all_metrics() if metric.update is not None)


def measure_all(statistics: Statistics) -> dict[str, Measurement]:
    """Every metric that applies to this pair, by name."""
    result: dict[str, Measurement] = {}
    for metric in all_metrics():
        finished = metric.finish(statistics)
        if finished is None:
            continue
        for measurement in finished if isinstance(finished, tuple) else (finished,):
            result[measurement.metric] = measurement
    return result


def better_directions(statistics: Statistics) -> dict[str, Literal["lower", "higher"]]:
    """For every number that applies to this pair, on which side its better values lie."""
    return {
        one.metric: metric.better
        for metric in all_metrics()
        if (finished := metric.finish(statistics)) is not None
        for one in (finished if isinstance(finished, tuple) else (finished,))
    }
