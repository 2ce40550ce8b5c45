"""A folder -> the studies below it, and the scratch folders of those that are being made.

No link is followed, so that nothing outside of the folder is ever read; a study holds no other studies, and is not
entered. Places are bytes: a name on disk need not be text.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEPEST = 6  # folders below the root; chosen
_MOST = 1_000_000  # entries that are looked at; chosen: a hundred times 10,000 studies with their files
_STUDY = b"study.json"
_SCRATCH = b".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStudy:
    """A study by its place below the root, with what tells that its document changed; `running` is a scratch folder."""

    identity: str
    place: bytes
    mark: str = ""
    changed: float = 0.0  # seconds since the epoch
    running: bool = False


def identity_of(place: bytes) -> str:
    """What a study is called in addresses: no name of a file is ever part of one."""
    return hashlib.sha256(place).hexdigest()[:24]


def find_places(root: bytes) -> Iterator[FoundStudy]:
    """Every study and scratch folder below `root`; folders that cannot be read are passed over."""
    left, seen = [(b"", 0)], 0
    while left and seen < _MOST:
        place, depth = left.pop()
        try:
            entries = list(os.scandir(os.path.join(root, place)))  # noqa: PTH118 - of bytes
        except OSError:
            continue
        seen += len(entries)
        if place and (found := _study_among(place, entries)) is not None:
            yield found
            continue
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            below = os.path.join(place, entry.name)  # noqa: PTH118
            if entry.name.startswith(b"."):
                if entry.name.endswith(_SCRATCH):
                    yield FoundStudy(identity=identity_of(below), place=below, running=True)
            elif depth < _DEEPEST:
                left.append((below, depth + 1))


def _study_among(place: bytes, entries: list[os.DirEntry[bytes]]) -> FoundStudy | None:
    document = next((entry for entry in entries if entry.name == _STUDY), None)
    if document is None:
        return None
    try:
        found = document.stat(follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FoundStudy(identity=identity_of(place), place=place, mark=mark_of(found), changed=found.st_mtime)


def mark_of(found: os.stat_result) -> str:
    """What tells a document from an earlier one of its name."""
    return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"


def open_document(root: bytes, place: bytes) -> int:
    """The descriptor of the document of a study below `root`, reached without following a link.

    Raises:
        OSError: it is not there any more, or something on the way is a link.
    """
    folder = _open_inside(root, place)
    try:
        return os.open(_STUDY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def _open_inside(root: bytes, place: bytes) -> int:
    """The descriptor of a folder below `root`, reached without following a link.

    Raises:
        OSError: it is not there any more, or something on the way is a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in place.split(b"/"):
        try:
            below = os.open(part, flags, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
