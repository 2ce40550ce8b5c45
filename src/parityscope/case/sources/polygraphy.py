"""Polygraphy's saved inputs: JSON, one file or one an iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.polygraphy import open_inputs
from parityscope.case.sources import DataSource, Indexed, index_stored

if TYPE_CHECKING:
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    origin = f"Polygraphy's saved inputs {'in ' if named.path.is_dir() else ''}{named.path}"
    return index_stored(open_inputs(named.files, origin), named.inputs, reading.memory)


SOURCE = DataSource(name="json", words="Polygraphy's inputs", open=_open, suffixes=frozenset({".json"}))
