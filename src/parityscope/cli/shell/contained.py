"""Runs work that may crash natively in a forked child, and tells what it wrote to its log last.

Exists beside `supervise.py` because a builder's own log says where it died, and only the work knows where that log is.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from parityscope.cli.shell.supervise import fork_work, told_by
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def contain_work(work: Callable[[], int], log: Path, title: str) -> int:
    """The exit code of `work`, run in a child process where that is possible; it writes to `log`.

    Raises:
        ParityError: the child died of a signal, or ended without a verdict.
    """
    if not hasattr(os, "fork") or os.environ.get("PARITYSCOPE_NO_FORK"):
        return work()
    from parityscope.cli import guard_exit_code

    child = fork_work(lambda: guard_exit_code(work))
    _, status = os.waitpid(child.number, 0)
    verdict, _ = told_by(child)
    if verdict is not None:
        return verdict
    from parityscope.backends.programs import last_words

    words = ""
    if log.exists():
        with log.open("rb") as opened:
            words = last_words(opened)
    crashed = os.WIFSIGNALED(status)
    how = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}" if crashed else "ended without a verdict"
    raise ParityError(
        f"{title} crashed: its process {how}",
        where=words,
        fix="look at the node in its last words; another version, --settle, or a build without plugins may do; "
        "--keep-log FILE keeps all of the log for a report to NVIDIA",
    )
