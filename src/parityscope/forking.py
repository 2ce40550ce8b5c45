"""Forks a child that does one piece of work, sends what it found through a pipe, and never outlives its parent.

A fork finds everything imported and every array where it lies, so that it costs a few milliseconds where a new interpreter costs
a second. What it must not do is use threads that its parent had: they are not there. Sessions of one thread, numpy and
numba's serial loops do without.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Forked", "end_with_parent", "flush_streams", "fork_child", "tell_parent"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIXTEENTH = 1 << 16  # bytes that are read at once
_own_end: int | None = None  # of the pipe to the process that forked this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A child process, and the end of the pipe that what it found comes through."""

    number: int
    pipe: int

    def sent(self) -> bytes:
        """What the child sent, now that it has ended; nothing if it sent nothing. Closes the pipe."""
        os.set_blocking(self.pipe, False)  # processes that it left behind may hold the other end
        found = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, _SIXTEENTH):
                found += part
        os.close(self.pipe)
        return found

    def end(self) -> None:
        """Kills the child, waits for it, and closes the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.number, 0)
        os.close(self.pipe)


def fork_child(work: Callable[[], bytes]) -> Forked:
    """A child process that does `work` and sends what that gives, and ends when this process does. Not on Windows."""
    flush_streams()
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        global _own_end  # noqa: PLW0603 - the child is this process from here on
        _own_end = its
        # What the parent left to be collected stays: ending a session of several threads waits for threads that are not here.
        gc.freeze()
        try:
            end_with_parent()
            found = work()
            while found:
                found = found[os.write(its, found) :]
        finally:
            os._exit(int(Exit.UNUSABLE))  # whatever happened: what is below in the stack is the parent's to go on with
    os.close(its)
    return Forked(number=child, pipe=ours)


def tell_parent(line: str) -> None:
    """Sends a line before what is found: it is known however this process ends. Nothing where no parent listens."""
    if _own_end is not None:
        os.write(_own_end, f"{line}\n".encode())


def end_with_parent() -> None:
    """Lets the kernel kill this process when the thread that started it ends, however that ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def flush_streams() -> None:
    """Hands over what was printed, where that can be done; who prints results minds that they were."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
