"""A log's bytes as UTF-8 in blocks, whatever they were written as: plain, compressed (gzip), or UTF-16 (PowerShell's `>`)."""

from __future__ import annotations

import codecs
import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

__all__ = ["ALWAYS", "BLOCK", "Source"]

_TIMES = 100  # that a compressed log may be larger than its file (chosen): real ones are 15 to 40 times as large
ALWAYS = 1 << 26  # bytes that it may be in any case (chosen)
_MOST = 1 << 32  # bytes (chosen): verbose builds write a hundredth of it, and reading as much takes a minute
BLOCK = 1 << 22  # bytes (chosen): two blocks are all of a log that is in memory at once
HEAD = 1 << 12  # bytes that are looked at to tell what a file is (chosen)

_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Source:
    """A log's file; once `blocks` has ended, `whole` says whether its last line is complete, `damage` why reading ended early."""

    path: Path
    whole: bool = True
    damage: str = ""

    def head(self) -> bytes:
        """The first bytes, unpacked, in the file's own encoding."""
        return next(self._raw_blocks(HEAD), b"")

    def encoding(self) -> Literal["utf-8", "utf-16-le", "utf-16-be"]:
        """How the text is written: from its mark, or without one from the zero bytes that every other letter has."""
        head = self.head()
        if head.startswith(codecs.BOM_UTF16_LE) or _zeros_only(head[1::2]):
            return "utf-16-le"
        if head.startswith(codecs.BOM_UTF16_BE) or _zeros_only(head[::2]):
            return "utf-16-be"
        return "utf-8"

    def blocks(self) -> Iterator[bytes]:
        """The text in UTF-8; what cannot be decoded of UTF-16 becomes replacement characters."""
        encoding = self.encoding()
        decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding != "utf-8" else None
        first = True
        for raw in self._raw_blocks(BLOCK):
            block = decoder.decode(raw).encode("utf-8", "replace") if decoder else raw
            if first:
                block = block.removeprefix(_UTF8_MARK)
                first = False
            if block:
                self.whole = block.endswith(b"\n")
                yield block

    def _raw_blocks(self, size: int) -> Iterator[bytes]:
        with open_regular_file(self.path, "the log", limit=_MOST) as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            yield from self._unpack_blocks(file, size) if packed else iter(lambda: file.read(size), b"")

    def _unpack_blocks(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        most = min(_MOST, max(ALWAYS, _TIMES * self.path.stat().st_size))
        given = 0
        with gzip.GzipFile(fileobj=file) as unpacked:
            while given < most:
                try:
                    block = unpacked.read1(size)  # one piece: what comes before the damage is not lost with it
                except (EOFError, OSError, zlib.error) as error:
                    self.damage = str(error)
                    return
                if not block:
                    return
                given += len(block)
                yield block
        self.damage = f"it expands to more than {_TIMES} times its size"


def _zeros_only(letters: bytes) -> bool:
    """Whether nearly all of every second byte is zero (a line may hold a few letters beyond Latin)."""
    return len(letters) > 1 and letters.count(0) * 10 > len(letters) * 9
