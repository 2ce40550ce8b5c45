"""Workers of a Ray cluster: actors that get the files once, and of each task what was read for it.

Files and samples travel through the object store: files are put there once for all actors, the samples of a task when it is
handed out, and go when it is done. An actor takes a processor, the GPUs that its targets need, and a little of the resource
`parityscope-BACKEND` of each of its runtimes, where a node of the cluster declares one. Two calls lie with each actor, so that
it need not wait for the driver. A call takes some milliseconds of Ray, so that it is of several tasks where these take less. What
an actor had when its node was lost is done by another.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import time
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.private_folders import scratch_folder
from parityscope.version import __version__
from parityscope.workers.answering import MOST_DEATHS, answer_task, lost_too_often, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from parityscope.workers import Do, Job, Shipped

SCHEME, AUTO = "ray://", "auto"
RESOURCE = "parityscope-"  # what a node declares where only some have a runtime
_START = -1  # counted among the deaths of tasks: an actor that was never ready
_TOLD, _PREPARED = (), (_START,)  # answers that are of no task
_QUEUED = 2  # calls of an actor: the one that it answers, and the next
# Tasks of one call: as many as take so long together (chosen: ten times what a call costs on a busy machine).
_CALL_S, _MOST_TASKS = 0.2, 64
_LOOK_S = 5.0  # how often the size of the cluster is asked for
# A client's server is a process of its own, for which Ray waits half a minute: on a busy head that is too little. The head starts
# it by a fork beside threads of its own, which fails now and then.
_SLOW_START, _TRIES = ("Starting Ray client server failed", "Initialization failure from server"), 3
_END_S = 30.0  # for an actor to close what it has open; chosen
_LITTLE = 0.001  # of a runtime's resource: it says where to run, not how often


class RayWorker:
    """The actor: makes itself ready with the files that it gets, and does tasks."""

    def __init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self._do: Do | None = None
        self._open: Callable[[], contextlib.AbstractContextManager[Do]] | None = None

    def tell(self) -> dict[str, str]:
        """What is installed there."""
        return {"parityscope": __version__, "python": platform.python_version(), "node": platform.node()}

    def prepare(
        self,
        open_there: Callable[[Mapping[str, Path]], contextlib.AbstractContextManager[Do]],
        names: Sequence[tuple[str, str, Sequence[str]]],
        *contents: bytes,
    ) -> None:
        """Writes the files: of each shipped path its text here, its name, and the names of its files; then their bytes."""
        folder = Path(self._opened.enter_context(scratch_folder("ray")))
        left = iter(contents)
        places = {}
        for number, (here, name, files) in enumerate(names):
            root = folder / str(number)
            for file in files:
                path = root / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(next(left))
            places[here] = root / name
        self._open = partial(open_there, places)

    def do(self, numbers: Sequence[int], given: Sequence[Sequence[Any]]) -> tuple[list[tuple[int, bytes]], float]:
        """Does tasks; the kind and bytes of each answer (`answering`), and the seconds that all took."""
        started = time.perf_counter()
        found = [answer_task(partial(self._answer, number, held)) for number, held in zip(numbers, given, strict=True)]
        return found, time.perf_counter() - started

    def close(self) -> None:
        """Closes what is open."""
        self._opened.close()

    def _answer(self, number: int, given: Sequence[Any]) -> bytes:
        if self._do is None:
            if self._open is None:
                raise ValueError("the worker was not prepared")
            self._do = self._opened.enter_context(self._open())
        return self._do(number, given)


@dataclass(slots=True, eq=False)
class _Actor:
    """An actor as the driver knows it; `calls` are the tasks of each call that lies with it, the one that it answers first."""

    handle: Any
    ready: bool = False
    calls: list[tuple[int, ...]] = field(default_factory=list)


def run_on_ray(job: Job, address: str, numbers: Sequence[int]) -> Generator[tuple[int, bytes | ParityError]]:
    """What the tasks give, or why they have none, in the order in which they end, by all of the cluster at `address`.

    Raises:
        ParityError: there is no such cluster, it has another version, or no node has what the targets need.
        RuntimeError: a task raised what is a bug; the text is its traceback.
    """
    shipped = job.shipped
    if shipped is None:
        raise ValueError("the job says nothing about other machines")
    with _connected(address) as ray:
        driver = _Driver(ray=ray, job=job, shipped=shipped, waiting=deque(numbers))
        try:
            yield from driver.run()
        finally:
            driver.end()


@dataclass(slots=True, kw_only=True, eq=False)
class _Driver:
    """What the driver knows: who does what.

    `pending` are the answers that come, each with the actor and the tasks that it is of, or `_TOLD` or `_PREPARED`. `usual` are
    the seconds of a task, infinite until one is known; the tasks `alone` were in a call that an actor was lost in.
    """

    ray: Any
    job: Job
    shipped: Shipped
    waiting: deque[int]
    crew: list[_Actor] = field(default_factory=list)
    pending: dict[Any, tuple[_Actor, tuple[int, ...]]] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    usual: float = math.inf
    alone: set[int] = field(default_factory=set)

    def run(self) -> Iterator[tuple[int, bytes | ParityError]]:
        """Gives answers as they come until none is left."""
        options = self._options()
        names, contents = self._put_files()
        remote = self.ray.remote(RayWorker).options(max_restarts=0, **options)
        size = self._size(options)
        while self.waiting or any(one.calls for one in self.crew):
            left = len(self.waiting) + sum(len(call) for one in self.crew for call in one.calls)
            while len(self.crew) < min(size, left):
                self._hire(remote, names, contents)
            self._hand_out()
            ready, _ = self.ray.wait(list(self.pending), num_returns=1, timeout=_LOOK_S)
            ready, _ = (
                self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0) if ready else ([], [])
            )
            for ref in ready:
                if ref in self.pending:  # not taken back with its actor just now
                    yield from self._take(ref)
            if not ready or not self.crew:
                size = self._size(options)

    def end(self) -> None:
        """Ends all actors; those that are ready close what they have open."""
        closing = [one.handle.close.remote() for one in self.crew if one.ready and not one.calls]
        if closing:
            self.ray.wait(closing, num_returns=len(closing), timeout=_END_S)
        for one in self.crew:
            self.ray.kill(one.handle)

    def _options(self) -> dict[str, Any]:
        declared = self.ray.cluster_resources()
        resources = {f"{RESOURCE}{name}": _LITTLE for name in self.shipped.runtimes if f"{RESOURCE}{name}" in declared}
        return {"num_cpus": 1, "num_gpus": self.shipped.gpus, "resources": resources}

    def _size(self, options: Mapping[str, Any]) -> int:
        """How many actors the cluster has room for.

        Raises:
            ParityError: none.
        """
        held = self.ray.cluster_resources()
        size = int(held.get("CPU", 0))
        if options["num_gpus"]:
            size = min(size, int(held.get("GPU", 0) / options["num_gpus"]))
        if size < 1:
            what = "GPU" if options["num_gpus"] and held.get("CPU", 0) >= 1 else "processor"
            raise ParityError(
                f"the Ray cluster has no {what} for a worker: {', '.join(sorted(held)) or 'no resources at all'}",
                fix=f"add a node that has one: ray start --address=HOST:6379 --num-{'gpus' if what == 'GPU' else 'cpus'}=1",
            )
        return size

    def _put_files(self) -> tuple[list[tuple[str, str, list[str]]], list[Any]]:
        names, contents = [], []
        for one in self.shipped.files:
            root = one.path.parent
            names.append((str(one.path), one.path.name, [str(file.relative_to(root)) for file in one.files]))
            contents += [self._put(file.read_bytes()) for file in one.files]
        return names, contents

    def _put(self, content: Any) -> Any:
        """Puts something into the object store.

        Raises:
            ParityError: there is no room, neither in memory nor on the disk behind it.
        """
        from ray import exceptions

        try:
            return self.ray.put(content)
        except (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError) as error:
            raise ParityError(
                "the cluster's object store is full, and so is the disk that it spills to",
                fix="free the disk, or start its nodes with more room: ray start --object-store-memory=BYTES; what workers "
                "finished is kept, and the same command with the same --study goes on with it",
            ) from error

    def _hire(self, remote: Any, names: Sequence[tuple[str, str, list[str]]], contents: Sequence[Any]) -> None:
        actor = _Actor(remote.remote())
        self.crew.append(actor)
        self.pending[actor.handle.tell.remote()] = actor, _TOLD
        self.pending[actor.handle.prepare.remote(self.shipped.open, names, *contents)] = actor, _PREPARED

    def _hand_out(self) -> None:
        """Gives tasks to those that are ready, the first to whoever has least."""
        for queued in range(_QUEUED):
            for actor in self.crew:
                if self.waiting and actor.ready and len(actor.calls) == queued:
                    numbers = self._next_tasks()
                    given = self._put([list(self.job.read(number)) for number in numbers])
                    self.pending[actor.handle.do.remote(numbers, given)] = actor, numbers
                    actor.calls.append(numbers)

    def _next_tasks(self) -> tuple[int, ...]:
        """The tasks of the next call: several where they are short, and never all that are left."""
        fair = len(self.waiting) // (_QUEUED * len(self.crew))
        most = max(1, min(_MOST_TASKS, fair, int(_CALL_S / max(self.usual, 1e-6))))
        found = [self.waiting.popleft()]
        while len(found) < most and self.waiting and not self.alone.intersection((found[0], self.waiting[0])):
            found.append(self.waiting.popleft())
        return tuple(found)

    def _take(self, ref: Any) -> list[tuple[int, bytes | ParityError]]:
        """Takes what is ready: answers, that an actor is, or that it is lost."""
        from ray import exceptions

        actor, numbers = self.pending.pop(ref)
        try:
            found = self.ray.get(ref)
        except exceptions.RayTaskError as error:
            raise _refused_start(error) from error
        except exceptions.RayError as error:
            return self._bury(actor, error)
        if numbers == _TOLD:
            _check_version(found)
        elif numbers == _PREPARED:
            actor.ready = True
        else:
            actor.calls.remove(numbers)
            answers, seconds = found
            self.usual = seconds / len(numbers)
            return [(number, read_answer(*answer)) for number, answer in zip(numbers, answers, strict=True)]
        return []

    def _bury(self, actor: _Actor, error: Exception) -> list[tuple[int, bytes | ParityError]]:
        """Takes back the tasks of a lost actor; the one that it did is given up where that was once too often.

        Of a call of several nobody knows which one it was: each is done in a call of its own then.

        Raises:
            ParityError: actors are lost before they are ready, again and again.
        """
        if actor not in self.crew:
            return []
        self.crew.remove(actor)
        self.pending = {ref: held for ref, held in self.pending.items() if held[0] is not actor}
        if not actor.ready:
            self.deaths[_START] += 1
            if self.deaths[_START] >= MOST_DEATHS:
                raise _refused_start(error)
        self.waiting.extendleft(number for call in reversed(actor.calls) for number in reversed(call))
        if not actor.calls:
            return []
        self.alone.update(actor.calls[0])
        if len(actor.calls[0]) > 1:
            return []
        (task,) = actor.calls[0]
        self.deaths[task] += 1
        if self.deaths[task] < MOST_DEATHS:
            return []
        self.waiting.remove(task)
        return [(task, lost_too_often(task, self.deaths[task]))]


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster; whoever was connected before stays so.

    Raises:
        ParityError: Ray is not installed, there is no cluster, or it has another version.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError as error:
        raise ParityError("Ray is not installed here", fix="pip install 'parityscope[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    for left in reversed(range(_TRIES)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            break
        except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
            if not left or not any(words in str(error) for words in _SLOW_START):
                raise _refused_connection(address, error) from error
            ray.shutdown()  # what is left of the try
    try:
        yield ray
    finally:
        ray.shutdown()


def _refused_connection(address: str, error: Exception) -> ParityError:
    said = " ".join(str(error).split())
    if "version" in said.lower():
        return ParityError(
            f"the Ray cluster has another version: {said:.300}",
            where=address,
            fix="install the cluster's versions of Ray and Python here: pip install 'ray[client]==VERSION'",
        )
    fix = "give the port of Ray's client server: ray://HOST:10001"
    if address == AUTO:
        fix = "start the command on a node of the cluster or as a Ray job, or give its address: --workers ray://HOST:10001"
    return ParityError(f"there is no Ray cluster to connect to: {said:.300}", where=address, fix=fix)


def _refused_start(error: Exception) -> ParityError:
    """Why no actor could be started."""
    said = " ".join(str(error).split())[-400:]
    return ParityError(
        f"the nodes of the Ray cluster cannot start a worker: {said}",
        fix=f"install this version on every node: pip install parityscope=={__version__}",
    )


def _check_version(told: Mapping[str, str]) -> None:
    """Refuses a node with another version: it might compute or tell something else.

    Raises:
        ParityError: it has one.
    """
    if told["parityscope"] != __version__:
        raise ParityError(
            f"the Ray cluster has Parityscope {told['parityscope']}, and here is {__version__}",
            where=told["node"],
            fix=f"install the same version on every node: pip install parityscope=={__version__}",
        )
