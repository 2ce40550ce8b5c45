"""Samples -> the largest magnitude of every activation that a quantized product reads.

This is calibration by the largest magnitude ("max", "min-max"): nothing that was seen saturates. Entropy or percentile
calibration clips outliers for smaller steps; a cache of TensorRT's tells what it chose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.quantizing import operands_of
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.backends.sizing import plan_chunks
from parityscope.case.formats.dynamic_ranges import dynamic_ranges_text
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.case import Inputs, Model, Sample


def calibrate_magnitudes(
    model: Model, samples: Inputs | Sequence[Sample], *, memory: int = 512 << 20, progress: Progress = ignore_progress
) -> dict[str, float]:
    """Largest finite magnitude by tensor, over `samples`, in the reference: one inference each for every `memory` bytes.

    Raises:
        ParityError: the reference cannot run.
    """
    wanted = operands_of(model.graph())
    found: dict[str, float] = {}
    for sample in samples:
        _add_magnitudes(found, {name: array for name, array in sample.arrays.items() if name in wanted})
    computed = [name for name in wanted if name in model.sites]
    for chunk in plan_chunks(model, next(iter(samples)), computed, memory) if computed else []:
        with open_target(model, Target(backend="ort"), Capture(tensors=tuple(chunk))) as session:
            for position, sample in enumerate(samples):
                progress("calibrating", position, len(samples))
                arrays = session.run(sample)
                _add_magnitudes(found, {name: arrays[name] for name in chunk if name in arrays})
    progress("calibrating", len(samples), len(samples))
    return found


def quantized_target(precision: str, largest: Mapping[str, float]) -> Target:
    """The simulation of quantized products with these magnitudes."""
    return Target(backend="sim", precision=precision, options=(("dynamic_range", dynamic_ranges_text(largest)),))


def _add_magnitudes(found: dict[str, float], arrays: Mapping[str, np.ndarray]) -> None:
    for name, size in _finite_magnitudes(arrays):
        found[name] = max(found.get(name, 0.0), size)


def _finite_magnitudes(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            magnitude = np.abs(array)
            yield name, float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
