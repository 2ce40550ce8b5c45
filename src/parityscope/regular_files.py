"""Opens files that were named by somebody: regular ones only, so that no name can block, never end or act when it is read."""

from __future__ import annotations

import os
import stat
from typing import IO, TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular_file(path: str | Path, what: str, *, limit: int | None = None) -> IO[bytes]:
    """`path` opened for reading; `os.fstat` of it tells the size.

    The files that a kernel makes up while they are read (in /proc and /sys) are refused: they say that they are empty,
    and some of them block or never end.

    Args:
        path: The file; symbolic links are followed.
        what: What it should be, for the error ("the model", "the policy").
        limit: The most bytes that it may have.

    Raises:
        ParityError: there is none, it cannot be read, is no regular file, or has more bytes than `limit`.
    """
    try:
        _check_kind(os.stat(path), path, what)  # noqa: PTH116 - of a name that a Path would change
        # Nothing that has taken its place since then blocks or becomes the terminal of this process.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _unopened_error(path, what, error) from error
    file = os.fdopen(descriptor, "rb")
    try:
        found = os.fstat(descriptor)
        _check_kind(found, path, what)
        _check_kept(found, descriptor, path, what)
        _check_size(found, path, what, limit)
    except BaseException:
        file.close()
        raise
    return file


def read_regular_file(path: str | Path, what: str, *, limit: int) -> bytes:
    """What the file holds, at most `limit` bytes.

    Raises:
        ParityError: as `open_regular_file`.
    """
    with open_regular_file(path, what, limit=limit) as file:
        try:
            return file.read(limit)
        except OSError as error:
            raise _unopened_error(path, what, error) from error


def read_text_file(path: str | Path, what: str, *, limit: int) -> str:
    """The text of a UTF-8 file of at most `limit` bytes, without a byte order mark.

    Raises:
        ParityError: as `open_regular_file`, or it is not UTF-8.
    """
    return text_of(read_regular_file(path, what, limit=limit), what, path)


def text_of(content: bytes, what: str, path: str | Path) -> str:
    """The text that the file `path` holds as UTF-8, without a byte order mark.

    Raises:
        ParityError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ParityError(
            f"{what} is not text in UTF-8: line {line} holds the byte 0x{content[error.start]:02x}",
            where=str(path),
            fix="check that this is the file that was meant, and save it as UTF-8",
        ) from error


def _check_kind(found: os.stat_result, path: str | Path, what: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "no file")
    raise ParityError(
        f"{what} is {kind}, not a regular file",
        where=str(path),
        fix="give a file; what comes through a pipe is written to one first",
    )


def _check_kept(found: os.stat_result, descriptor: int, path: str | Path, what: str) -> None:
    """Refuses what lies on no medium: its file system says that it has no blocks at all."""
    if found.st_size == 0 and os.fstatvfs(descriptor).f_blocks == 0:
        raise ParityError(
            f"{what} is a file that the system makes up while it is read, not a regular file",
            where=str(path),
            fix="give a file; what the system tells is written to one first",
        )


def _check_size(found: os.stat_result, path: str | Path, what: str, limit: int | None) -> None:
    if limit is not None and found.st_size > limit:
        raise ParityError(
            f"{what} has {found.st_size} bytes, more than the {limit} that it may have",
            where=str(path),
            fix="check that this is the file that was meant",
        )


def _unopened_error(path: str | Path, what: str, error: OSError | ValueError) -> ParityError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ParityError(f"there is no {what.removeprefix('the ')} at {path}", fix="check the path")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ParityError(f"{what} cannot be read: {reason}", where=str(path), fix="check the path and its permissions")
