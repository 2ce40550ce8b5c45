"""A repair for the tool that somebody deploys with: lines of trtexec, TensorRT, Polygraphy, ONNX Runtime, OpenVINO and others.

In: a repair of the document and what the view says of it. Out: rows (tool, lines). What keeps a node in FP32 was written for each
tool when the study was made; a repaired copy is a file like any other; the switch of an arithmetic is each runtime's own.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from parityscope.repairs.runtime_settings import settings_of
from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What trtexec and Polygraphy (to TensorRT 10) are told of a format.
FORMAT_FLAGS = {"f16": "--fp16", "bf16": "--bf16", "int8": "--int8"}


def tool_rows(repair: Mapping[str, Any], finding: Mapping[str, Any], declared: str, file: str) -> list[dict[str, str]]:
    """The rows of a repair; `file` is its copy, "" where none was kept, and `declared` the arithmetic of the deployment."""
    rows = [*_settings(repair), *(_of_file(file, declared) if file else ())]
    if repair.get("repair") == "runtime_settings":
        change = clean((finding.get("details") or {}).get("change") or "")
        rows += [(tool, lines) for tool, lines in settings_of(change).items()]
    return [{"tool": tool, "lines": lines} for tool, lines in rows]


def _settings(repair: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in repair.get("tools") or ():
        yield (
            clean(one.get("title") or one.get("tool", "")),
            "\n".join(clean(line) for line in str(one.get("lines", "")).splitlines()),
        )


def _of_file(file: str, declared: str) -> Iterator[tuple[str, str]]:
    """How a repaired file is built and opened; types that TensorRT 11 wants in the file are what `parityscope repair` writes."""
    path = shlex.quote(file)
    flag = f" {FORMAT_FLAGS[declared]}" if declared in FORMAT_FLAGS else ""
    exact = " --noTF32" if declared == "f32" else ""  # Polygraphy has TF32 off by itself
    yield "trtexec (TensorRT 8 to 10)", f"trtexec --onnx={path}{flag}{exact} --saveEngine=repaired.plan"
    yield "Polygraphy (TensorRT 8 to 10)", f"polygraphy convert {path}{flag} -o repaired.plan"
    yield "ONNX Runtime", f"session = onnxruntime.InferenceSession({file!r})"
    hint = f', {{"INFERENCE_PRECISION_HINT": "{declared}"}}' if declared in {"f16", "bf16", "f32"} else ""
    yield "OpenVINO", f'compiled = openvino.Core().compile_model({file!r}, "CPU"{hint})'
