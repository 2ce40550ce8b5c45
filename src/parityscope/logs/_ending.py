"""Files that are no log, logs that are cut, and logs that say too little: each told in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parityscope.logs.opening import Source
    from parityscope.logs.taking import Read

__all__ = ["endings_of_log", "refuse_binary", "refuse_other"]

_VERBOSE = (
    "build again with verbose output: trtexec --verbose, polygraphy run --verbose, or trt.Logger(trt.Logger.VERBOSE)"
)
_WHOLE = "copy the whole file"
# The first bytes of files that are handed over by mistake. Engines begin with "ftrt" (8 and newer),
# "ptrt" (up to 7) or "vtrt" (RTX).
_MAGIC = (
    (b"ftrt", "a TensorRT engine", "give the log of its build"),
    (b"ptrt", "a TensorRT engine", "give the log of its build"),
    (b"vtrt", "an engine of TensorRT-RTX", "give the log of its build"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"BZh", "compressed (bzip2)", "bunzip2 it first"),
    (b"\xfd7zXZ", "compressed (xz)", "unxz it first"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)", "unzstd it first"),
)


def refuse_binary(source: Source) -> None:
    """Refuses what is no text, also inside of a compressed file.

    Raises:
        ParityError: the file is empty, an engine, compressed in a way that is not read, damaged, or holds zero bytes.
    """
    path, head = source.path, source.head()
    if not head and source.damage:
        raise ParityError(
            f"{path.name} is compressed (gzip) and damaged: {source.damage}", where=str(path), fix="copy the whole file"
        )
    if not head:
        raise ParityError(
            f"{path.name} is empty", where=str(path), fix="keep both streams: trtexec --verbose ... > log.txt 2>&1"
        )
    for magic, what, fix in _MAGIC:
        if head.startswith(magic):
            raise ParityError(f"{path.name} is no log but {what}", where=str(path), fix=fix)
    if source.encoding() == "utf-8" and b"\0" in head:
        raise ParityError(
            f"{path.name} is no log: it holds binary data",
            where=str(path),
            fix="give a log of trtexec, Polygraphy or TensorRT",
        )


def refuse_other(path: Path, lines: str) -> None:
    """Refuses a text in which no line is TensorRT's; `lines` says how many were looked at.

    Raises:
        ParityError: always.
    """
    raise ParityError(
        f"{path.name} is no log of TensorRT, trtexec or Polygraphy: none of its {lines} lines is one of theirs",
        where=str(path),
        fix="keep both streams: trtexec --verbose --onnx=model.onnx > log.txt 2>&1",
    )


def endings_of_log(read: Read, source: Source) -> Iterator[Skip]:
    """What cannot be said because the log begins late, ends early or has too few lines."""
    yield from _cuts_of_log(read, source)
    if not read.severities.get("V"):
        yield Skip(
            what="fusions, tactics, the engine's layers and the names of weights",
            reason="the log has no verbose lines",
            fix=_VERBOSE,
        )
    elif not read.layers:
        yield Skip(
            what="the engine's layers",
            reason="the log has verbose lines but no engine layers",
            fix="build with detailed profiling verbosity: trtexec --profilingVerbosity=detailed, or "
            "config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED",
        )


def _cuts_of_log(read: Read, source: Source) -> Iterator[Skip]:
    if source.damage:
        yield Skip(what="the end of the log", reason=f"the compressed file is damaged: {source.damage}", fix=_WHOLE)
    elif not source.whole:
        yield Skip(what="the end of the log", reason="its last line is cut", fix=_WHOLE)
    if (read.runs and not read.begun) or (read.layer_counts and not read.builds):
        yield Skip(
            what="the beginning of the log",
            reason="a run or a build ends that does not begin in this log: what stood before is not in it",
            fix=_WHOLE,
            asked=True,
        )
    if read.tool == "trtexec" and read.outcome == "unknown":
        yield Skip(
            what="the end of the log",
            reason="trtexec's last line (&&&& PASSED or &&&& FAILED) is missing: the log is cut, or trtexec crashed",
            fix="keep both streams to the end: trtexec ... > log.txt 2>&1",
        )
    elif read.building and not read.failed_runs and not read.severities.get("E"):
        yield Skip(
            what="the end of the build",
            reason="an engine build begins and does not end in this log: it is cut, or the builder crashed",
            fix="keep both streams to the end, and look at the last lines for a crash",
        )
    errors = read.severities.get("E", 0)
    if errors and not (read.finished or read.building or read.runs):
        yield Skip(
            what="the end of the build or the run",
            reason=f"the log has {errors} error{'s' * (errors > 1)} and no engine after {'them' if errors > 1 else 'it'}",
            fix=_VERBOSE,
        )
