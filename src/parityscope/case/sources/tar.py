"""WebDataset's shards: plain .tar archives, read in place; members that share a name up to its first dot are a sample.

A field is called by the end of its name: `jpg`, `png` and their like are decoded, `npy` is an array, `npz` are arrays by
their own names, `json` its fields, `txt` a text, `cls` a class, `wav` a sound; other members are bytes.
"""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UNREADABLE, unreadable_error
from parityscope.case.formats.arrow import decode_media
from parityscope.case.formats.images import IMAGE_SUFFIXES
from parityscope.case.formats.npy import read_npy
from parityscope.case.formats.npz import read_member_arrays
from parityscope.case.formats.tar import list_samples, read_member
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed
from parityscope.case.sources._shards import Shard, index_shards
from parityscope.errors import ParityError
from parityscope.plain_documents import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parityscope.case.formats import Streamed
    from parityscope.case.formats.tar import Members
    from parityscope.case.preparing import Prepare
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    prepare = preparation_of(reading.preprocess, named.inputs)
    origin = f"the samples of {named.words}" + (f", {reading.preprocess}" if reading.preprocess else "")
    return index_shards(named.files, partial(_shard_of, prepare, reading.memory), origin, prepared=True)


def _shard_of(prepare: Prepare, memory: int, path: Path) -> Shard:
    listing = list_samples(path)

    def label(row: int) -> str:
        return f"{listing.samples[row][0]} of {path.name}"

    def rows(start: int) -> Iterator[Streamed]:
        for row in range(start, len(listing.samples)):
            yield prepare(RawSample(label=label(row), fields=_read_fields(path, listing.samples[row][1], memory)))

    return Shard(count=len(listing.samples), rows=rows, label=label, short=listing.short)


def _read_fields(path: Path, members: Members, memory: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for ending, member in members.items():
        content = read_member(path, member, memory)
        try:
            fields |= _decode_member(ending, content, path, memory)
        except ParityError:
            raise
        except UNREADABLE as error:
            raise unreadable_error(path, f".{ending}: {error}") from error
    return fields


def _decode_member(ending: str, content: bytes, path: Path, memory: int) -> dict[str, Any]:
    """The fields that a member is, by name.

    Raises:
        ParityError, *UNREADABLE: it is damaged.
    """
    last = ending.rpartition(".")[2]
    if f".{last}" in IMAGE_SUFFIXES or last == "wav":
        return {ending: decode_media(content, f"{path.name}.{ending}", memory)}
    match last:
        case "npy":
            name = ending.rpartition(".")[0] or ending  # `key.x.npy` is the input x
            return {name: read_npy(io.BytesIO(content), len(content))}
        case "npz":
            return dict(read_member_arrays(io.BytesIO(content)))
        case "txt" | "text":
            return {ending: content.decode("utf-8")}
        case "cls":
            return {"class": np.array(int(content), np.int64)}
        case "json":
            try:
                found = parse_json(content.decode("utf-8"), f".{ending}", path)
            except ParityError as error:
                raise unreadable_error(path, error.problem) from error
            return dict(found) if isinstance(found, dict) else {ending: found}
    return {ending: content}


SOURCE = DataSource(
    name="tar", words="shards", open=_open, suffixes=frozenset({".tar"}), takes=frozenset({"preprocess"})
)
