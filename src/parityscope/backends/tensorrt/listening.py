"""Tensors that an engine shows while it runs, one after another -> arrays by name, within a memory budget.

TensorRT calls its debug listener with each tensor while its memory is valid; what is kept is decoded there and then. What
exceeds the budget goes to files that are mapped, so that memory stays bounded whatever the network. A tensor that comes
more than once (in a loop) is kept each time: the first under its name, then `name#1`, `name#2` and so on. What is
only summarized is not kept: its numbers alone go on from sample to sample.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.tensorrt.borders import fits_shape
from parityscope.backends.tensorrt.decoding import decode_tensor, to_storable_type
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The numbers of all occurrences of a tensor: extremes and mean are of its finite elements (NaN where there are none).

    `dtype` and `shape` are those of the last occurrence.
    """

    dtype: str
    shape: tuple[int, ...]
    occurrences: int
    count: int
    nan: int
    inf: int
    smallest: float
    largest: float
    mean: float


@dataclass(slots=True, kw_only=True)
class Heard:
    """What a listener took in during one run. `names` maps the engine's names to ours; others are passed over.

    Args:
        names: The tensors to keep, by the engine's name.
        budget: Bytes to keep in memory; what comes after them goes to `folder`.
        folder: Where tensors beyond the budget are spilled.
        keeps: Keep the arrays.
        shapes: The shapes that tensors must have, by our names; one that cannot have it is another tensor, and passed over.
        summarizes: Keep the numbers of each tensor, until `clear` forgets the arrays and beyond.
    """

    names: Mapping[str, str]
    budget: int
    folder: Path
    keeps: bool = True
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    summarizes: bool = False
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    summaries: dict[str, Summary] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    held: int = 0

    def wants(self, name: str) -> bool:
        """Whether the engine's tensor `name` is one to keep; others are remembered as `unknown`."""
        if name not in self.names:
            self.unknown.add(name)
        return name in self.names

    def take(self, name: str, dtype: str, shape: tuple[int, ...], content: np.ndarray) -> None:
        """Takes in one occurrence of the engine's tensor `name`; `content` is uint8, (nbytes,), and is not kept."""
        ours = self.names[name]
        wanted = self.shapes.get(ours, shape)
        if not fits_shape(shape, wanted):
            self.unknown.add(name)
            return
        array = to_storable_type(decode_tensor(content, dtype, shape).reshape(wanted))
        if self.summarizes:
            self.summaries[ours] = _join_summaries(self.summaries.get(ours), _summarize_array(array))
        if not self.keeps:
            return
        turn = self.turns.get(ours, 0)
        self.turns[ours] = turn + 1
        self.arrays[f"{ours}#{turn}" if turn else ours] = self._kept(array, len(self.arrays))

    def clear(self) -> None:
        """Forgets the arrays of a run; those that were handed out stay valid, and summaries go on."""
        self.arrays.clear()
        self.turns.clear()
        self.held = 0

    def _kept(self, array: np.ndarray, number: int) -> np.ndarray:
        if self.held + array.nbytes <= self.budget or not array.nbytes:
            self.held += array.nbytes
            return array.copy()
        path = self.folder / f"{number:06d}.raw"
        array.tofile(path)
        mapped = np.memmap(path, dtype=np.uint8, mode="r", shape=(array.nbytes,))
        # The map keeps the file alive; its name may go.
        path.unlink()
        return mapped.view(array.dtype).reshape(array.shape)


def _summarize_array(array: np.ndarray) -> Summary:
    numbers = array.astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    return Summary(
        dtype=array.dtype.name,
        shape=array.shape,
        occurrences=1,
        count=numbers.size,
        nan=int(np.isnan(numbers).sum()),
        inf=int(np.isinf(numbers).sum()),
        smallest=float(finite.min()) if finite.size else math.nan,
        largest=float(finite.max()) if finite.size else math.nan,
        mean=float(finite.mean()) if finite.size else math.nan,
    )


def _join_summaries(before: Summary | None, now: Summary) -> Summary:
    if before is None:
        return now
    finite = [one.count - one.nan - one.inf for one in (before, now)]
    weighed = sum(size * one.mean for size, one in zip(finite, (before, now), strict=True) if size)
    return Summary(
        dtype=now.dtype,
        shape=now.shape,
        occurrences=before.occurrences + 1,
        count=before.count + now.count,
        nan=before.nan + now.nan,
        inf=before.inf + now.inf,
        smallest=float(np.fmin(before.smallest, now.smallest)),
        largest=float(np.fmax(before.largest, now.largest)),
        mean=weighed / sum(finite) if sum(finite) else math.nan,
    )
