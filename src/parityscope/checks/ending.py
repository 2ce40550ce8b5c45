"""An end for what a check of somebody else's may never end by itself; ours end in the workers that they search in.

A timer of the process interrupts it, which the main thread alone can be by; what loops in native code is not reached.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from parityscope.checks import Check

_OURS = "parityscope."


class NeverEndedError(Exception):
    """Raised in what went on for longer than it may."""


def is_of_others(check: Check) -> bool:
    """Whether a check is brought by another package."""
    return not str(getattr(check.propose, "__module__", "")).startswith(_OURS)


@contextlib.contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raises `NeverEndedError` in what goes on for longer (0: never); a timer that was set before goes on behind it."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise NeverEndedError

    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, interrupt)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.1), again)
