"""What a study that is being made tells of itself, in a file of its scratch folder: whoever looks at the folder sees it live.

The note names the process and when that began, so that one that was killed is not taken for one that works. It is told
by progress, at most once a second, and is gone when the study is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_documents import read_json_file
from parityscope.times import format_time
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNING_NOTE = "running.json"
_EVERY_S = 1.0  # between two writes of what changes all the time; chosen
_MOST_TOLD = 20  # lines that are kept: the verdict, the place, causes
_LARGEST = 1 << 16


@dataclass(slots=True)
class _OwnNote:
    path: Path
    held: dict[str, Any]
    written: float = 0.0
    told: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStudy:
    """A note as it was read: `alive` says whether its process still works; `began` and `seen` are in UTC as studies write it."""

    alive: bool
    began: str
    seen: str
    line: str
    told: tuple[str, ...]


_notes: list[_OwnNote] = []  # of the studies that this process makes, one within another


@contextlib.contextmanager
def keep_running_note(scratch: Path) -> Iterator[None]:
    """While the block runs, progress is written down in `scratch`; what cannot be written changes nothing."""
    note = _OwnNote(path=scratch / RUNNING_NOTE, held={"process": os.getpid(), "started": _start_of(os.getpid())})
    note.held["began"] = format_time()
    _notes.append(note)
    _write_note(note)
    try:
        yield
    finally:
        _notes.remove(note)


def note_running_step(line: str, *, lasting: bool = False) -> None:
    """Writes down what is done now; a `lasting` line (the verdict, a cause) stays beside what comes later."""
    if not _notes:
        return
    note, now = _notes[-1], time.monotonic()
    if lasting:
        note.told = [*note.told, line][-_MOST_TOLD:]
    elif now - note.written < _EVERY_S:
        return
    else:
        note.held["line"] = line
    note.written = now
    _write_note(note)


def read_running_note(folder: Path) -> RunningStudy | None:
    """What the study that becomes of a scratch folder told last; None where there is no note."""
    try:
        held = read_json_file(folder / RUNNING_NOTE, "the note", limit=_LARGEST)
    except ParityError:
        return None
    if not isinstance(held, dict):
        return None
    process, told = held.get("process"), held.get("told")
    alive = type(process) is int and 0 < process < 1 << 31 and held.get("started") == _start_of(process)
    texts = {key: str(held.get(key) or "")[:400] for key in ("began", "seen", "line")}
    lines = tuple(str(one)[:400] for one in told[:_MOST_TOLD]) if isinstance(told, list) else ()
    return RunningStudy(alive=alive, told=lines, **texts)


def _write_note(note: _OwnNote) -> None:
    held = {**note.held, "told": note.told, "seen": format_time()}
    with contextlib.suppress(OSError):
        write_whole(note.path, json.dumps(held))


def _start_of(process: int) -> str:
    """When a process began, in ticks since the machine did: its number alone is given again."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
