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

GELU that exporters take apart, found from its last product backwards.

Exact: x / 2 * (1 + erf(x / sqrt 2)). Approximate: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
The factors may be multiplied in any order and either way round.

Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016; Gelu in the ONNX operator specification.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import GELU_CUBIC, opset_of
from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.repairs import Repair
from parityscope.repairs._editing import (
    array_of,
    insert_before,
    nodes_of,
    only_reader,
    remove_unread,
    replace_value,
    scalar_of,
)
from parityscope.repairs._patterns import (
    both_operand_orders,
    chain_axes,
    find_quotient,
    find_softmax,
    mean_removed,
    producer_of,
)
from parityscope.repairs._raising import adopt_copy, raise_opset, shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.records import Finding
    from parityscope.repairs._patterns import Quotient

_CLOSE = 1e-4  # relative; exporters write the constants with four digits or more
_TANH_SCALE = math.sqrt(2.0 / math.pi)
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
    curve = _find_gelu(node)
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
    replace_value(form.output, result)
    remove_unread(model, [last])
    return True


def _find_gelu(last: ir.Node) -> tuple[ir.Value, str, tuple[ir.Node, ...]] | None:
    """(x, "none" or "tanh", the nodes) of the GELU whose last product is `last`."""
    factors, products, scale = _product_factors(last)
    for position, value in enumerate(factors):
        found = _find_bracket(value)
        others = [factor for index, factor in enumerate(factors) if index != position]
        if found is None or len(others) != 1 or not _is_close(scale, 0.5):
            continue
        x, approximate, nodes = found
        if others[0] is x:
            return x, approximate, (*nodes, *products)
    return None


def _product_factors(last: ir.Node) -> tuple[list[ir.Value], list[ir.Node], float]:
    """What a tree of products multiplies: values, the nodes, and the product of its constants."""
    values: list[ir.Value] = []
    nodes: list[ir.Node] = []
    scale, waiting = 1.0, [last]
    if last.op_type not in {"Mul", "Div"} or last.domain:
        return [], [], 0.0
    while waiting and len(nodes) < 4:  # x, the bracket and a half: three products at most
        node = waiting.pop()
        nodes.append(node)
        for position, value in enumerate(node.inputs):
            number = scalar_of(value)
            inner = producer_of(value, "Mul", "Div")
            if number is not None:
                divisor = node.op_type == "Div" and position == 1
                scale = scale / number if divisor and number else scale * number
            elif value is None or (node.op_type == "Div" and position == 1):
                return [], [], 0.0
            elif inner is not None and len(list(value.uses())) == 1 and not value.is_graph_output():
                waiting.append(inner)
            else:
                values.append(value)
    return values, nodes, scale


def _find_bracket(value: ir.Value) -> tuple[ir.Value, str, tuple[ir.Node, ...]] | None:
    add = producer_of(value, "Add")
    for inner, one in both_operand_orders(add):
        curve = producer_of(inner, "Erf", "Tanh")
        if curve is None or add is None or scalar_of(one) != 1.0:
            continue
        found = _erf_argument(curve) if curve.op_type == "Erf" else _tanh_argument(curve)
        if found is not None:
            x, nodes = found
            return x, "none" if curve.op_type == "Erf" else "tanh", (*nodes, curve, add)
    return None


def _erf_argument(curve: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    node = producer_of(curve.inputs[0], "Mul", "Div")
    if node is None:
        return None
    for x, factor in both_operand_orders(node):
        number = scalar_of(factor)
        if number is None or (node.op_type == "Div" and node.inputs[1] is not factor):
            continue
        if _is_close(number, math.sqrt(2.0) if node.op_type == "Div" else math.sqrt(0.5)):
            return x, (node,)
    return None


def _tanh_argument(curve: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    outer = producer_of(curve.inputs[0], "Mul")
    for inner, factor in both_operand_orders(outer):
        number = scalar_of(factor)
        add = producer_of(inner, "Add")
        if number is None or outer is None or not _is_close(number, _TANH_SCALE):
            continue
        for x, term in both_operand_orders(add):
            cubic = _cube_of(x, term)
            if cubic is not None and add is not None:
                return x, (*cubic, add, outer)
    return None


def _cube_of(x: ir.Value, term: ir.Value) -> tuple[ir.Node, ...] | None:
    """The nodes of 0.044715 x^3, the cube written as a power or as products in any order."""
    last = producer_of(term, "Mul")
    values, products, scale = _product_factors(last) if last is not None else ([], [], 0.0)
    if not _is_close(scale, GELU_CUBIC):
        return None
    if len(values) == 3 and all(value is x for value in values):
        return tuple(products)
    power = producer_of(values[0], "Pow") if len(values) == 1 else None
    if power is None or power.inputs[0] is not x or scalar_of(input_at(power, 1)) != 3.0:
        return None
    return (power, *products)


def _is_close(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=_CLOSE)


REPAIR = Repair(
    name="fused_operator",
    title="Replace a normalization, GELU or Softmax that was taken apart by the operator",
    risk="none to the function; runtimes older than the operator's opset cannot read the result",
    cost="none: one fused kernel in the place of five to nine",
    apply=_apply_repair,
)
