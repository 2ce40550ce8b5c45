"""Rows that get another row's answer: what a batch that was built in for fewer rows gives.

A kernel for k rows that is run on more gives the answers of the first k again and again. That predicts the whole output from
the reference's alone, so that a recording is enough, and nothing in it is fitted but k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks._reproducing import bad_samples, misfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.checks import Bench, Scene
    from parityscope.checks._reproducing import Misfit

    Arrays = Mapping[str, np.ndarray]

__all__ = ["repeated", "turned"]


def repeated(scene: Scene, bench: Bench, rows: int) -> tuple[int, Misfit] | None:
    """How many first rows the candidate's answers repeat in the first sample, and what that leaves of its error.

    None where no number below `rows` explains the error, or where the outputs tell too little to judge by.
    """
    index = bench.samples[0]
    if index not in bad_samples(scene, bench):
        return None
    reference, candidate = bench.reference(index), bench.candidate(index)
    before = misfit(scene, reference, candidate)
    for count in range(1, rows):
        again = np.arange(rows) % count
        left = misfit(scene, {name: _taken(array, again) for name, array in reference.items()}, candidate)
        if left.explains(before):
            return count, left
    return None


def turned(arrays: Arrays) -> dict[str, np.ndarray]:
    """The same rows, each one place further on, the last one first."""
    return {name: np.roll(array, 1, axis=0) if array.ndim else array for name, array in arrays.items()}


def _taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Those rows of an output that has one for each of the batch; any other output as it is."""
    return array[rows] if array.ndim and len(array) == len(rows) else array
