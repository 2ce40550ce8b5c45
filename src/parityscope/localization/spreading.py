"""How far apart the runs of a recording are: what was recorded in two of its parts, compared with itself.

A recording in parts gives some tensors several times, because each part records what its own tensors are computed from.
The relative L2 distance of a copy from the tensor that is kept is the candidate's spread between sessions at that tensor:
0 for a runtime that is reproducible to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.comparison.distance import distance_between
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.records import Spread

if TYPE_CHECKING:
    from parityscope.localization.sides import Sides

__all__ = ["between_parts"]


def between_parts(sides: Sides) -> tuple[Spread, ...]:
    """The tensors that differ by more than one FP32 rounding between the parts that recorded them, the largest first.

    `value` is the worst over samples and copies; a tensor whose copies have other shapes is infinitely far apart.
    """
    candidate = sides.candidate
    names = {other: name for name, other in sides.pairing.items()}
    worst: dict[str, float] = {}
    counts: dict[str, set[int]] = {}
    for part, sample, other in candidate.copies:
        if other not in names or not candidate.has(sample, other):
            continue
        name = names[other]
        counts.setdefault(name, {candidate.parts.get(other, 0)}).add(part)
        apart = distance_between(sides.candidate.get(sample, other), sides.candidate.again(part, sample, other))
        worst[name] = max(worst.get(name, 0.0), apart)
    found = [
        Spread(tensor=name, value=value, runs=len(counts[name]))
        for name, value in worst.items()
        if value > FLOAT32_ROUNDING
    ]
    return tuple(sorted(found, key=lambda spread: -spread.value))
