"""A log's lines -> a `Log`, in one pass.

Memory is bounded by the network, not by the log: names of layers, fusions and weights are kept, the lines that autotuning
prints by the million are counted.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.logs._ending import endings_of_log, refuse_binary, refuse_other
from parityscope.logs.facts import flags_of
from parityscope.logs.lines import is_noise, lines_of, split_prefix, strip_prefixes, text_of
from parityscope.logs.opening import Source
from parityscope.logs.records import MOST, Log
from parityscope.logs.taking import Read, take_line
from parityscope.records import Skip

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_log"]

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
    refuse_binary(source)
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
        refuse_other(path, f"{'first ' * (read.number >= _STRANGE)}{read.number}")
    return _make_log(source, read)


def _make_log(source: Source, read: Read) -> Log:
    path, flags = source.path, flags_of(read.command)
    skipped = list(endings_of_log(read, source))
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
