"""Divide before squaring; subtract the maximum before an exponential.

What it changes: in a normalization that was taken apart, x / sqrt(mean(x^2) + epsilon), the value is multiplied by 2^-k
first and epsilon by 4^-k; the scale cancels in the division. k is the least that brings the square into range. Where
nobody has measured how large the square becomes, or epsilon would vanish, x is divided by m = max(1, max |x|) along the
same axes instead, and epsilon by m twice. In a Softmax that was taken apart, exp(x) / sum(exp(x)), the maximum of x is
subtracted first.

Why it repairs: the square of an activation overflows FP16 from 256 on, its exponential from 11.09 on, although what is
computed with them is small.

Risk: none to the function in FP32: with a power of two it is the same bit for bit, else it differs in the last places.
With m, an epsilon that vanishes does no harm: where m is above 1 the mean of the scaled squares is at least 1 / n, and
where m is 1 epsilon stays as it was.

Cost: one or two multiplications; with a maximum, or in a Softmax, two or three more nodes and a reduction.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site): the square, its sum, the root, the exponential or the division;
"reaches" (the largest magnitude of the node's output) and "format" (default f16).

Sources: Blue, "A portable Fortran program to find the Euclidean norm of a vector", ACM TOMS 1978 (scaling before
squaring); Blanchard, Higham, Higham, "Accurately computing the log-sum-exp and softmax functions", 2021.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import add_constant
from parityscope.repairs import Repair
from parityscope.repairs._editing import insert_before, nodes_of
from parityscope.repairs._exponents import HEADROOM
from parityscope.repairs._patterns import chain_axes, find_quotient, find_softmax, insert_reduction

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding
    from parityscope.repairs._patterns import Quotient, Softmax


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    wanted = nodes_of(model, finding)
    notes = []
    for node in [node for node in model.graph if node.op_type in {"Div", "Mul"}] if wanted else []:
        found = find_quotient(node)
        if found is not None and any(each in found.nodes for each in wanted):
            notes.append(_rescale_quotient(model, found, finding))
        exponent = None if found is not None else find_softmax(node)
        if exponent is None or exponent.below is not None:
            continue
        if any(each in (exponent.exponential, exponent.total, node) for each in wanted):
            notes.append(_subtract_maximum(model, exponent))
    held = [note for note in notes if note]
    return "; ".join(held) or None


def _rescale_quotient(model: ir.Model, found: Quotient, finding: Finding) -> str | None:
    number_format = format_named(str(finding.details.get("format", "f16")))
    reached = float(finding.details.get("reaches", math.inf))
    if reached <= number_format.largest:
        return None
    exponent = _exponent_into_range(found, reached, number_format)
    if exponent is None:
        return _rescale_by_maximum(model, found)
    factor = add_constant(model.graph, _number_like(found.source, 2.0**exponent), f"{found.source.name}::factor")
    small = insert_before(found.square, "Mul", [found.source, factor], f"{found.source.name}::small", like=found.source)
    if found.guard is not None:
        epsilon = add_constant(
            model.graph, _number_like(found.source, found.epsilon * 4.0**exponent), f"{found.source.name}::epsilon"
        )
        _guard_with(found, epsilon)
    _read_scaled_value(found, small)
    return f"{found.source.name} is multiplied by 2^{exponent} before it is squared, and epsilon by 2^{2 * exponent}"


def _exponent_into_range(found: Quotient, reached: float, number_format: Format) -> int | None:
    """The exponent (negative) that brings squares and their sum into range; None where epsilon would vanish with it."""
    if not math.isfinite(reached):
        return None
    exponent = -math.ceil(math.log2(reached * HEADROOM / number_format.largest) / 2.0)
    # Half of the smallest number is a tie, and rounds to the even neighbour: zero.
    vanishes = found.epsilon * 4.0**exponent <= number_format.smallest_subnormal / 2
    return None if found.guard is not None and vanishes else exponent


def _rescale_by_maximum(model: ir.Model, found: Quotient) -> str | None:
    axes = chain_axes(found.reduce)
    if axes is None:
        return None
    name = str(found.source.name)
    size = insert_before(found.square, "Abs", [found.source], f"{name}::size", like=found.source)
    top = insert_reduction(model, found.square, "ReduceMax", size, axes, f"{name}::largest")
    one = add_constant(model.graph, _number_like(found.source, 1.0), f"{name}::one")
    most = insert_before(found.square, "Max", [top, one], f"{name}::most", like=found.source)
    small = insert_before(found.square, "Div", [found.source, most], f"{name}::small", like=found.source)
    if found.guard is not None:
        epsilon = add_constant(model.graph, _number_like(found.source, found.epsilon), f"{name}::epsilon")
        # Twice by m and not once by m^2, which would overflow where the square did.
        once = insert_before(found.square, "Div", [epsilon, most], f"{name}::epsilon_by_m", like=found.source)
        twice = insert_before(found.square, "Div", [once, most], f"{name}::epsilon_by_mm", like=found.source)
        _guard_with(found, twice)
    _read_scaled_value(found, small)
    return f"{name} is divided by its largest magnitude (at least 1) before it is squared, and epsilon by its square"


def _subtract_maximum(model: ir.Model, found: Softmax) -> str:
    name = str(found.source.name)
    axes = chain_axes(found.total) or ()
    top = insert_reduction(model, found.exponential, "ReduceMax", found.source, axes, f"{name}::largest")
    below = insert_before(found.exponential, "Sub", [found.source, top], f"{name}::below", like=found.source)
    found.exponential.replace_input_with(0, below)
    return f"the maximum of {name} is subtracted before {found.exponential.name or 'Exp'}"


def _guard_with(found: Quotient, epsilon: ir.Value) -> None:
    guard = found.guard
    if guard is None:
        return
    squared = found.reduce.outputs[0]
    guard.replace_input_with(1 if guard.inputs[0] is squared else 0, epsilon)


def _read_scaled_value(found: Quotient, small: ir.Value) -> None:
    """The square and the division read the scaled value; whoever else reads the value keeps it."""
    for node in (found.square, found.last):
        for position, value in enumerate(node.inputs):
            if value is found.source:
                node.replace_input_with(position, small)


def _number_like(value: ir.Value, number: float) -> np.ndarray:
    kind = value.dtype
    return np.array(number, np.float32 if kind is None else kind.numpy())


REPAIR = Repair(
    name="rescale",
    title="Divide before squaring, or subtract the maximum before an exponential",
    risk="none to the function; FP32 rounding differs in the last places where a maximum is used",
    cost="one or two multiplications, or a maximum, per normalization or Softmax",
    apply=_apply_repair,
)
