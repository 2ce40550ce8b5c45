"""Work divided over processes, each with two cores of its own where the machine has enough, told as one."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_CORES = 2  # of a process: what the promises of time are made for
_LISTEN_S = 0.1
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def spread(
    work: Callable[[int, Callable[[Any], None]], None], processes: int, tell: Callable[[Any], None]
) -> list[str]:
    """Runs `work(number, say)` in forked processes, and hands what they say (values of JSON) to `tell` as it comes.

    Returns:
        What became of the processes that did not end in order, in words.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ears, numbers = [], {}
    for number in range(processes):
        ear, mouth = os.pipe()
        process = os.fork()
        if process == 0:
            _become_worker(work, number, processes, mouth)
        os.close(mouth)
        os.set_blocking(ear, False)
        ears.append(_Ear(ear))
        numbers[process] = number
    ended = []
    while numbers:
        # The ends of processes, not of pipes: what a worker leaves running may hold its pipe open.
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in numbers:
            number = numbers.pop(process)
            if status:
                ended.append(f"process {number} ended with {os.waitstatus_to_exitcode(status)}")
        elif not process:
            time.sleep(_LISTEN_S)
        for one in ears:
            one.listen(tell)
    return ended


class _Ear:
    """Our end of a worker's pipe, and the line that has not ended yet."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._held = b""

    def listen(self, tell: Callable[[Any], None]) -> None:
        """Tells every whole line that has come."""
        while True:
            try:
                more = os.read(self._number, 1 << 16)
            except BlockingIOError:
                return
            if not more:
                return
            *lines, self._held = (self._held + more).split(b"\n")
            for line in lines:
                tell(json.loads(line))


def _become_worker(work: Callable[[int, Callable[[Any], None]], None], number: int, of: int, mouth: int) -> NoReturn:
    """Works, and ends with its parent."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= _CORES * of:
            os.sched_setaffinity(0, cores[_CORES * number : _CORES * (number + 1)])
        with os.fdopen(mouth, "wb", buffering=0) as pipe:
            work(number, lambda told: _say(pipe.fileno(), told))
        status = 0
    except SystemExit as ended:
        print(ended, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - told where it happened, because nobody above is ours
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _say(mouth: int, told: Any) -> None:
    rest = json.dumps(told).encode() + b"\n"
    while rest:
        rest = rest[os.write(mouth, rest) :]
