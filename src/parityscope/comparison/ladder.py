"""At which tolerance each tensor begins to fail, from loose to tight.

A tolerance is a limit on the relative L2 error. The ladder goes down in half decades (1, 0.3, 0.1, ...) from the loosest
step that nothing exceeds to the first one that everything with an error exceeds: where the first tensors fail is where
a fixed tolerance would have pointed, and how far the ladder reaches says how little one number tells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

# Down to 1e-8: below the rounding of float32 (6e-8) nothing can be told.
_STEPS = tuple(float(f"{digit}e{exponent}") for exponent in range(2, -9, -1) for digit in (3, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One tolerance: how many tensors exceed it, which of them comes first in the graph, and which are new here."""

    tolerance: float
    failing: int
    first: str
    new: tuple[str, ...]


def tolerance_ladder(errors: Sequence[tuple[str, float]]) -> tuple[Rung, ...]:
    """The rungs for `errors`, (tensor, relative L2 error) in graph order; NaN and infinity exceed every tolerance."""
    rungs: list[Rung] = []
    seen: set[str] = set()
    beyond = [name for name, error in errors if not math.isfinite(error)]
    anything = sum(1 for _, error in errors if error != 0)
    for tolerance in _STEPS:
        failing = [name for name, error in errors if name in beyond or error > tolerance]
        if not failing:
            rungs.clear()  # only the tightest step that nothing exceeds is shown
        new = tuple(name for name in failing if name not in seen)
        if new or not failing:
            rungs.append(Rung(tolerance=tolerance, failing=len(failing), first=failing[0] if failing else "", new=new))
        seen.update(failing)
        if len(failing) == anything:
            break
    return tuple(rungs)
