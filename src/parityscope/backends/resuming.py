"""Which recorded chunks of an interrupted run may be used again.

A scratch folder that can be resumed holds `resume.json`: the facts of the run (digests of model, inputs and every file
that a target names, both targets, the samples, versions of the runtimes and of Parityscope). Beside each chunk of
tensors that was recorded whole lies a note, `<label>-<chunk>.note`, with the digest of those facts, the target, what was
asked for, what the session told, and size and CRC-32 of each file. A chunk is used again only if all of it
is as noted; whatever else is found is recorded again.

What a `command` gives is never used again: nobody knows what a program depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip, Target
from parityscope.trace import StoredTensor, Trace, read_safetensors
from parityscope.whole_files import write_whole
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from parityscope.case import Model

FACTS = "resume.json"
NOTES = "*-[0-9][0-9][0-9].note"  # beside the chunks
_ABOVE = 2  # folders between the facts and the chunks: tensors/layers
_BLOCK = 1 << 20
_RECORDS = (Trace, Target, Skip, ExecutedGraph, ExecutedLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The notes of one target's chunks in `folder`; `key` is the digest of all that they depend on."""

    folder: Path
    target: Target
    key: str

    def kept(self, label: str, number: int, samples: Sequence[int], tensors: Sequence[str]) -> Trace | None:
        """Chunk `number` as it was recorded before; None if it was not, or not whole, or for another run."""
        found = read_note(self._note(label, number), (self.key, tuple(samples), tuple(tensors)), _RECORDS)
        # A file that cannot be read is recorded again.
        with contextlib.suppress(OSError, ValueError, ParityError):
            if found is not None and all(_file_mark(self.folder / name) == mark for name, mark in found[2].items()):
                held = {
                    (index, name): tensor
                    for index, file in found[1].items()
                    for name, tensor in read_safetensors(self.folder / file).items()
                }
                trace: Trace = replace(found[0], tensors=held)
                return trace
        return None

    def keep(self, label: str, number: int, tensors: Sequence[str], trace: Trace) -> None:
        """Notes that chunk `number` is whole; the note appears when it is complete."""
        where = {index: held.path.name for (index, _), held in trace.tensors.items() if isinstance(held, StoredTensor)}
        marks = {name: _file_mark(self.folder / name) for name in where.values()}
        asked = self.key, tuple(trace.samples), tuple(tensors)
        write_note(self._note(label, number), asked, (replace(trace, tensors={}), where, marks))

    def _note(self, label: str, number: int) -> Path:
        return self.folder / f"{label}-{number:03d}.note"


def ledger_of(folder: Path, target: Target, own: Model) -> Ledger | None:
    """The ledger of what `target` recorded of its model `own` in `folder`; None where nothing may be used again."""
    if target.backend == "command":
        return None
    facts = facts_above(folder)
    if facts is None:
        return None
    return Ledger(folder=folder, target=target, key=digest_of([facts, format_target(target), own.sha256]))


def facts_above(folder: Path) -> Any:
    """The facts of the run that `folder` belongs to; None where it cannot be resumed."""
    for above in [folder, *folder.parents[:_ABOVE]]:
        if (above / FACTS).is_file():
            return json.loads((above / FACTS).read_text(encoding="utf-8"))
    return None


def digest_of(plain: Any) -> str:
    """The SHA-256 of plain JSON data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def write_note(path: Path, asked: tuple[Any, ...], told: Any) -> None:
    """Notes what was told of what was `asked`; the note appears when it is complete.

    Raises:
        ParityError: something in it is no plain data.
    """
    content = pack_record((asked, told))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def read_note(path: Path, asked: tuple[Any, ...], classes: Iterable[type]) -> Any:
    """What the note at `path` tells of what is `asked`; None where it is of something else, not whole, or not there."""
    with contextlib.suppress(OSError, ValueError):
        held, told = unpack_record(path.read_bytes(), classes)
        return told if held == asked else None
    return None


def _file_mark(path: Path) -> tuple[int, int]:
    """Size and CRC-32 of a file: enough against a write cut short or a damaged disk, and not meant against anyone."""
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return size, checksum
