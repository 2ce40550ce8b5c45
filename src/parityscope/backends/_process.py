"""Runs a program with a time limit and turns every way it can end badly into one error."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from parityscope.errors import ParityError

__all__ = ["run_program"]

_TAIL_LINES = 12


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
            raise ParityError(
                f"{words[0]} cannot be started: {error.strerror}", where=words[0], fix="make it executable (chmod +x)"
            ) from error
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise ParityError(
                f"{_name(words)} took longer than {timeout:g} s on {doing}",
                where=_tail(log),
                fix="raise the limit with timeout=SECONDS, or find out where it hangs",
            ) from None
        except BaseException:
            _kill(process)
            raise
        if status < 0:
            raise ParityError(
                f"{_name(words)} was killed by {_signal(-status)} on {doing}",
                where=_tail(log),
                fix="run it by hand on the same input; out of memory kills with SIGKILL",
            )
        if status > 0:
            raise ParityError(
                f"{_name(words)} failed with exit code {status} on {doing}",
                where=_tail(log),
                fix="run it by hand on the same input",
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return "its last words: " + " | ".join(lines[-_TAIL_LINES:]) if lines else "it printed nothing"


def _name(words: list[str]) -> str:
    return Path(words[0]).name


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
