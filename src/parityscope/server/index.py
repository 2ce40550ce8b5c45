"""The index of a folder's studies, in SQLite: what lists and trends are asked of, and nothing that the folder does not say.

It lies in the user's cache, where nobody else can write, else beside the process for as long as it lives; it can be
deleted at any time, and is made anew where it is damaged or of another version. A thread holds it against the folder:
once at the start, and again when somebody looks, at most every few seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

from parityscope.caches import user_cache
from parityscope.light_dataclasses import dataclass, field, fields
from parityscope.private_folders import is_private
from parityscope.server.finding import FoundStudy, find_places
from parityscope.server.summary import StudySummary, summarize_study
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_FORM = f"1 {__version__}"  # of the tables, and of what reads studies
_COLUMNS = tuple(one.name for one in fields(StudySummary))
_EVERY_S = 2.0  # at most so often is the folder walked again; chosen
_SHARE = 10  # and at most a tenth of the time is spent on it; chosen
_TOGETHER = 100  # studies that are written at once
_SQL = f"""
CREATE TABLE about(form TEXT, root BLOB);
CREATE TABLE studies({", ".join(_COLUMNS)}, words TEXT, PRIMARY KEY(identity)) WITHOUT ROWID;
CREATE INDEX by_time ON studies(created DESC, identity);
CREATE INDEX by_series ON studies(model, target, created);
"""


@dataclass(slots=True)
class StudyIndex:
    """An open index: where it lies, and what the thread that fills it knows; `whole` says that the folder was read through once.

    `read` of `wanted` studies were read of those that changed; `changes` grows with each that was taken in or out.
    """

    root: bytes
    file: Path
    running: tuple[bytes, ...] = ()
    read: int = 0
    wanted: int = 0
    whole: bool = False
    changes: int = 0
    asked: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def ask_refresh(self) -> None:
        """Somebody looks: the folder is to be walked again soon."""
        self.asked.set()

    @contextlib.contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """A connection for one thread and one piece of work."""
        connection = sqlite3.connect(self.file, timeout=30.0)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def open_index(root: Path, scratch: Path) -> Iterator[StudyIndex]:
    """The index of `root`, kept up to date by a thread while the block runs; `scratch` takes it where there is no cache."""
    held = os.fsencode(root)
    index = StudyIndex(root=held, file=_file_for(held, scratch))
    _make_tables(index)
    filling = threading.Thread(target=_keep_up, args=(index,), daemon=True)
    filling.start()
    try:
        yield index
    finally:
        index.ended.set()
        index.asked.set()
        filling.join()


def list_studies(
    index: StudyIndex, asked: Mapping[str, str], *, first: int, most: int
) -> tuple[list[dict[str, Any]], int]:
    """The newest studies that `asked` chooses (words, model, target, verdict), and how many there are."""
    chosen, values = _condition_of(asked)
    with index.connected() as connection:
        (whole,) = connection.execute(f"SELECT count(*) FROM studies{chosen}", values).fetchone()  # noqa: S608 - ours
        rows = connection.execute(
            f"SELECT * FROM studies{chosen} ORDER BY created DESC, identity LIMIT ? OFFSET ?",  # noqa: S608
            (*values, most, first),
        )
        return [dict(row) for row in rows], int(whole)


def study_by_identity(index: StudyIndex, identity: str) -> dict[str, Any] | None:
    """The line of one study, None where there is none."""
    with index.connected() as connection:
        row = connection.execute("SELECT * FROM studies WHERE identity = ?", (identity,)).fetchone()
    return None if row is None else dict(row)


def list_series(index: StudyIndex, *, first: int, most: int, points: int) -> tuple[list[dict[str, Any]], int]:
    """Every model on every target, the one that was studied last first, with its last `points` studies, oldest first."""
    with index.connected() as connection:
        (whole,) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM studies GROUP BY model, target)").fetchone()
        rows = connection.execute(
            "SELECT model, target, count(*) AS studies, count(DISTINCT version) AS versions, max(created) AS last"
            " FROM studies GROUP BY model, target ORDER BY last DESC, model, target LIMIT ? OFFSET ?",
            (most, first),
        ).fetchall()
        return [
            {**dict(row), "points": points_of_series(index, row["model"], row["target"], most=points)} for row in rows
        ], int(whole)


def points_of_series(index: StudyIndex, model: str, target: str, *, most: int) -> list[dict[str, Any]]:
    """The last `most` studies of a model on a target, oldest first."""
    with index.connected() as connection:
        rows = connection.execute(
            "SELECT * FROM studies WHERE model = ? AND target = ? ORDER BY created DESC, identity LIMIT ?",
            (model, target, most),
        )
        return [dict(row) for row in rows][::-1]


def _condition_of(asked: Mapping[str, str]) -> tuple[str, list[str]]:
    wanted, values = [], []
    for name in ("model", "target", "verdict"):
        if asked.get(name):
            wanted.append(f"{name} = ?")
            values.append(asked[name])
    for word in asked.get("words", "").lower().split():
        wanted.append("instr(words, ?) > 0")
        values.append(word)
    return (f" WHERE {' AND '.join(wanted)}" if wanted else ""), values


def _file_for(root: bytes, scratch: Path) -> Path:
    cache = user_cache() / "parityscope" / "serve"
    with contextlib.suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(cache) and os.access(cache, os.W_OK):
            return cache / f"{hashlib.sha256(root).hexdigest()[:24]}.sqlite"
    return scratch / "index.sqlite"


def _make_tables(index: StudyIndex) -> None:
    """Makes the tables where there are none that can be used."""
    with contextlib.suppress(sqlite3.Error), index.connected() as connection:
        row = connection.execute("SELECT form, root FROM about").fetchone()
        if tuple(row or ()) == (_FORM, index.root):
            return
    for each in (index.file, *(index.file.with_name(f"{index.file.name}-{end}") for end in ("wal", "shm", "journal"))):
        each.unlink(missing_ok=True)
    with index.connected() as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SQL)
        connection.execute("INSERT INTO about VALUES (?, ?)", (_FORM, index.root))


def _keep_up(index: StudyIndex) -> None:
    while not index.ended.is_set():
        began = time.monotonic()
        try:
            _hold_against_folder(index)
        except sqlite3.DatabaseError:  # somebody deleted or damaged it: the folder has it all
            with contextlib.suppress(sqlite3.Error, OSError):
                _make_tables(index)
        index.ended.wait(max(_EVERY_S, _SHARE * (time.monotonic() - began) if index.whole else 0.0))
        index.asked.wait()
        index.asked.clear()


def _hold_against_folder(index: StudyIndex) -> None:
    """Takes into the index what is new or changed in the folder, and out of it what is gone."""
    running: list[bytes] = []
    studies: dict[str, FoundStudy] = {}
    for found in find_places(index.root):
        if found.running:
            running.append(found.place)
        else:
            studies[found.identity] = found
    index.running = tuple(sorted(running))
    with index.connected() as connection:
        known = dict(connection.execute("SELECT identity, mark FROM studies").fetchall())
        gone = [(identity,) for identity in known if identity not in studies]
        with connection:
            connection.executemany("DELETE FROM studies WHERE identity = ?", gone)
        index.changes += len(gone)
        changed = [one for identity, one in studies.items() if known.get(identity) != one.mark]
        # What is new is what somebody waits for.
        changed.sort(key=lambda one: one.changed, reverse=True)
        index.read, index.wanted = 0, len(changed)
        for start in range(0, len(changed), _TOGETHER):
            rows = []
            for one in changed[start : start + _TOGETHER]:
                if index.ended.is_set():
                    return
                rows.append(_row_of(summarize_study(index.root, one)))
                index.read += 1
            _write_rows(connection, rows)
            index.changes += len(rows)
    index.whole = True


def _row_of(summary: StudySummary) -> tuple[Any, ...]:
    told = (summary.model, summary.target, summary.version, summary.headline, os.fsdecode(summary.place))
    words = "\n".join(told).lower().encode("utf-8", "replace").decode()
    return (*(getattr(summary, name) for name in _COLUMNS), words)


def _write_rows(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    marks = ", ".join("?" * (len(_COLUMNS) + 1))
    with connection:
        connection.executemany(f"INSERT OR REPLACE INTO studies VALUES ({marks})", rows)  # noqa: S608 - question marks
