"""Forks a child that does one piece of work, sends what it found through a pipe, and never outlives its parent.

A fork finds everything imported and every array where it lies, so that it costs a few milliseconds where a new interpreter costs
a second. What it must not do is use threads that its parent had: they are not there. Sessions of one thread, numpy and
numba's serial loops do without, and pools of threads are taken from `kept_pool`, which gives a child new ones. A lock that
another thread held is never given back there: a thread of ours that imports and compiles has ended first (`started_thread`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from parityscope.errors import Exit
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIXTEENTH = 1 << 16  # bytes that are read at once
_own_end: int | None = None  # of the pipe to the process that forked this one
_POOL = "parityscope's pool: "
_started: list[threading.Thread] = []  # those that hold locks while they work
_last: list[Callable[[], object]] = []  # what is done when this process ends, behind what is the parent's to do
_of_parent = 0


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

    def end(self) -> int:
        """Kills the child, waits for it, and closes the pipe; how it ended: an exit code, or minus a signal."""
        status = 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self.number, 0)
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(status)


def fork_child(work: Callable[[], bytes]) -> Forked:
    """A child process that does `work` and sends what that gives, and ends when this process does. Not on Windows."""
    flush_streams()
    ours, its = os.pipe()
    # What the parent left to be collected stays: ending a session of several threads waits for threads that are not in the child.
    # Not even what Python itself does there behind a fork may begin to collect.
    collects = gc.isenabled()
    gc.disable()
    child = os.fork()
    if child == 0:
        global _own_end, _of_parent
        _own_end, _of_parent = its, len(_last)  # what is let go would be done
        gc.freeze()
        if collects:
            gc.enable()
        try:
            end_with_parent()
            found = work()
            while found:
                found = found[os.write(its, found) :]
        finally:
            with contextlib.suppress(Exception):
                _do_last()
            os._exit(int(Exit.UNUSABLE))  # whatever happened: what is below in the stack is the parent's to go on with
    if collects:
        gc.enable()
    os.close(its)
    return Forked(number=child, pipe=ours)


@functools.cache
def kept_pool(name: str, threads: int) -> ThreadPoolExecutor:
    """The pool of this name, kept for the next use in this process; a forked child makes its own."""
    from concurrent.futures import ThreadPoolExecutor  # a command forks before anything else, and need not wait for it

    return ThreadPoolExecutor(threads, thread_name_prefix=f"{_POOL}{name}")


def started_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """A thread that does `work`, which itself forks nothing; whoever forks waits until it has ended."""
    _started[:] = [thread for thread in _started if thread.is_alive()]
    thread = threading.Thread(target=work, name=name)
    thread.start()
    _started.append(thread)
    return thread


def has_threads_of_others() -> bool:
    """Whether Python threads may be at work here that no fork waits for: any but this one, idle pools, and `started_thread`'s."""
    return any(
        thread is not threading.current_thread() and thread not in _started and not thread.name.startswith(_POOL)
        for thread in threading.enumerate()
    )


def _await_started() -> None:
    for thread in tuple(_started):
        thread.join()


if hasattr(os, "register_at_fork"):
    # A pool of the parent takes work that none of its threads is there to do.
    os.register_at_fork(before=_await_started, after_in_child=kept_pool.cache_clear)


def when_process_ends(work: Callable[[], object]) -> None:
    """Has `work` done when this process ends: a forked child does it too, and none of what its parent has to do."""
    _last.append(work)


@atexit.register
def _do_last() -> None:
    while len(_last) > _of_parent:
        _last.pop()()


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
