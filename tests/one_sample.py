"""Inputs of one sample that lies in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case import Inputs, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


def one_sample(arrays: Mapping[str, np.ndarray]) -> Inputs:
    sample = Sample(index=0, name="sample", arrays=arrays)
    return Inputs(origin="test", names=tuple(arrays), sha256="", indices=(0,), read=lambda _: sample)
