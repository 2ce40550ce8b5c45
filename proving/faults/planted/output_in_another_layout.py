"""An output whose memory has its axes in another order is reshaped in place of transposed, or read with another pitch of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import read
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proving.faults.records import Bed, Plant

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    padded = bool(bed.draw.random() < 0.4)

    def change(samples: Samples) -> Samples:
        return [{**each, name: _turned(each[name], padded=padded)} for each in samples for name in [_widest(each)]]

    return read(bed, change, "rows of an output begin at multiples of 256 bytes" if padded else "axes exchanged")


def _widest(arrays: Mapping[str, np.ndarray]) -> str:
    name = max(arrays, key=lambda one: sum(size > 1 for size in arrays[one].shape))
    if sum(size > 1 for size in arrays[name].shape) < 2:
        raise NoEffectError("every output is one row")
    return name


def _turned(array: np.ndarray, *, padded: bool) -> np.ndarray:
    if padded:
        width = array.shape[-1]
        step = -(-width * array.itemsize // 256) * 256 // array.itemsize
        rows = np.zeros((array.size // width, step), array.dtype)
        rows[:, :width] = array.reshape(-1, width)
        return rows.reshape(-1)[: array.size].reshape(array.shape)
    long = [axis for axis, size in enumerate(array.shape) if size > 1]
    axes = list(range(array.ndim))
    axes[long[-2]], axes[long[-1]] = axes[long[-1]], axes[long[-2]]
    return np.ascontiguousarray(array.transpose(axes)).reshape(array.shape)


FAULT = Fault(
    title="An output in another memory layout",
    family="bindings",
    expected="BND004",
    repair="read_rightly",
    subjects=("small-encoder", "small-rows", "small-map", "ocr-rec", "ocr-det", "minilm-i8", "pitch"),
    plant=_plant,
)
