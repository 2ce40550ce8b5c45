"""What localization looks at: one model, its inputs, and both sides' tensors, told apart by name.

Norms are L2 in float64; an output's error is divided by its reference's norm, so that outputs of different scale add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.trace import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Inputs, Model
    from parityscope.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both traces hold the same samples; `pairing` maps tensors of the reference's graph to the candidate's."""

    model: Model
    inputs: Inputs
    reference: Trace
    candidate: Trace
    pairing: Mapping[str, str]

    def kind(self, name: str) -> tuple[str, int]:
        """(numpy dtype name, rank) of the reference's tensor."""
        dtype, shape = self.reference.info(self.reference.samples[0], name)
        return dtype, len(shape)

    def nbytes(self, sample: int, name: str) -> int:
        """Size of the reference's tensor in bytes."""
        dtype, shape = self.reference.info(sample, name)
        return numpy_dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))

    def unlike(self, sample: int, name: str) -> str:
        """Why a tensor of one sample cannot be compared; empty when it can."""
        other = self.pairing[name]
        if not self.reference.has(sample, name):
            return "the reference did not give it back"
        if not self.candidate.has(sample, other):
            return "the candidate did not give it back"
        dtype, shape = self.reference.info(sample, name)
        its_dtype, its_shape = self.candidate.info(sample, other)
        if shape != its_shape:
            return f"its shape is {list(shape)} in the reference and {list(its_shape)} in the candidate"
        if dtype.startswith(("str", "object")):
            return "strings have no error"
        if _dtype_family(dtype) != _dtype_family(its_dtype):
            return f"it is {dtype} in the reference and {its_dtype} in the candidate"
        return ""

    def observed(self) -> list[str]:
        """The paired tensors that nodes compute and both sides have for every sample, in topological order."""
        places = self.model.sites
        names = (name for name in self.pairing if name in places)
        alike = [name for name in names if not any(self.unlike(sample, name) for sample in self.reference.samples)]
        return sorted(alike, key=lambda name: places[name].index)

    def float_outputs(self, sample: int) -> list[str]:
        """The model's float outputs that both sides have."""
        names = [value.name for value in self.model.outputs]
        return [
            name
            for name in names
            if name in self.pairing
            and not self.unlike(sample, name)
            and _dtype_family(self.reference.info(sample, name)[0]) == "float"
        ]

    def part(self, name: str) -> int:
        """The part of the candidate's recording that its tensor is from: tensors of one part are of one run."""
        return self.candidate.parts.get(self.pairing[name], 0)

    def candidate_tensor(self, sample: int, name: str, *, reader: str) -> np.ndarray:
        """The candidate's tensor as it was in the run that gave `reader`, in the dtype of the reference's graph.

        `reader` is what is computed from it, or the tensor itself.
        """
        value = self.candidate.beside(sample, self.pairing[name], self.pairing[reader])
        return value.astype(numpy_dtype(self.reference.info(sample, name)[0]), copy=False)

    def apart(self, name: str, *, reader: str) -> bool:
        """Whether no recorded run of the candidate gave both tensors."""
        sample = self.candidate.samples[0]
        return self.candidate.apart(sample, self.pairing[name], self.pairing[reader])

    def error(self, sample: int, name: str) -> np.ndarray:
        """The error c - r in float64."""
        mine = self.candidate.get(sample, self.pairing[name]).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return mine - self.reference.get(sample, name).astype(np.float64)

    def scale(self, sample: int, name: str) -> float:
        """The norm that an output's error is divided by; 1 for an output that is all zeros."""
        array = self.reference.get(sample, name).astype(np.float64)
        return float(np.linalg.norm(array[np.isfinite(array)])) or 1.0


def _dtype_family(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "integer" if dtype.startswith(("int", "uint")) else "float"
