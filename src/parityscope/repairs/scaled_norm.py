"""Divide by the largest magnitude before squaring: sqrt(sum x^2) = m sqrt(sum (x / m)^2).

What it changes: Sqrt(ReduceSum(x^2)) becomes m Sqrt(ReduceSum((x / m)^2)), where m is the largest |x| along the same axes,
and at least the smallest normal number of the format. Others who read the squares or their sum keep them.

Why it repairs: a square overflows FP16 from 256 on and is zero below 1.7e-4, although the norm is as large as x itself:
the spectrum of anything quiet is lost.

Risk: none to the function; FP32 rounding differs in the last places.

Cost: a reduction and four element-wise nodes, which engines fuse.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site): the square, the sum or the root; "format" (default f16).

Source: Blue, "A portable Fortran program to find the Euclidean norm of a vector", ACM TOMS 1978.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import opset_of
from parityscope.light_dataclasses import dataclass
from parityscope.repairs import Repair
from parityscope.repairs._editing import insert_before, nodes_of, remove_unread, replace_value
from parityscope.repairs._patterns import axes_of, insert_reduction, keeps_dims, producer_of, squared_by

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding

_AXES_AS_INPUT = 13  # the opset from which Squeeze reads its axes as an input


@dataclass(frozen=True, slots=True, kw_only=True)
class _Norm:
    """sqrt(sum source^2) over `axes`: its three nodes, first to last."""

    source: ir.Value
    axes: tuple[int, ...]
    square: ir.Node
    total: ir.Node
    last: ir.Node


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    wanted = nodes_of(model, finding)
    least = format_named(str(finding.details.get("format", "f16"))).smallest_normal
    notes = []
    for node in list(model.graph) if wanted else []:
        found = _find_norm(node)
        if found is not None and any(each in (found.square, found.total, found.last) for each in wanted):
            _rewrite_norm(model, found, least)
            notes.append(f"{found.source.name} is divided by its largest magnitude before it is squared and summed up")
    return "; ".join(notes) or None


def _find_norm(node: ir.Node) -> _Norm | None:
    if node.op_type != "Sqrt" or node.domain:
        return None
    total = producer_of(node.inputs[0], "ReduceSum")
    square = None if total is None else producer_of(total.inputs[0], "Mul", "Pow")
    source = squared_by(square)
    axes = None if total is None else axes_of(total)
    if total is None or square is None or source is None or not axes:
        return None
    return _Norm(source=source, axes=axes, square=square, total=total, last=node)


def _rewrite_norm(model: ir.Model, found: _Norm, least: float) -> None:
    source, last = found.source, found.last
    name = str(last.outputs[0].name)
    kind = np.dtype(np.float32) if source.dtype is None else source.dtype.numpy()
    size = insert_before(last, "Abs", [source], f"{name}::size", like=source)
    top = insert_reduction(model, last, "ReduceMax", size, found.axes, f"{name}::largest")
    floor = add_constant(model.graph, np.array(least, kind), f"{name}::least")
    most = insert_before(last, "Max", [top, floor], f"{name}::most", like=source)
    small = insert_before(last, "Div", [source, most], f"{name}::small", like=source)
    square = insert_before(last, "Mul", [small, small], f"{name}::square", like=source)
    total = insert_reduction(model, last, "ReduceSum", square, found.axes, f"{name}::total")
    root = insert_before(last, "Sqrt", [total], f"{name}::root", like=source)
    whole = insert_before(last, "Mul", [root, most], f"{name}::whole", like=source)
    if not keeps_dims(found.total):
        whole = _insert_squeeze(model, last, whole, found.axes)
    replace_value(last.outputs[0], whole)
    remove_unread(model, [last])


def _insert_squeeze(model: ir.Model, before: ir.Node, value: ir.Value, axes: tuple[int, ...]) -> ir.Value:
    import onnx_ir as ir

    name = f"{value.name}::squeezed"
    if opset_of(model) < _AXES_AS_INPUT:
        return insert_before(before, "Squeeze", [value], name, [ir.AttrInt64s("axes", axes)], like=value)
    taken = add_constant(model.graph, np.array(axes, np.int64), f"{name}::axes")
    return insert_before(before, "Squeeze", [value, taken], name, like=value)


REPAIR = Repair(
    name="scaled_norm",
    title="Divide by the largest magnitude before squaring, in a norm",
    risk="none to the function; FP32 rounding differs in the last places",
    cost="a reduction and four element-wise nodes, which engines fuse",
    apply=_apply_repair,
)
