"""Replace a normalization, GELU or Softmax that was taken apart by the operator.

What it changes: the nodes of (x - mean) / sqrt(mean((x - mean)^2) + epsilon), of the same without the mean, of both forms
of GELU, or of exp(x) / sum(exp(x)) become one LayerNormalization (opset 17), RMSNormalization (opset 23), Gelu (opset 20)
or Softmax (opset 13). A scale and bias right behind a normalization go into it. A model of an older opset is converted up
by ONNX's own converter, and that is said.

Why it repairs: the square of an activation overflows FP16 from 256 on. The kernels of these operators keep squares,
sums, exponentials and epsilon in FP32 (TensorRT, ONNX Runtime CUDA and OpenVINO do), or take the maximum off first.

Risk: none to the function; FP32 rounding differs in the last places. Runtimes older than the opset cannot read the
result, and one that takes the operator apart again in FP16 gains nothing.

Cost: none; one fused kernel is faster than five to nine nodes.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" or "nodes" (or its site): any node of the form. All forms that hold one of them are
replaced.

Sources: the ONNX operator specification; NVIDIA TensorRT, "Working with Transformers" (normalization in FP32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import opset_of
from parityscope.repairs import Repair
from parityscope.repairs._editing import (
    array_of,
    insert_before,
    nodes_of,
    only_reader,
    remove_unread,
    replace_value,
)
from parityscope.repairs._gelu import find_gelu
from parityscope.repairs._patterns import both_operand_orders, chain_axes, find_quotient, find_softmax, mean_removed
from parityscope.repairs._raising import adopt_copy, raise_opset, shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.records import Finding
    from parityscope.repairs._patterns import Quotient

__all__ = ["REPAIR"]

_OPSETS = {"LayerNormalization": 17, "RMSNormalization": 23, "Gelu": 20, "Softmax": 13}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What one operator replaces: `output` becomes operator(source, scale, bias)."""

    operator: str
    source: ir.Value
    output: ir.Value
    nodes: tuple[ir.Node, ...]
    axis: int = -1
    epsilon: float = 0.0
    approximate: str = "none"
    scale: np.ndarray | None = None
    bias: np.ndarray | None = None


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    wanted = nodes_of(model, finding)
    if not wanted:
        return None
    shapes = shapes_of(model)
    ends = [
        (form.operator, str(form.output.name))
        for node in model.graph
        if (form := _find_form(node, shapes)) is not None and any(each in form.nodes for each in wanted)
    ]
    if not ends:
        return None
    before = opset_of(model)
    needed = max(_OPSETS[operator] for operator, _ in ends)
    work = raise_opset(model, needed)
    if work is None:
        return None
    done = [operator for operator, name in ends if _replace_by_operator(work, operator, name, shapes)]
    if not done:
        return None
    adopt_copy(model, work)
    converted = f"; the model was converted from opset {before} to {needed}" if before < needed else ""
    counts = ", ".join(f"{done.count(operator)} {operator}" for operator in dict.fromkeys(done))
    return f"{counts} in the place of nodes that compute the same{converted}"


def _find_form(node: ir.Node, shapes: Mapping[str, tuple[int | None, ...]]) -> _Form | None:
    curve = find_gelu(node)
    if curve is not None:
        source, approximate, nodes = curve
        return _Form(operator="Gelu", source=source, output=node.outputs[0], nodes=nodes, approximate=approximate)
    exponent = find_softmax(node)
    if exponent is not None:
        axes = chain_axes(exponent.total) or ()
        nodes = (exponent.exponential, exponent.total, node)
        source = exponent.below or exponent.source
        if len(axes) == 1:
            return _Form(operator="Softmax", source=source, output=node.outputs[0], nodes=nodes, axis=axes[0])
        return None
    found = find_quotient(node)
    return None if found is None or found.reduce.op_type != "ReduceMean" else _normalization_form(found, shapes)


def _normalization_form(found: Quotient, shapes: Mapping[str, tuple[int | None, ...]]) -> _Form | None:
    centred = mean_removed(found)
    source = found.source if centred is None else centred[0]
    shape = shapes.get(str(source.name))
    axes = chain_axes(found.reduce)
    if axes is None or len(axes) != 1 or (axes[0] != -1 and (shape is None or axes[0] != len(shape) - 1)):
        return None
    width = shape[-1] if shape else None
    nodes, output = list(found.nodes) + ([] if centred is None else list(centred[1:])), found.last.outputs[0]
    scale, node = _row_constant(output, "Mul", width)
    if scale is not None and node is not None:
        nodes.append(node)
        output, width = node.outputs[0], scale.size
    bias = None
    if centred is not None:
        bias, node = _row_constant(output, "Add", width)
        if bias is not None and node is not None:
            nodes.append(node)
            output, width = node.outputs[0], bias.size
    if width is None:
        return None
    if scale is None:
        kind = source.dtype
        scale = np.ones(width, np.float32 if kind is None else kind.numpy())
    return _Form(
        operator="RMSNormalization" if centred is None else "LayerNormalization",
        source=source,
        output=output,
        nodes=tuple(nodes),
        epsilon=found.epsilon,
        scale=scale,
        bias=bias,
    )


def _row_constant(value: ir.Value, operator: str, width: int | None) -> tuple[np.ndarray | None, ir.Node | None]:
    """The constant of `width` numbers that alone `operator` puts on `value`, and the node; (None, None) if there is none."""
    node = only_reader(value)
    if node is None or node.op_type != operator:
        return None, None
    for one, other in both_operand_orders(node):
        array = array_of(other)
        if one is value and array is not None and array.ndim == 1 and array.size > 1 and width in {None, array.size}:
            return array, node
    return None, None


def _replace_by_operator(
    model: ir.Model, operator: str, output: str, shapes: Mapping[str, tuple[int | None, ...]]
) -> bool:
    import onnx_ir as ir

    # Found again: converting the opset made new nodes, and an earlier form may have taken this one up.
    form = next(
        (
            form
            for node in model.graph
            if (form := _find_form(node, shapes)) is not None
            and form.output.name == output
            and form.operator == operator
        ),
        None,
    )
    last = None if form is None else form.output.producer()
    if form is None or last is None:
        return False
    inputs = [form.source]
    attributes = [ir.AttrInt64("axis", form.axis)]
    if operator == "Gelu":
        attributes = [ir.AttrString("approximate", form.approximate)]
    elif form.scale is not None:
        attributes.append(ir.AttrFloat32("epsilon", form.epsilon))
        inputs.append(add_constant(model.graph, form.scale, f"{output}::scale"))
        if form.bias is not None:
            inputs.append(add_constant(model.graph, form.bias, f"{output}::bias"))
    result = insert_before(last, operator, inputs, f"{output}::fused", attributes, like=form.source)
    replace_value(model, form.output, result)
    remove_unread(model, [last])
    return True


REPAIR = Repair(
    name="fused_operator",
    title="Replace a normalization, GELU or Softmax that was taken apart by the operator",
    risk="none to the function; runtimes older than the operator's opset cannot read the result",
    cost="none: one fused kernel in the place of five to nine",
    apply=_apply_repair,
)
