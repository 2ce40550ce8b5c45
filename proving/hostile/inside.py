"""The child's side of a case: its folder, its environment, its streams, its limits, and the watch over what it does."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import struct
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import parityscope

if TYPE_CHECKING:
    from proving.hostile.cases import Ask
    from proving.hostile.running import Place

_FILE_LIMIT = 2 << 30
_MEMORY_LIMIT = 6 << 30  # written to or not; what is held is measured apart
_EVENTS = 240  # the number of the descriptor that the watch writes to
_DROP_FOR_EVER = 24  # PR_CAPBSET_DROP
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = ("os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.utime", "shutil.rmtree", "os.chown")
_TWO_PATHS = ("os.rename", "os.link", "os.symlink")
_PROGRAMS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
_CONNECTIONS = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
_HARMLESS = ("/dev/null", "/dev/full", "/dev/tty", "/dev/pts", "/proc")  # nothing can be written there
_NAMELESS = 54_321  # a number that no machine gives to a user
_KEEP_RIGHTS, _AMBIENT, _SEARCH = 8, 47, 1 << 2  # PR_SET_KEEPCAPS, PR_CAP_AMBIENT (2 raises), CAP_DAC_READ_SEARCH (2)
_SOURCE = str(Path(parityscope.__file__).resolve().parents[1])
# Where what is imported is compiled when it is: our own packages, and those that were installed.
_COMPILED = (_SOURCE, os.path.realpath(sys.prefix))


def enter(ask: Ask, place: Place, streams: tuple[Path, Path, Path], terminal: int) -> NoReturn:
    """Becomes the command, whose output, errors and misdeeds go to these files; never comes back."""
    status = 99
    try:
        os.setsid()
        os.chdir(place.work)
        surroundings = _environment(ask, place)
        os.dup2(os.open(streams[2], os.O_WRONLY | os.O_APPEND), _EVENTS, inheritable=False)
        _limit()
        if ask.unprivileged and os.geteuid() == 0:
            _drop_rights()
        _connect(ask, streams, terminal)
        if ask.nameless and os.geteuid() == 0:
            _become_nobody(place)
        for number in ask.ignores:
            signal.signal(number, signal.SIG_IGN)
        if ask.address_space:
            resource.setrlimit(resource.RLIMIT_AS, (ask.address_space, ask.address_space))
        if ask.fresh:
            command = [sys.executable, "-m", "parityscope", *ask.words]
            os.execve(sys.executable, command, surroundings)  # noqa: S606
        status = _command(ask, place, surroundings)
    finally:
        os._exit(status)


def _command(ask: Ask, place: Place, surroundings: dict[str, str]) -> int:
    os.environ.clear()
    os.environ.update(surroundings)
    tempfile.tempdir = None
    sys.argv = ["parityscope", *ask.words]
    sys.stdin = _stream(0, "r", "strict")
    sys.stdout = _stream(1, "w", "strict")
    sys.stderr = _stream(2, "w", "backslashreplace")
    sys.addaudithook(_Watch(ask, place))
    from parityscope.cli import main

    try:
        main(list(ask.words))
    except SystemExit as ended:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        return int(ended.code or 0)
    return 98


def _stream(number: int, mode: str, errors: str) -> Any:
    """What Python makes of a descriptor when it starts: nothing, if it is closed; errors line by line."""
    with contextlib.suppress(OSError):
        buffering = 1 if number == 2 else -1
        return open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)
    return None


def _environment(ask: Ask, place: Place) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL") if name in os.environ
    }
    kept |= {"TMPDIR": str(place.scratch), "PYTHONPATH": _SOURCE, "OMP_NUM_THREADS": "1"}
    for name, value in ask.environment.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value.replace("{root}", str(place.root))
    return kept


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_LIMIT, _FILE_LIMIT))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _connect(ask: Ask, streams: tuple[Path, Path, Path], terminal: int) -> None:
    """Puts descriptors 0, 1 and 2 where the case wants them."""
    if terminal >= 0:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(terminal, number)
        return
    null = "/dev/zero" if ask.stdin == "zero" else os.devnull
    os.dup2(os.open(null, os.O_RDONLY), 0)
    for number, kind, path in ((1, ask.stdout, streams[0]), (2, ask.stderr, streams[1])):
        if kind == "gone":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, number)
        else:
            os.dup2(os.open("/dev/full" if kind == "full" else path, os.O_WRONLY | os.O_APPEND), number)
    for number, kind in enumerate((ask.stdin, ask.stdout, ask.stderr)):
        if kind == "closed":  # after all was opened, because what is opened next takes the number
            os.close(number)


def _drop_rights() -> None:
    """Gives up root's right to read and write what it may not: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    header = struct.pack("=Ii", 0x20080522, 0)
    held = ctypes.create_string_buffer(24)
    system = ctypes.CDLL(None, use_errno=True)
    for right in (1, 2):
        system.prctl(_DROP_FOR_EVER, right, 0, 0, 0)  # what is started later would have it again
    system.capget(header, held)
    words = [word & ~(0b110 if place < 3 else 0) for place, word in enumerate(struct.unpack("=6I", held.raw))]
    if system.capset(header, struct.pack("=6I", *words)):
        raise OSError(ctypes.get_errno(), "rights could not be given up")


def _become_nobody(place: Place) -> None:
    """Goes on as a user whom no passwd entry knows and who owns the case; root's right to read every path stays, for programs
    that it starts too, because Python itself may lie where only root may look."""
    for folder, folders, files in os.walk(place.root):
        for name in (".", *folders, *files):
            os.chown(os.path.join(folder, name), _NAMELESS, _NAMELESS, follow_symlinks=False)
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_KEEP_RIGHTS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(_NAMELESS, _NAMELESS, _NAMELESS)
    os.setresuid(_NAMELESS, _NAMELESS, _NAMELESS)
    header = struct.pack("=Ii", 0x20080522, 0)
    if system.capset(header, struct.pack("=6I", _SEARCH, _SEARCH, _SEARCH, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "rights could not be kept")
    system.prctl(_AMBIENT, 2, 2, 0, 0)


class _Watch:
    """An audit hook that writes down what a command must not do."""

    def __init__(self, ask: Ask, place: Place) -> None:
        caches = [os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if os.environ.get(name)]
        inside = (str(place.work), str(place.scratch), *caches, *_HARMLESS)
        self._inside = tuple(os.path.realpath(path) for path in inside)
        self._work = os.path.realpath(place.work)
        self._runs = ask.runs
        self._asks_server = "triton" in " ".join(ask.words)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if not isinstance(path, int) and ((flags or 0) & _WRITING or any(c in (mode or "") for c in "wax+")):
                self._changed(path)
        elif event in _CHANGING:
            self._changed(arguments[0])
        elif event in _TWO_PATHS:
            self._changed(arguments[1])
        elif event in _CONNECTIONS:
            if not self._asks_server and not (event == "socket.connect" and isinstance(arguments[1], str)):
                self._say(f"{event} {arguments[1:]!r}")
        elif not self._runs and event in _PROGRAMS and not _is_ours(arguments):
            self._say(f"started a program: {arguments[:2]!r}")
        elif not self._runs and event == "compile" and str(arguments[1]).startswith(self._work):
            self._say(f"compiled {arguments[1]!r}")

    def _changed(self, path: object) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        whole = os.path.realpath(os.fsdecode(path))
        cached = whole.startswith(_COMPILED) and "/__pycache__" in whole  # what was compiled stays beside its source
        if not cached and not any(whole == one or whole.startswith(one + "/") for one in self._inside):
            self._say(f"wrote {whole!r}")

    def _say(self, what: str) -> None:
        with contextlib.suppress(OSError):
            os.write(_EVENTS, f"{what}\n".encode(errors="replace"))


def _is_ours(arguments: tuple[Any, ...]) -> bool:
    """A child of Parityscope's own, or how Python learns the processor's name."""
    words = [str(word) for one in arguments[1:2] if isinstance(one, (list, tuple)) for word in one]
    return words[:1] == ["uname"] or (
        words[:1] == [sys.executable] and any(word.startswith("parityscope.") for word in words)
    )
