"""numpy's .npz: a sample each, or, with `--stacked`, a row a sample, in one file or in shards."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parityscope.case.formats.npz import count_stacked_npz, open_npz, read_stacked_npz
from parityscope.case.sources import DataSource, Indexed, index_stored
from parityscope.case.sources._shards import Shard, index_shards

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    if reading.stacked:
        return index_shards(named.files, _shard_of, f"{named.words}, stacked along axis 0")
    return index_stored(open_npz(named.files, named.words), named.inputs, reading.memory)


def _shard_of(path: Path) -> Shard:
    return Shard(
        count=count_stacked_npz(path),
        rows=partial(read_stacked_npz, path),
        label=lambda row: f"row {row} of {path.name}",
    )


SOURCE = DataSource(name="npz", words="an .npz", open=_open, suffixes=frozenset({".npz"}), takes=frozenset({"stacked"}))
