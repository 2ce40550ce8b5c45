"""Makes inputs: what reaches a line from where none came before is kept, and changed further."""

from __future__ import annotations

import hashlib
import importlib
import random
import sys
import types
from typing import TYPE_CHECKING, Any

from proving.fuzz.watching import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from proving.fuzz.readers import Right
    from proving.fuzz.watching import Watch

MOST = 20_000  # bytes of an input
_LOOK_EVERY = 200  # executions, for what other processes found
_MODULES = ("parityscope.case", "parityscope.logs", "parityscope.backends.saved", "parityscope.backends.opening")
_MODULES_TOO = ("zipfile", "json.decoder", "numpy.lib.format", "numpy.lib._format_impl")
_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**64, -1, -(2**31))


def watched_files() -> frozenset[str]:
    """The files of the readers, as code names them; imports them all."""
    for name in ("backends.opening", "backends.saved", "case.formats.folder", "case.inputs", "logs"):
        importlib.import_module(f"parityscope.{name}")
    held = [module for name, module in sys.modules.items() if name.startswith(_MODULES) or name in _MODULES_TOO]
    return frozenset(file for module in held if (file := getattr(module, "__file__", None)))


class Lines:
    """A trace of the lines that run in some files, each with the line before it."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self._last = 0
        self.steps: set[tuple[int, int]] = set()
        self.lines: set[tuple[str, int]] = set()

    def within(self, work: Callable[[], None]) -> None:
        """Calls it, and keeps what it went through in `steps` and `lines`."""
        self.steps, self._last = set(), 0
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(None)

    def _enter(self, frame: types.FrameType, event: str, _: Any) -> Any:
        return self._step if event == "call" and frame.f_code.co_filename in self._files else None

    def _step(self, frame: types.FrameType, event: str, _: Any) -> Any:
        if event == "line":
            here = hash((frame.f_code.co_filename, frame.f_lineno))
            if (self._last, here) not in self.steps:
                self.steps.add((self._last, here))
                self.lines.add((frame.f_code.co_filename, frame.f_lineno))
            self._last = here
        return self._step


def fuzz(
    read: Callable[[Path, Right, bytes], None], corpus: Path, place: Path, right: Right, watch: Watch, seed: int
) -> None:
    """Until the time is over: changes what is in the corpus (a folder, also of other processes), and adds what is new."""
    draw = random.Random(seed)
    files = watched_files()
    lines, words = Lines(files), _words(files)
    known: set[tuple[int, int]] = set()
    names: set[str] = set()
    pool: list[bytes] = []
    while not watch.over:
        for name in sorted(path.name for path in corpus.iterdir()) if watch.runs % _LOOK_EVERY == 0 or not pool else ():
            if name not in names:
                names.add(name)
                pool.append((corpus / name).read_bytes())
                execute(read, place, right, pool[-1], watch, lines.within)
                known |= lines.steps
        content = _changed(pool, words, draw)
        execute(read, place, right, content, watch, lines.within)
        if lines.steps - known:
            known |= lines.steps
            name = hashlib.sha256(content).hexdigest()[:24]
            names.add(name)
            pool.append(content)
            (corpus / name).write_bytes(content)


def _words(files: frozenset[str]) -> list[bytes]:
    """What the readers' code compares with: its short constants."""
    found: set[bytes] = set()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) in files and "parityscope" in str(module.__file__):
            with open(module.__file__ or "", "rb") as source:
                found |= set(_constants(compile(source.read(), "", "exec")))
    return sorted(found)


def _constants(code: types.CodeType) -> Iterator[bytes]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _constants(constant)
        elif isinstance(constant, (str, bytes)) and 0 < len(constant) <= 40:
            yield constant if isinstance(constant, bytes) else constant.encode()


def _changed(pool: Sequence[bytes], words: Sequence[bytes], draw: random.Random) -> bytes:
    """One of the pool, more often a late one, after one to eight changes."""
    content = bytearray(draw.choice(pool[-max(1, len(pool) // 4) :] if draw.random() < 0.5 else pool))
    for _ in range(1 << draw.randrange(4)):
        start = draw.randrange(len(content) + 1)
        end = min(len(content), start + draw.choice((0, 1, 1, 2, 4, 8, 64, 1024)))
        kind = draw.randrange(8)
        if kind == 0 and content:
            content[start % len(content)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            content[start:end] = draw.randbytes(end - start)
        elif kind == 2:
            del content[start:end]
        elif kind == 3:
            content[start:start] = content[start:end] * draw.choice((1, 2, 16, 256))
        elif kind == 4:
            content[start : draw.choice((start, end))] = draw.choice(words)
        elif kind == 5:
            content[start:end] = _number(draw, max(1, end - start))
        elif kind == 6:
            other = draw.choice(pool)
            place = draw.randrange(len(other) + 1)
            content[start:end] = other[place : place + draw.choice((4, 64, 1024, MOST))]
        else:
            _change_digits(content, start, draw)
    return bytes(content[:MOST])


def _number(draw: random.Random, size: int) -> bytes:
    """A number at a border, in bytes or in digits."""
    number = draw.choice(_NUMBERS)
    if draw.random() < 0.3:
        return str(number).encode()
    size = min(8, size)
    return (number % (1 << 8 * size)).to_bytes(size, draw.choice(("little", "big")))


def _change_digits(content: bytearray, start: int, draw: random.Random) -> None:
    """Another number where the next one stands in digits."""
    while start < len(content) and not 48 <= content[start] <= 57:
        start += 1
    end = start
    while end < len(content) and 48 <= content[end] <= 57:
        end += 1
    content[start:end] = str(draw.choice(_NUMBERS)).encode()
