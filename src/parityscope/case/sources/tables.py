"""Parquet and Arrow files, a row a sample: columns with the inputs' names, or a preprocessing that gets the row as a dict.

Samples are read twice, when they are checked and when they are run. What was decoded is kept for that, up to a part of the
memory for tensors, where whole columns are the inputs.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from parityscope.case.formats.arrow import count_rows, read_batches
from parityscope.case.preparing import RawSample, preparation_of, take_columns
from parityscope.case.sources import DataSource, Indexed
from parityscope.case.sources._shards import Shard, index_shards
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from parityscope.case.formats import Streamed
    from parityscope.case.formats.arrow import Batch
    from parityscope.case.preparing import Prepare
    from parityscope.case.sources import Named, ReadingOptions
    from parityscope.records import ValueInfo


_PART = 4  # of the memory for tensors that decoded columns may take; chosen


def open_tables(paths: Sequence[Path], origin: str, named: Named, reading: ReadingOptions) -> Indexed:
    """The rows of the files, in order."""
    prepare = preparation_of(reading.preprocess, named.inputs)
    told = f"the rows of {origin}" + (f", {reading.preprocess}" if reading.preprocess else "")
    if reading.preprocess:
        return index_shards(paths, partial(_prepared_shard, prepare, reading.memory), told, prepared=True)
    kept = _Kept(left=reading.memory // _PART)
    return index_shards(paths, partial(_plain_shard, prepare, named.inputs, kept, reading.memory), told)


@dataclass(slots=True, kw_only=True)
class _Kept:
    """Batches of whole columns from the first of a file on, as many as fit into `left` bytes."""

    left: int
    batches: dict[Path, list[Batch]] = field(default_factory=dict)

    def read(self, path: Path, start: int, memory: int) -> Iterator[Batch]:
        """The batches of a file from the one on in which the row `start` lies."""
        held = self.batches.setdefault(path, [])
        for batch in [*held]:
            if batch.first + batch.count > start:
                yield batch
        behind = held[-1].first + held[-1].count if held else 0
        for batch in read_batches(path, max(start, behind), memory):
            size = sum(column.nbytes for column in (batch.columns or {}).values())
            if batch.columns and size <= self.left and batch.first == (held[-1].first + held[-1].count if held else 0):
                self.left -= size
                held.append(batch)
            yield batch


def _prepared_shard(prepare: Prepare, memory: int, path: Path) -> Shard:
    label = _labels_of(path)

    def rows(start: int) -> Iterator[Streamed]:
        for batch in read_batches(path, start, memory):
            yield from _prepare_rows(prepare, batch, start, label)

    return Shard(count=count_rows(path, memory), rows=rows, label=label)


def _plain_shard(prepare: Prepare, inputs: Sequence[ValueInfo], kept: _Kept, memory: int, path: Path) -> Shard:
    label = _labels_of(path)

    def rows(start: int) -> Iterator[Streamed]:
        for batch in kept.read(path, start, memory):
            if batch.columns and batch.count:
                yield from islice(
                    take_columns(batch.columns, batch.first, label, inputs), max(0, start - batch.first), None
                )
            else:
                yield from _prepare_rows(prepare, batch, start, label)

    return Shard(count=count_rows(path, memory), rows=rows, label=label)


def _prepare_rows(prepare: Prepare, batch: Batch, start: int, label: Callable[[int], str]) -> Iterator[Streamed]:
    for row in range(max(0, start - batch.first), batch.count):
        yield prepare(RawSample(label=label(batch.first + row), fields=batch.row(row)))


def _labels_of(path: Path) -> Callable[[int], str]:
    name = path.name
    return lambda row: f"row {row} of {name}"


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    return open_tables(named.files, named.words, named, reading)


SOURCE = DataSource(
    name="tables",
    words="rows",
    open=_open,
    suffixes=frozenset({".parquet", ".arrow", ".feather"}),
    takes=frozenset({"preprocess"}),
)
