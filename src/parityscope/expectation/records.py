"""What is to be expected, as plain records."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison.parts import Parts
    from parityscope.records import Skip

Reference = Callable[[int, str], np.ndarray | None]  # (sample, tensor) -> what the reference computed

# Of the floor: TF32, the nearest arithmetic to FP32, is 2^13 away, and honest kernels within 2. Chosen between, nearer to TF32.
FAR = 2.0**10


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Expected relative L2 error by format and tensor ("f32" is the noise floor), and what could not be predicted.

    Of what is not floating point it is the share of unequal elements. `moved` are the tensors that ONNX Runtime's optimizer
    moves far beyond the floor, and how far: there it is not to be trusted. `parts` are the expected errors by part of a tensor,
    by format and (sample, tensor), where they were asked for.
    """

    errors: Mapping[str, Mapping[str, float]]
    skipped: tuple[Skip, ...] = ()
    moved: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    parts: Mapping[str, Mapping[tuple[int, str], Parts]] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, tensor: str) -> dict[str, float]:
        """Expected error of one tensor by format."""
        return {name: found[tensor] for name, found in self.errors.items() if tensor in found}

    def and_also(self, other: Expectation) -> Expectation:
        """Both; of a format that both have, the other's."""
        return Expectation(
            errors={**self.errors, **other.errors},
            skipped=tuple(dict.fromkeys((*self.skipped, *other.skipped))),
            moved={**self.moved, **other.moved},
            parts={**self.parts, **other.parts},
        )
