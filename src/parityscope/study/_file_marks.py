"""Marks of the files that a question names: how many there are, their bytes, and a digest of their names and contents.

A study keeps them, so that whoever reads it later uses a file only if it is the one that the study was made with.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)


def mark_of(path: Path) -> dict[str, Any]:
    """The mark of a file or of all regular files in a folder, links to other folders not followed.

    Raises:
        ParityError: one of the files cannot be read.
    """
    found = list(_files_at(path))
    files = sorted(file for file, _ in found)
    return {
        "files": len(found),
        "bytes": sum(size for _, size in found),
        "sha256": digest_of_files(files, path if path.is_dir() else None),
    }


def is_marked(path: Path, mark: Mapping[str, Any]) -> bool:
    """Whether what lies at `path` has this mark; nothing is read if there is more of it, or less.

    Raises:
        ParityError: one of the files cannot be read.
    """
    count, left = mark.get("files"), mark.get("bytes")
    if not isinstance(count, int) or not isinstance(left, int):
        return False
    files = []
    for file, size in _files_at(path):
        files.append(file)
        left -= size
        if left < 0 or len(files) > count:
            return False
    if left or len(files) != count:
        return False
    return digest_of_files(sorted(files), path if path.is_dir() else None) == mark.get("sha256")


def digest_of_files(files: Sequence[Path], folder: Path | None = None) -> str:
    """The SHA-256 over the contents of files in this order, with their names below `folder` if it is given.

    Raises:
        ParityError: one of the files cannot be read.
    """
    digest = hashlib.sha256()
    for file in files:
        name = b"" if folder is None else os.fsencode(file.relative_to(folder))
        digest.update(len(name).to_bytes(4, "little") + name)
        found = file.stat()
        digest.update(_content_digest(file, found.st_ino, found.st_size, found.st_mtime_ns))
    return digest.hexdigest()


def _files_at(path: Path) -> Iterator[tuple[Path, int]]:
    """The regular files at `path` with their sizes."""
    if not path.is_dir():
        with open_regular_file(path, path.name) as file:
            yield path, os.fstat(file.fileno()).st_size
        return
    for folder, _, names in os.walk(path):
        for held in (Path(folder, name) for name in names):
            if held.is_file():
                yield held, held.stat().st_size


# A run that can be resumed keeps digests of the same files as its study.
@functools.lru_cache(maxsize=1 << 16)
def _content_digest(file: Path, _inode: int, size: int, _time: int) -> bytes:
    """The digest of the size and of what was ever written, with its places.

    A block of zeros counts as never written: a file of holes costs nothing, and a copy without them has the same digest.
    """
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with open_regular_file(file, file.name, limit=size) as opened:
        try:
            for start, end in _written_blocks(opened.fileno(), size):
                for place in range(start, end, _BLOCK):
                    block = os.pread(opened.fileno(), min(_BLOCK, end - place), place)
                    if block != _ZEROS[: len(block)]:
                        digest.update(place.to_bytes(8, "little"))
                        digest.update(block)
        except OSError as error:
            raise ParityError(f"{file.name} cannot be read: {error.strerror}", where=str(file)) from error
    return digest.digest()


def _written_blocks(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The places [start, end) of the blocks of a file that hold anything written, each once and in order."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        # Whole blocks, so that the digest does not depend on where a file system puts its holes.
        first = max(end, start // _BLOCK * _BLOCK)
        end = min(size, -(-hole // _BLOCK) * _BLOCK)
        yield first, end
