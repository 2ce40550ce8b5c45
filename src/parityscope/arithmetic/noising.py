"""Graphs that compute the noise of honest FP32 evaluation beside the network, or carry it through the network.

* `noise_graph`: for each tensor the expected squared error that its own node makes, summed over the elements, and the
  tensor's squared norm: `<tensor>::variance` (in units of u², u = 2^-24) and `<tensor>::square`. One session, one
  forward: products run a second time, on squared inputs.
* `disturbed`: the network with that error put on its products and reductions, `gain` times as large as it is. Divided
  by `gain`, the distance of a tensor from the undisturbed network is the noise that it inherits and makes, amplified
  or damped by whatever lies between: a Monte-Carlo estimate with one draw, whose elements do the averaging.

The sign of each disturbance is that of the tensor's own residue, y less y rounded to bfloat16: as good as random, and
the same wherever the network computes the same number, as real rounding errors are (a blank part of a page has the same
error in every element, and such errors add up in the next layer instead of averaging out). Elementwise operators use
the residue itself, which is bfloat16's rounding error: scaled, it is float32's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._expressions import Expressions
from parityscope.arithmetic._graphs import Names, bodies, feed, give_back
from parityscope.arithmetic.element_types import infer_types, is_float32
from parityscope.arithmetic.error_model import ROUNDING
from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.sites import exact_uses
from parityscope.arithmetic.ulps import ulps_of
from parityscope.arithmetic.variances import variance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["SQUARE_SUFFIX", "VARIANCE_SUFFIX", "NoiseGraph", "disturbed", "noise_graph"]

VARIANCE_SUFFIX = "::variance"
SQUARE_SUFFIX = "::square"
# ReduceSum takes its axes as an input and Softmax works on one axis from opset 13 on; Cast knows bfloat16 from then.
_OPSET = 13
_FLOAT32 = FORMATS["f32"].unit_roundoff
_RESIDUE = FORMATS["bf16"].unit_roundoff
_LARGEST = 2.0**120  # chosen: nothing that a network computes with, and far from where bfloat16 overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseGraph:
    """A derived graph and the tensors whose own error it computes; others make none, or are not float32."""

    model: ir.Model
    tensors: tuple[str, ...]


def noise_graph(model: ir.Model, tensors: Collection[str]) -> NoiseGraph:
    """The graph whose outputs are the scalars `<tensor>::variance` and `<tensor>::square`.

    They are there for those of `tensors` that a node computes with an error of its own.

    Raises:
        ParityError: the opset cannot be converted to 13.
    """
    copy, work = _start(model)
    outputs: list[ir.Value] = []
    found = []
    for node in list(copy.graph):
        value = node.outputs[0] if node.outputs else None
        if value is None or value.name not in tensors or not is_float32(value):
            continue
        error = variance(work, node, ROUNDING**2)
        if error is None:
            continue
        found.append(str(value.name))
        # Broadcast before summing: a formula may give one number a row.
        spread = work.op("Expand", [error, work.op("Shape", [value], dtype=ir.DataType.INT64)])
        outputs.append(_summed(work, spread, f"{value.name}{VARIANCE_SUFFIX}"))
        outputs.append(_summed(work, work.square(value), f"{value.name}{SQUARE_SUFFIX}"))
    copy.graph.extend(work.taken())
    copy.graph.outputs.clear()
    copy.graph.outputs.extend(outputs)
    return NoiseGraph(model=copy, tensors=tuple(found))


def disturbed(model: ir.Model, gain: float) -> NoiseGraph:
    """The network with the expected error of FP32 put on its tensors, `gain` times as large as it is.

    Disturbed are the float32 results of products and reductions, and of everything computed before the first of them
    on its path: the single roundings behind them are small beside what they inherit. Branches of If are entered; bodies
    of Loop and Scan are not. Tensors keep their names, and what a node computed becomes `<tensor>::exact`. Shape
    arithmetic and inputs that steer an operator stay as they are.

    Raises:
        ParityError: the opset cannot be converted to 13.
    """
    copy, work = _start(model)
    names = Names(copy)
    exact = exact_uses(copy)
    reached: set[ir.Value] = set()
    found = []
    for node in list(_entered(copy.graph)):
        if any(value in reached for value in (*node.inputs, *_given_back(node)) if value is not None):
            reached.update(node.outputs)
        value = node.outputs[0] if node.outputs else None
        if value is None or not is_float32(value) or (ulps_of(node) is not None and value in reached):
            continue
        uses = [use for use in value.uses() if (use[0], use[1]) not in exact]
        if value.uses() and not uses and not value.is_graph_output():
            continue
        noise = _noise(work, node, gain)
        if noise is None:
            continue
        name = str(value.name)
        found.append(name)
        value.name = names.fresh(name, "exact")
        noisy = work.op("Add", [value, noise], name=name)
        noisy.shape = value.shape
        node.append(work.taken())
        feed(uses, noisy)
        give_back(value, noisy)
        if ulps_of(node) is None:
            reached.add(noisy)
    return NoiseGraph(model=copy, tensors=tuple(found))


def _entered(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes in order, those of an If's branches before the If."""
    for node in graph:
        if node.op_type == "If":
            for body in bodies(node):
                yield from _entered(body)
        yield node


def _given_back(node: ir.Node) -> list[ir.Value]:
    """What the branches of an If give back, behind what was put there."""
    return [value for body in bodies(node) for value in body.outputs] if node.op_type == "If" else []


def _start(model: ir.Model) -> tuple[ir.Model, Expressions]:
    copy = prepared(model, _OPSET)
    infer_types(copy)
    return copy, Expressions(copy, Names(copy))


def _noise(work: Expressions, node: ir.Node, gain: float) -> ir.Value | None:
    value = node.outputs[0]
    ulps = ulps_of(node)
    if ulps is not None:
        noise = work.scaled(_residue(work, value), 2.0 * ulps * gain * _FLOAT32 / _RESIDUE)
        # Masks are often the lowest float32 number or minus infinity: their residue is infinite or NaN.
        size = work.op("Abs", [value])
        usual = work.op("Less", [size, work.number(_LARGEST)], dtype=ir.DataType.BOOL)
        return work.op("Where", [usual, noise, work.number(0.0)])
    error = variance(work, node, (ROUNDING * gain * _FLOAT32) ** 2)
    if error is None:
        return None
    size = work.op("Sqrt", [error])
    above = work.op("Less", [_rounded(work, value), value], dtype=ir.DataType.BOOL)
    return work.op("Where", [above, size, work.op("Neg", [size])])


def _residue(work: Expressions, value: ir.Value) -> ir.Value:
    return work.op("Sub", [value, _rounded(work, value)])


def _rounded(work: Expressions, value: ir.Value) -> ir.Value:
    low = work.op("Cast", [value], [ir.AttrInt64("to", int(ir.DataType.BFLOAT16))], dtype=ir.DataType.BFLOAT16)
    return work.op("Cast", [low], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])


def _summed(work: Expressions, value: ir.Value, name: str) -> ir.Value:
    result = work.op("ReduceSum", [value], [ir.AttrInt64("keepdims", 0)], name=name)
    result.shape = ir.Shape([])
    return result
