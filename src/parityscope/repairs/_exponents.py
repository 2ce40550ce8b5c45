"""Which tensors must be scaled by which power of two, so that one tensor is and the outputs stay as they were.

In: a graph, and the exponents of some values to begin with. Out: the exponent of every value that has to be scaled, and of
every constant and attribute that takes up the difference; None where a node, an input or an output of the model
forbids it.

How: an exponent given to a value goes into the equations of the nodes around it. A constant factor of a product (a weight)
takes up the difference, which ends the segment there; where the scaled weight would leave the format's range it stays
as it is, and the next value is scaled in its place. Where a product of two computed values must be scaled, either of
them may be: both ways are tried, for the first few such choices. At the end every equation is looked at again, so that
the order in which they were solved cannot matter to whether the answer is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs._editing import array_of
from parityscope.repairs._homogeneity import ADDITIVE, equations_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.repairs._homogeneity import Equation, Slot

__all__ = ["HEADROOM", "ExponentScaling", "scale_exactly", "solve_scaling"]

HEADROOM = 4.0  # two bits above the largest magnitude that was seen, for samples that were not: chosen
_CHOICES = 4  # chosen: sixteen attempts at most, each as fast as looking at the segment once

Place = tuple[int, str, "int | str"]  # id of a node, and a slot of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentScaling:
    """Exponents of computed values, and of constants and attributes where a node reads them."""

    values: Mapping[ir.Value, int]
    constants: Mapping[tuple[ir.Node, Slot], int]


@dataclass(slots=True, kw_only=True)
class _ScalingWork:
    graph: ir.Graph
    exponents: dict[ir.Value, Fraction]
    frozen: set[Place]
    choices: int  # bit i: which way the i-th choice goes
    chosen: int = 0
    waiting: list[ir.Node] = field(default_factory=list)
    open: list[tuple[ir.Node, Equation]] = field(default_factory=list)  # more than one value is free


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
        for equation in equations_of(node):
            if not _solve_one(work, node, equation, choose=False):
                return False
    return True


def _solve_one(work: _ScalingWork, node: ir.Node, equation: Equation, *, choose: bool) -> bool:
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


def _unknown_terms(node: ir.Node, equation: Equation) -> dict[ir.Value, Fraction]:
    terms: dict[ir.Value, Fraction] = {}
    for slot, coefficient in equation.items():
        value = _shared_value(node, slot)
        if value is not None:
            terms[value] = terms.get(value, Fraction(0)) + coefficient
    return terms


def _shared_value(node: ir.Node, slot: Slot) -> ir.Value | None:
    """The value in a slot whose exponent is shared with other nodes; None for constants, attributes and what is absent."""
    kind, position = slot
    if kind == "attr" or not isinstance(position, int):
        return None
    held = node.inputs if kind == "in" else node.outputs
    value = held[position] if position < len(held) else None
    return None if value is None or (kind == "in" and array_of(value) is not None) else value


def _is_flexible(work: _ScalingWork, node: ir.Node, slot: Slot) -> bool:
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
    return producer is None or all(len(equation) == 1 for equation in equations_of(producer))


def _scaled_constants(work: _ScalingWork) -> dict[tuple[ir.Node, Slot], int] | None:
    found: dict[tuple[ir.Node, Slot], int] = {}
    around: dict[ir.Node, None] = {}
    for value, exponent in work.exponents.items():
        producer = value.producer()
        if exponent:
            around.update(dict.fromkeys([node for node, _ in value.uses()] + ([producer] if producer else [])))
    for node in around:
        for equation in equations_of(node):
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


def _fits_format(node: ir.Node, slot: Slot, exponent: int, number_format: Format) -> bool:
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
    additive = node.op_type in ADDITIVE or slot[1] == 2
    # Half of the smallest number is a tie, and rounds to the even neighbour: zero.
    if additive:
        return after > number_format.smallest_subnormal / 2 or before <= number_format.smallest_subnormal / 2
    return after >= min(number_format.smallest_normal, before)


def _largest_magnitude(array: np.ndarray) -> float:
    values = np.abs(array.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0.0))
