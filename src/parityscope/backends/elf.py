"""A shared library's file -> the names of the libraries that it was linked with (DT_NEEDED), without loading it.

Source of the layout: System V Application Binary Interface, chapters 4 and 5 (ELF header, program headers, dynamic
section); 64-bit little-endian files only, which is what NVIDIA's and Intel's libraries are.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["needed_libraries"]

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_LOAD, _DYNAMIC = 1, 2  # segment types PT_LOAD, PT_DYNAMIC
_NULL, _NEEDED, _STRTAB, _STRSZ = 0, 1, 5, 10  # dynamic tags
_MOST = 1 << 20  # bytes of a dynamic section or a string table that is believed


def needed_libraries(path: Path) -> tuple[str, ...]:
    """The names in the order of the file; empty if it cannot be read or is no such file."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
            if not header.startswith(_MAGIC):
                return ()
            (start,) = struct.unpack_from("<Q", header, 32)
            size, count = struct.unpack_from("<HH", header, 54)
            segments = []
            for number in range(count):
                file.seek(start + number * size)
                kind, _, offset, address, _, stored = struct.unpack("<IIQQQQ", file.read(40))
                segments.append((kind, offset, address, stored))
            dynamic = next(((offset, stored) for kind, offset, _, stored in segments if kind == _DYNAMIC), None)
            if dynamic is None or dynamic[1] > _MOST:
                return ()
            file.seek(dynamic[0])
            entries = list(struct.iter_unpack("<qQ", file.read(dynamic[1] // 16 * 16)))
            tags = dict(entries)
            if _STRTAB not in tags or not 0 < tags.get(_STRSZ, 0) <= 64 * _MOST:
                return ()
            table = _offset_of_address(tags[_STRTAB], segments)
            if table is None:
                return ()
            names = []
            for tag, value in entries:
                if tag == _NULL:
                    break
                if tag == _NEEDED:
                    file.seek(table + value)
                    names.append(file.read(256).split(b"\0", 1)[0].decode("utf-8", "replace"))
            return tuple(names)
    except (OSError, struct.error):
        return ()


def _offset_of_address(address: int, segments: list[tuple[int, int, int, int]]) -> int | None:
    """Where in the file an address lies."""
    for kind, offset, begins, stored in segments:
        if kind == _LOAD and begins <= address < begins + stored:
            return offset + address - begins
    return None
