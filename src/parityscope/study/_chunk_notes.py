"""Notes of the chunks that a comparison of every tensor has measured, so that an interrupted one goes on from there.

A note, `tensors-<chunk>.json`, holds the statistics of a chunk's tensors as plain data, with a digest of all that they depend
on (the facts of the run, both targets, the pairing, the samples) and the CRC-32 of what it holds. One that does not fit,
or cannot be read, is no note: the chunk is measured again. What a `command` gives is never used again, as for recorded tensors.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.backends.resuming import digest_of, facts_above
from parityscope.backends.targets import format_target
from parityscope.comparison import from_plain, to_plain
from parityscope.errors import ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from parityscope.comparison import Statistics
    from parityscope.records import Target

__all__ = ["Measured", "Notebook", "notebook_of"]


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
        try:
            note = json.loads(self._path(number).read_text(encoding="utf-8"))
            if [note["key"], note["names"]] != [self.key, list(names)] or note["check"] != zlib.crc32(
                note["found"].encode()
            ):
                return None
            found = json.loads(note["found"])
            totals = {name: from_plain(plain) for name, plain in found["totals"].items()}
            return Measured(totals=totals, problems=found["problems"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ParityError):
            return None

    def keep(self, number: int, names: Iterable[str], measured: Measured) -> None:
        """Notes what chunk `number` showed; the note appears when it is complete."""
        if any(statistics.states for statistics in measured.totals.values()):
            return  # what metrics from outside hold has no plain form
        totals = {name: to_plain(statistics) for name, statistics in measured.totals.items()}
        found = json.dumps({"totals": totals, "problems": dict(measured.problems)})
        note = {"key": self.key, "names": list(names), "check": zlib.crc32(found.encode()), "found": found}
        path = self._path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(note))

    def _path(self, number: int) -> Path:
        return self.folder / f"tensors-{number:03d}.json"


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
