"""Notes of the chunks that a comparison of every tensor has measured, so that an interrupted one goes on from there.

A note, `tensors-<chunk>.note`, holds the statistics of a chunk's tensors as a record (`workers.packing`), with a digest of all
that they depend on (the facts of the run, both targets, the pairing, the samples). One that does not fit, or is not whole, is
no note: the chunk is measured again. What a `command` gives is never used again, as for recorded tensors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.backends.resuming import digest_of, facts_above, read_note, write_note
from parityscope.backends.targets import format_target
from parityscope.comparison import Channels, Exact, Floats, Histogram, Moments, Scores, Sketch, Statistics
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from parityscope.records import Target

# The records that statistics are made of.
STATISTICS = (Statistics, Floats, Exact, Moments, Histogram, Sketch, Channels, Scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a chunk showed: statistics by tensor, and why others have none."""

    totals: Mapping[str, Statistics]
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """The notes in `folder`; `key` is the digest of all that they depend on but for the names of the tensors."""

    folder: Path
    key: str

    def kept(self, number: int, names: Iterable[str]) -> Measured | None:
        """What chunk `number` showed before; None if it was not measured whole, or in another run."""
        found: Measured | None = read_note(self._path(number), (self.key, tuple(names)), (Measured, *STATISTICS))
        return found

    def keep(self, number: int, names: Iterable[str], measured: Measured) -> None:
        """Notes what chunk `number` showed; the note appears when it is complete."""
        with contextlib.suppress(ParityError):  # what a metric from outside holds may be no plain data
            write_note(self._path(number), (self.key, tuple(names)), measured)

    def _path(self, number: int) -> Path:
        return self.folder / f"tensors-{number:03d}.note"


def notebook_of(
    folder: Path, targets: Iterable[Target], pairing: Mapping[str, str], samples: Iterable[int]
) -> Notebook | None:
    """The notebook of a comparison in `folder`; None where nothing may be used again."""
    sides = list(targets)
    facts = facts_above(folder)
    if facts is None or any(backend_named(target.backend).runs_program for target in sides):
        return None
    known = [facts, [format_target(target) for target in sides], dict(pairing), list(samples)]
    return Notebook(folder=folder, key=digest_of(known))
