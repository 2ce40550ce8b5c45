"""Clip a tensor at the format's largest finite number, where that is proved to do no harm.

What it changes: a Clip to [-largest, largest] of the format behind the node, so that what overflowed to infinity is the
largest number instead.

Why it repairs: infinity - infinity, 0 * infinity and infinity / infinity are NaN; the largest number is not. Where what
reads the tensor saturates anyway (Sigmoid, Tanh, Softmax, a comparison) the outputs stay the same.

When it is offered: only with a proof. `saturation_proof` runs the reference with and without the Clip on samples, and
says how far the outputs move; without one that meets its limit on all samples, nothing is done.

Risk: the proof holds for the samples. Others may saturate where it matters.

Cost: one Clip, which engines fuse into the node before it.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site), "tensor" (one of its outputs; else the first), "format" (default f16)
and "proof": {"tensor", "format", "samples", "worst", "limit"}, as `saturation_proof` gives it.

Source: IEEE 754-2019, section 7.2 (invalid operations).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import opset_of
from parityscope.comparison.distance import largest_distance
from parityscope.repairs import Repair
from parityscope.repairs._editing import nodes_of, replace_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding

CLIPPED = "::clipped"  # what the name of the tensor behind the Clip ends in
_BOUNDS_AS_INPUTS = 11  # the opset from which Clip reads its bounds as inputs


def saturation_proof(
    model: ir.Model,
    tensor: str,
    samples: Iterable[Mapping[str, np.ndarray]],
    *,
    limit: float,
    number_format: str = "f16",
    folder: Path | None = None,
) -> dict[str, Any]:
    """What a Clip of `tensor` at the format's bounds does to the outputs of the FP32 model, as details of a finding.

    `worst` is the largest relative L2 distance over all outputs and samples (share of changed elements for integers),
    infinity where a value becomes non-finite or stops being so. `samples` are arrays by name of input; `folder` is where
    external weights lie.

    Raises:
        ParityError: the reference cannot be run.
    """
    from parityscope.backends.onnxruntime_sessions import open_session

    clipped = model.clone()
    value = next((value for node in clipped.graph for value in node.outputs if value.name == tensor), None)
    if value is not None:
        _insert_clip(clipped, value, format_named(number_format))
    plain, saturated = (open_session(each.clone(), folder=folder) for each in (model, clipped))
    worst, count = 0.0, 0
    for sample in samples:
        reference, candidate = plain(sample), saturated(sample)
        worst = max(worst, largest_distance(reference, candidate))
        count += 1
    return {
        "tensor": tensor,
        "format": number_format,
        "samples": count if value is not None else 0,
        "worst": worst,
        "limit": limit,
    }


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    nodes = nodes_of(model, finding)
    number_format = format_named(str(finding.details.get("format", "f16")))
    wanted = finding.details.get("tensor")
    value = next((value for node in nodes for value in node.outputs if wanted in {None, value.name}), None)
    if value is None or not _is_proved(finding, str(value.name), number_format):
        return None
    proof = finding.details["proof"]
    _insert_clip(model, value, number_format)
    return (
        f"{proof['tensor']} is clipped at +-{number_format.largest:g}; on {proof['samples']} samples the outputs move by "
        f"{proof['worst']:.3g} at most (limit {proof['limit']:g})"
    )


def _is_proved(finding: Finding, tensor: str, number_format: Format) -> bool:
    proof = finding.details.get("proof")
    if not proof or proof["tensor"] != tensor or proof["format"] != number_format.name:
        return False
    return int(proof["samples"]) > 0 and float(proof["worst"]) <= float(proof["limit"])


def _insert_clip(model: ir.Model, value: ir.Value, number_format: Format) -> None:
    import onnx_ir as ir

    kind = ir.DataType.FLOAT if value.dtype is None else value.dtype
    bounds = [np.array(bound, kind.numpy()) for bound in (-number_format.largest, number_format.largest)]
    result = ir.Value(name=f"{value.name}{CLIPPED}", type=ir.TensorType(kind))
    node = value.producer()
    if node is None:
        return
    # The readers change first, so that the Clip itself goes on reading the value.
    replace_value(value, result)
    if opset_of(model) >= _BOUNDS_AS_INPUTS:
        inputs = [add_constant(model.graph, bound, f"{result.name}::bound") for bound in bounds]
        clip = ir.Node("", "Clip", [value, *inputs], outputs=[result])
    else:
        attributes = [ir.AttrFloat32(name, float(bound)) for name, bound in zip(("min", "max"), bounds, strict=True)]
        clip = ir.Node("", "Clip", [value], attributes, outputs=[result])
    model.graph.insert_after(node, clip)


REPAIR = Repair(
    name="saturate_activation",
    title="Clip a tensor at the format's largest number, where that is proved to do no harm",
    risk="the proof holds for the samples it was made on; others may saturate where it matters",
    cost="one Clip, which engines fuse into the node before it",
    apply=_apply_repair,
)
