"""What the network view shows that a user must know before the engine runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parityscope.backends.tensorrt.asked import layers_below_request
from parityscope.logs import find_in_log
from parityscope.records import Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.backends.tensorrt.network import NetworkView

_SURE = "read from the network and the engine"
_SHOWN = 8  # layers in a claim (chosen); the details hold them all
# Refusals of the builder that are gone once everything that shapes and constants decide is computed (all measured).
_SETTLED = re.compile(
    r"kUNDEFINED failed|Quantized constant .* is only allowed before DQ|SqueezeLayer without an axes input"
)
_NO_PLUGIN = re.compile(r"[Pp]lugin not found|[Cc]annot find plugin|could not find plugin|No importer registered")


def find_in_view(view: NetworkView) -> tuple[Finding, ...]:
    """Findings: those of the build's log, the refusal, the order of inputs, and types that were not honoured."""
    logged = (
        one for one in find_in_log(view.log) if one.code not in {"EXP201", "RUN202"}
    )  # `_findings_of_refusal` says it, with the reason
    return (*_findings_of_refusal(view), *_findings_of_order(view), *_findings_of_not_honoured(view), *logged)


def _findings_of_refusal(view: NetworkView) -> Iterator[Finding]:
    if view.problem:
        yield Finding(
            code="EXP201",
            title="TensorRT does not build this model",
            role="cause",
            claim=view.problem,
            confidence=1.0,
            confidence_from=_SURE,
            repairs=tuple(_ways_out(view)),
            details={"nodes": [node.node for node in view.nodes if node.reason != "nothing was built"]},
        )


def _ways_out(view: NetworkView) -> Iterator[OfferedRepair]:
    if _SETTLED.search(view.problem) and view.settled is None:
        # An input of one number (a sample rate, a flag) is what branches are decided by.
        deciding = [
            tensor.name for tensor in view.inputs if not tensor.shape and tensor.dtype.startswith(("int", "bool"))
        ]
        fixes = "".join(f" --fix {name}=VALUE" for name in deciding)
        yield OfferedRepair(
            repair="settle",
            text="compute what shapes and constants decide beforehand"
            + (f", with {', '.join(deciding)} fixed to the value that is used" if deciding else "")
            + ": branches and eight-bit constants are then gone",
            command=f"parityscope network model.onnx --settle{fixes} --settled settled.onnx",
        )
    if "libnvinfer_lean" in view.problem:
        yield OfferedRepair(
            repair="lean runtime",
            text="install the lean runtime of this TensorRT's version, which a version-compatible engine carries, or leave "
            "version_compatible=on out",
            command="pip install tensorrt-lean",
        )
    if _NO_PLUGIN.search(view.problem):
        yield OfferedRepair(
            repair="plugin",
            text="load the library that has this operator as a plugin",
            command="parityscope network model.onnx --candidate 'trt?plugins=libmyplugin.so'",
        )


def _findings_of_not_honoured(view: NetworkView) -> Iterator[Finding]:
    missed = layers_below_request(view.executed.layers)
    if missed:
        shown = ", ".join(f"{layer.name} (asked {layer.asked}, writes {layer.stored})" for layer in missed[:_SHOWN])
        yield Finding(
            code="CST204",
            title="precision not honoured inside a fused layer",
            role="contributing",
            claim=f"{len(missed)} layers of the engine write a narrower type than their nodes were asked for: {shown}",
            confidence=1.0,
            confidence_from=_SURE,
            details={
                "layers": [layer.name for layer in missed],
                "nodes": sorted({n for one in missed for n in one.nodes}),
            },
        )


def _findings_of_order(view: NetworkView) -> Iterator[Finding]:
    """Inputs of one type that a program which binds by position could swap unnoticed, in the order that it needs."""
    names = view.engine_inputs
    absent = [name for name in view.file_inputs if name not in names]
    kinds: dict[tuple[object, ...], list[str]] = {}
    for tensor in view.inputs:
        kinds.setdefault((tensor.dtype, *tensor.shape), []).append(tensor.name)
    alike = [group for group in kinds.values() if len(group) > 1]
    if names and names != view.file_inputs:
        left = f"; {', '.join(absent)} of the file is no input of the engine" if absent else ""
        yield Finding(
            code="BND202",
            title="the engine's inputs are in another order than the file's",
            role="contributing",
            claim=f"the engine wants {', '.join(names)}, the file has {', '.join(view.file_inputs)}{left}: bind by name",
            confidence=1.0,
            confidence_from=_SURE,
            details={"engine": list(names), "file": list(view.file_inputs)},
        )
    if names and alike:
        shown = "; ".join(", ".join(group) for group in alike)
        yield Finding(
            code="BND203",
            title="inputs that can be swapped unnoticed",
            role="information",
            claim=f"these inputs have the same type and shape: {shown}. A program that binds by position must feed them as "
            f"{', '.join(names)}; nothing fails when it does not",
            confidence=1.0,
            confidence_from=_SURE,
            details={"order": list(names)},
        )
