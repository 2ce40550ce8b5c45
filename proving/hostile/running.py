"""Runs a case in a forked child of a warmed process, and measures it.

Whatever the command starts is ours to bury (subreaper), so that its time counts and what outlives it is found. What it does in
Python is seen by an audit hook: files opened for writing elsewhere, programs, connections, code compiled from the case's files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pty
import resource
import shutil
import signal
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proving.hostile.cases import Ending
from proving.hostile.inside import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proving.hostile.cases import Ask, Case

WALL_S = 60.0  # the promise for a refusal; an answer gets twice as long before it is stopped
MEMORY_STOP = 4 << 30  # what all processes of a case may hold before they are stopped: far beyond the promise
OUTPUT_STOP = 64 << 20
GRACE_S = 3.0  # for what is cleaning up behind the command
_POLL_S = 0.01
_LOOK = 20  # polls between two looks at all that runs: each reads about every process of the machine
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True)
class Place:
    """Where a case lives: its folder, where it may write for a moment, and a folder of others that nothing may touch."""

    root: Path

    @property
    def work(self) -> Path:
        """Where its files lie and the command runs."""
        return self.root / "work"

    @property
    def scratch(self) -> Path:
        """Its TMPDIR."""
        return self.root / "tmp"

    @property
    def outside(self) -> Path:
        """What belongs to somebody else; the marker of code that ran would appear here."""
        return self.root / "outside"

    def make(self) -> None:
        """Makes it, empty but for what belongs to others."""
        for folder in (self.work, self.scratch, self.outside):
            folder.mkdir(parents=True)
        (self.outside / "secret.bin").write_bytes(b"SECRET OF ANOTHER USER " * 64)


def warm_up() -> None:
    """Imports what commands import, once for all cases, without anything that starts a thread of a runtime."""
    import importlib
    import pkgutil

    import jinja2
    import numba
    import onnx
    import onnx_ir
    import onnxruntime
    import PIL.Image
    import rich.console

    import parityscope
    from parityscope.cli.shell.app import command

    del jinja2, numba, onnx, onnx_ir, onnxruntime, PIL, rich
    for module in pkgutil.walk_packages(parityscope.__path__, "parityscope."):
        if not any(
            part in module.name for part in ("__main__", "scaffolds", "testing", "faults", "tensorrt", "triton")
        ):
            importlib.import_module(module.name)
    command()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def measure_base(folder: Path) -> int:
    """The memory of a command that does nothing, which is not the case's."""
    from proving.hostile.cases import Ask

    place = Place(folder / "base")
    place.make()
    return _run(Ask(("--version",)), place, folder / "streams", 0).memory


def run_case(case: Case, folder: Path, base: int) -> tuple[Ask, Ending, Place]:
    """Builds a case in a folder of its own, runs it there, and tells how it ended."""
    place = Place(folder / case.name.replace("/", "-"))
    place.make()
    ask = case.build(place.work)
    before = _listing(place.root)
    ending = _run(ask, place, folder / "streams", base)
    after = _listing(place.root)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return ask, Ending(**{**vars(ending), "written": tuple(changed)}), place


def remove(place: Place) -> None:
    """Takes a case away."""
    for path, folders, _ in os.walk(place.root):  # what was made unreadable has to be readable to be removed
        for folder in folders:
            with contextlib.suppress(OSError):
                Path(path, folder).chmod(0o700)
    shutil.rmtree(place.root, ignore_errors=True)


def _listing(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every path under `root` with what shows that it was touched; nothing is opened."""
    found = {}
    for path, folders, files in os.walk(root):
        for name in (*folders, *files):
            entry = Path(path, name)
            status = entry.lstat()
            touched = 0 if name in folders else status.st_mtime_ns
            found[str(entry.relative_to(root))] = (status.st_mode, touched and status.st_size, touched)
    return found


def _run(ask: Ask, place: Place, streams: Path, base: int) -> Ending:
    streams.mkdir(exist_ok=True)
    out, err, events = streams / "out", streams / "err", streams / "events"
    for stream in (out, err, events):
        stream.write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.monotonic()
    screen, terminal = _terminal() if ask.stdout == "terminal" else (-1, -1)
    child = os.fork()
    if child == 0:
        enter(ask, place, (out, err, events), terminal)
    status, cpu, memory, stopped, waited = _wait(child, begun, (out, err), screen)
    if screen >= 0:
        os.close(terminal)
        _show(screen, out)
        os.close(screen)
    wall = time.monotonic() - begun
    left, more = _bury()
    return Ending(
        code=os.waitstatus_to_exitcode(status),
        out=out.read_bytes(),
        err=err.read_bytes(),
        cpu_s=cpu + more,
        wall_s=wall,
        waited_s=waited,
        memory=max(0, memory - base),
        stopped=stopped,
        left=left,
        events=tuple(dict.fromkeys(events.read_text(errors="replace").splitlines())),
    )


def _terminal() -> tuple[int, int]:
    """Both ends of a terminal of a hundred columns; ours does not wait."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    os.set_blocking(screen, False)
    return screen, terminal


def _show(screen: int, out: Path) -> None:
    """What came to the terminal so far, into the file."""
    with contextlib.suppress(OSError), out.open("ab") as file:
        while held := os.read(screen, 1 << 16):
            file.write(held)


def _wait(child: int, begun: float, outputs: tuple[Path, Path], screen: int) -> tuple[int, float, int, str, float]:
    """Its status, processor time, largest memory, why it was stopped, and how long it was ready and had no core."""
    cpu, memory, stopped = 0.0, 0, ""
    waits: dict[int, float] = {}
    turns = 0
    while True:
        number, status, used = os.wait4(-1, os.WNOHANG)
        if number:
            cpu += used.ru_utime + used.ru_stime
            memory = max(memory, used.ru_maxrss * 1024)
            if number == child:
                return status, cpu, memory, stopped, sum(waits.values())
            continue
        time.sleep(_POLL_S)
        if screen >= 0:
            _show(screen, outputs[0])
        turns += 1
        if turns % _LOOK or stopped:
            continue
        below = _descendants(os.getpid())
        waits |= {one: _waited(one) for one in below}
        stopped = _excess(begun + sum(waits.values()), outputs, below)
        if stopped:
            _kill(child)


def _waited(process: int) -> float:
    """Seconds that a thread of it was ready and had no core: of the one that had to wait longest."""
    longest = 0
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                longest = max(longest, int((thread / "schedstat").read_text().split()[1]))
    return longest / 1e9


def _excess(begun: float, outputs: tuple[Path, Path], below: Sequence[int]) -> str:
    if time.monotonic() - begun > 2 * WALL_S:
        return f"did not end in {2 * WALL_S:.0f} s"
    if sum(path.stat().st_size for path in outputs) > OUTPUT_STOP:
        return "printed without end"
    if sum(_resident(one) for one in below) > MEMORY_STOP:
        return f"took more than {MEMORY_STOP >> 30} GiB"
    return ""


def _bury() -> tuple[tuple[str, ...], float]:
    """What still runs behind the command, by name, and the time of all that ended after it."""
    cpu = 0.0
    deadline = time.monotonic() + GRACE_S
    while True:
        try:
            number, _, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return (), cpu
        if number:
            cpu += used.ru_utime + used.ru_stime
        elif time.monotonic() > deadline:
            break
        else:
            time.sleep(_POLL_S)
    left = tuple(_words(one) for one in _descendants(os.getpid()))
    while _descendants(os.getpid()):
        for one in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.wait4(-1, 0)[0]:
                pass
    return left, cpu


def _kill(child: int) -> None:
    """Ends the whole tree below `child`, the roots first so that nothing is started again."""
    for one in (child, *_descendants(child)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _descendants(parent: int) -> list[int]:
    """Every living process below `parent`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] != "Z":
                    children.setdefault(int(words[1]), []).append(int(entry.name))
    found, waiting = [], [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _resident(process: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _words(process: int) -> str:
    with contextlib.suppress(OSError):
        return f"{process} " + Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(
            errors="replace"
        )
    return str(process)
