"""What a command hands over: its document on stdout, the same as a file whose suffix says the format, its command line."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

from parityscope.cli.shell.streams import print_drawn
from parityscope.errors import ParityError
from parityscope.private_folders import open_lock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.report.forms import Forms

_WIDEST = 140  # columns; longer lines are hard to read (chosen)
_claims: dict[Path, int] = {}  # the markers that this process holds locked, with their descriptors


def command_line() -> str:
    """This run's command, as one would type it."""
    return shlex.join(["parityscope", *sys.argv[1:]])


def terminal_width() -> tuple[int, bool]:
    """The columns to write, and whether in colour: on a terminal, unless NO_COLOR is set."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return min(shutil.get_terminal_size((100, 40)).columns, _WIDEST), color


def claim_report(path: Path, option: str, forms: Forms) -> None:
    """Claims, before the work is done, the file that `option` gives for a report of these forms.

    Raises:
        ParityError: its suffix says no format, or as `claim_file`.
    """
    known = forms.endings
    if path.suffix not in known:
        fix = f"use {', '.join(known[:-1])} or {known[-1]}"
        raise ParityError(f"{option} {path} has no suffix that says how to write it", fix=fix)
    claim_file(path, option)


def claim_file(path: Path | None, option: str) -> None:
    """Makes a file's name this command's own until it ends: of two that would write the same file the second is told at once.

    What holds it is an empty locked file beside it, `.NAME.part`. The system frees the lock when the process ends, however
    it ends; a file that a killed one left is taken over.

    Raises:
        ParityError: the file exists already, another command is writing it, or its folder cannot be written to.
    """
    if path is None:
        return
    _check_free(path, option)
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix=f"mkdir -p {path.parent}")
    marker = path.with_name(f".{path.name}.part")
    if marker in _claims:
        raise ParityError(f"two options name {path}", where=str(path), fix=f"choose another {option}")
    try:
        lock = _lock_marker(marker)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ParityError(
            f"{path} cannot be written: {reason}", where=str(path), fix=f"choose another {option}"
        ) from error
    if lock is None:
        raise ParityError(
            f"another process is writing {path}", where=str(path), fix=f"wait until it ends, or choose another {option}"
        )
    _claims[marker] = lock
    _check_free(path, option)  # who held it may have just ended


def _check_free(path: Path, option: str) -> None:
    if path.exists() or path.is_symlink():
        raise ParityError(f"{path} exists already", where=str(path), fix=f"choose another {option}, or remove it")


def release_claims() -> None:
    """Gives free what `claim_file` claimed."""
    for marker, lock in _claims.items():
        marker.unlink(missing_ok=True)
        os.close(lock)
    _claims.clear()


def _lock_marker(marker: Path) -> int | None:
    """The descriptor of a locked file, made if it is not there; None if another process holds it."""
    while True:
        lock = open_lock(marker)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == marker.stat().st_ino:
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:  # who held it has taken it away since
            pass
        os.close(lock)


def print_document(forms: Forms, document: Mapping[str, Any], format_name: str) -> None:
    """Prints a document in one of its formats."""
    width, color = terminal_width()
    print_text(forms.render(document, format_name, width=width, color=color), drawn=color and format_name == "text")


def print_text(text: str, *, drawn: bool) -> None:
    """Prints to stdout; `drawn` says that the text has colours, and what it shows is visible already."""
    if drawn:
        print_drawn(text)
    else:
        print(text, end="")
