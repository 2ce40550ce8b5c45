"""Arrays that are kept beyond a share of the memory lie in a file without a name, mapped: the kernel may drop their pages.

A spilled array is read like any other, and gives its place back when nobody holds it any more. Pages that were read stay with
the process until they are dropped; who reads much of what was spilled says so (`note_read`), so that it happens in time.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import Any

import numpy as np

from parityscope.memory import allowed_memory, drop_mapped_pages

_EXTENT = 64 << 20  # bytes of a file, chosen: it is there as long as one of its arrays
_SMALL = 1 << 16  # bytes, chosen: what is smaller stays in memory
_ALIGNMENT = 64  # bytes: a cache line, a multiple of every element's size
_SHARE = (
    8  # of what is allowed, one keeper holds in memory, and as much of mapped pages may be with the process; chosen
)
_read = 0  # bytes, since pages were dropped last


class Keeper:
    """Keeps arrays in memory up to its share, and in files beyond."""

    def __init__(self) -> None:
        self._left = allowed_memory() // _SHARE
        self._extent: _Extent | None = None

    def keep(self, value: Any) -> Any:
        """The array itself, or one that is equal to it and lies in a file, read only; what is no array as it is."""
        if not isinstance(value, np.ndarray) or value.nbytes < _SMALL or value.dtype.hasobject or is_spilled(value):
            return value
        if value.nbytes <= self._left:
            self._left -= value.nbytes
            return value
        try:
            if self._extent is None or self._extent.room < value.nbytes:
                self._extent = _Extent(max(_EXTENT, value.nbytes))
            kept = self._extent.put(value)
        except OSError:  # no disk to spill to: then memory has to do
            return value
        note_read(value.nbytes)
        return kept


class _Extent:
    """A file of `size` bytes without a name, filled from its beginning."""

    def __init__(self, size: int) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when this goes; the map keeps the bytes
        weakref.finalize(self, self._file.close)
        self._file.truncate(size)
        self._map = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        self._size, self._end = size, 0

    @property
    def room(self) -> int:
        """Bytes that are left."""
        return self._size - self._end

    def put(self, value: np.ndarray) -> np.ndarray:
        """Writes an array, and gives it as it lies there."""
        start = self._end
        self._file.seek(start)
        self._file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        self._file.flush()
        self._end = start + value.nbytes + -value.nbytes % _ALIGNMENT
        return np.frombuffer(self._map, value.dtype, value.size, start).reshape(value.shape)


def is_spilled(value: np.ndarray) -> bool:
    """Whether an array lies in a file."""
    base: Any = value
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap) or (isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap))


def note_read(nbytes: int) -> None:
    """Says that so much was read that may have been spilled; drops pages where it was a share of the memory."""
    global _read  # noqa: PLW0603 - pages are the process's, not an object's
    _read += nbytes
    if _read > allowed_memory() // _SHARE:
        _read = 0
        drop_mapped_pages()
