"""Safetensors: a sample each, or, with `--stacked`, a row a sample of one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.safetensors_file import open_safetensors, open_stacked_safetensors
from parityscope.case.sources import DataSource, Indexed, index_stored
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    if not reading.stacked:
        stored = open_safetensors(named.files, named.words)
    elif len(named.files) == 1:
        stored = open_stacked_safetensors(named.files[0], f"{named.files[0]}, stacked along axis 0")
    else:
        raise ParityError("only one .safetensors can be stacked", where=str(named.path), fix="give one file")
    return index_stored(stored, named.inputs, reading.memory)


SOURCE = DataSource(
    name="safetensors",
    words="a .safetensors",
    open=_open,
    suffixes=frozenset({".safetensors"}),
    takes=frozenset({"stacked"}),
)
