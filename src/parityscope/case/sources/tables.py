"""Parquet and Arrow files, a row a sample: columns with the inputs' names, or a preprocessing that gets the row as a dict."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parityscope.case.formats.arrow import count_rows, read_rows
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed
from parityscope.case.sources._shards import Shard, index_shards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from parityscope.case.formats import Streamed
    from parityscope.case.preparing import Prepare
    from parityscope.case.sources import Named, ReadingOptions

__all__ = ["SOURCE", "open_tables"]


def open_tables(paths: Sequence[Path], origin: str, named: Named, reading: ReadingOptions) -> Indexed:
    """The rows of the files, in order."""
    prepare = preparation_of(reading.preprocess, named.inputs)
    told = f"the rows of {origin}" + (f", {reading.preprocess}" if reading.preprocess else "")
    return index_shards(paths, partial(_shard_of, prepare, reading.memory), told, prepared=bool(reading.preprocess))


def _shard_of(prepare: Prepare, memory: int, path: Path) -> Shard:
    file = path.name

    def label(row: int) -> str:
        return f"row {row} of {file}"

    def rows(start: int) -> Iterator[Streamed]:
        for row, fields in enumerate(read_rows(path, start, memory), start):
            yield prepare(RawSample(label=label(row), fields=fields))

    return Shard(count=count_rows(path, memory), rows=rows, label=label)


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    return open_tables(named.files, named.words, named, reading)


SOURCE = DataSource(
    name="tables",
    words="rows",
    open=_open,
    suffixes=frozenset({".parquet", ".arrow", ".feather"}),
    takes=frozenset({"preprocess"}),
)
