"""Take the logarithm of a square plus an epsilon without squaring: log(x^2 + e) = 2 log sqrt(x^2 + e).

What it changes: Log(Add(Mul(x, x), e)) becomes 2 Log(m sqrt(1 + r^2)) with m = max(|x|, sqrt(e)) and r = min(|x|,
sqrt(e)) / m, which is what a careful hypotenuse does. Others who read the square or the sum keep them.

Why it repairs: in FP16 what is below 2^-25 becomes zero, so that an epsilon of 1e-10 guards nothing and the logarithm
of silence is minus infinity. Its root, 1e-5, is a number in FP16, and so is everything else in the new form.

Where it is not possible: the epsilon's root itself is smaller than 16 steps of the format (9.5e-7 in FP16), and would be
rounded by more than 3 %, or by that much more of what the logarithm of silence is. Under a plain sum, not of a square,
nothing is known about the root.

Risk: none to the function; FP32 rounding differs in the last places.

Cost: seven element-wise nodes more, which engines fuse.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site): the square, the sum or the logarithm; "format" (default f16).

Sources: Blue, "A portable Fortran program to find the Euclidean norm of a vector", ACM TOMS 1978; Moler, Morrison,
"Replacing square roots by Pythagorean sums", IBM J. Res. Dev. 27, 1983 (overflow and underflow of sqrt(x^2 + y^2)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import add_constant
from parityscope.light_dataclasses import dataclass
from parityscope.repairs import Repair
from parityscope.repairs._editing import insert_before, nodes_of, remove_unread, replace_value, scalar_of
from parityscope.repairs._patterns import producer_of, squared_by

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding

_STEPS = 16  # chosen: a root of so many steps of the format is rounded by 1/32 of itself at most


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logarithm:
    """log(source^2 + epsilon): its three nodes, first to last."""

    source: ir.Value
    epsilon: float
    square: ir.Node
    total: ir.Node
    last: ir.Node


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    wanted = nodes_of(model, finding)
    number_format = format_named(str(finding.details.get("format", "f16")))
    notes = []
    for node in list(model.graph) if wanted else []:
        found = _find_logarithm(node)
        if found is None or not any(each in (found.square, found.total, found.last) for each in wanted):
            continue
        if _is_epsilon_lost(found.epsilon, number_format):
            _rewrite_logarithm(model, found)
            name = found.source.name
            notes.append(f"log({name}^2 + {found.epsilon:.3g}) is taken as 2 log of the root, without squaring")
    return "; ".join(notes) or None


def _is_epsilon_lost(epsilon: float, number_format: Format) -> bool:
    """Whether the epsilon is no normal number of the format although its root is one well enough."""
    return (
        0 < epsilon < number_format.smallest_normal and math.sqrt(epsilon) >= _STEPS * number_format.smallest_subnormal
    )


def _find_logarithm(node: ir.Node) -> _Logarithm | None:
    if node.op_type != "Log" or node.domain:
        return None
    total = producer_of(node.inputs[0], "Add")
    if total is None:
        return None
    for position in (0, 1):
        epsilon = scalar_of(total.inputs[1 - position])
        square = producer_of(total.inputs[position], "Mul", "Pow")
        source = squared_by(square)
        if epsilon is not None and square is not None and source is not None:
            return _Logarithm(source=source, epsilon=epsilon, square=square, total=total, last=node)
    return None


def _rewrite_logarithm(model: ir.Model, found: _Logarithm) -> None:
    source, last = found.source, found.last
    name = str(last.outputs[0].name)

    def made(operator: str, what: str, *inputs: ir.Value) -> ir.Value:
        return insert_before(last, operator, inputs, f"{name}::{what}", like=source)

    root, one, two = _make_constants(model, source, name)(math.sqrt(found.epsilon), 1.0, 2.0)
    size = made("Abs", "size", source)
    larger = made("Max", "larger", size, root)
    ratio = made("Div", "ratio", made("Min", "smaller", size, root), larger)
    more = made("Sqrt", "more", made("Add", "one_more", made("Mul", "ratio2", ratio, ratio), one))
    half = made("Log", "half", made("Mul", "norm", larger, more))
    replace_value(last.outputs[0], made("Mul", "whole", half, two))
    remove_unread(model, [last])


def _make_constants(model: ir.Model, like: ir.Value, name: str) -> Callable[..., list[ir.Value]]:
    kind = np.dtype(np.float32) if like.dtype is None else like.dtype.numpy()

    def made(*numbers: float) -> list[ir.Value]:
        return [add_constant(model.graph, np.array(number, kind), f"{name}::{number:.3g}") for number in numbers]

    return made


REPAIR = Repair(
    name="log_of_norm",
    title="Take the logarithm of a square plus an epsilon without squaring",
    risk="none to the function; FP32 rounding differs in the last places",
    cost="seven element-wise nodes, which engines fuse",
    apply=_apply_repair,
)
