"""A log's lines -> a `Log`, in one pass.

Memory is bounded by the network, not by the log: names of layers, fusions and weights are kept, the lines that autotuning
prints by the million are counted.

Files that are no log, logs that are cut, and logs that say too little: each told in one sentence.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.logs.facts import flags_of
from parityscope.logs.lines import Source, is_noise, lines_of, split_prefix, strip_prefixes, text_of
from parityscope.logs.records import MOST, Log
from parityscope.logs.taking import Read, take_line
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
_STRANGE = 500_000  # lines after which a text that has had none of TensorRT's is given up (chosen)
_BLANK = (b"", b"\r")


def read_log(path: Path) -> Log:
    """Everything that the log at `path` says.

    Raises:
        ParityError: there is no such file, or it is no log of TensorRT, trtexec or Polygraphy.
    """
    if not path.is_file():
        raise ParityError(f"there is no log {path}", where=str(path), fix="give the path of a text file")
    source = Source(path=path)
    _refuse_binary(source)
    read = Read()
    noise = 0
    for raw in lines_of(source.blocks()):
        if read.number >= _STRANGE and not read.known and not noise:
            break
        read.number += 1
        if raw in _BLANK and not read.profile:  # which ends a table, and says nothing else
            continue
        if is_noise(raw):
            noise += 1
            continue
        line = strip_prefixes(raw)
        if line is not raw and is_noise(line):
            noise += 1
            continue
        severity, text = split_prefix(text_of(line))
        if severity:
            read.severities[severity] += 1
        take_line(read, severity, text)
    read.severities["V"] += noise
    read.known += noise
    if not read.known:
        _refuse_other(path, f"{'first ' * (read.number >= _STRANGE)}{read.number}")
    return _make_log(source, read)


def _make_log(source: Source, read: Read) -> Log:
    path, flags = source.path, flags_of(read.command)
    skipped = list(_endings_of_log(read, source))
    capped = sorted(read.capped | ({"names of weights"} if read.weights.left_out else set()))
    skipped += [Skip(what=kind, reason=f"more than {MOST:,} of them: the rest is left out") for kind in capped]
    return Log(
        path=path,
        nbytes=path.stat().st_size,
        lines=read.number,
        tool=read.tool or ("polygraphy" if "Polygraphy" in read.versions else "logger"),
        versions=MappingProxyType(read.versions),
        facts=MappingProxyType(read.facts),
        tf32=_tf32_fact(read, flags),
        flags=tuple(f"--{name}" + (f"={value}" if value else "") for name, value in flags.items()),
        command=read.command,
        outcome=read.outcome,
        failed_runs=read.failed_runs,
        runs=read.runs,
        severities=MappingProxyType(dict(read.severities)),
        builds=max(read.builds, read.finished),
        finished=read.finished,
        unfinished=read.building,
        noted=tuple(read.notes.noted()),
        unexplained=tuple(read.unexplained.values()),
        weights=tuple(read.weights.issues()),
        layers=tuple(read.layers.values()),
        fusions=tuple(read.fusions),
        removed=tuple(read.removed),
        layer_counts=tuple(read.layer_counts),
        reformats=read.reformats,
        tactics=MappingProxyType(read.tactics),
        tensors=tuple(read.tensors.values()),
        parsed=tuple(read.parsed.values()),
        made=MappingProxyType(read.made),
        foreign=MappingProxyType(read.foreign),
        refused=tuple(read.refused),
        timings=tuple(read.timings),
        layer_times=MappingProxyType(read.layer_times),
        skipped=tuple(skipped),
    )


def _tf32_fact(read: Read, flags: dict[str, str]) -> str:
    """Says "on" or "off" with the line or option that tells it; empty when the log does not."""
    notes = read.notes.held
    if "noTF32" in flags:
        return "off (--noTF32)"
    if "TF32 switched off by the environment" in notes:
        return "off (NVIDIA_TF32_OVERRIDE=0)"
    if "no TF32 in this GPU" in notes:
        return "off (this GPU has none)"
    if "TF32 off by default (Polygraphy)" in notes:
        return "off (Polygraphy's default)"
    if builder := read.facts.get("builder flags"):
        return "on (builder flags)" if "TF32" in builder.split(", ") else "off (builder flags)"
    if "TF32 on by default (trtexec)" in notes:
        return "on (trtexec's default)"
    return "on (trtexec's default)" if read.tool == "trtexec" and "onnx" in flags else ""


def _refuse_binary(source: Source) -> None:
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


def _refuse_other(path: Path, lines: str) -> None:
    """Refuses a text in which no line is TensorRT's; `lines` says how many were looked at.

    Raises:
        ParityError: always.
    """
    raise ParityError(
        f"{path.name} is no log of TensorRT, trtexec or Polygraphy: none of its {lines} lines is one of theirs",
        where=str(path),
        fix="keep both streams: trtexec --verbose --onnx=model.onnx > log.txt 2>&1",
    )


def _endings_of_log(read: Read, source: Source) -> Iterator[Skip]:
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
