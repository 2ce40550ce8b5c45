"""The streams of the command line: the one place where text reaches a terminal, and where a stream may be missing.

What is printed has its control characters escaped, and what the stream's encoding lacks; our own colours and progress go
another way (`print_drawn`, `show_progress`). A stdout that takes nothing is an error, since a result that was not told must
not pass for one; a stderr that takes nothing changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from parityscope.errors import ParityError
from parityscope.visible import make_encodable, make_visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DESCRIPTORS = (0, 1, 2)
_shown: dict[str, bool] = {}  # whether a line of progress stands on the terminal


class ReaderGoneError(Exception):
    """Whoever read our output has gone."""


class _Shown(io.TextIOBase):
    """A text stream that escapes what it is given, and tells in our words that it cannot be written; None is a closed one."""

    def __init__(self, under: TextIO | None, *, needed: bool) -> None:
        self._under = under
        self._needed = needed

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return (self._under and self._under.encoding) or "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        # It may be closed already: hooks that run at the end of the process ask too.
        return self._under is not None and not self._under.closed and self._under.isatty()

    def fileno(self) -> int:
        return super().fileno() if self._under is None else self._under.fileno()

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # who looks for a stream of bytes finds out so
            raise TypeError(f"a text stream cannot write {type(text).__name__}")
        _clear_progress()
        self.draw(make_visible(text))
        return len(text)

    def draw(self, text: str) -> None:
        """Writes `text` with its control characters."""
        self._try(lambda under: under.write(make_encodable(text, self.encoding)))

    def flush(self) -> None:
        self._try(lambda under: under.flush())

    def _try(self, act: Callable[[TextIO], object]) -> None:
        try:
            act(self._open())
        except (OSError, UnicodeError) as error:  # idna has no way with what it lacks
            if not self._needed:
                return
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError from error
            raise ParityError(
                f"the result cannot be written to standard output: {getattr(error, 'strerror', None) or error}",
                fix="send it where there is room for it: > FILE",
            ) from error

    def _open(self) -> TextIO:
        if self._under is None:
            raise OSError(errno.EBADF, "it is closed")
        return self._under


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Stdout and stderr as all of the command line prints to them."""
    for number in _DESCRIPTORS:
        if not _is_open(number):  # the next file that is opened would take its place, and be printed to
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Shown(before[0], needed=True), _Shown(before[1], needed=False)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _settle_stream(stream)


def print_drawn(text: str) -> None:
    """Prints to stdout a text that has colours: what it shows must be visible already."""
    _clear_progress()
    if isinstance(sys.stdout, _Shown):
        sys.stdout.draw(text)
    else:
        sys.stdout.write(text)


def show_progress(text: str, *, last: bool) -> None:
    """Writes one line over the one before, on a terminal's stderr; one that is not the `last` goes before anything is printed."""
    if isinstance(sys.stderr, _Shown):
        sys.stderr.draw(f"\r\x1b[K{make_visible(text)}" + ("\n" if last else ""))
        sys.stderr.flush()
        _shown["line"] = bool(text) and not last


def _clear_progress() -> None:
    if _shown.pop("line", False):
        show_progress("", last=False)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _settle_stream(stream: TextIO | None) -> None:
    """Lets go what a stream did not take: the interpreter writes it again when it ends, and ends with 120 if it cannot."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
