"""Command lines of trtexec and Polygraphy that confirm a finding or apply its repair, each for the versions that it is right for.

In: the study's document. Out: rows (finding, does, tool, versions, command). They are for readers who deploy with TensorRT, so
nothing is said for a candidate that is another runtime itself (`ort`, `openvino`, `torch`).

What changed between versions, and decides which line is right: TensorRT 11 has no `--fp16`, `--layerPrecisions` and the like, and
follows the types of the ONNX file; trtexec has TF32 on by default and Polygraphy off; debug tensors (`--markDebug`) came with
TensorRT 10. `mark_debug` and marking an output both keep the tensor out of a fusion, which is why the comment says so.

Sources: trtexec --help of TensorRT 10.16 and 11.4; NVIDIA's migration guide from 10 to 11; polygraphy run --help of 0.53.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from parityscope.backends import known_backend
from parityscope.environment import numbers_of
from parityscope.repairs.settings.trtexec import can_be_named, layer_options
from parityscope.report._for_tools import FORMAT_FLAGS
from parityscope.report.offered import repair_command
from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.backends import Certainty

_BLOBS, _JSON = "for-trtexec", "for-polygraphy"
_FIRST = "0000000000.args"
_BEFORE_11, _FROM_10, _FROM_11, _ALL = "8.6 to 10", "10 and 11", "11", "8.6 to 11"
_TYPED = "TYPED.onnx"
# Families of findings whose place in the network is worth reading from the engine.
_INSIDE = ("RNG", "ACC", "FUS", "CST", "QNT")


class _NvidiaQuestion(NamedTuple):
    model: str  # quoted
    stem: str
    inputs: str
    outputs: tuple[str, ...]
    flag: str  # of the declared format, "" for FP32
    tf32: bool
    repair: str  # the command that writes the repaired model, "" where there is none

    @property
    def weak(self) -> str:
        """The versions that have the format's flag (sampleOptions.cpp of 8.6.1 has no --bf16, that of 9.1.0 has)."""
        return "9 to 10" if self.flag == "--bf16" else _BEFORE_11


def view_nvidia_commands(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows, causes first; empty where the candidate is another runtime or nothing was found."""
    candidate = document.get("candidate") or {}
    path = clean((document.get("model") or {}).get("path") or "")
    if not path or _is_tensorrt(candidate) == "no":
        return []
    declared = clean((document.get("policy") or {}).get("declared") or candidate.get("declared") or "")
    asked = _NvidiaQuestion(
        model=shlex.quote(path),
        stem=PurePath(path).stem,
        inputs=_inputs_option(document),
        outputs=tuple(clean(output.get("name", "")) for output in (document.get("model") or {}).get("outputs", ())),
        flag=FORMAT_FLAGS.get(declared, ""),
        tf32=declared == "tf32",
        repair=repair_command(document),
    )
    installed = _installed_version(candidate)
    rows: list[dict[str, str]] = []
    for finding in sorted(document.get("findings", ()), key=lambda one: one.get("role") != "cause"):
        if finding.get("role") == "information":
            continue
        for does, tool, versions, line in (*_lines_that_confirm(finding, asked), *_lines_that_repair(finding, asked)):
            row = {
                "code": clean(finding.get("code", "")),
                "does": does,
                "tool": tool,
                "versions": versions,
                "line": line,
            }
            if _is_for(versions, installed) and all(line != other["line"] for other in rows):
                rows.append(row)
    made = [
        {
            "code": "",
            "does": "prepares",
            "tool": "parityscope",
            "versions": "",
            "line": f"parityscope run {asked.model}{asked.inputs} --format {kind} -o {folder}",
        }
        for kind, folder in (("trtexec", _BLOBS), ("polygraphy", _JSON))
        if any(f"$(cat {folder}" in row["line"] for row in rows)
    ]
    return made + rows


def deploys_with_tensorrt(document: Mapping[str, Any]) -> bool:
    """Whether the candidate is TensorRT, or a recording of it: then a terminal shows the commands too."""
    candidate = document.get("candidate") or {}
    facts = " ".join(f"{name} {value}" for name, value in (candidate.get("environment") or {}).items()).lower()
    return _is_tensorrt(candidate) == "yes" or "trtexec" in facts or "tensorrt" in facts


def _is_tensorrt(candidate: Mapping[str, Any]) -> Certainty:
    """Whether that side is TensorRT; of a runtime that is not installed here nobody knows."""
    found = known_backend(str(candidate.get("backend") or ""))
    return "perhaps" if found is None else found.tensorrt


def _installed_version(candidate: Mapping[str, Any]) -> tuple[int, ...]:
    """TensorRT's version on the candidate's side, up to the minor number; () where nobody knows, and for TensorRT-RTX."""
    told = str((candidate.get("environment") or {}).get("tensorrt") or "")
    return () if "rtx" in told.lower() else numbers_of(told)[:2]


def _is_for(versions: str, installed: tuple[int, ...]) -> bool:
    """Whether a line for these versions ("8.6 to 10", "10 and 11", "11") is of use where `installed` is."""
    named = [tuple(int(part) for part in each.split(".")) for each in re.findall(r"[\d.]+", versions)]
    return not named or not installed or (installed >= named[0] and installed[:1] <= named[-1][:1])


def _inputs_option(document: Mapping[str, Any]) -> str:
    told = clean(((document.get("question") or {}).get("asked") or {}).get("inputs") or "")
    return f" --inputs {shlex.quote(told)}" if told else ""


def _lines_that_confirm(finding: Mapping[str, Any], asked: _NvidiaQuestion) -> Iterator[tuple[str, str, str, str]]:
    code, does = clean(finding.get("code", "")), "confirms"
    tensor = clean((finding.get("site") or {}).get("tensor") or "")
    if code.startswith("BND"):
        yield does, "polygraphy", _ALL, f"polygraphy inspect model {asked.model}  # the order of inputs in the file"
    if code == "RNG001":
        log = f"trtexec --onnx={asked.model} {asked.flag or '--fp16'} --verbose > build.log; parityscope log build.log"
        yield does, "trtexec", asked.weak, log
    if code.startswith(_INSIDE) and tensor and can_be_named(tensor):
        yield from _looking_inside(tensor, asked)
        return
    if asked.tf32 or clean((finding.get("details") or {}).get("change") or "") == "tf32_off":
        yield does, "trtexec", _ALL, _trtexec_on_first_sample(asked, "--noTF32 --exportOutput=exported.json")
        yield does, "polygraphy", _ALL, f"{_polygraphy_with_onnxruntime(asked, '--tf32')}  # once more without --tf32"
        return
    # What is outside of the network vanishes when the engine is given the reference's own inputs by name.
    plain = "--exportOutput=exported.json"
    if asked.flag:
        yield does, "trtexec", asked.weak, _trtexec_on_first_sample(asked, f"{asked.flag} {plain}")
        yield does, "trtexec", _FROM_11, _trtexec_on_first_sample(asked, plain, typed=True)
    else:
        yield does, "trtexec", _ALL, _trtexec_on_first_sample(asked, plain)
    compared = f"parityscope compare {asked.model} --candidate 'saved?path=exported.json'{asked.inputs} --samples 1"
    yield does, "parityscope", "", compared


def _looking_inside(tensor: str, asked: _NvidiaQuestion) -> Iterator[tuple[str, str, str, str]]:
    """The tensor as the engine has it. Marking it keeps it out of a fusion: an error that vanishes then is the fusion's."""
    name, file = shlex.quote(tensor), shlex.quote(f"{tensor}:debug.raw")
    marks = f"--markDebug={name} --saveDebugTensors={file}"
    if asked.flag:
        yield "confirms", "trtexec", "10", _trtexec_on_first_sample(asked, f"{asked.flag} {marks}")
        yield "confirms", "trtexec", _FROM_11, _trtexec_on_first_sample(asked, marks, typed=True)
    else:
        yield "confirms", "trtexec", _FROM_10, _trtexec_on_first_sample(asked, marks)
    outputs = " ".join(shlex.quote(one) for one in dict.fromkeys((tensor, *asked.outputs)))
    flag = asked.flag or ("--tf32" if asked.tf32 else "")
    both = _polygraphy_with_onnxruntime(asked, f"{flag} --onnx-outputs {outputs} --trt-outputs {outputs}".strip())
    yield "confirms", "polygraphy", asked.weak, both


def _polygraphy_with_onnxruntime(asked: _NvidiaQuestion, options: str) -> str:
    """Polygraphy on the first sample, with ONNX Runtime beside TensorRT. Its shapes make the engine's profile."""
    return f"polygraphy run {asked.model} --onnxrt --trt {options} $(cat {_JSON}/{_FIRST})"


def _trtexec_on_first_sample(asked: _NvidiaQuestion, options: str, *, typed: bool = False) -> str:
    """The first sample in trtexec, its blobs given by name."""
    model = _TYPED if typed else asked.model
    return f"trtexec --onnx={model} {options} $(cat {_BLOBS}/{_FIRST})"


def _lines_that_repair(finding: Mapping[str, Any], asked: _NvidiaQuestion) -> Iterator[tuple[str, str, str, str]]:
    node = clean((finding.get("site") or {}).get("node") or "")
    fixed = f"{asked.stem}.fixed.onnx"
    for repair in finding.get("repairs", ()):
        name = clean(repair.get("repair", ""))
        if name == "runtime_settings":
            if "tf32" in clean((finding.get("details") or {}).get("change") or ""):
                built = f"trtexec --onnx={asked.model} --noTF32 --saveEngine={shlex.quote(f'{asked.stem}.plan')}"
                yield "applies", "trtexec", _ALL, built
        elif name == "keep_in_fp32" and node and asked.flag and can_be_named(node):
            kept = shlex.join(layer_options([(node, "f32", 1)]))
            built = f"trtexec --onnx={asked.model} {asked.flag} {kept} --saveEngine=fixed.plan"
            yield "applies", "trtexec", asked.weak, built
            kept = f"--precision-constraints obey --layer-precisions {shlex.quote(f'{node}:float32')}"
            yield (
                "applies",
                "polygraphy",
                asked.weak,
                f"polygraphy convert {asked.model} {asked.flag} {kept} -o fixed.plan",
            )
            yield from _typed_file(asked, fixed)
        elif repair.get("trial") and asked.flag:
            yield from _typed_file(asked, fixed)


def _typed_file(asked: _NvidiaQuestion, fixed: str) -> Iterator[tuple[str, str, str, str]]:
    """The repair as a strongly typed file, which 10 and 11 take as it stands."""
    quoted = shlex.quote(fixed)
    if asked.repair:
        yield "applies", "parityscope", "", asked.repair
    yield "applies", "trtexec", "10", f"trtexec --onnx={quoted} --stronglyTyped --saveEngine=fixed.plan"
    yield "applies", "trtexec", _FROM_11, f"trtexec --onnx={quoted} --saveEngine=fixed.plan"
    yield "applies", "polygraphy", _FROM_10, f"polygraphy convert {quoted} --strongly-typed -o fixed.plan"
