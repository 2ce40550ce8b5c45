"""Another GELU: the tanh approximation for the exact one, the exact one for the approximation, or x sigmoid(1.702 x).

Asked of the operator Gelu, and of the Erf or Tanh in the middle of a GELU that is spelt out. With u = x / sqrt(2) the
exact form holds erf(u), the approximation tanh(v) with v = sqrt(2/pi) (x + 0.044715 x^3), the quick form 2 sigmoid(1.702 x) - 1.
Going from v back to x solves the cubic by one real root, x = 2 sqrt(1/(3a)) sinh(asinh(1.5 w sqrt(3a)) / 3), w = v / sqrt(2/pi).

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import text
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import constant, insert, put, substitute
from parityscope.arithmetic.standard import GELU_CUBIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_OUTER = float(np.sqrt(2.0 / np.pi))
_QUICK = 1.702


def _applies(node: ir.Node, graph: ir.Graph) -> bool:
    return node.op_type in {"Gelu", "Erf"} or (
        node.op_type == "Tanh" and any(each.op_type in {"Pow", "Mul"} for each in graph)
    )


def _scaled(model: ir.Model, node: ir.Node, value: ir.Value, factor: float, op_type: str = "Mul") -> ir.Value:
    number = constant(model, np.array(factor, np.float32), f"{node.outputs[0].name}::number")
    return insert(node, op_type, [value, number])


def _inner(model: ir.Model, node: ir.Node, x: ir.Value) -> ir.Value:
    """sqrt(2/pi) (x + 0.044715 x^3)."""
    cube = insert(node, "Mul", [insert(node, "Mul", [x, x]), x])
    return _scaled(model, node, insert(node, "Add", [x, _scaled(model, node, cube, GELU_CUBIC)]), _OUTER)


def _quick(model: ir.Model, node: ir.Node, x: ir.Value) -> ir.Value:
    gate = insert(node, "Sigmoid", [_scaled(model, node, x, _QUICK)])
    return _scaled(model, node, _scaled(model, node, gate, 2.0), -1.0, "Add")


def _argument(model: ir.Model, node: ir.Node) -> ir.Value | None:
    """x, from the argument of Erf or Tanh."""
    source = node.inputs[0]
    if source is None:
        return None
    if node.op_type == "Erf":
        return _scaled(model, node, source, float(np.sqrt(2.0)))
    root = float(np.sqrt(3.0 * GELU_CUBIC))
    angle = insert(node, "Asinh", [_scaled(model, node, source, 1.5 * root / _OUTER)])
    third = _scaled(model, node, angle, 1.0 / 3.0)
    return _scaled(model, node, insert(node, "Sinh", [third]), 2.0 / root)


def _other(model: ir.Model, node: ir.Node, _: float) -> None:
    x = _argument(model, node)
    if x is None:
        return
    if node.op_type == "Erf":
        substitute(model, node, insert(node, "Tanh", [_inner(model, node, x)]))
    else:
        substitute(model, node, insert(node, "Erf", [_scaled(model, node, x, float(np.sqrt(0.5)))]))


def _to_quick(model: ir.Model, node: ir.Node, _: float) -> None:
    if node.op_type == "Gelu":
        gate = insert(node, "Sigmoid", [_scaled(model, node, _first(node), _QUICK)])
        substitute(model, node, insert(node, "Mul", [_first(node), gate]))
        return
    x = _argument(model, node)
    if x is not None:
        substitute(model, node, _quick(model, node, x))


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    if value is None:
        raise ValueError(f"{node.op_type} reads nothing")
    return value


def _flip(_: ir.Model, node: ir.Node, __: float) -> None:
    put(node, "approximate", "none" if text(node, "approximate", "none") == "tanh" else "tanh")


def _variants(node: ir.Node, _context: Context) -> Iterator[Variant]:
    exact = node.op_type == "Erf" or (node.op_type == "Gelu" and text(node, "approximate", "none") == "none")
    words = "GELU by the tanh approximation" if exact else "the exact GELU in place of its tanh approximation"
    yield Variant(words=words, rewrite=_flip if node.op_type == "Gelu" else _other)
    yield Variant(words="GELU by x sigmoid(1.702 x)", rewrite=_to_quick)


HYPOTHESIS = Hypothesis(
    name="gelu_form", title="Another form of GELU", family="semantic", applies=_applies, variants=_variants
)
