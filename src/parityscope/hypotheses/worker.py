"""Searches stretches in a process of its own, as an edit may crash the runtime or never end.

The two processes speak over pipes (pickled records, of our own making on both sides), and share one small page of memory where
the worker notes which edit it is about to try. If it dies, or an edit takes longer than `_PATIENCE_S`, it is banned, counted,
and the search begun again without it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from parityscope.backends._process import end_with_parent
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np

    from parityscope.hypotheses.edits import Edit
    from parityscope.hypotheses.stretch import Context

__all__ = ["Answer", "Candidate", "Task", "Worker", "serve"]

_PAGE = 4096
_PATIENCE_S = 30.0  # of wall time for one edit; on quiet cores the slowest takes a tenth of a second. Chosen.
_STARTS = 5  # of the worker for one task: each but the first was for an edit that ended it
_LENGTH = 8  # bytes of a message's length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """A stretch to be searched: `arithmetic` is a hypothesis' name and the words of its variant, empty for FP32."""

    context: Context
    seconds: float
    arithmetic: tuple[str, str] = ("", "")
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """What a search says of one edit, with what it predicts on the first sample.

    `step` is the site of what it changes, `output` that of the stretch. `node`, `reads`, `behind` (as in `Edit`) and
    `constants` are what does the same in a copy of the model, where something does.
    """

    words: str
    kind: str
    bits: float
    share: float
    length: float
    step: str
    predicted: np.ndarray
    numbers: dict[str, float]
    output: str
    node: bytes
    reads: tuple[int | None, ...] | None
    behind: tuple[tuple[str, tuple[float, ...]], ...]
    constants: dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The best candidates, and how many edits were tried, failed, left for want of budget, or ended the worker."""

    candidates: tuple[Candidate, ...] = ()
    tried: int = 0
    failed: int = 0
    untried: int = 0
    fatal: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker process; started when it is first needed, and kept for further tasks."""

    _process: subprocess.Popen[bytes] | None = None
    _note: mmap.mmap | None = None
    _file: int = -1
    _banned: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Nothing is started before it is asked."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process."""
        self._end()
        if self._note is not None:
            self._note.close()
            os.close(self._file)

    def search(self, task: Task) -> Answer:
        """What searching the task gives; edits that end the worker are banned and counted."""
        fatal: list[str] = []
        for _ in range(_STARTS):
            if self._process is None or self._process.poll() is not None:
                self._start()
            answer = self._ask(task)
            if answer is not None:
                return Answer(
                    candidates=answer.candidates,
                    tried=answer.tried,
                    failed=answer.failed,
                    untried=answer.untried,
                    fatal=tuple(fatal),
                    problem=answer.problem,
                )
            noted = self._noted()
            self._end()
            if not noted:
                return Answer(fatal=tuple(fatal), problem="the search ended before it tried anything")
            self._banned.add(noted)
            fatal.append(noted)
        return Answer(fatal=tuple(fatal), problem=f"{len(fatal)} edits ended the search one after the other")

    def _start(self) -> None:
        if self._note is None:
            self._file = os.memfd_create("parityscope-search")
            os.ftruncate(self._file, _PAGE)
            self._note = mmap.mmap(self._file, _PAGE)
        command = [sys.executable, "-c", "from parityscope.hypotheses.worker import serve; serve()", str(self._file)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._file,),
            # Sums of some ten thousand numbers, thousands of times: other threads cost more than they add.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
            },
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process.wait()
            self._process = None

    def _noted(self) -> str:
        if self._note is None:
            return ""
        return self._note[:_PAGE].split(b"\0")[0].decode(errors="replace")

    def _ask(self, task: Task) -> Answer | None:
        """The worker's answer; None where it ended or went on with one edit for too long."""
        process, note = self._process, self._note
        if process is None or note is None or process.stdin is None or process.stdout is None:
            return None
        note[:_PAGE] = b"\0" * _PAGE
        try:
            _send(process.stdin, (task, frozenset(self._banned)))
        except (BrokenPipeError, OSError):
            return None
        seen, since = b"", time.monotonic()
        while not select.select([process.stdout], [], [], 0.1)[0]:
            if process.poll() is not None:
                return None
            now = note[:_PAGE]
            if now != seen:
                seen, since = now, time.monotonic()
            elif now.strip(b"\0") and time.monotonic() - since > _PATIENCE_S:
                return None
        try:
            answer = _receive(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        return answer if isinstance(answer, Answer) else None


def _send(pipe: Any, message: object) -> None:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(content).to_bytes(_LENGTH, "little"))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    head = pipe.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    size = int.from_bytes(head, "little")
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return pickle.loads(content)  # noqa: S301 - from the other end of our own pipe


def serve() -> None:
    """What the worker process does: answers tasks until nobody asks any more."""
    end_with_parent()
    note = mmap.mmap(int(sys.argv[1]), _PAGE)
    asking, answering = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a runtime prints is no answer
    import parityscope.hypotheses.searching  # noqa: F401 - imported while nobody waits

    while True:
        try:
            task, banned = _receive(asking)
        except EOFError:
            return
        _send(answering, _answer(task, banned, note))


def _node_alone(edit: Edit) -> bytes:
    """The message of the node that an edit puts in place of another, where that is all that it does; empty otherwise."""
    alone = (edit.before is None or edit.reads is not None) and edit.after is None and edit.opset is None
    return edit.node.SerializeToString() if edit.node is not None and alone else b""


def _answer(task: Task, banned: frozenset[str], note: mmap.mmap) -> Answer:
    from parityscope.hypotheses.arithmetics import variant_of
    from parityscope.hypotheses.searching import search
    from parityscope.hypotheses.stretch import Stretch

    def trying(words: str) -> None:
        content = words.encode()[: _PAGE - 1]
        note[: len(content) + 1] = content + b"\0"

    try:
        trying("the model itself")
        stretch = Stretch(context=task.context, arithmetic=variant_of(task.context, *task.arithmetic))
        ranked, untried = search(stretch, task.seconds, trying=trying, banned=banned, first=task.first)
    except ParityError as error:
        return Answer(problem=error.problem)
    except (MemoryError, KeyError, ValueError, IndexError, TypeError) as error:
        return Answer(problem=f"{type(error).__name__}: {error}")
    found = tuple(
        Candidate(
            words=one.edit.words,
            kind=one.kind,
            bits=one.edit.bits,
            share=one.share,
            length=one.length,
            step=stretch.steps[one.edit.at].key,
            predicted=one.predicted,
            numbers=dict(one.edit.numbers),
            output=task.context.output,
            node=_node_alone(one.edit),
            reads=one.edit.reads,
            behind=one.edit.behind,
            constants=stretch.changed_constants(one.edit),
        )
        for one in ranked[:8]
    )
    return Answer(candidates=found, tried=stretch.tried, failed=stretch.failed, untried=untried)
