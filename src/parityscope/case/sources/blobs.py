"""A folder of raw blobs, as trtexec and Polygraphy read and write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.trtexec import Expected, open_raw
from parityscope.case.sources import DataSource, Indexed, index_stored

if TYPE_CHECKING:
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    stored = open_raw(named.path, Expected(values=named.inputs, kind="input", shapes=reading.shapes))
    return index_stored(stored, named.inputs, reading.memory)


SOURCE = DataSource(name="raw", words="raw blobs", open=_open, suffixes=frozenset({".bin", ".raw"}))
