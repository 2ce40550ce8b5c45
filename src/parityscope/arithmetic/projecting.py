"""What rounding each node alone does to the outputs, to first order, for all nodes at once.

One graph of a forward pass, the rounded twin of every node, and a few backward passes from random projections of the
outputs.

With d_i what node i gives rounded less what it gives, both computed from exact inputs, and u a vector of outputs,
<u, J_i d_i> = <adjoint of node i's outputs for the seed u, d_i>: one backward pass gives it for every i. If the elements
of u are independent, of mean 0 and variance 1, its square is on average |J_i d_i|², what an evaluation with only node i
low would measure; the mean of k projections is off by a factor of about 1 ± sqrt(2 / k) (the estimator is that of
M. F. Hutchinson, A stochastic estimator of the trace of the influence matrix, Commun. Statist. Simula. 18, 1989).

It is first order: it knows nothing of what overflows on the way, of quantization that follows, of ties that break.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._branches import Builder
from parityscope.arithmetic.adjoints import Tape, backward
from parityscope.arithmetic.element_types import is_float32
from parityscope.arithmetic.switchable import arranged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.arithmetic._switching import Gated, Switching
    from parityscope.arithmetic.float8 import Scalings

_NO_PRODUCTS: Mapping[str, Scalings] = MappingProxyType({})

__all__ = ["PROJECTED", "SEEDS", "Projecting", "probing", "projecting"]

SEEDS = "parityscope::seed::"
PROJECTED = "parityscope::projected"
SHAPE_SUFFIX = "::dimensions"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projecting:
    """A graph with an input `SEEDS` + name (float32, (passes, dimensions of the output)) for each float output.

    Its output `PROJECTED` (float32, (passes * nodes,), pass by pass) holds <adjoint, d_i> for the nodes called `nodes`;
    `idle` are the nodes that reach no float output. Of all others an operator without a rule stands in the way.
    """

    model: ir.Model
    nodes: tuple[str, ...]
    idle: tuple[str, ...]
    seeds: tuple[str, ...]
    passes: int


def probing(model: ir.Model, precision: str, products: Mapping[str, Scalings] = _NO_PRODUCTS) -> ir.Model:
    """The same copy of `model` as `projecting` takes, giving the dimensions of each of its float tensors instead."""
    copy = arranged(model, precision, keeps_nan=False, products=products).work.model
    found = [value for node in list(copy.graph) for value in node.outputs if _has_dimensions(value)]
    copy.graph.outputs.clear()
    for value in found:
        node = ir.Node("", "Shape", [value], num_outputs=1)
        node.outputs[0].name = f"{value.name}{SHAPE_SUFFIX}"
        node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        copy.graph.append(node)
        copy.graph.outputs.append(node.outputs[0])
    return copy


def projecting(
    model: ir.Model,
    precision: str,
    shapes: Mapping[str, Sequence[int]],
    passes: int,
    products: Mapping[str, Scalings] = _NO_PRODUCTS,
) -> Projecting:
    """The graph for samples whose tensors have the dimensions `shapes`; `products` as for `switchable`.

    Raises:
        ParityError: the format cannot be simulated, or the opset cannot be converted up.
    """
    held = arranged(model, precision, keeps_nan=False, products=products)
    graph, names = held.work.model.graph, held.work.names
    nodes = list(graph)
    # An output without elements has no error.
    outputs = [value for value in graph.outputs if is_float32(value) and 0 not in shapes.get(str(value.name), (0,))]
    tape = Tape(model=held.work.model, names=names, shapes=shapes)
    seeds = {value: _seeds(graph, tape, value, passes) for value in outputs}
    decisions = _deciding(held.switching)
    builder = Builder(plan=held.plan, settled=held.settled, work=held.work, flags=())
    twins = {
        name: {
            exact: tape.sub(low, exact)
            for exact, low in builder.beside(gated, scaled=scaled).items()
            if is_float32(exact)
        }
        for name, (gated, scaled) in decisions.items()
    }
    known: list[str] = []
    idle: list[str] = []
    columns: list[ir.Value] = []
    for number in range(passes):
        found = backward(tape, nodes, {value: parts[number] for value, parts in seeds.items()})
        for name, twin in twins.items():
            if any(value in found.unknown for value in twin) or not twin:
                continue
            reached = [(change, found.adjoints[exact]) for exact, change in twin.items() if exact in found.adjoints]
            if number == 0:
                (known if reached else idle).append(name)
            if reached:
                columns.append(_product(tape, reached))
    made = tape.op("Concat", *columns, attributes=[ir.AttrInt64("axis", 0)]) if columns else tape.const(np.zeros(0))
    result = tape.op("Identity", made)
    result.name = PROJECTED
    graph.extend(tape.nodes)
    graph.outputs.clear()
    graph.outputs.append(result)
    return Projecting(
        model=held.work.model,
        nodes=tuple(known),
        idle=tuple(idle),
        seeds=tuple(str(value.name) for value in outputs),
        passes=passes,
    )


def _seeds(graph: ir.Graph, tape: Tape, value: ir.Value, passes: int) -> list[ir.Value]:
    """The adjoints of an output, one a pass, from an input that holds them all."""
    shape = tape.shape(value)
    given = ir.Value(
        name=f"{SEEDS}{value.name}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([passes, *shape])
    )
    graph.inputs.append(given)
    return [
        tape.op("Gather", given, tape.const(np.array(number)), attributes=[ir.AttrInt64("axis", 0)])
        for number in range(passes)
    ]


def _deciding(switching: Switching) -> dict[str, tuple[Gated, bool]]:
    """Each deciding node's rounded form by its name, and whether that is its operands in FP8.

    Nodes that only follow have none of their own.
    """
    deciding = {(one.tensor, number): one.name for number, one in enumerate(switching.decisions)}
    found: dict[str, tuple[Gated, bool]] = {}
    for gated in switching.gated:
        tensor = str(gated.node.outputs[0].name)
        for gate in {gated.low, gated.eighth} - {None}:
            members = switching.gates[gate] if gate is not None else ()
            name = deciding.get((tensor, members[0])) if len(members) == 1 else None
            if name is not None:
                found[name] = gated, bool(gated.scaled) and gated.eighth in {gate, None}
    return found


def _product(tape: Tape, pairs: Sequence[tuple[ir.Value, ir.Value]]) -> ir.Value:
    """The sum of <change, adjoint> over all outputs of a node, as one element."""
    whole = [ir.AttrInt64("keepdims", 0)]
    parts = [tape.op("ReduceSum", tape.mul(change, adjoint), attributes=whole) for change, adjoint in pairs]
    total = parts[0]
    for part in parts[1:]:
        total = tape.add(total, part)
    return tape.reshape(total, [1])


def _has_dimensions(value: ir.Value) -> bool:
    return bool(value.name) and isinstance(value.type, ir.TensorType)
