"""What scaling a tensor by a power of two does to the other tensors of a node.

In: a node. Out: equations between the exponents of its slots. A slot is an input, an output or an attribute; when the
tensor in it is multiplied by 2^e, e is its exponent. The node computes the same function of the unscaled tensors if and
only if every equation `sum of coefficient * exponent = 0` holds. Operators that are not homogeneous (Sigmoid, Softmax)
demand that every slot keeps exponent 0.

Every equation holds bit for bit in binary floating point barring overflow and subnormals: a scaled sum, product,
maximum or square root rounds as the unscaled one does (a root written as Pow(x, 0.5) may differ in the last place, as
power functions round no better). A root asks for an even exponent.

Source: the definitions in the ONNX operator specification, one equation each.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from parityscope.operators import CONTRACTIONS, STANDARD, of_kind, with_trait
from parityscope.repairs._editing import scalar_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ADDITIVE", "Equation", "Slot", "equations_of"]

Slot = tuple[str, int | str]  # ("in", position), ("out", position) or ("attr", name)
Equation = dict[Slot, Fraction]

# y(a x) = a y(x) for a power of two a, in the first input; further inputs are indices, shapes or slopes.
_FIRST = frozenset(one.name for one in STANDARD.values() if one.scales_with == (0,))
# The positions of inputs that share the output's exponent; None: all of them.
_TIED = {one.name: one.scales_with for one in STANDARD.values() if one.scales_with not in {(), (0,)}}
# Constants there are added or compared to others: that they become small beside them loses nothing.
ADDITIVE = frozenset({*_TIED, "Clip"})
_PRODUCTS = CONTRACTIONS | {"Mul"}
# Squares and cubes are products; roots of the form Pow are rounded by the power function, in the last place at most.
_EXPONENTS = frozenset({1.0, 2.0, 3.0, 0.5, -0.5})
_COMPARE = of_kind("comparison")
_BLIND = with_trait("ignores scale")
_WHITEN = with_trait("whitens")


def equations_of(node: ir.Node) -> list[Equation]:
    """The equations of one node; those of what it has no equation for say that nothing may be scaled."""
    found = None if node.domain not in {"", "ai.onnx"} else _known_equations(node)
    if found is None:
        slots: list[Slot] = [("in", index) for index in range(len(node.inputs))]
        slots += [("out", index) for index in range(len(node.outputs))]
        return [{slot: Fraction(1)} for slot in slots]
    return found


def _known_equations(node: ir.Node) -> list[Equation] | None:
    op, outs = node.op_type, range(len(node.outputs))
    if op in _FIRST:
        return [_same_exponent(("in", 0), ("out", index)) for index in outs if op != "TopK" or index == 0]
    if op in _TIED:
        positions = _TIED[op] or range(len(node.inputs))
        return [_same_exponent(("in", index), ("out", 0)) for index in positions if index < len(node.inputs)]
    if op == "Clip":
        slots: list[Slot] = [("in", index) for index in range(len(node.inputs))]
        return [_same_exponent(slot, ("out", 0)) for slot in (*slots, *_attribute_slots(node, "min", "max"))]
    if op == "ThresholdedRelu":
        return [_same_exponent(("in", 0), ("out", 0)), _same_exponent(("attr", "alpha"), ("out", 0))]
    if op == "Resize":
        extrapolated = "extrapolation_value" in node.attributes
        return None if extrapolated else [_same_exponent(("in", 0), ("out", 0))]
    if op == "Cast":
        return [_same_exponent(("in", 0), ("out", 0))] if _between_floats(node) else None
    if op in _COMPARE:
        return [_same_exponent(("in", 0), ("in", 1))]
    if op in _BLIND:
        return []
    return _product_equations(node) or _power_equations(node) or _normalization_equations(node)


def _product_equations(node: ir.Node) -> list[Equation] | None:
    if node.op_type == "Div":
        return [_sum_of_exponents((("in", 0), 1), (("in", 1), -1), (("out", 0), -1))]
    if node.op_type not in _PRODUCTS:
        return None
    product = [_sum_of_exponents((("in", 0), 1), (("in", 1), 1), (("out", 0), -1))]
    return [*product, _same_exponent(("in", 2), ("out", 0))] if len(node.inputs) > 2 else product


def _power_equations(node: ir.Node) -> list[Equation] | None:
    power = {"Sqrt": Fraction(1, 2), "Reciprocal": Fraction(-1), "ReduceSumSquare": Fraction(2)}.get(node.op_type)
    if node.op_type == "Pow":
        exponent = scalar_of(node.inputs[1])
        power = None if exponent not in _EXPONENTS else Fraction(exponent)
    return None if power is None else [{("in", 0): power, ("out", 0): Fraction(-1)}]


def _normalization_equations(node: ir.Node) -> list[Equation] | None:
    parameters = [_same_exponent(("in", index), ("out", 0)) for index in (1, 2) if index < len(node.inputs)]
    if node.op_type in _WHITEN:
        # (a x - mean(a x)) / sqrt(var(a x) + a^2 epsilon): the scale cancels, and only the parameters set a new one.
        return (
            [_sum_of_exponents((("in", 0), 2), (("attr", "epsilon"), -1)), *parameters]
            if len(node.outputs) == 1
            else None
        )
    if (
        node.op_type == "BatchNormalization"
        and len(node.outputs) == 1
        and not node.attributes.get_int("training_mode", 0)
    ):
        gain = _sum_of_exponents((("in", 0), 1), (("in", 1), 1), (("out", 0), -1))
        return [
            gain,
            _same_exponent(("in", 2), ("out", 0)),
            _same_exponent(("in", 3), ("in", 0)),
            {("in", 4): Fraction(1)},
        ]
    return [{("out", 0): Fraction(1)}] if node.op_type == "LpNormalization" else None


def _same_exponent(one: Slot, other: Slot) -> Equation:
    return {one: Fraction(1), other: Fraction(-1)}


def _sum_of_exponents(*terms: tuple[Slot, int]) -> Equation:
    return {slot: Fraction(coefficient) for slot, coefficient in terms}


def _attribute_slots(node: ir.Node, *names: str) -> list[Slot]:
    return [("attr", name) for name in names if name in node.attributes]


def _between_floats(node: ir.Node) -> bool:
    kinds = [None if value is None else value.dtype for value in (node.inputs[0], node.outputs[0])]
    return all(kind is not None and kind.is_floating_point() for kind in kinds)
