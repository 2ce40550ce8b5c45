"""Seconds that a step takes, estimated from its shapes: what a search may do is the same on a slow machine and on a quick one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.sites import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.evaluation.program import Program

    Shape = Sequence[int]

# Of one core of a server: a call of a session, one element read or given, and one multiplication with its addition.
# Measured on eight networks of 30 to 404 nodes that take 2 to 1,050 ms; from half to twice of what they take.
CALL_S, ELEMENT_S, PRODUCT_S = 1.2e-4, 1e-9, 6e-11


def count_work(op_type: str, read: Sequence[Shape], made: Sequence[Shape]) -> tuple[float, float]:
    """Elements read and given by a step, and its multiplications, from the shapes of its inputs and results."""
    elements = float(sum(math.prod(shape) for shape in (*read, *made)))
    if op_type not in PRODUCTS or len(read) < 2 or not made:
        return elements, 0.0
    weights = max(math.prod(read[1]), 1)
    length = weights / max(1, read[1][0]) if "Conv" in op_type else max(tuple(read[0])[-1:] or (1,))
    return elements, float(math.prod(made[0])) * length


def estimate_seconds(program: Program, shapes: Mapping[str, Shape]) -> float:
    """Of all steps of a program, as far as shapes are known."""
    held = {**{name: array.shape for name, array in program.constants.items()}, **shapes}
    total = 0.0
    for step in program.steps:
        read, made = ([held[name] for name in names if name in held] for names in (step.reads, step.outputs))
        elements, products = count_work(step.op_type, read, made)
        total += CALL_S + ELEMENT_S * elements + PRODUCT_S * products
    return total
