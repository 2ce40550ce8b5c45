"""Files that are no log, logs that are cut, and logs that say too little: each told in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.logs._lines import is_binary
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["endings", "refuse_binary", "refuse_other"]

_VERBOSE = (
    "build again with verbose output: trtexec --verbose, polygraphy run --verbose, or trt.Logger(trt.Logger.VERBOSE)"
)
# The first bytes of files that are handed over by mistake. Engines begin with "ftrt" (8 and newer) or "ptrt" (up to 7).
_MAGIC = (
    (b"ftrt", "a TensorRT engine", "give the log of its build"),
    (b"ptrt", "a TensorRT engine", "give the log of its build"),
    (b"\x1f\x8b", "compressed (gzip)", "gunzip it first"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\xff\xfe", "text in UTF-16 (PowerShell's > writes that)", "iconv -f UTF-16 -t UTF-8 FILE > log.txt"),
)


def refuse_binary(path: Path) -> None:
    """Refuses what is no text.

    Raises:
        ParityError: the file is empty, an engine, compressed, in UTF-16, or holds zero bytes.
    """
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise ParityError(
            f"{path.name} is empty", where=str(path), fix="keep both streams: trtexec --verbose ... > log.txt 2>&1"
        )
    for magic, what, fix in _MAGIC:
        if head.startswith(magic):
            raise ParityError(f"{path.name} is no log but {what}", where=str(path), fix=fix)
    if is_binary(path):
        raise ParityError(
            f"{path.name} is no log: it holds binary data",
            where=str(path),
            fix="give a log of trtexec, Polygraphy or TensorRT",
        )


def refuse_other(path: Path, lines: int) -> None:
    """Refuses a text in which no line is TensorRT's.

    Raises:
        ParityError: always.
    """
    raise ParityError(
        f"{path.name} is no log of TensorRT, trtexec or Polygraphy: none of its {lines} lines is one of theirs",
        where=str(path),
        fix="keep both streams: trtexec --verbose --onnx=model.onnx > log.txt 2>&1",
    )


def endings(
    *, tool: str, outcome: str, builds: int, finished: int, severities: Mapping[str, int], whole: bool, layers: int
) -> Iterator[Skip]:
    """What cannot be said because the log ends early or has too few lines; `whole` says that its last line is complete."""
    if not whole:
        yield Skip(what="the end of the log", reason="its last line is cut", fix="copy the whole file")
    if tool == "trtexec" and outcome == "unknown":
        yield Skip(
            what="the end of the log",
            reason="trtexec's last line (&&&& PASSED or &&&& FAILED) is missing: the log is cut, or trtexec crashed",
            fix="keep both streams to the end: trtexec ... > log.txt 2>&1",
        )
    elif builds > finished and outcome != "failed" and not severities.get("E"):
        yield Skip(
            what="the end of the build",
            reason="an engine build begins and does not end in this log: it is cut, or the builder crashed",
            fix="keep both streams to the end, and look at the last lines for a crash",
        )
    if not severities.get("V"):
        yield Skip(
            what="fusions, tactics, the engine's layers and the names of weights",
            reason="the log has no verbose lines",
            fix=_VERBOSE,
        )
    elif not layers:
        yield Skip(
            what="the engine's layers",
            reason="the log has verbose lines but no engine layers",
            fix="build with detailed profiling verbosity: trtexec --profilingVerbosity=detailed, or "
            "config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED",
        )
