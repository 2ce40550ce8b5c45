"""Samples whose inputs are the same, bit for bit: they say no more than one of them does.

Whatever is counted over samples (a certificate, an interval) takes them for drawn one by one. A data set that holds a file
twice, or that was padded with copies, would prove more than it knows.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parityscope.case.inputs import Sample


def repeats_of(samples: Iterable[Sample]) -> dict[int, int]:
    """The index of each sample that repeats an earlier one, with the index of the first that has the same inputs."""
    first: dict[bytes, int] = {}
    found: dict[int, int] = {}
    for sample in samples:
        digest = hashlib.sha256()
        for name, array in sorted(sample.arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        known = first.setdefault(digest.digest(), sample.index)
        if known != sample.index:
            found[sample.index] = known
    return found
