"""Which recorded chunks of an interrupted run may be used again.

A scratch folder that can be resumed holds `resume.json`: the facts of the run (digests of model, inputs and every file
that a target names, both targets, the samples, versions of the runtimes and of Parityscope). Beside each chunk of
tensors that was recorded whole lies a note, `<label>-<chunk>.note`, with the digest of those facts, the target, what was
asked for, what the session told, and size and CRC-32 of each file. A chunk is used again only if all of it
is as noted; whatever else is found is recorded again.

What a `command` gives is never used again: nobody knows what a program depends on.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.trace import StoredTensor, Trace, read_safetensors
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Model
    from parityscope.records import Target

__all__ = ["FACTS", "NOTES", "Ledger", "digest_of", "facts_above", "ledger_of"]

FACTS = "resume.json"
NOTES = "*-[0-9][0-9][0-9].note"  # beside the chunks
_ABOVE = 2  # folders between the facts and the chunks: tensors/layers
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The notes of one target's chunks in `folder`; `key` is the digest of all that they depend on."""

    folder: Path
    target: Target
    key: str

    def kept(self, label: str, number: int, samples: Sequence[int], tensors: Sequence[str]) -> Trace | None:
        """Chunk `number` as it was recorded before; None if it was not, or not whole, or for another run."""
        try:
            note = json.loads(self._note(label, number).read_text(encoding="utf-8"))
            asked = {"key": self.key, "samples": list(samples), "tensors": list(tensors)}
            if any(note[name] != value for name, value in asked.items()) or not self._whole(note["files"]):
                return None
            return _trace_from_note(note, self.target, self.folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ParityError):
            return None  # a note or a file that cannot be read is no note: the chunk is recorded again

    def keep(self, label: str, number: int, tensors: Sequence[str], trace: Trace) -> None:
        """Notes that chunk `number` is whole; the note appears when it is complete."""
        paths = dict.fromkeys(held.path for held in trace.tensors.values() if isinstance(held, StoredTensor))
        note = {
            "key": self.key,
            "samples": list(trace.samples),
            "tensors": list(tensors),
            "files": {path.name: _file_mark(path) for path in paths},
            "where": {f"{index:06d}": path.name for index, path in _tensors_by_sample(trace).items()},
            "names": list(trace.names),
            "outputs": list(trace.outputs),
            "environment": dict(trace.environment),
            "disturbs": trace.disturbs,
            "absent": [asdict(skip) for skip in trace.absent],
            "seconds": trace.seconds,
            "executed": asdict(trace.executed) if trace.executed else None,
        }
        write_whole(self._note(label, number), json.dumps(note))

    def _note(self, label: str, number: int) -> Path:
        return self.folder / f"{label}-{number:03d}.note"

    def _whole(self, files: Mapping[str, Any]) -> bool:
        return all(_file_mark(self.folder / Path(name).name) == mark for name, mark in files.items())


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


def _tensors_by_sample(trace: Trace) -> dict[int, Path]:
    return {index: held.path for (index, _), held in trace.tensors.items() if isinstance(held, StoredTensor)}


def _file_mark(path: Path) -> list[int]:
    """Size and CRC-32 of a file: enough against a write cut short or a damaged disk, and not meant against anyone."""
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]


def _trace_from_note(note: Mapping[str, Any], target: Target, folder: Path) -> Trace:
    tensors = {
        (int(index), name): held
        for index, file in note["where"].items()
        for name, held in read_safetensors(folder / Path(file).name).items()
    }
    return Trace(
        target=target,
        environment=note["environment"],
        samples=tuple(note["samples"]),
        names=tuple(note["names"]),
        outputs=tuple(note["outputs"]),
        disturbs=note["disturbs"],
        absent=tuple(Skip(**skip) for skip in note["absent"]),
        seconds=note["seconds"],
        executed=_executed_from_plain(note["executed"]),
        tensors=tensors,
    )


def _executed_from_plain(plain: Mapping[str, Any] | None) -> ExecutedGraph | None:
    if plain is None:
        return None
    layers = tuple(ExecutedLayer(**{**layer, "nodes": tuple(layer["nodes"])}) for layer in plain["layers"])
    return ExecutedGraph(layers=layers, requested=plain["requested"], executed=plain["executed"])
