"""Single facts in a log: versions, GPU, what the tool was asked for, times; and versions out of NVIDIA's numbers."""

from __future__ import annotations

import re

from parityscope.light_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact: `key` is its name in `Log.facts` or `Log.versions`, `hint` a literal part of the line that has it."""

    key: str
    hint: str
    pattern: re.Pattern[str]
    version: bool = False


def _make_fact(key: str, hint: str, pattern: str, *, version: bool = False) -> Fact:
    return Fact(key=key, hint=hint, pattern=re.compile(pattern), version=version)


FACTS = (
    _make_fact("TensorRT", "TensorRT version: ", r"TensorRT version: (\S+)", version=True),
    _make_fact("TensorRT", "Loaded Module: tensorrt ", r"Loaded Module: tensorrt\s+\| Version: (\S+)", version=True),
    _make_fact(
        "TensorRT-RTX", "Loaded Module: tensorrt_rtx", r"Module: tensorrt_rtx\s+\| Version: (\S+)", version=True
    ),
    _make_fact("Polygraphy", "Loaded Module: polygraphy", r"Module: polygraphy\s+\| Version: (\S+)", version=True),
    _make_fact("ONNX Runtime", "Loaded Module: onnxruntime", r"Module: onnxruntime\s+\| Version: (\S+)", version=True),
    _make_fact("cuDNN", "Using cuDNN v", r"Using cuDNN v(\S+)", version=True),
    _make_fact("GPU", "Selected Device: ", r"Selected Device: (.+)"),
    _make_fact("compute capability", "Compute Capability: ", r"Compute Capability: (\S+)"),
    _make_fact("GPU memory", "Device Global Memory: ", r"Device Global Memory: (.+)"),
    _make_fact("model", "Input filename:", r"Input filename:\s+(\S.*)"),
    _make_fact("model", "Model: ", r"^Model: (\S.*)"),
    _make_fact("opset", "Opset version:", r"Opset version:\s+(\S+)"),
    _make_fact("producer", "Producer name:", r"Producer name:\s+(\S.*)"),
    _make_fact("precision asked for", "Precision: ", r"^Precision: (\S.*)"),
    _make_fact("layer precisions", "LayerPrecisions: ", r"^LayerPrecisions: (\S.*)"),
    _make_fact("layer output types", "LayerOutputTypes: ", r"^LayerOutputTypes: (\S.*)"),
    _make_fact("precision constraints", "recision constraints", r"[Pp]recision [Cc]onstraints: (\S.*)"),
    _make_fact("builder flags", "Flags ", r"^\s*Flags\s+\| \[(.*)\]"),
    _make_fact("tactic sources", "actic Sources", r"Tactic Sources\s+\| \[([^\[\]]*)\]|Tactic sources: (\S.*)"),
    _make_fact("profiling verbosity", "rofiling", r"Profiling [Vv]erbosity\s*[:|]\s*(\S.*)"),
    _make_fact("sparsity", "Sparsity: ", r"^Sparsity: (\S.*)"),
    _make_fact("engine built in", "Engine built in ", r"Engine built in (.+?)\.?$"),
    _make_fact("engine built in", "Finished engine building in", r"Finished engine building in (.+)"),
    _make_fact("engine generated in", "Engine generation completed in", r"completed in (.+?)\.?$"),
    _make_fact("activation memory", "Total Activation Memory: ", r"Total Activation Memory: (.+)"),
    _make_fact("weights memory", "Total Weights Memory: ", r"Total Weights Memory: (.+)"),
    _make_fact("throughput", "Throughput: ", r"^Throughput: ([\d.]+ qps)"),
)

_BANNER = re.compile(r"&&&& (RUNNING|PASSED|FAILED) ([\w.-]+) \[(TensorRT(?:-RTX)?) v(\d{1,9})\](?: \[\w+\])* # (.*)")
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(\S+))?")
_PERFORMANCE = re.compile(r"^(Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency): (.*)")
_NUMBER = r"(\d+(?:\.\d*)?)"
_QUANTITY = re.compile(rf"(?<![a-z])([a-z]+(?:\(\d+%\))?) = {_NUMBER} ms")
_ROW_FIRST = re.compile(rf"^\s*{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+(\S.*)$")
# Blanks are looked at from their first one only.
_ROW_LAST = re.compile(rf"^\s*(\S.*?)(?<=\S)\s{{2,}}{_NUMBER}\s+{_NUMBER}\s+(?:{_NUMBER}\s+)?{_NUMBER}\s*%?$")


def version_of(number: str) -> str:
    """The version in a banner's number: `v8601` is 8.6.1 and `v101401` is 10.14.1.

    Source: NV_TENSORRT_VERSION in NvInferVersion.h: major * 1000 + minor * 100 + patch up to 9, and since 10
    major * 10000 + minor * 100 + patch.
    """
    value = int(number)
    if value < 10000:
        return f"{value // 1000}.{value // 100 % 10}.{value % 100}"
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


def parse_banner(text: str) -> tuple[str, str, str, str, str] | None:
    """(state, program, product, version, command) of a line `&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # ...`."""
    found = _BANNER.match(text)
    if found is None:
        return None
    return found[1], found[2].rpartition(".")[2], found[3], version_of(found[4]), found[5]


def flags_of(command: str) -> dict[str, str]:
    """The options of a command line with their values ("" for a switch)."""
    return {found[1]: found[2] or "" for found in _FLAG.finditer(command)}


def parse_performance(text: str) -> tuple[str, dict[str, float]] | None:
    """(what, milliseconds by quantity) of a line such as `GPU Compute Time: min = 5.3 ms, ..., median = 7.1 ms`."""
    if " ms" not in text:
        return None
    found = _PERFORMANCE.match(text)
    if found is None:
        return None
    return found[1], {quantity[1]: float(quantity[2]) for quantity in _QUANTITY.finditer(found[2])}


def profile_row(text: str, *, name_first: bool) -> tuple[str, float] | None:
    """(layer, average milliseconds) of a row of trtexec's profile table; None if it is no row.

    The newer tables (8.5 on) have Time, Avg., Median, Time % and then the layer, the older ones the layer first.
    """
    if name_first:
        found = _ROW_LAST.match(text)
        return (found[1], float(found[3])) if found else None
    found = _ROW_FIRST.match(text)
    return (found[5], float(found[2])) if found else None
