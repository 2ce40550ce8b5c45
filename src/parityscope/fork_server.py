"""A child process for work that can be pickled, wherever it is asked for: beside threads of others too.

A fork takes along the locks that other threads hold just then, and nobody gives them back in the child: one of an import and one
of ONNX Runtime's environment were seen to hang. So a process that has threads which are not ours (a notebook, a server) asks
another one to fork: `python -m parityscope.fork_server`, a fresh interpreter that has imported what the work needs and has no
threads. A process without such threads forks itself, which copies nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.custom_operators import libraries_in_use, library_in_use
from parityscope.forking import Forked, fork_child, has_threads_of_others
from parityscope.light_dataclasses import dataclass, field
from parityscope.memory import allow_memory, allowed_memory, with_room_for_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ORDER = struct.Struct("<q")  # 0: fork for the task that comes along; else the number of a child to be ended
_START = 0
_NAME = "parityscope.fork_server"
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)  # which of them depends on what it is


def contained_child(
    work: Callable[..., bytes], arguments: tuple[object, ...], shared: int, modules: Sequence[str]
) -> Forked:
    """A child process that does `work(*arguments, shared)`, sends what that gives, and ends when this process does.

    `work` is a function of a module. `shared` is a file that both have open; the child's may have another number. `modules` are
    what the work imports. What cannot be pickled is forked after all, and so is what no server can be started for.
    """
    if has_threads_of_others():
        with tempfile.TemporaryFile() as task:
            try:
                # First where modules lie: the server may have been started before some of these folders were known.
                for part in (sys.path, _Task.of(work, arguments)):
                    pickle.dump(part, task, protocol=pickle.HIGHEST_PROTOCOL)
            except _UNPICKLABLE:
                return fork_child(lambda: work(*arguments, shared))
            task.flush()
            with contextlib.suppress(OSError):
                return _Server.of_this_process(modules).start(task.fileno(), shared)
    return fork_child(lambda: work(*arguments, shared))


def death_elsewhere(
    work: Callable[..., bytes], arguments: tuple[object, ...], modules: Sequence[str], limit_s: float
) -> int:
    """The signal that a child of another process dies of while it does `work(*arguments, shared)`; 0 where it ends by itself.

    For work that may crash, in a process that has imported `modules` and nothing else. It is killed after `limit_s` seconds.
    """
    try:
        with tempfile.TemporaryFile() as task:
            for part in (sys.path, _Task.of(work, arguments)):
                pickle.dump(part, task, protocol=pickle.HIGHEST_PROTOCOL)
            task.flush()
            child = _Server.of_this_process(modules).start(task.fileno(), task.fileno())
    except OSError:  # the server itself is gone
        return signal.SIGKILL
    ready = select.select([child.pipe], [], [], limit_s)[0]
    survived = bool(ready) and bool(os.read(child.pipe, 1))  # nothing comes where its end of the pipe went with it
    status = child.end()
    return 0 if survived else max(0, -status)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What a child does, and what it would know of its process if it had been forked from it."""

    work: Callable[..., bytes]
    arguments: tuple[object, ...]
    folder: str
    environment: dict[str, str]
    memory: int
    libraries: tuple[str, ...]

    @staticmethod
    def of(work: Callable[..., bytes], arguments: tuple[object, ...]) -> _Task:
        return _Task(
            work=work,
            arguments=arguments,
            folder=str(Path.cwd()),
            environment=dict(os.environ),
            memory=allowed_memory(),
            libraries=libraries_in_use(),
        )

    @with_room_for_calls
    def do(self, shared: int) -> bytes:
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        allow_memory(self.memory)
        with contextlib.ExitStack() as used:
            for path in self.libraries:
                used.enter_context(library_in_use(path))
            return self.work(*self.arguments, shared)


@dataclass(slots=True, kw_only=True)
class _Server:
    """The other process, and our end of the connection to it; one thread asks at a time."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    asking: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of_this_process(modules: Sequence[str]) -> _Server:
        """The server with these modules that was started before, where it still runs, else a new one."""
        key = tuple(modules)
        with _starting:
            if key in _servers and _servers[key].process.poll() is not None:
                _servers.pop(key).close()
            if key not in _servers:
                ours, its = socket.socketpair()
                with its:
                    _servers[key] = _Server(process=_start_server(its.fileno(), modules), connection=ours)
            return _servers[key]

    def start(self, task: int, shared: int) -> Forked:
        """A child that does the task.

        Raises:
            OSError: the server has ended.
        """
        found, its = os.pipe()
        try:
            with self.asking:
                socket.send_fds(self.connection, [_ORDER.pack(_START)], [task, shared, its])
                number = _receive_order(self.connection)
        except OSError:
            os.close(found)
            raise
        finally:
            os.close(its)
        return _Served(number=number, pipe=found, server=self)

    def end(self, number: int) -> int:
        """Lets the server kill its child, and waits until that has ended; how it did."""
        with self.asking, contextlib.suppress(OSError):  # its children ended with it
            self.connection.sendall(_ORDER.pack(number))
            return _receive_order(self.connection)
        return -signal.SIGKILL

    def close(self) -> None:
        """Ends the server."""
        self.connection.close()
        self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served(Forked):
    """A child of the server."""

    server: _Server

    def end(self) -> int:
        status = self.server.end(self.number)
        os.close(self.pipe)
        return status


_servers: dict[tuple[str, ...], _Server] = {}  # by what they have imported
_starting = threading.Lock()


def _start_server(connection: int, modules: Sequence[str]) -> subprocess.Popen[bytes]:
    search = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _NAME, str(connection), *modules],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(connection,),
        # Threads of linear algebra would be lost in the fork.
        env={**os.environ, "PYTHONPATH": search, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )


@atexit.register
def _close_servers() -> None:
    while _servers:
        _servers.popitem()[1].close()


def _leave_servers() -> None:
    """When forked: the server is the parent's."""
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = threading.Lock()
    for server in _servers.values():
        server.connection.close()
    _servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_servers)


def _receive_order(connection: socket.socket) -> int:
    """The next number from the other side.

    Raises:
        ConnectionError: it has ended.
    """
    found = b""
    while len(found) < _ORDER.size:
        part = connection.recv(_ORDER.size - len(found))
        if not part:
            raise ConnectionError("the other process has ended")
        found += part
    return int(_ORDER.unpack(found)[0])


def _serve(connection: socket.socket) -> None:
    """Forks and ends children as it is told, until the connection closes."""
    children: dict[int, Forked] = {}
    while True:
        order, files, _, _ = socket.recv_fds(connection, _ORDER.size, 3)
        if len(order) < _ORDER.size:
            return
        (number,) = _ORDER.unpack(order)
        if number == _START:
            child = fork_child(partial(_do_task, *files))
            answer = child.number
            children[answer] = child
            for file in files:
                os.close(file)
        else:
            answer = children.pop(number).end() if number in children else 0
        connection.sendall(_ORDER.pack(answer))


def _do_task(task: int, shared: int, found: int) -> bytes:
    """The child's side: what the work gives goes to whoever asked for it, and nothing to the server."""
    with os.fdopen(task, "rb") as opened:
        opened.seek(0)
        sys.path[:] = pickle.load(opened)  # noqa: S301 - from the process that started this one
        told: Any = pickle.load(opened)  # noqa: S301 - the same
    with os.fdopen(found, "wb") as out:
        out.write(told.do(shared))
    return b""


def main() -> None:
    """The server's side."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts the command interrupts the process that asks
    for name in (_NAME, *sys.argv[2:]):  # tasks are pickled by the name of this module, which is another here
        with contextlib.suppress(ImportError):  # the work tells that
            importlib.import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection)


if __name__ == "__main__":
    main()
