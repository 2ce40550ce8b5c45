"""Which tensors must be scaled by which power of two, so that one tensor is and the outputs stay as they were.

In: a graph, and the exponents of some values to begin with. Out: the exponent of every value that has to be scaled, and of
every constant and attribute that takes up the difference; None where a node, an input or an output of the model
forbids it.

How: an exponent given to a value goes into the equations of the nodes around it. A constant factor of a product (a weight)
takes up the difference, which ends the segment there; where the scaled weight would leave the format's range it stays
as it is, and the next value is scaled in its place. Where a product of two computed values must be scaled, either of
them may be: both ways are tried, for the first few such choices. At the end every equation is looked at again, so that
the order in which they were solved cannot matter to whether the answer is right.

What scaling a tensor by a power of two does to the other tensors of a node.

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

import numpy as np

from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import CONTRACTIONS, STANDARD, of_kind, with_trait
from parityscope.repairs._editing import array_of, scalar_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format

_Slot = tuple[str, int | str]  # ("in", position), ("out", position) or ("attr", name)
_Equation = dict[_Slot, Fraction]
# y(a x) = a y(x) for a power of two a, in the first input; further inputs are indices, shapes or slopes.
_FIRST = frozenset(one.name for one in STANDARD.values() if one.scales_with == (0,))
# The positions of inputs that share the output's exponent; None: all of them.
_TIED = {one.name: one.scales_with for one in STANDARD.values() if one.scales_with not in {(), (0,)}}
# Constants there are added or compared to others: that they become small beside them loses nothing.
_ADDITIVE = frozenset({*_TIED, "Clip"})
_PRODUCTS = CONTRACTIONS | {"Mul"}
# Squares and cubes are products; roots of the form Pow are rounded by the power function, in the last place at most.
_EXPONENTS = frozenset({1.0, 2.0, 3.0, 0.5, -0.5})
_COMPARE = of_kind("comparison")
_BLIND = with_trait("ignores scale")
_WHITEN = with_trait("whitens")
HEADROOM = 4.0  # two bits above the largest magnitude that was seen, for samples that were not: chosen
_CHOICES = 4  # chosen: sixteen attempts at most, each as fast as looking at the segment once
Place = tuple[int, str, "int | str"]  # id of a node, and a slot of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentScaling:
    """Exponents of computed values, and of constants and attributes where a node reads them."""

    values: Mapping[ir.Value, int]
    constants: Mapping[tuple[ir.Node, _Slot], int]


@dataclass(slots=True, kw_only=True)
class _ScalingWork:
    graph: ir.Graph
    exponents: dict[ir.Value, Fraction]
    frozen: set[Place]
    choices: int  # bit i: which way the i-th choice goes
    chosen: int = 0
    waiting: list[ir.Node] = field(default_factory=list)
    open: list[tuple[ir.Node, _Equation]] = field(default_factory=list)  # more than one value is free


def solve_scaling(graph: ir.Graph, begin: Mapping[ir.Value, int], number_format: Format) -> ExponentScaling | None:
    """The scaling that `begin` asks for, or None; `number_format` bounds what a scaled constant may become."""
    for choices in range(2**_CHOICES):
        found, made = _solve_with_choices(graph, begin, number_format, choices)
        if found is not None:
            return found
        if choices + 1 >= 2**made:  # every way of the choices that there were has been tried
            return None
    return None


def _solve_with_choices(
    graph: ir.Graph, begin: Mapping[ir.Value, int], number_format: Format, choices: int
) -> tuple[ExponentScaling | None, int]:
    """The scaling that these choices lead to, and how many choices there were."""
    frozen: set[Place] = set()
    while True:
        work = _ScalingWork(graph=graph, exponents={}, frozen=frozen, choices=choices)
        if not all(
            _assign_exponent(work, value, Fraction(exponent)) for value, exponent in begin.items()
        ) or not _spread_exponents(work):
            return None, work.chosen
        constants = _scaled_constants(work)
        if constants is None:
            return None, work.chosen
        misfits = {
            (id(node), *slot)
            for (node, slot), exponent in constants.items()
            if slot[0] == "in" and not _fits_format(node, slot, exponent, number_format)
        }
        if not misfits:
            values = {value: int(exponent) for value, exponent in work.exponents.items() if exponent}
            return ExponentScaling(values=values, constants=constants), work.chosen
        if misfits <= frozen:
            return None, work.chosen
        frozen |= misfits


def scale_exactly(array: np.ndarray, exponent: int) -> np.ndarray | None:
    """The array times 2^exponent, in its own dtype and shape; None where that is not exact."""
    wide = array.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(wide, exponent).astype(array.dtype)
        exact = np.array_equal(np.ldexp(result.astype(np.float64), -exponent), wide, equal_nan=True)
    return result if exact else None


def _assign_exponent(work: _ScalingWork, value: ir.Value, exponent: Fraction) -> bool:
    known = work.exponents.get(value)
    if known is not None:
        return known == exponent
    if exponent.denominator != 1:
        return False
    if exponent and (value.is_graph_output() or (value.producer() is None and array_of(value) is None)):
        return False
    work.exponents[value] = exponent
    producer = value.producer()
    users = [node for node, _ in value.uses()]
    for node in users if producer is None else [producer, *users]:
        if exponent and node.graph is not work.graph:  # the body of an If or a Loop reads it
            return False
        work.waiting.append(node)
    return True


def _spread_exponents(work: _ScalingWork) -> bool:
    while work.waiting or work.open:
        if not work.waiting:
            # Nothing follows any more by itself: one choice is made, and what follows from it comes first again.
            node, equation = work.open.pop(0)
            if not _solve_one(work, node, equation, choose=True):
                return False
            continue
        node = work.waiting.pop(0)
        for equation in _equations_of(node):
            if not _solve_one(work, node, equation, choose=False):
                return False
    return True


def _solve_one(work: _ScalingWork, node: ir.Node, equation: _Equation, *, choose: bool) -> bool:
    if any(_is_flexible(work, node, slot) for slot in equation):
        return True
    terms = _unknown_terms(node, equation)
    rest = sum((terms[value] * work.exponents[value] for value in terms if value in work.exponents), Fraction(0))
    free = [value for value in terms if value not in work.exponents and terms[value]]
    if not free:
        return rest == 0
    if len(free) > 1 and not choose:
        work.open.append((node, equation))
        return True
    if rest == 0:
        return True
    # The output carries the scale on; going back, one of the inputs, those first that can be scaled at all.
    chosen = next((value for value in free if value.producer() is node), None)
    if chosen is None:
        ordered = sorted(free, key=_is_rigid)
        turned = len(ordered) > 1 and work.choices >> work.chosen & 1
        work.chosen += len(ordered) > 1
        chosen = ordered[1 if turned else 0]
    return _assign_exponent(work, chosen, -rest / terms[chosen])


def _unknown_terms(node: ir.Node, equation: _Equation) -> dict[ir.Value, Fraction]:
    terms: dict[ir.Value, Fraction] = {}
    for slot, coefficient in equation.items():
        value = _shared_value(node, slot)
        if value is not None:
            terms[value] = terms.get(value, Fraction(0)) + coefficient
    return terms


def _shared_value(node: ir.Node, slot: _Slot) -> ir.Value | None:
    """The value in a slot whose exponent is shared with other nodes; None for constants, attributes and what is absent."""
    kind, position = slot
    if kind == "attr" or not isinstance(position, int):
        return None
    held = node.inputs if kind == "in" else node.outputs
    value = held[position] if position < len(held) else None
    return None if value is None or (kind == "in" and array_of(value) is not None) else value


def _is_flexible(work: _ScalingWork, node: ir.Node, slot: _Slot) -> bool:
    kind, position = slot
    if (id(node), *slot) in work.frozen:
        return False
    if kind == "attr":
        return True
    if kind == "out" or not isinstance(position, int) or position >= len(node.inputs):
        return False
    array = array_of(node.inputs[position])
    return array is not None and array.dtype.kind in "fV"


def _is_rigid(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is None or all(len(equation) == 1 for equation in _equations_of(producer))


def _scaled_constants(work: _ScalingWork) -> dict[tuple[ir.Node, _Slot], int] | None:
    found: dict[tuple[ir.Node, _Slot], int] = {}
    around: dict[ir.Node, None] = {}
    for value, exponent in work.exponents.items():
        producer = value.producer()
        if exponent:
            around.update(dict.fromkeys([node for node, _ in value.uses()] + ([producer] if producer else [])))
    for node in around:
        for equation in _equations_of(node):
            terms = _unknown_terms(node, equation)
            rest = sum((terms[value] * work.exponents.get(value, Fraction(0)) for value in terms), Fraction(0))
            if not rest:
                continue
            slot = next((slot for slot in equation if _is_flexible(work, node, slot)), None)
            if slot is None:
                return None
            exponent = -rest / equation[slot]
            if exponent.denominator != 1:
                return None
            found[node, slot] = int(exponent)
    return found


def _fits_format(node: ir.Node, slot: _Slot, exponent: int, number_format: Format) -> bool:
    """Whether the scaled constant keeps what it says in the format.

    The largest weight stays a normal number, so that what the others lose is at most a unit roundoff of it (half of the
    smallest subnormal is 2^-precision times the smallest normal number). What is added may become small, not zero.
    """
    array = array_of(node.inputs[int(slot[1])])
    result = None if array is None else scale_exactly(array, exponent)
    if array is None or result is None:
        return False
    before, after = (_largest_magnitude(each) for each in (array, result))
    if after > number_format.largest and (exponent > 0 or before <= number_format.largest):
        return False
    if after > number_format.largest or before == 0 or exponent >= 0:
        return True
    additive = node.op_type in _ADDITIVE or slot[1] == 2
    # Half of the smallest number is a tie, and rounds to the even neighbour: zero.
    if additive:
        return after > number_format.smallest_subnormal / 2 or before <= number_format.smallest_subnormal / 2
    return after >= min(number_format.smallest_normal, before)


def _largest_magnitude(array: np.ndarray) -> float:
    values = np.abs(array.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0.0))


def _equations_of(node: ir.Node) -> list[_Equation]:
    """The equations of one node; those of what it has no equation for say that nothing may be scaled."""
    found = None if node.domain not in {"", "ai.onnx"} else _known_equations(node)
    if found is None:
        slots: list[_Slot] = [("in", index) for index in range(len(node.inputs))]
        slots += [("out", index) for index in range(len(node.outputs))]
        return [{slot: Fraction(1)} for slot in slots]
    return found


def _known_equations(node: ir.Node) -> list[_Equation] | None:
    op, outs = node.op_type, range(len(node.outputs))
    if op in _FIRST:
        return [_same_exponent(("in", 0), ("out", index)) for index in outs if op != "TopK" or index == 0]
    if op in _TIED:
        positions = _TIED[op] or range(len(node.inputs))
        return [_same_exponent(("in", index), ("out", 0)) for index in positions if index < len(node.inputs)]
    if op == "Clip":
        slots: list[_Slot] = [("in", index) for index in range(len(node.inputs))]
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


def _product_equations(node: ir.Node) -> list[_Equation] | None:
    if node.op_type == "Div":
        return [_sum_of_exponents((("in", 0), 1), (("in", 1), -1), (("out", 0), -1))]
    if node.op_type not in _PRODUCTS:
        return None
    product = [_sum_of_exponents((("in", 0), 1), (("in", 1), 1), (("out", 0), -1))]
    return [*product, _same_exponent(("in", 2), ("out", 0))] if len(node.inputs) > 2 else product


def _power_equations(node: ir.Node) -> list[_Equation] | None:
    power = {"Sqrt": Fraction(1, 2), "Reciprocal": Fraction(-1), "ReduceSumSquare": Fraction(2)}.get(node.op_type)
    if node.op_type == "Pow":
        exponent = scalar_of(node.inputs[1])
        power = None if exponent not in _EXPONENTS else Fraction(exponent)
    return None if power is None else [{("in", 0): power, ("out", 0): Fraction(-1)}]


def _normalization_equations(node: ir.Node) -> list[_Equation] | None:
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


def _same_exponent(one: _Slot, other: _Slot) -> _Equation:
    return {one: Fraction(1), other: Fraction(-1)}


def _sum_of_exponents(*terms: tuple[_Slot, int]) -> _Equation:
    return {slot: Fraction(coefficient) for slot, coefficient in terms}


def _attribute_slots(node: ir.Node, *names: str) -> list[_Slot]:
    return [("attr", name) for name in names if name in node.attributes]


def _between_floats(node: ir.Node) -> bool:
    kinds = [None if value is None else value.dtype for value in (node.inputs[0], node.outputs[0])]
    return all(kind is not None and kind.is_floating_point() for kind in kinds)
