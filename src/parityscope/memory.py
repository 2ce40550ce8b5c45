"""How much memory may be used, and giving back what is not used any more: one place that everybody asks.

`--memory` is for tensors. Who keeps tensors asks `allowed_memory` and takes its share; what exceeds it goes to a file
(`spilling`).
Freed memory is not the system's again by itself: the C library keeps it for the next array, ONNX Runtime's arena for the next
tensor, and cycles of objects keep arrays until Python looks for them; pages of mapped files (weights, recorded tensors, spilled
arrays) stay with the process once they were read. `relieve_memory` gives all of it back where the process holds much. What is
taken and given back again and again costs more than what is computed in it: `keep_freed_memory`, `with_room_for_calls`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

DEFAULT = 512 << 20  # bytes, as --memory is where nothing else is asked for
_OURS = 256 << 20  # bytes, chosen: what libraries, graphs and compiled loops take before the first tensor is kept
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 30  # bytes that the C library keeps where it is asked to; chosen
_SLOTS = (
    66_000  # of 8 bytes: more than half of the 1 MiB that Python then takes, whose other half is thousands of calls
)
_SHARE = 20  # of the time that passes between two reliefs at least, what one costs; chosen
_budget = DEFAULT
_holders: list[Callable[[], None]] = []
_next = 0.0  # on the clock of `time.monotonic`
_in_use = 0  # bytes that the last relief could not give back


def allow_memory(nbytes: int) -> None:
    """Says how many bytes of tensors may be kept from here on."""
    global _budget  # noqa: PLW0603 - the memory is the process's, not an object's
    _budget = nbytes


def allowed_memory() -> int:
    """Bytes of tensors that may be kept at once."""
    return _budget


def register_holder(give_back: Callable[[], None]) -> None:
    """Names a function that gives back what an allocator keeps and does not use."""
    _holders.append(give_back)


def resident_memory() -> int:
    """Bytes of memory that this process holds; 0 where that cannot be asked."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def relieve_memory(at_once: int = 0) -> None:
    """Gives back memory that is not used, if this process holds much more than was in use when it was relieved before.

    Whoever just released so many bytes, or is about to take them, says so: where it is much nothing is left for later.
    """
    global _next, _in_use  # noqa: PLW0603 - as above
    started = time.monotonic()
    is_much = at_once >= _OURS
    if (started < _next and not is_much) or resident_memory() < (
        _OURS if is_much else max(_OURS, _in_use)
    ) + _budget // 4:
        return
    gc.collect()
    for give_back in _holders:
        give_back()
    drop_mapped_pages()
    _trim_allocator()
    ended = time.monotonic()
    _next = ended + _SHARE * (ended - started)
    _in_use = resident_memory()


def drop_mapped_pages() -> None:
    """Takes the pages of files that are mapped for reading alone off this process (Linux); they come again when they are touched.

    Only shared mappings: of a private one nobody knows whether it was written to before.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_DONTNEED") else None
    if advise is None:
        return
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for place, kind, _, _, inode, *_ in (line.split(maxsplit=5) for line in lines):
        if kind == "r--s" and inode != "0":
            start, end = (int(part, 16) for part in place.split("-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _trim_allocator() -> None:
    """Lets the C library give back what it keeps (glibc; others keep little)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Lets the C library keep what is freed, for a process that makes and drops large arrays and soon ends (glibc only).

    Else each is taken from the system again, whose pages cost more than what is computed in them: a search among 18 million
    elements took 40 s and then 25 s, with 3 % more memory (measured).
    """
    options = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if options is not None:
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            options(option, _KEPT)


def with_room_for_calls(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, beneath which a call takes no memory from the system.

    CPython keeps the calls that are under way in chunks of 16 KiB, and gives one back as soon as it is empty: a loop whose calls
    cross an edge maps, touches and unmaps memory in each of them (two fifths of the processor time of some searches). A call
    that needs more than a chunk gets one of its size, a power of two, and those beneath it the rest: this one says that it does.
    """

    def roomy(*words: P.args, **named: P.kwargs) -> R:
        return function(*words, **named)

    roomy.__code__ = roomy.__code__.replace(co_stacksize=_SLOTS)
    return functools.wraps(function)(roomy)
