"""The bytes of an output are read as another type: half-precision results viewed as float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import read
from proving.faults.records import Fault
from proving.faults.subjects import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proving.faults.records import Bed, Plant

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    def change(samples: Samples) -> Samples:
        found = []
        for each in samples:
            name = next(one for one, array in each.items() if array.dtype == np.float32)
            data = each[name].astype(np.float16).reshape(-1).view(np.uint8)
            held = np.zeros(each[name].nbytes, np.uint8)
            held[: data.size] = data
            found.append({**each, name: held.view(np.float32).reshape(each[name].shape)})
        return found

    return read(bed, change, "an output in float16 is read as float32")


FAULT = Fault(
    title="An output read as another type",
    family="bindings",
    expected="BND004",
    repair="read_rightly",
    subjects=OUTPUTS,
    plant=_plant,
)
