"""Workers of this machine: forked processes that do tasks by their number until none is left.

Numbers go out and answers come back through two pipes of each worker. A worker that ends in the middle of a task is replaced,
and its task is done by another; a task that ended several workers is given up. Workers end with the driver.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
from collections import Counter, deque
from typing import IO, TYPE_CHECKING

from parityscope.forking import fork_child
from parityscope.light_dataclasses import dataclass
from parityscope.workers.answering import MOST_DEATHS, answer_task, lost_too_often, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.errors import ParityError
    from parityscope.forking import Forked
    from parityscope.workers import Do, Job

_NUMBER = struct.Struct("<q")
_NO_MORE = -1
_ANSWER = struct.Struct("<qBq")  # number, kind, bytes that follow
_LOOK_S = 1.0  # how often a worker is looked for whose pipe something else holds open


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    """A worker; `task` is the one that it does."""

    process: Forked
    requests: int
    answers: IO[bytes]
    task: int


def run_in_processes(job: Job, numbers: Sequence[int], workers: int) -> Iterator[tuple[int, bytes | ParityError]]:
    """What the tasks give, or why they have none, in the order in which they end; tasks begin in the order of `numbers`.

    Raises:
        RuntimeError: a task raised what is a bug; the text is its traceback.
    """
    waiting = deque(numbers)
    deaths: Counter[int] = Counter()
    crew: list[_Worker] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < workers:
                crew.append(_start_worker(job, waiting.popleft()))
            ready = select.select([worker.answers for worker in crew], [], [], _LOOK_S)[0]
            for worker in [one for one in crew if one.answers in ready or _has_ended(one)]:
                task, answer = worker.task, _read_answer(worker)
                if answer is None:
                    crew.remove(worker)
                    _end_worker(worker)
                    deaths[task] += 1
                    if deaths[task] < MOST_DEATHS:
                        waiting.appendleft(task)
                    else:
                        yield task, lost_too_often(task, deaths[task])
                    continue
                # The worker goes on before what it gave is looked at.
                if waiting:
                    worker.task = waiting.popleft()
                    _send_number(worker)
                else:
                    crew.remove(worker)
                    _dismiss_worker(worker)
                yield task, answer
    finally:
        for worker in crew:
            _end_worker(worker)


def _start_worker(job: Job, task: int) -> _Worker:
    their_requests, requests = os.pipe()
    answers, their_answers = os.pipe()

    def work() -> bytes:
        # Who interrupts the command interrupts the driver, which ends its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(requests)
        os.close(answers)
        _answer_numbers(job, their_requests, their_answers)
        return b""

    process = fork_child(work)
    os.close(their_requests)
    os.close(their_answers)
    worker = _Worker(process=process, requests=requests, answers=os.fdopen(answers, "rb"), task=task)
    _send_number(worker)
    return worker


def _answer_numbers(job: Job, requests: int, answers: int) -> None:
    """The worker's side: does tasks until it is told that there are no more."""
    with os.fdopen(answers, "wb") as out, os.fdopen(requests, "rb") as told, contextlib.ExitStack() as opened:
        do: Do | None = None
        while len(read := told.read(_NUMBER.size)) == _NUMBER.size:
            (number,) = _NUMBER.unpack(read)
            if number == _NO_MORE:
                return

            def work(number: int = number) -> bytes:
                nonlocal do
                if do is None:
                    do = opened.enter_context(job.open())
                return do(number, job.read(number))

            kind, content = answer_task(work)
            out.write(_ANSWER.pack(number, kind, len(content)) + content)
            out.flush()


def _send_number(worker: _Worker) -> None:
    """Hands the worker its task; where it has ended already, that shows when its answer is read."""
    with contextlib.suppress(BrokenPipeError):
        os.write(worker.requests, _NUMBER.pack(worker.task))


def _has_ended(worker: _Worker) -> bool:
    return os.waitid(os.P_PID, worker.process.number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read_answer(worker: _Worker) -> bytes | ParityError | None:
    """What the worker gave for its task; None if it has ended.

    Raises:
        RuntimeError: it broke.
    """
    if _has_ended(worker):  # all that it wrote is there, and no end comes where something else holds the pipe open
        os.set_blocking(worker.answers.fileno(), False)
    head = worker.answers.read(_ANSWER.size) or b""
    if len(head) < _ANSWER.size:
        return None
    _, kind, length = _ANSWER.unpack(head)
    content = (worker.answers.read(length) or b"") if length else b""
    if len(content) < length:
        return None
    return read_answer(kind, content)


def _dismiss_worker(worker: _Worker) -> None:
    """Lets a worker close what it has open, and end."""
    worker.task = _NO_MORE
    _send_number(worker)
    os.waitpid(worker.process.number, 0)
    os.close(worker.requests)
    worker.answers.close()
    worker.process.sent()


def _end_worker(worker: _Worker) -> None:
    os.close(worker.requests)
    worker.answers.close()
    worker.process.end()
