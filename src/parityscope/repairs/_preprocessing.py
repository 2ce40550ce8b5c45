"""Preprocessing as a record: layout, channels and an affine map per channel, read from the details of a finding.

Details:
    input: name of the model's input that is prepared.
    raw_layout, layout: the order of the raw array's axes and of the model's, such as "NHWC" and "NCHW"; default the same.
    channels: for each channel of the model, the raw channel that it is; default all in their order. [2, 1, 0] turns BGR
        into RGB.
    subtract, divide: per channel of the model, or one number: prepared = (raw - subtract) / divide; default 0 and 1. A fit
        prepared = a * raw + b is subtract = -b / a, divide = 1 / a.
    raw_dtype: numpy name of the raw array's type ("uint8", "float32"); default uint8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What is done to a raw array: axes permuted, channels chosen on axis `channel` of the result, then the affine map.

    `axes`, `channels` are None, and `subtract`, `divide` empty, where nothing is to be done; the latter hold one number,
    or one per channel.
    """

    input: str
    rank: int
    channel: int
    axes: tuple[int, ...] | None
    channels: tuple[int, ...] | None
    subtract: tuple[float, ...]
    divide: tuple[float, ...]
    raw_dtype: str

    def shaped(self, numbers: tuple[float, ...]) -> np.ndarray:
        """Float32 numbers that broadcast over the prepared array: () for one, else one axis of channels."""
        array = np.asarray(numbers, np.float32)
        return array.reshape(()) if array.size == 1 else array.reshape(-1, *[1] * (self.rank - 1 - self.channel))


def preprocessing_of(details: Mapping[str, Any]) -> Preprocessing | None:
    """The record; None where the details name no input, contradict themselves, or nothing is to be done."""
    layout = str(details.get("layout", "NCHW"))
    raw_layout = str(details.get("raw_layout", layout))
    channels = tuple(int(channel) for channel in details.get("channels", ()))
    subtract, divide = (_as_numbers(details.get(key), neutral) for key, neutral in (("subtract", 0.0), ("divide", 1.0)))
    if not details.get("input") or sorted(layout) != sorted(raw_layout) or "C" not in layout or 0.0 in divide:
        return None
    if {len(each) for each in (channels, subtract, divide) if len(each) > 1} - {
        max(map(len, (channels, subtract, divide)))
    }:
        return None
    if not all(np.isfinite([*subtract, *divide])) or any(channel < 0 for channel in channels):
        return None
    axes = tuple(raw_layout.index(axis) for axis in layout)
    found = Preprocessing(
        input=str(details["input"]),
        rank=len(layout),
        channel=layout.index("C"),
        axes=None if axes == tuple(range(len(axes))) else axes,
        channels=None if channels in {(), tuple(range(len(channels)))} else channels,
        subtract=() if set(subtract) <= {0.0} else subtract,
        divide=() if set(divide) <= {1.0} else divide,
        raw_dtype=str(details.get("raw_dtype", "uint8")),
    )
    changes = found.axes or found.channels or found.subtract or found.divide or found.raw_dtype != "float32"
    return found if changes else None


def _as_numbers(given: object, neutral: float) -> tuple[float, ...]:
    if given is None:
        return (neutral,)
    return tuple(float(number) for number in np.ravel(np.asarray(given, np.float64)))
