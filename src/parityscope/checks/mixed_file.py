"""A mixed-precision file, simulated as it is typed or with some of its FP32 islands ignored, held against the candidate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.islands import model_ignoring_islands
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.evaluation.simulating import open_simulation
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.arithmetic.islands import Island
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.bench import Bench
    from parityscope.case import Model
    from parityscope.examination import Examination

_FALL = 10.0  # as elsewhere: 99 % of the error in squares
_SAME_PLACES = 0.9  # of the lost elements; the bound of RNG002: at the edge of the range the last bit decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The worst relative L2 distance of the finite elements of any output (infinite if others are lost), and what it may be."""

    error: float
    limit: float

    def explains(self, before: Distance) -> bool:
        """Whether it is within its limit, and takes 99 % of the error of `before` (in squares)."""
        return self.error <= self.limit and self.error * _FALL < before.error


class MixedFile:
    """Simulations of the mixed file, held against the candidate on the samples of the bench."""

    def __init__(self, known: Examination, bench: Bench, model: Model) -> None:
        self.known, self.bench, self.model = known, bench, model
        ours, theirs = [value.name for value in model.outputs], [value.name for value in known.model.outputs]
        self.named = dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {name: name for name in ours}

    def run(self, ignored: Sequence[Island], tensors: Sequence[str] = ()) -> Run:
        """The file as it is typed, but for the `ignored` islands."""
        return open_simulation(
            arrange_precision(model_ignoring_islands(self.model.graph(), ignored), None), [*self.named, *tensors]
        )

    def distance(self, ignored: Sequence[Island]) -> Distance:
        """The worst sample's."""
        run = self.run(ignored)
        found = [
            self._worst_distance(run(self.bench.inputs(index)), self.bench.candidate(index))
            for index in self.bench.samples
        ]
        return max(found, key=lambda one: one.error / one.limit)

    def tells(self) -> bool:
        """Whether an output of the candidate holds any number to go by."""
        return any(
            bool(np.isfinite(array).any())
            for index in self.bench.samples
            for array in self.bench.candidate(index).values()
            if array.dtype.kind == "f"
        )

    def _worst_distance(self, simulated: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> Distance:
        found = [
            Distance(error=finite_distance(simulated[ours], candidate[name]), limit=self._limit_of_output(name))
            for ours, name in self.named.items()
            if name in candidate and candidate[name].dtype.kind == "f"
        ]
        return max(found, key=lambda one: one.error / one.limit, default=Distance(error=math.inf, limit=1.0))

    def _limit_of_output(self, output: str) -> float:
        """What rounding to halves may do to an output, whatever was declared: the file's own types are halves."""
        expected = next((pair.expected for pair in self.known.outputs if pair.site.tensor == output), {})
        errors = [expected[name] * margin_of(name) for name in ("f32", "f16", "bf16") if name in expected]
        return max([*errors, margin_of("f32") * FLOAT32_ROUNDING])


def finite_distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Relative L2 over what is finite in both; infinite if the shapes or the lost elements are not the same."""
    if expected.shape != found.shape:
        return math.inf
    lost, gone = ~np.isfinite(expected), ~np.isfinite(found)
    either = int((lost | gone).sum())
    if either and int((lost & gone).sum()) < _SAME_PLACES * either:
        return math.inf
    kept = ~(lost | gone)
    ours, theirs = expected[kept].astype(np.float64), found[kept].astype(np.float64)
    norm, apart = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs - ours))
    return apart / norm if norm else (math.inf if apart else 0.0)
