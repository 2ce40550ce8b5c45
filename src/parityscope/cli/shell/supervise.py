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
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

from parityscope.cli.shell.memory import is_scarce, is_too_little, told_memory, use_one_core
from parityscope.errors import Exit
from parityscope.forking import Forked, flush_streams, fork_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
# A terminal's Ctrl-C reaches both processes and the parent passes its own on: that is one interruption, not two. Chosen
# to be longer than a signal's way and shorter than a person's patience.
_SAME_INTERRUPT_S = 1.0
_MEMORY = "out of memory kills with SIGKILL: lower --memory or take fewer samples"
_interrupted_at = -_SAME_INTERRUPT_S  # on the clock of `time.monotonic`, which is not negative


def supervise_work(work: Callable[[], int]) -> int:
    """The exit code of `work`, run in a child process where that is possible."""
    if is_too_little():
        return told_memory(MemoryError("the libraries alone take 700 MiB"))
    if is_scarce():
        use_one_core()
    if not hasattr(os, "fork") or os.environ.get("PARITYSCOPE_NO_FORK"):
        return work()
    # Whoever started us may have left SIGCHLD ignored: then no child can be waited for, and programs seem to end with 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child = fork_work(work)
    except OSError as error:
        return told_memory(error)
    status = _wait_for_child(child.number)
    verdict, kept = told_by(child)
    if verdict is not None:
        return verdict
    _sweep_behind()
    if is_scarce():
        return told_memory(MemoryError("a library ended the process"))
    if os.WIFEXITED(status):
        return without_verdict(f"the process that did the work ended by itself with exit code {os.WEXITSTATUS(status)}")
    name = signal.Signals(os.WTERMSIG(status)).name
    if name == "SIGINT":
        return Exit.INTERRUPTED
    left = f"what was known is kept in {kept}" if kept else "no study was written"
    print(f"parityscope: a runtime crashed: the process was killed by {name}; {left}", file=sys.stderr)
    read = f"read that: parityscope report {shlex.quote(kept)};\n         " if kept else ""
    print(
        f"  fix:   {read}run the candidate in a process of its own (isolate=on in the target) to see which; {_MEMORY};\n"
        "         the same command with the same --study goes on with the tensors that were recorded",
        file=sys.stderr,
    )
    return Exit.UNUSABLE


def _sweep_behind() -> None:
    """Takes away the scratch folders of a child that could not do so itself."""
    with contextlib.suppress(ImportError, MemoryError, OSError):  # the next command does it then
        import tempfile

        from parityscope.private_folders import sweep_scratch

        sweep_scratch(tempfile.gettempdir())


def without_verdict(why: str) -> int:
    """Says that the work ended and nobody knows with what; gives the exit code of that."""
    print(f"parityscope: ended without a verdict: {why}", file=sys.stderr)
    print(
        "  fix:   a loader, a metric, a plug-in or a runtime ended it (os._exit, exit): take that out, or run the candidate in "
        "a process of its own (isolate=on in the target)",
        file=sys.stderr,
    )
    return Exit.UNUSABLE


def fork_work(work: Callable[[], int]) -> Forked:
    """A child process that does `work` and sends its exit code."""

    def interrupted() -> bytes:
        _prepare_child()
        try:
            status = work()
        except KeyboardInterrupt:  # before or after what `work` guards itself
            status = Exit.INTERRUPTED
        flush_streams()  # what was printed before an error too
        return bytes([status])

    return fork_child(interrupted)


def told_by(child: Forked) -> tuple[int | None, str]:
    """The exit code that a child sent, now that it has ended (None if it sent none), and the last line that it told before."""
    lines, _, code = child.sent().rpartition(b"\n")
    return code[0] if code else None, lines.rpartition(b"\n")[2].decode("utf-8", "replace")


def _prepare_child() -> None:
    """The child's side: an interruption raises KeyboardInterrupt once, so that nothing disturbs the clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        global _interrupted_at  # noqa: PLW0603 - a signal reaches the process, not an object
        now = time.monotonic()
        if now - _interrupted_at < _SAME_INTERRUPT_S:
            return
        _interrupted_at = now
        raise KeyboardInterrupt

    for number in _INTERRUPTS:
        signal.signal(number, interrupt)


def stop_if_interrupted() -> None:
    """Raises KeyboardInterrupt if this process was interrupted and something made another error of that, or a `Skip`."""
    if _interrupted_at >= 0:
        raise KeyboardInterrupt


def _wait_for_child(child: int) -> int:
    """Waits for the child, to whom interruptions are passed on."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _INTERRUPTS:
        signal.signal(number, pass_on)
    return os.waitpid(child, 0)[1]
