"""One element of very many is far off, and the largest difference judges (NVIDIA/TensorRT issue 4361)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import read
from proving.faults.records import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proving.faults.records import Bed, Plant

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    size = float(bed.draw.choice([251.31, -80.0, 1e4]))

    def change(samples: Samples) -> Samples:
        found = []
        for each in samples:
            name = max(each, key=lambda one: each[one].size)
            spoilt = each[name].copy()
            spoilt.reshape(-1)[int(bed.draw.integers(spoilt.size))] += np.float32(size)
            found.append({**each, name: spoilt})
        return found

    return read(bed, change, f"one element is off by {size:g}")


FAULT = Fault(
    title="One outlier in many thousands",
    family="data",
    expected="DAT007",
    subjects=("small-map", "ocr-det", "ocr-rec", "pitch"),
    plant=_plant,
)
