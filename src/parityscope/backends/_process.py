"""Runs a program with a time limit and turns every way it can end badly into one error.

Also what all our child processes share: their last words, the names of signals, and an end with their parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from parityscope.errors import ParityError

__all__ = ["IN_CHILD", "end_with_parent", "last_words", "run_program", "signal_name"]

IN_CHILD = "PARITYSCOPE_IN_CHILD"  # set in a backend's child: what that prints is read only when it dies
_TAIL_LINES = 12
_TAIL_BYTES = 1 << 16  # of what a program printed; it may have printed gigabytes
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LONG_LINE = 500  # characters


def run_program(words: list[str], *, timeout: float, doing: str) -> None:
    """Runs `words` and waits.

    Its whole process group is killed when it takes longer than `timeout` seconds or when we are interrupted.

    Raises:
        ParityError: it cannot be started, ends with an error or a signal, or takes too long.
    """
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        except OSError as error:
            shebang = "begin the script with a line such as #!/bin/sh, or name its interpreter: run=python infer.py"
            raise ParityError(
                f"{words[0]} cannot be started: {error.strerror}",
                where=words[0],
                fix=shebang if error.errno == errno.ENOEXEC else "make it executable (chmod +x)",
            ) from error
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise ParityError(
                f"{_name(words)} took longer than {timeout:g} s on {doing}",
                where=last_words(log),
                fix="raise the limit with timeout=SECONDS, or find out where it hangs",
            ) from None
        except BaseException:
            _kill(process)
            raise
        if status < 0:
            raise ParityError(
                f"{_name(words)} was killed by {signal_name(-status)} on {doing}",
                where=last_words(log),
                fix="run it by hand on the same input; out of memory kills with SIGKILL",
            )
        if status > 0:
            raise ParityError(
                f"{_name(words)} failed with exit code {status} on {doing}",
                where=last_words(log),
                fix="run it by hand on the same input",
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _name(words: list[str]) -> str:
    return Path(words[0]).name


def last_words(log: IO[bytes]) -> str:
    """What a process printed last, in one line."""
    log.flush()
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    lines = [line[:_LONG_LINE] for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return "its last words: " + " | ".join(lines[-_TAIL_LINES:]) if lines else "it printed nothing"


def end_with_parent() -> None:
    """Lets the kernel kill this process when the thread that started it ends, however that ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def signal_name(number: int) -> str:
    """The name of a signal: "SIGSEGV"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
