"""Tells a lack of memory from a bug: libraries say it in many ways, some of them not at all.

A limit on the address space (`ulimit -v`) fails an `import`, the start of a thread or a fork as well as an array, and a
library that gets no memory may end the process or raise whatever comes of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING

from parityscope.errors import Exit, ParityError

if sys.platform != "win32":  # here and not where it is asked: then there may be no memory to load it into
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the dynamic linker, the allocator of C++ and Python's threads say (glibc, libstdc++, CPython).
_WORDS = (
    "failed to map segment",
    "cannot allocate memory",
    "bad_alloc",
    "can't start new thread",
    "unable to allocate",
)
# Bytes of address space: all our libraries, loaded, take 0.7 GB on one core (measured). With less than `_LEAST` it is chance
# which of them fails, and how: ONNX Runtime waits for ever where one of several threads cannot be started, and so does
# scipy's OpenBLAS for a buffer. Below `_SCARCE`, and what the threads of each core may take beside it (a stack of 8 MiB, an
# arena of 64 MiB: glibc), whatever goes wrong is taken for a lack of memory.
_LEAST = 1 << 30
_SCARCE = 2 << 30
_OF_A_CORE = 72 << 20


def is_too_little() -> bool:
    """Whether this process may not even have the memory of what it would load."""
    limit = _limit_of()
    return limit is not None and limit < _LEAST


def is_scarce() -> bool:
    """Whether this process may have so little memory that whatever goes wrong is taken for a lack of it."""
    limit = _limit_of()
    return limit is not None and limit < _SCARCE + _OF_A_CORE * (os.cpu_count() or 1)


def use_one_core() -> None:
    """Leaves this process and its children one core, so that no library starts threads, which take memory of their own.

    Linear algebra, with a buffer for each thread, has one already (`threads`).
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def lacks_memory(error: BaseException) -> bool:
    """Whether `error`, or what it came of, is that there was no memory."""
    if isinstance(error, ParityError):  # it knows what it says, but for a library that could not be loaded
        return is_scarce() and _is_lack(error)
    return is_scarce() or any(_is_lack(one) for one in _chain_of(error))


def told_memory(error: BaseException) -> int:
    """Says that there was not enough memory, and what to do; gives the exit code of that."""
    limit = _limit_of()
    said = " ".join(str(error).split())[:200]
    limited = "" if limit is None else f"; this process may have {limit >> 20:,} MiB (ulimit -v)"
    raised = "" if limit is None else " raise the limit (ulimit -v unlimited),"
    print(f"parityscope: there is not enough memory{f': {said}' if said else ''}{limited}", file=sys.stderr)
    print(f"  fix:  {raised} free some, take smaller or fewer samples, or lower --memory", file=sys.stderr)
    return Exit.UNUSABLE


def _limit_of() -> int | None:
    """The limit on this process's address space in bytes, where there is one."""
    if sys.platform == "win32":
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _chain_of(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_lack(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error).lower()
    return any(words in said for words in _WORDS)
