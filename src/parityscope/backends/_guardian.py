"""A program under guard: `python _guardian.py LIFELINE WORD...` runs it, and ends all that it started when it ends or we do.

A program may start others that leave its process group (`setsid`), and whoever started the program may be killed. So it runs
under this process, which is the reaper of all that come after it (prctl(2), PR_SET_CHILD_SUBREAPER): a process whose parent ended
becomes its child, so that none is lost. LIFELINE is a pipe that only our caller holds the other end of: when that closes,
whatever the reason, everything ends. What is printed is kept to its last part, so that no program fills a disk.

Where this process itself is killed the program ends with it; what it had started carries this process's number, start and
namespace in PARITYSCOPE_GUARDIAN, by which the next guarded program's caller finds and ends it.

It imports nothing of ours: it must start at once, and go on whatever happens to the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
GUARDIAN = "PARITYSCOPE_GUARDIAN"
_TAIL = 1 << 16  # bytes of what it printed last that are handed on
_BLOCK = 1 << 16
_TURN_S = 0.02  # how often it is asked whether the program has ended
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_STARTED = 127  # as a shell says of a command that cannot be run


def main() -> None:
    """Guards the program, and ends as it ended."""
    lifeline, words = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for one in _ASKED:
        signal.signal(one, signal.SIG_IGN)  # our caller decides, through the lifeline
    os.environ[GUARDIAN] = f"{os.getpid()}-{start_of(os.getpid())}-{Path('/proc/self/ns/pid').readlink()}"
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        _become_program(words, lifeline, writes)
    os.close(writes)
    status, printed = _watch_program(child, lifeline, reads)
    _end_all()
    with contextlib.suppress(OSError):
        os.write(1, printed[-_TAIL:])
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _become_program(words: list[str], lifeline: int, output: int) -> None:
    """In the child: becomes the program, in a session of its own."""
    os.close(lifeline)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for one in _ASKED:
        signal.signal(one, signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    try:
        os.execvp(words[0], words)  # noqa: S606 - what the user named
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}\n".encode())
    os._exit(_NOT_STARTED)


def _watch_program(child: int, lifeline: int, output: int) -> tuple[int, bytes]:
    """How the program ended, and what it printed last; it is killed when the lifeline closes."""
    printed = b""
    watched = [lifeline, output]
    killed = False
    while True:
        for ready in select.select(watched, [], [], _TURN_S)[0]:
            block = os.read(ready, _BLOCK) if ready == output or not killed else b""
            if ready == output:
                printed = (printed + block)[-2 * _TAIL :]
            if not block:
                watched.remove(ready)
                if ready == lifeline:
                    killed = True
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, printed + _read_rest(output if output in watched else -1)


def _read_rest(output: int) -> bytes:
    """What is left in the pipe; whatever holds it open beyond that is about to be ended."""
    found = b""
    while output >= 0 and select.select([output], [], [], 0)[0] and len(found) < 2 * _TAIL:
        block = os.read(output, _BLOCK)
        if not block:
            break
        found += block
    return found


def _end_all() -> None:
    """Kills what descends from this process until nothing does."""
    while True:
        for number in _list_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _list_children() -> list[int]:
    own = os.getpid()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if int(_facts_of(int(entry.name))[1]) == own:
                    found.append(int(entry.name))
    return found


def start_of(process: int) -> str:
    """When a process was started, in ticks since the machine was: with its number that names it for ever.

    Raises:
        OSError: there is no such process.
    """
    return _facts_of(process)[19]


def _facts_of(process: int) -> list[str]:
    """What the kernel says of a process behind its name (proc(5), from its state on)."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


if __name__ == "__main__":
    main()
