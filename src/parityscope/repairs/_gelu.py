"""GELU that exporters take apart, found from its last product backwards.

Exact: x / 2 * (1 + erf(x / sqrt 2)). Approximate: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
The factors may be multiplied in any order and either way round.

Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016; Gelu in the ONNX operator specification.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.standard import GELU_CUBIC
from parityscope.case.graph import input_at
from parityscope.repairs._editing import scalar_of
from parityscope.repairs._patterns import both_operand_orders, producer_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_gelu"]

_CLOSE = 1e-4  # relative; exporters write the constants with four digits or more
_TANH_SCALE = math.sqrt(2.0 / math.pi)


def find_gelu(last: ir.Node) -> tuple[ir.Value, str, tuple[ir.Node, ...]] | None:
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
