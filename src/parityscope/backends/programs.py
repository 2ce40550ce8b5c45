"""Runs a program with a time limit and turns every way it can end badly into one error.

Also what all our child processes share: their last words and the names of signals.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from parityscope.backends._guardian import GUARDIAN, start_of
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.threads import environment_of_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

IN_CHILD = "PARITYSCOPE_IN_CHILD"  # set in a backend's child: what that prints is read only when it dies
_TAIL_LINES = 12
_TAIL_BYTES = 1 << 16  # of what a program printed; it may have printed gigabytes
_LONG_LINE = 500  # characters
_END_S = 20.0  # for the guardian to end everything, on a machine under load; chosen
# What else a kernel may run: Mach-O of the two byte orders.
_OTHER_PROGRAMS = {b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"}


def run_program(words: list[str], *, timeout: float, doing: str) -> None:
    """Runs `words` and waits.

    It and all that it started are killed when it takes longer than `timeout` seconds or when we end, however that is.

    Raises:
        ParityError: it cannot be started, ends with an error or a signal, or takes too long.
    """
    with run_guarded(words) as guard:
        try:
            status = guard.process.wait(timeout)
        except subprocess.TimeoutExpired:
            guard.end()
            raise ParityError(
                f"{_program_name(words)} took longer than {timeout:g} s on {doing}",
                where=last_words(guard.log),
                fix="raise the limit with timeout=SECONDS, or find out where it hangs",
                failing=True,
            ) from None
        if status < 0:
            raise ParityError(
                f"{_program_name(words)} was killed by {signal_name(-status)} on {doing}",
                where=last_words(guard.log),
                fix="run it by hand on the same input; out of memory kills with SIGKILL",
                failing=True,
            )
        if status > 0:
            raise ParityError(
                f"{_program_name(words)} failed with exit code {status} on {doing}",
                where=last_words(guard.log),
                fix="run it by hand on the same input",
                failing=True,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGuard:
    """A program under guard (`_guardian.py`): the guardian's process, the pipe that keeps it alive, and what was printed."""

    process: subprocess.Popen[bytes]
    lifeline: IO[bytes]
    log: IO[bytes]

    def end(self) -> None:
        """Ends the program and all that it started."""
        self.lifeline.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def run_guarded(
    words: list[str], *, passed: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> Iterator[ProcessGuard]:
    """Runs a program that ends, with all that it started, when the block ends or this process does.

    `passed` are descriptors that it gets, `environment` replaces ours.

    Raises:
        ParityError: it cannot be started.
    """
    _check_startable(words)
    _end_orphans()
    reads, writes = os.pipe()
    guardian = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_guardian.py")), str(reads), *words]
    with tempfile.TemporaryFile() as log, os.fdopen(writes, "wb") as lifeline:
        try:
            process = subprocess.Popen(
                guardian,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(reads, *passed),
                start_new_session=True,
                env=environment_of_others(environment),
            )
        finally:
            os.close(reads)
        guard = ProcessGuard(process=process, lifeline=lifeline, log=log)
        try:
            yield guard
        finally:
            guard.end()


@functools.cache
def _end_orphans() -> None:
    """Ends what guarded programs started whose guardian was killed; once a process.

    Such a process carries the guardian's number, start and namespace in its environment (`_guardian.py`): a container's
    numbers mean nothing here.
    """
    named, ours = f"{GUARDIAN}=".encode(), str(Path("/proc/self/ns/pid").readlink())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.stat().st_uid != os.geteuid():
                continue
            words = (entry / "environ").read_bytes().split(b"\0")
            told = next((word for word in words if word.startswith(named)), b"").removeprefix(named)
            number, start, space = told.decode().split("-")
            if space == ours and not _is_alive(int(number), start):
                os.kill(int(entry.name), signal.SIGKILL)


def _is_alive(number: int, start: str) -> bool:
    """Whether the process of this number that was started then is still there."""
    try:
        return start_of(number) == start
    except (FileNotFoundError, ProcessLookupError):
        return False


def _check_startable(words: list[str]) -> None:
    """Refuses what no program is, before a guardian is started for it."""
    found = shutil.which(words[0])
    if found is None:
        there = Path(words[0]).exists()
        said = "Permission denied" if there else "No such file or directory"
        raise ParityError(
            f"{words[0]} cannot be started: {said}",
            where=words[0],
            fix="make it executable (chmod +x)" if there else "give the path of a program that is there",
        )
    with Path(found).open("rb") as file:
        head = file.read(4)
    if head[:2] != b"#!" and head != b"\x7fELF" and head[:4] not in _OTHER_PROGRAMS:
        raise ParityError(
            f"{words[0]} cannot be started: {os.strerror(errno.ENOEXEC)}",
            where=words[0],
            fix="begin the script with a line such as #!/bin/sh, or name its interpreter: run=python infer.py",
        )


def _program_name(words: list[str]) -> str:
    return Path(words[0]).name


def last_words(log: IO[bytes]) -> str:
    """What a process printed last, in one line."""
    log.flush()
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    lines = [line[:_LONG_LINE] for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return "its last words: " + " | ".join(lines[-_TAIL_LINES:]) if lines else "it printed nothing"


def signal_name(number: int) -> str:
    """The name of a signal: "SIGSEGV"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
