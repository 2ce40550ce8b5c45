"""A deployment that computes in another arithmetic than it says: what the faults of that kind have in common."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from proving.faults.planting import answers, apart, recorded
from proving.faults.records import NoEffectError, Plant

if TYPE_CHECKING:
    from collections.abc import Callable

    from proving.faults.records import Bed


def undeclared(name: str) -> Callable[[Bed], Plant]:
    """Plants the format `name` where FP32 is declared: live, or recorded with all tensors, or with the outputs alone."""
    # Faults go to other processes, which functions made inside of functions cannot.
    return functools.partial(_planted, name)


def _planted(name: str, bed: Bed) -> Plant:
    way = int(bed.draw.integers(3))
    exact, found = answers(bed.path, bed.samples), answers(bed.path, bed.samples, name)
    if max(apart(exact, found, output) for output in exact[0]) < 1e-5:
        raise NoEffectError("the outputs do not show it")
    if way == 0:
        candidate = f"sim:{name}"
    else:
        outputs = answers(bed.path, bed.samples, name, inside=way == 1)
        candidate = recorded(bed, outputs, "f32")
    words = ("live", "all tensors recorded", "outputs recorded")[way]
    return Plant(words=f"{name} where f32 was declared ({words})", candidate=candidate, declared="f32")
