"""Runs work that may crash natively in a forked child, and tells what it wrote to its log last.

Exists beside `_supervise.py` because a builder's own log says where it died, and only the work knows where that log is.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from parityscope.cli._supervise import forked
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["contained"]


def contained(work: Callable[[], int], log: Path, title: str) -> int:
    """The exit code of `work`, run in a child process where that is possible; it writes to `log`.

    Raises:
        ParityError: the child died of a signal.
    """
    if not hasattr(os, "fork") or os.environ.get("PARITYSCOPE_NO_FORK"):
        return work()
    from parityscope.cli import guarded

    _, status = os.waitpid(forked(lambda: guarded(work)), 0)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    from parityscope.backends._process import last_words

    words = ""
    if log.exists():
        with log.open("rb") as opened:
            words = last_words(opened)
    raise ParityError(
        f"{title} crashed: its process was killed by {signal.Signals(os.WTERMSIG(status)).name}",
        where=words,
        fix="look at the node in its last words; another version, --settle, or a build without plugins may do; "
        "--keep-log FILE keeps all of the log for a report to NVIDIA",
    )
