"""Statistics as plain data (strict JSON) for reports and studies.

Of channels the `WORST_CHANNELS` worst are kept, with the median of all; the states of metrics from outside are not kept.
Floats that JSON has no word for are the strings "NaN", "Infinity", "-Infinity".

Keys that reports draw from: `reference_values` and `candidate_values` ({"zero": n, "negative": {"first": e, "counts":
[...]}, "positive": the same}: counts of 2^e <= |x| < 2^(e+1)), `error_octaves` ({"zero", "below", "first", "counts"}),
`channels` ({"axis", "total", "median", "worst": [[index, relative L2], ...]}). `sketch` is for machines: bins and
counts as deflated, base64-coded little-endian integers, a third of the size of a list. What only draws may drop it.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison._bins import VALUE_OFFSET
from parityscope.comparison._channels import Channels, summarize_channels
from parityscope.comparison._histogram import Histogram, Sketch

if TYPE_CHECKING:
    from parityscope.comparison.statistics import Statistics

WORST_CHANNELS = 8  # chosen: what a reader looks at


def to_plain(statistics: Statistics) -> dict[str, Any]:
    """Statistics as dicts, lists, strings and numbers."""
    floats, channels = statistics.floats, statistics.channels
    plain: dict[str, Any] = {
        "kind": statistics.kind,
        "dtypes": [statistics.reference_dtype, statistics.candidate_dtype],
        "shape": list(statistics.shape),
        "samples": statistics.samples,
        "count": statistics.count,
    }
    if floats is not None:
        plain["floats"] = _plain_scalars(floats)
        plain["moments"] = _plain_scalars(floats.moments)
        plain["reference_values"] = _plain_values(floats.reference_values)
        plain["candidate_values"] = _plain_values(floats.candidate_values)
        plain["error_octaves"] = {
            "zero": floats.sketch.zeros,
            "below": floats.sketch.below,
            **_dense_histogram(floats.sketch.octaves()),
        }
        plain["sketch"] = _pack_sketch(floats.sketch)
    for name, part in (("exact", statistics.exact), ("scores", statistics.scores)):
        if part is not None:
            plain[name] = _plain_scalars(part)
    if channels is not None:
        plain["channels"] = _plain_channels(channels)
    return plain


def _strict_number(value: Any) -> Any:  # any field of a record
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return [_strict_number(item) for item in value] if isinstance(value, tuple) else value


def _plain_scalars(record: Any) -> dict[str, Any]:  # a dataclass; its nested records and arrays are left out
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {
        name: _strict_number(value)
        for name, value in fields.items()
        if value is None or isinstance(value, int | float | tuple)
    }


def _dense_histogram(histogram: Histogram) -> dict[str, Any]:
    if not histogram.bins.size:
        return {"first": 0, "counts": []}
    first = int(histogram.bins[0])
    counts = np.zeros(int(histogram.bins[-1]) - first + 1, np.int64)
    counts[histogram.bins - first] = histogram.counts
    return {"first": first, "counts": counts.tolist()}


def _plain_values(histogram: Histogram) -> dict[str, Any]:
    bins, counts = histogram.bins, histogram.counts
    sides = {}
    for name, held, sign in (("negative", bins < 0, -1), ("positive", bins > 0, 1)):
        side = Histogram(bins=(sign * bins[held] - VALUE_OFFSET)[::sign], counts=counts[held][::sign])
        sides[name] = _dense_histogram(side)
    return {"zero": int(counts[bins == 0].sum()), **sides}


def _pack_sketch(sketch: Sketch) -> dict[str, Any]:
    steps = np.diff(sketch.bins.bins, prepend=0)
    numbers = np.stack([steps, sketch.bins.counts]).astype("<i8")
    packed = base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode()
    return {"zeros": sketch.zeros, "below": sketch.below, "floor": sketch.floor, "packed": packed}


def _plain_channels(channels: Channels) -> dict[str, Any]:
    summary = summarize_channels(channels)
    relative = np.zeros(0) if summary is None else summary.relative
    order = np.argsort(-relative, kind="stable")[:WORST_CHANNELS]
    held = np.sort(order)
    return {
        "axis": channels.axis,
        "total": channels.total,
        "median": None if summary is None else _strict_number(summary.median),
        "norm2": None if summary is None else _strict_number(float(channels.reference2.mean())),
        "worst": [[int(index), _strict_number(float(relative[index]))] for index in order],
        "error2": channels.error2[held].tolist(),
        "reference2": channels.reference2[held].tolist(),
        "disagreeing": channels.disagreeing[held].tolist(),
    }
