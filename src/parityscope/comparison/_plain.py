"""Statistics as plain data (strict JSON) for reports and studies, and back.

Everything survives the round trip exactly except channels, of which the `WORST_CHANNELS` worst are kept, with the
median of all (so that metrics are unchanged, but such a record's channels cannot be merged), and the states of metrics
from outside, which are not kept. Floats that JSON has no word for are the strings "NaN", "Infinity", "-Infinity".

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
from parityscope.comparison._channels import Channels, summarize_channels, trim_channels
from parityscope.comparison._histogram import Histogram, Sketch
from parityscope.comparison._scores import Scores
from parityscope.comparison.moments import Moments
from parityscope.comparison.statistics import Exact, Floats, Statistics
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WORST_CHANNELS", "from_plain", "to_plain"]

WORST_CHANNELS = 8  # chosen: what a reader looks at
_LARGEST_SKETCH = 1 << 24  # bytes; the whole range of float64 in bins of 1/64 octave is 2 MiB


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


def from_plain(plain: Mapping[str, Any]) -> Statistics:
    """What `to_plain` was given, except for what its module's docstring says is not kept.

    Raises:
        ParityError: this is not what `to_plain` gives.
    """
    try:
        return _from_plain(plain)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, zlib.error) as error:
        raise ParityError(
            f"these are no statistics of a pair of tensors: {error!r}", fix="make the study again with this version"
        ) from error


def _from_plain(plain: Mapping[str, Any]) -> Statistics:
    floats = None
    if "floats" in plain:
        scalars = _plain_to_scalars(plain["floats"])
        for name in ("first_disagreeing", "max_index", "max_rel_index"):
            scalars[name] = _plain_to_index(scalars[name])
        for name in ("reference_range", "candidate_range"):
            scalars[name] = tuple(_from_strict_number(value) for value in scalars[name])
        floats = Floats(
            **scalars,
            moments=Moments(**_plain_to_scalars(plain["moments"])),
            sketch=_unpack_sketch(plain["sketch"]),
            reference_values=_plain_to_histogram(plain["reference_values"]),
            candidate_values=_plain_to_histogram(plain["candidate_values"]),
        )
    exact = scores = None
    if "exact" in plain:
        parts = dict(plain["exact"])
        exact = Exact(
            **{
                **parts,
                "first_mismatch": _plain_to_index(parts["first_mismatch"]),
                "max_index": _plain_to_index(parts["max_index"]),
            }
        )
    if "scores" in plain:
        parts = _plain_to_scalars(plain["scores"])
        scores = Scores(**{**parts, "worst_row": _plain_to_index(parts["worst_row"])})
    return Statistics(
        kind=plain["kind"],
        reference_dtype=plain["dtypes"][0],
        candidate_dtype=plain["dtypes"][1],
        shape=tuple(plain["shape"]),
        samples=plain["samples"],
        count=plain["count"],
        floats=floats,
        exact=exact,
        scores=scores,
        channels=_plain_to_channels(plain["channels"]) if "channels" in plain else None,
    )


def _strict_number(value: Any) -> Any:  # any field of a record
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return [_strict_number(item) for item in value] if isinstance(value, tuple) else value


def _from_strict_number(value: Any) -> Any:  # what `_strict_number` gave
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _plain_scalars(record: Any) -> dict[str, Any]:  # a dataclass; its nested records and arrays are left out
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {
        name: _strict_number(value)
        for name, value in fields.items()
        if value is None or isinstance(value, int | float | tuple)
    }


def _plain_to_scalars(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, list) else _from_strict_number(value) for name, value in plain.items()}


def _plain_to_index(value: list[int] | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)


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


def _plain_to_histogram(plain: Mapping[str, Any]) -> Histogram:
    bins, counts = [0], [plain["zero"]]
    for name, sign in (("negative", -1), ("positive", 1)):
        first = plain[name]["first"]
        bins += [sign * (VALUE_OFFSET + first + at) for at in range(len(plain[name]["counts"]))]
        counts += plain[name]["counts"]
    numbers, totals = np.array(bins, np.int64), np.array(counts, np.int64)
    order = np.argsort(numbers)
    order = order[totals[order] > 0]
    return Histogram(bins=numbers[order], counts=totals[order])


def _pack_sketch(sketch: Sketch) -> dict[str, Any]:
    steps = np.diff(sketch.bins.bins, prepend=0)
    numbers = np.stack([steps, sketch.bins.counts]).astype("<i8")
    packed = base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode()
    return {"zeros": sketch.zeros, "below": sketch.below, "floor": sketch.floor, "packed": packed}


def _unpack_sketch(plain: Mapping[str, Any]) -> Sketch:
    expand = zlib.decompressobj()
    raw = expand.decompress(base64.b64decode(plain["packed"], validate=True), _LARGEST_SKETCH)
    if not expand.eof:
        raise ValueError("the sketch is cut short or too large")
    steps, counts = np.frombuffer(raw, "<i8").reshape(2, -1).astype(np.int64)
    bins = Histogram(bins=np.cumsum(steps), counts=counts)
    return Sketch(zeros=plain["zeros"], below=plain["below"], floor=plain["floor"], bins=bins)


def _plain_channels(channels: Channels) -> dict[str, Any]:
    worst = trim_channels(channels, WORST_CHANNELS)
    summary = summarize_channels(worst)
    relative = np.zeros(0) if summary is None else summary.relative
    order = np.argsort(-relative, kind="stable")
    return {
        "axis": worst.axis,
        "total": worst.total,
        "median": _strict_number(worst.median),
        "norm2": _strict_number(worst.norm2),
        "worst": [[int(worst.indices[i]), _strict_number(float(relative[i]))] for i in order],
        "error2": worst.error2.tolist(),
        "reference2": worst.reference2.tolist(),
        "disagreeing": worst.disagreeing.tolist(),
    }


def _plain_to_channels(plain: Mapping[str, Any]) -> Channels:
    return Channels(
        axis=plain["axis"],
        total=plain["total"],
        indices=np.array(sorted(index for index, _ in plain["worst"]), np.int64),
        error2=np.array(plain["error2"], np.float64),
        reference2=np.array(plain["reference2"], np.float64),
        disagreeing=np.array(plain["disagreeing"], np.int64),
        median=None if plain["median"] is None else float(plain["median"]),
        norm2=None if plain["norm2"] is None else float(plain["norm2"]),
    )
