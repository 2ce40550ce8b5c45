"""DATA -> samples, checked against what the model declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from parityscope.records import Skip

__all__ = ["Inputs", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One set of model inputs: `arrays` by input name, C-contiguous, in the dtype that the model declares.

    `index` counts from 0 over the data set; `name` is what a reader knows it by (a file name, "row 3 of x.npz");
    `original` is the image it was made from, if it was.
    """

    index: int
    name: str
    arrays: Mapping[str, np.ndarray]
    original: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A checked data set whose samples are read one at a time.

    `origin` says where it came from in words; `generated` that no real data was given; `seed` is the one it was
    generated with. `skipped` lists samples that are not judged (NaN in an input).
    """

    origin: str
    names: tuple[str, ...]
    sha256: str
    generated: bool = False
    seed: int | None = None
    skipped: tuple[Skip, ...] = ()

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Sample]: ...
    def sample(self, index: int) -> Sample: ...
