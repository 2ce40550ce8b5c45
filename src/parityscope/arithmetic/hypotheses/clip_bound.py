"""Clip bound lost or wrong: a Clip or Relu without its lower or upper bound, or with another one.

Fusing a Clip into the kernel before it may keep one bound and lose the other. A wrong bound is fitted: the one number
that leaves least of the error, between the least and the largest value that enters.

Sources: NVIDIA/TensorRT issue 4606 (MatMul, Add, Clip loses its upper bound); ONNX operators Clip and Relu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import number
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, constant, insert, substitute

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_OPERATORS = frozenset({"Clip", "Relu"})
_NONE = (-np.inf, np.inf)


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type in _OPERATORS


def _bounds(node: ir.Node) -> tuple[float, float]:
    if node.op_type == "Relu":
        return 0.0, np.inf
    low, high = array_of(node, 1), array_of(node, 2)
    # The standard wants scalars; runtimes take one element of any rank, and files have it.
    return (
        number(node, "min", -np.inf) if low is None or low.size != 1 else float(low.reshape(())),
        number(node, "max", np.inf) if high is None or high.size != 1 else float(high.reshape(())),
    )


def _clipped(model: ir.Model, node: ir.Node, low: float, high: float) -> None:
    value = node.inputs[0]
    if value is None:
        return
    value = insert(node, "Identity", [value])
    for op_type, bound in (("Max", low), ("Min", high)):
        if np.isfinite(bound):
            array = np.array(bound, np.float32)
            value = insert(node, op_type, [value, constant(model, array, f"{node.outputs[0].name}::{op_type}")])
    substitute(model, node, value)


def _fixed(words: str, low: float, high: float) -> Variant:
    return Variant(words=words, rewrite=lambda model, node, _: _clipped(model, node, low, high))


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    low, high = _bounds(node)
    if np.isfinite(low):
        yield _fixed(f"the lower bound {low:g} is lost", -np.inf, high)
    if np.isfinite(high):
        yield _fixed(f"the upper bound {high:g} is lost", low, np.inf)
    if np.isfinite(low) and np.isfinite(high):
        yield _fixed(f"both bounds, {low:g} and {high:g}, are lost", *_NONE)
    source = node.inputs[0]
    entering = np.zeros(0) if source is None else context.value(source)
    entering = entering[np.isfinite(entering)]
    if entering.size == 0:
        return
    least, largest = float(entering.min()), float(entering.max())
    if least < high:
        yield Variant(
            words=f"the lower bound is {{parameter}} and not {low:g}",
            rewrite=lambda model, node, bound: _clipped(model, node, bound, high),
            span=(least, min(high, largest)),
            neutral=low if np.isfinite(low) else None,
        )
    if largest > low:
        yield Variant(
            words=f"the upper bound is {{parameter}} and not {high:g}",
            rewrite=lambda model, node, bound: _clipped(model, node, low, bound),
            span=(max(low, least), largest),
            neutral=high if np.isfinite(high) else None,
        )


HYPOTHESIS = Hypothesis(
    name="clip_bound", title="Clip bound lost or wrong", family="semantic", applies=_applies, variants=_variants
)
