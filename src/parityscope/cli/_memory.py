"""Tells a lack of memory from a bug: libraries say it in many ways, some of them not at all.

A limit on the address space (`ulimit -v`) fails an `import`, the start of a thread or a fork as well as an array, and a
library that gets no memory may end the process or raise whatever comes of it.
"""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from parityscope.errors import Exit, ParityError

if sys.platform != "win32":  # here and not where it is asked: then there may be no memory to load it into
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_scarce", "lacks_memory", "told_memory"]

# What the dynamic linker, the allocator of C++ and Python's threads say (glibc, libstdc++, CPython).
_WORDS = (
    "failed to map segment",
    "cannot allocate memory",
    "bad_alloc",
    "can't start new thread",
    "unable to allocate",
)
# Bytes of address space below which whatever goes wrong is taken for a lack of it: all our libraries, loaded, take
# 0.7 GB on two cores (measured), and a few hundredths of that more for the buffers of each further core.
_SCARCE = 2 << 30


def is_scarce() -> bool:
    """Whether this process may have so little memory that whatever goes wrong is taken for a lack of it."""
    limit = _limit()
    return limit is not None and limit < _SCARCE


def lacks_memory(error: BaseException) -> bool:
    """Whether `error`, or what it came of, is that there was no memory."""
    if isinstance(error, ParityError):  # it knows what it says, but for a library that could not be loaded
        return is_scarce() and _is_lack(error)
    return is_scarce() or any(_is_lack(one) for one in _chain(error))


def told_memory(error: BaseException) -> int:
    """Says that there was not enough memory, and what to do; gives the exit code of that."""
    limit = _limit()
    said = " ".join(str(error).split())[:200]
    limited = "" if limit is None else f"; this process may have {limit >> 20:,} MiB (ulimit -v)"
    raised = "" if limit is None else " raise the limit (ulimit -v unlimited),"
    print(f"parityscope: there is not enough memory{f': {said}' if said else ''}{limited}", file=sys.stderr)
    print(f"  fix:  {raised} free some, take smaller or fewer samples, or lower --memory", file=sys.stderr)
    return Exit.UNUSABLE


def _limit() -> int | None:
    """The limit on this process's address space in bytes, where there is one."""
    if sys.platform == "win32":
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _chain(error: BaseException | None) -> Iterator[BaseException]:
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
