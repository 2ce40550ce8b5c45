"""Runs the work in a forked child, so that a native crash of a runtime becomes one clear error.

A runtime that dies of a signal takes its process with it; the parent survives, says what was running, and leaves the
user with exit code 2. The fork happens before anything heavy is imported. Where there is no fork the work runs as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["supervised"]

_MEMORY = "out of memory kills with SIGKILL: lower --memory or take fewer samples"


def supervised(work: Callable[[], int]) -> int:
    """The exit code of `work`, run in a child process where that is possible."""
    if not hasattr(os, "fork") or os.environ.get("PARITYSCOPE_NO_FORK"):
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = int(Exit.BUG)
        with contextlib.suppress(SystemExit):
            status = work()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(status))
    status = _wait(child)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    name = signal.Signals(os.WTERMSIG(status)).name
    if name == "SIGINT":
        return Exit.INTERRUPTED
    print(f"parityscope: a runtime crashed: the process was killed by {name}; no study was written", file=sys.stderr)
    print(
        f"  fix:   run the candidate in a process of its own (isolate=on in the target) to see which; {_MEMORY}",
        file=sys.stderr,
    )
    return Exit.UNUSABLE


def _wait(child: int) -> int:
    """Waits for the child; Ctrl-C reaches both, and the child answers it."""
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except KeyboardInterrupt:
            continue
