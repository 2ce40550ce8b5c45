"""Runs the work in a forked child, so that a native crash of a runtime becomes one clear error.

A runtime that dies of a signal takes its process with it; the parent survives, says what was running, and leaves the
user with exit code 2. The fork happens before anything heavy is imported. Where there is no fork the work runs as it is.

The child sends its verdict through a pipe of its own, as the last thing that it does. What it ends with otherwise (a loader
that calls `os._exit(0)`, a library that calls `exit`) is no verdict.

SIGINT and SIGTERM, whoever of the two gets them, interrupt the child, which cleans up and ends with its exit code. The
child never outlives the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Forked", "forked", "supervised", "without_verdict"]

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
# A terminal's Ctrl-C reaches both processes and the parent passes its own on: that is one interruption, not two. Chosen
# to be longer than a signal's way and shorter than a person's patience.
_SAME_INTERRUPT_S = 1.0
_MEMORY = "out of memory kills with SIGKILL: lower --memory or take fewer samples"


def supervised(work: Callable[[], int]) -> int:
    """The exit code of `work`, run in a child process where that is possible."""
    if not hasattr(os, "fork") or os.environ.get("PARITYSCOPE_NO_FORK"):
        return work()
    child = forked(work)
    status = _wait(child.number)
    verdict = child.verdict()
    if verdict is not None:
        return verdict
    if os.WIFEXITED(status):
        return without_verdict(f"the process that did the work ended by itself with exit code {os.WEXITSTATUS(status)}")
    name = signal.Signals(os.WTERMSIG(status)).name
    if name == "SIGINT":
        return Exit.INTERRUPTED
    print(f"parityscope: a runtime crashed: the process was killed by {name}; no study was written", file=sys.stderr)
    print(
        f"  fix:   run the candidate in a process of its own (isolate=on in the target) to see which; {_MEMORY};\n"
        "         the same command with the same --study goes on with the tensors that were recorded",
        file=sys.stderr,
    )
    return Exit.UNUSABLE


def without_verdict(why: str) -> int:
    """Says that the work ended and nobody knows with what; gives the exit code of that."""
    print(f"parityscope: ended without a verdict: {why}", file=sys.stderr)
    print(
        "  fix:   a loader, a metric, a plug-in or a runtime ended it (os._exit, exit): take that out, or run the candidate in "
        "a process of its own (isolate=on in the target)",
        file=sys.stderr,
    )
    return Exit.UNUSABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A child process, and the end of the pipe that its verdict comes through."""

    number: int
    pipe: int

    def verdict(self) -> int | None:
        """The exit code that the child sent, now that it has ended; None if it sent none."""
        os.set_blocking(self.pipe, False)  # processes that it left behind may hold the other end
        try:
            sent = os.read(self.pipe, 1)
        except BlockingIOError:
            sent = b""
        finally:
            os.close(self.pipe)
        return sent[0] if sent else None


def forked(work: Callable[[], int]) -> Forked:
    """A child process that does `work`, sends its exit code, and ends when this process does."""
    _flush()
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _prepare()
            try:
                status = work()
            except KeyboardInterrupt:  # before or after what `work` guards itself
                status = Exit.INTERRUPTED
            _flush()  # what was printed before an error too
            os.write(its, bytes([status]))
        finally:
            os._exit(int(Exit.UNUSABLE))  # whatever happened: what is below in the stack is the parent's to go on with
    os.close(its)
    return Forked(number=child, pipe=ours)


def _flush() -> None:
    """Hands over what was printed, where that can be done; `guarded` minds that a result was."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _prepare() -> None:
    """The child's side: an interruption raises KeyboardInterrupt once, so that nothing disturbs the clean-up."""
    from parityscope.backends._process import end_with_parent

    end_with_parent()
    last = -_SAME_INTERRUPT_S

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _SAME_INTERRUPT_S:
            return
        last = now
        raise KeyboardInterrupt

    for number in _INTERRUPTS:
        signal.signal(number, interrupt)


def _wait(child: int) -> int:
    """Waits for the child, to whom interruptions are passed on."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _INTERRUPTS:
        signal.signal(number, pass_on)
    return os.waitpid(child, 0)[1]
