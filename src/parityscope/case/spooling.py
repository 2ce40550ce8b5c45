"""A sample, and where samples are kept that are not to be read again: one uncompressed .npz each, in a folder of this run.

What is prepared (decoded, resized, tokenized) is kept up to `MOST_SPOOLED` bytes, and prepared again beyond: a usual data set is
prepared once, and one of any size needs no more disk than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats import NO_ARRAYS, Streamed
from parityscope.case.formats.npz import open_npz, write_npz
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

MOST_SPOOLED = 2 << 30  # bytes; chosen: 3,000 images of 224 x 224, and no disk is filled by it


# Not frozen: one is made of each sample, and that would take three times as long.
@dataclass(slots=True, kw_only=True)
class Sample:
    """One set of model inputs: `arrays` by input name, C-contiguous, in the dtype that the model declares.

    `index` counts from 0 over the data set; `name` is what a reader knows it by (a file name, "row 3 of x.npz");
    `original` is the image it was made from, if it was; `truths` is what is right for it, where the data says so, by name.
    """

    index: int
    name: str
    arrays: Mapping[str, np.ndarray]
    original: Path | None = None
    truths: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_ARRAYS)


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder of samples by index."""

    folder: Path
    kept: dict[int, tuple[str, Path | None, bool]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0])

    @property
    def nbytes(self) -> int:
        """What is kept, in bytes."""
        return self.sizes[0]

    def keep(self, sample: Sample) -> None:
        """Writes a sample.

        Raises:
            ParityError: the disk is full or the folder cannot be written to.
        """
        write_npz(self._path_of(sample.index), sample.arrays)
        if sample.truths:
            write_npz(self._path_of(sample.index, "truths"), sample.truths)
        self.kept[sample.index] = (sample.name, sample.original, bool(sample.truths))
        self.sizes[0] += sum(array.nbytes for array in sample.arrays.values())

    def read(self, index: int) -> Streamed:
        """A sample that was kept.

        Raises:
            ParityError: somebody took its file away.
        """
        name, original, told = self.kept[index]
        arrays = _read_all(self._path_of(index))
        truths = _read_all(self._path_of(index, "truths")) if told else NO_ARRAYS
        return Streamed(label=name, arrays=arrays, original=original, truths=truths)

    def _path_of(self, index: int, part: str = "") -> Path:
        return self.folder / f"{index:06d}{part and '-'}{part}.npz"


def _read_all(path: Path) -> Mapping[str, np.ndarray]:
    held = open_npz([path], str(path))
    return held.read(0, held.names(0))
