"""Lines of a log with their prefixes taken off, read in blocks so that a log of any size costs little memory.

Prefixes known, with where each comes from:

* `[08/20/2024-20:57:50] [W] [TRT] text`   trtexec (its own lines without `[TRT]`)
* `[11/21/2026-10:12:31] [TRT] [V] text`   the Python bindings' logger, from 8 on
* `[TensorRT] VERBOSE: text`               the Python bindings' logger, up to 7
* `[V] text`                               Polygraphy
* `2024-05-17 17:06:02 [W:onnxruntime:log, tensorrt_execution_provider.h:83 log] [2024-05-17 17:06:02 WARNING] text`
* `WARNING: [Torch-TensorRT ...] - text` and `WARNING:torch_tensorrt [...]:text`

Colours are taken off, and so is what others put before each line, also before those that have no prefix of TensorRT's:

* `2026-08-20T20:57:40.123456789Z ` `docker logs -t`, `kubectl logs --timestamps`; with `stderr F ` behind it in a node's files,
  and with `build<TAB>Build engine<TAB>` before it in `gh run view --log`
* `face_1             | ` `docker compose logs`
* `[pod/trt-0/trt] ` `kubectl logs --prefix`
* `Aug 20 20:57:40 host trtexec[1234]: ` journald and syslog
* `trtexec.exe : ` PowerShell, before the first line of stderr

A line longer than a block is cut: what matters stands at its beginning.

A log's bytes as UTF-8 in blocks, whatever they were written as: plain, compressed (gzip), or UTF-16 (PowerShell's `>`).
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import IO

_TIMES = 100  # that a compressed log may be larger than its file (chosen): real ones are 15 to 40 times as large
ALWAYS = 1 << 26  # bytes that it may be in any case (chosen)
_MOST = 1 << 32  # bytes (chosen): verbose builds write a hundredth of it, and reading as much takes a minute
BLOCK = 1 << 22  # bytes (chosen): two blocks are all of a log that is in memory at once
HEAD = 1 << 12  # bytes that are looked at to tell what a file is (chosen)
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
LONGEST = 1 << 22  # bytes of a line that are kept (chosen): as much as one block of a log
_SEVERITIES = {
    "VERBOSE": "V",
    "DEBUG": "V",
    "INFO": "I",
    "WARNING": "W",
    "ERROR": "E",
    "INTERNAL_ERROR": "E",
    "F": "E",
    "C": "E",
    "!": "E",
    "S": "I",
    "X": "V",
}
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_FARTHEST = 160  # characters in which a foreign prefix may end (chosen)
_EMBEDDED = re.compile(r"(?:\[TRT\] \[([VIWEF])\]|\[([VIWEF])\] \[TRT\]) ")
_STAMPED = re.compile(
    r"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[TRT\] ?)?\[([VIWEFSCX!])\](?: \[TRT\])? ?(?:\[[^\]]*\.py:\d+\] )?"
)
# Said of every tensor, timed kernel or dimension. A line about one of these is recognised by its bytes and passed over.
_NOISE = re.compile(
    rb"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[TRT\] )?(?:\[[VX]\]|\[TensorRT\] VERBOSE:) (?:\[TRT\] )?(?:"
    rb" (?!.*List of affected)|\t|Tactic: |Fastest Tactic|Static check|Searching for|Registering tensor|Setting |\*\*\*\*|====|"
    rb"Importing initializer|Computing |Using kernel|Convolution |Casting |Swap |Original shape|Parsing node|Adding reformat|"
    rb"CONSTANT |SHUFFLE |ELEMENTWISE |CONVOLUTION |ACTIVATION |\S+ (?:\S+ )?Set Tactic Name: |\S+ \[\w+\] (?:in|out)puts: |"
    rb"\S+ \(\w+\) Set Tactic Name: )"
)
# What a container, a service or a shell puts before a line. `name | ` is also Polygraphy's form (`PASSED | Runtime: ...`), and is
# taken off only where a line of a log follows. Nothing that was matched is tried again in another way (`*+`), and only so far
# into a line: the time is linear in any content.
_FOREIGN_END = 1024
_FOREIGN = re.compile(
    rb"(?:(?:\x1b\[[\d;]*+m)*+(?:"
    rb"(?:[^\t\x1b\[]{1,160}\t[^\t]{0,160}\t)?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
    rb"(?: std(?:out|err) [FP]| \S+ \S+\[\d+\]:)? ?"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S++ \S+: |\[pod/[^\]]++\] |[^\s:]{1,160}\.exe : "
    rb"|[\w.-]++ ++\| (?=\[|&&&& |Layer\(|Name: | Name: |Layers:|I/O Tensors:|Engine |Bindings:|\x1b|\d{4}-)))+"
)
_WORDED = re.compile(
    r"(?:\S+ \S+ \[[VIWEF]:[^\]]*\] )?"
    r"(?:\[TensorRT\] (VERBOSE|INFO|WARNING|ERROR|INTERNAL_ERROR): |\[[\d: -]+ (VERBOSE|INFO|WARNING|ERROR)\]\s+"
    r"|(DEBUG|INFO|WARNING|ERROR): ?\[?(?:Torch-TensorRT|torch_tensorrt)[^\]]*\](?: - |:)|\[TRT\]\s+)"
)


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


def strip_prefixes(line: bytes) -> bytes:
    """A line without what a container, a service or a shell put before it."""
    if line.startswith(b"[") and not line.startswith(b"[pod/"):
        return line
    found = _FOREIGN.match(line, 0, _FOREIGN_END)
    return line[found.end() :] if found else line


def is_noise(line: bytes) -> bool:
    """Whether it is one of the verbose lines that make logs long and of which nothing is kept."""
    return _NOISE.match(line) is not None


def text_of(line: bytes) -> str:
    """A line as text; bytes that are no UTF-8 become replacement characters."""
    return line.decode("utf-8", "replace").rstrip("\r")


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a text that comes in blocks, without their ends; no more of a line than `LONGEST` is kept."""
    pieces: list[bytes] = []  # of the line that has not ended yet; each byte is joined once
    kept = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        if kept <= LONGEST:
            pieces.append(first)
            kept += len(first)
        if others:
            yield b"".join(pieces)[:LONGEST]
            *whole, last = others
            yield from whole
            pieces, kept = [last], len(last)
    if kept:
        yield b"".join(pieces)[:LONGEST]


def split_prefix(line: str) -> tuple[str, str]:
    """(severity, text): the severity is "" for a line without a prefix."""
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    first = line[:1]
    if first == "[":
        found = _STAMPED.match(line)
        if found:
            letter = found[1]
            return _SEVERITIES.get(letter, letter), line[found.end() :]
    if first in "[0123456789DIWE":
        found = _WORDED.match(line)
        if found:
            word = found[1] or found[2] or found[3]
            return _SEVERITIES.get(word or "", ""), line[found.end() :]
    place = line.find("[TRT]", 0, _FARTHEST)
    if place > 0 and (found := _EMBEDDED.search(line, 0, _FARTHEST)):
        letter = found[1] or found[2]
        return _SEVERITIES.get(letter, letter), line[found.end() :]
    return "", line


def _zeros_only(letters: bytes) -> bool:
    """Whether nearly all of every second byte is zero (a line may hold a few letters beyond Latin)."""
    return len(letters) > 1 and letters.count(0) * 10 > len(letters) * 9
