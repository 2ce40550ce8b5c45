"""Folders that nobody else can have written to, and scratch folders that nobody else's files are lost in.

A cache is used only where `is_private` holds. A scratch folder lies in the system's temporary folder, which others may write to:
it is made anew with a name that cannot be guessed, for its owner alone, and holds a marker of ours that is locked while the
process lives. What a process left that was killed is taken away when the next one makes a scratch folder: only folders that
are ours by owner, mode, name and marker, and whose marker nobody locks; links are never followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.forking import when_process_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = ".parityscope-scratch"
_PREFIX = "parityscope-"
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY = 0o700


def is_private(folder: Path) -> bool:
    """Whether nobody but the user and root could have written into a folder, or put another one in its place.

    A folder that is not there yet is judged by those above it. A group that has the user's name and no other member is the user:
    where each user has one, as on Debian and Fedora, new folders are often writable for it.
    """
    try:
        for each in (folder, *folder.resolve().parents):
            if not each.exists():
                continue
            status = each.stat()
            sticky = bool(status.st_mode & stat.S_ISVTX) and each != folder
            shared = status.st_mode & stat.S_IWOTH or (
                status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
            )
            if status.st_uid not in {0, os.geteuid()} or (shared and not sticky):
                return False
    except OSError:
        return False
    return True


def _is_own_group(number: int) -> bool:
    """Whether a group is the user's own: of the user's name and number, with nobody else in it."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:  # a user or a group without a name, as in some containers
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}


@contextlib.contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """An empty folder for this process alone, which is gone with all that is in it when the block ends.

    `what` becomes part of its name.

    Raises:
        OSError: the system's temporary folder cannot be written to.
    """
    sweep_scratch(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{what}-"))
    marker = open_marker(folder)
    fcntl.flock(marker, fcntl.LOCK_EX)
    inside = folder / "work"  # beside the marker: what lists the folder finds its own files alone
    inside.mkdir()
    try:
        yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(marker)


@functools.cache
def lasting_folder(what: str) -> Path:
    """An empty folder as `scratch_folder`, the same for all that ask, which is gone when the process ends."""
    held = contextlib.ExitStack()
    when_process_ends(held.close)
    return held.enter_context(scratch_folder(what))


def open_marker(folder: Path) -> int:
    """The descriptor of the marker in a folder, as `open_lock`."""
    return open_lock(folder / MARKER)


def open_lock(path: Path) -> int:
    """The descriptor of a file that is there to be locked, and is made where there is none; a link is refused.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    return os.open(path, _OPEN | os.O_CREAT, 0o600)


@functools.cache
def sweep_scratch(place: str) -> None:
    """Takes away the scratch folders that processes left which ended without doing so; once a process."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            if entry.name.startswith(_PREFIX) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is a scratch folder of this user's whose process is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
        ours = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == _OWNER_ONLY
        if not ours or not entry.is_dir(follow_symlinks=False):
            return False
        marker = os.open(Path(entry.path, MARKER), _OPEN)
    except OSError:
        return False
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its process lives
        return False
    finally:
        os.close(marker)
    return True
