"""Reverse mode for ONNX graphs, in ONNX: from the adjoints of outputs to those of everything that they depend on.

In: a model whose values' shapes are known on a sample, and one adjoint for each of its float outputs. Out: nodes, to be
put behind the model's own, that compute <adjoint of v> = the gradient of <seed, output> with respect to v for every
float32 value v. An adjoint is the sum over a value's readers of what their rules give back (A. Griewank and A. Walther,
Evaluating Derivatives, 2nd edition, SIAM 2008, section 3.2).

Rules by operator stand in `activations`, `pointwise`, `products`, `reductions`, `normalizations`, `moving` and
`windows`: each is a function (tape, node, adjoints of its outputs) -> adjoints of its inputs, by position. Where an
operator has no rule, or jumps (Round, ArgMax, a comparison), or holds bodies, the adjoint of all that it depends on is
unknown, and so called; nothing is taken for zero that is not. Shape arithmetic has no derivative and asks for none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import bodies, constant_tensor
from parityscope.arithmetic.adjoints._tape import Tape, Unknown
from parityscope.arithmetic.element_types import is_float32
from parityscope.arithmetic.standard import SHAPE_READERS
from parityscope.case.graph import dependencies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Adjoint", "Backward", "Tape", "backward", "rules"]

Adjoint = Callable[[Tape, ir.Node, list["ir.Value | None"]], dict[int, ir.Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """The adjoint of each value that has one, and the values whose adjoint is unknown; it is 0 for all others."""

    adjoints: Mapping[ir.Value, ir.Value]
    unknown: frozenset[ir.Value]


def rules() -> dict[str, Adjoint]:
    """The rule of each operator that has one."""
    from parityscope.arithmetic.adjoints import (
        activations,
        moving,
        normalizations,
        pointwise,
        products,
        reductions,
        windows,
    )

    found: dict[str, Adjoint] = {}
    for module in (activations, pointwise, products, reductions, normalizations, moving, windows):
        found |= module.RULES
    return found


def backward(tape: Tape, nodes: Sequence[ir.Node], seeds: Mapping[ir.Value, ir.Value]) -> Backward:
    """Writes the backward pass through `nodes` (in topological order) on the tape; `seeds` are adjoints of values."""
    known = rules()
    live = _live(nodes, seeds)
    parts: dict[ir.Value, list[ir.Value]] = {value: [seed] for value, seed in seeds.items()}
    adjoints: dict[ir.Value, ir.Value] = {}
    unknown: set[ir.Value] = set()
    for node in reversed(nodes):
        if node not in live:
            continue
        read = [value for value in dependencies(node) if constant_tensor(value) is None]
        if any(value in unknown for value in node.outputs):
            unknown.update(read)
            continue
        grads: list[ir.Value | None] = []
        for value in node.outputs:
            if value in parts and value not in adjoints:
                adjoints[value] = _summed(tape, parts[value])
            grads.append(adjoints.get(value))
        given = _given(known, tape, node, grads)
        unknown.update(value for value in read if not is_float32(value))
        for index, source in enumerate(node.inputs):
            if source is not None and index in given:
                parts.setdefault(source, []).append(given[index])
        answered = {node.inputs[index] for index in given}
        missing = [one for one in read if tape.wants(one) and one not in answered]
        if any(grad is not None for grad in grads) or node.op_type not in known:
            unknown.update(missing)
    return Backward(
        adjoints={value: one for value, one in adjoints.items() if value not in unknown}, unknown=frozenset(unknown)
    )


def _given(
    known: Mapping[str, Adjoint], tape: Tape, node: ir.Node, grads: list[ir.Value | None]
) -> dict[int, ir.Value]:
    """What the rule of a node gives back; nothing where there is none, or none that applies."""
    if node.op_type not in known or node.domain not in {"", "ai.onnx"} or bodies(node):
        return {}
    if all(grad is None for grad in grads):
        return {}
    written = len(tape.nodes)
    try:
        return known[node.op_type](tape, node, grads)
    except Unknown:
        del tape.nodes[written:]
        return {}


def _live(nodes: Sequence[ir.Node], seeds: Mapping[ir.Value, ir.Value]) -> set[ir.Node]:
    """The nodes that the seeded values depend on otherwise than through shapes."""
    reached = set(seeds)
    found = set()
    for node in reversed(nodes):
        if node.op_type not in SHAPE_READERS and any(value in reached for value in node.outputs):
            found.add(node)
            reached.update(dependencies(node))
    return found


def _summed(tape: Tape, parts: Sequence[ir.Value]) -> ir.Value:
    total = parts[0]
    for part in parts[1:]:
        total = tape.add(total, part)
    return total
