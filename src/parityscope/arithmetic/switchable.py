"""One graph in which the rounding of every node can be switched on and off while it runs.

In: a model and a format. Out: a graph with one more input, a vector of booleans, by which any assignment of "low" and
"full precision" to its nodes is evaluated without building or loading anything again.

**What low means.** A node that is low reads its float inputs (weights too) rounded and stores its outputs rounded; a
node that is not reads what its producers stored. With every node low the graph computes what `simulate` gives, with
none what the model gives (with its own float16 and bfloat16 values rounded, as `detype` does). For TF32 only products
are switched, and only what they read is rounded.

**How.** Each node stands in the branches of an `If`, once as it is and once with its roundings and rounded weights. So
weights are constants in both branches and nothing is copied to choose between them. A node that is low and whose
inputs were all stored rounded does not round them again: that is a second, inner `If`. Operators that only move numbers
(`movement`) stay outside: what they give is rounded when all that they read is. `switching` says which node is which.

ONNX Runtime cannot optimize across branches (fold BatchNormalization into Conv, choose layouts): with its optimizer off
a run with nothing low gives the bits of the plain model, and one with everything low those of the simulation; the
default optimizer changes both by FP32 noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._branches import Builder
from parityscope.arithmetic._graphs import Names, divided
from parityscope.arithmetic._switching import Decision, Switching, decide
from parityscope.arithmetic.detyping import retype
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import Format, format_named
from parityscope.arithmetic.inserting import insert
from parityscope.arithmetic.maxima import propagate_nans
from parityscope.arithmetic.movement import already_rounded
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.primitives import Rewriting
from parityscope.arithmetic.recurrent import inside as rounds_inside
from parityscope.arithmetic.recurrent import registers, take_apart
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.arithmetic.sites import Plan, not_simulated, uniform, untabled
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.records import Skip

__all__ = ["FLAGS", "Arranged", "Decision", "Switchable", "arranged", "switchable"]

FLAGS = "parityscope::low"
_NO_PRODUCTS: Mapping[str, Scalings] = MappingProxyType({})
_OPSET = 13  # Split of a vector into single elements, with its sizes as an input


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Switchable:
    """A graph whose input `FLAGS` (bool, one element a gate) says what is rounded.

    `nodes` are the nodes that can be low, in topological order. A gate is open when all of its nodes are low: gate i
    is about the nodes `members[starts[i] : starts[i + 1]]` (positions in `nodes`). Without gates the graph has no such
    input. `notes` says what is rounded in no assignment.
    """

    model: ir.Model
    precision: str
    nodes: tuple[Decision, ...]
    members: np.ndarray
    starts: np.ndarray
    notes: tuple[Skip, ...] = ()

    def flags(self, low: np.ndarray) -> np.ndarray:
        """The input `FLAGS` for an assignment `low`: bool, (nodes,). Gives bool, (gates,).

        Raises:
            ValueError: `low` is of another shape or type.
        """
        if low.shape != (len(self.nodes),) or low.dtype != np.bool_:
            raise ValueError(f"an assignment is {len(self.nodes)} booleans, not {low.dtype} {low.shape}")
        if not self.starts.size:
            return np.zeros(0, np.bool_)
        opened: np.ndarray = np.logical_and.reduceat(low[self.members], self.starts)
        return opened

    def assignment(self, low: Collection[str]) -> np.ndarray:
        """The nodes called `low` as bool, (nodes,).

        Raises:
            ParityError: one of them cannot be switched.
        """
        names = [node.name for node in self.nodes]
        unknown = sorted(set(low) - set(names))
        if unknown:
            raise ParityError(
                f"{unknown[0]!r} is no node that can be rounded",
                fix="take names of the switchable graph's nodes: operators that only move numbers follow their producers",
            )
        wanted = set(low)
        return np.array([name in wanted for name in names], np.bool_)


def switchable(
    model: ir.Model,
    precision: Format | str,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    compiled: bool = False,
    products: Mapping[str, Scalings] = _NO_PRODUCTS,
    full: str = "f32",
    inside: bool = False,
) -> Switchable:
    """The switchable graph of `model`; arguments and what is converted as for `simulate`.

    A node with bodies (If, Loop, Scan) is switched as a whole; or, `inside`, nodes in bodies are switched by their own names
    (which have to be unique in the whole model), and the node around them is about what it takes, carries and gives.

    Each of `products` (the name of a node, and the scales of its operands) can take its operands in FP8 E4M3 whatever it
    stores: that is a node of its own, called `<name> in FP8`. With them the precision may be "f32": then nothing else is
    switched. Products that are not low round what they read to TF32 where `full` says so ("tf32").

    Raises:
        ParityError: the format cannot be simulated, or the opset cannot be converted up.
    """
    held = arranged(
        model, precision, overflow=overflow, bounded=bounded, compiled=compiled, products=products, inside=inside
    )
    switching = held.switching
    _build(held, format_named(full) if full != "f32" else None)
    return Switchable(
        model=held.work.model,
        precision=held.precision,
        nodes=switching.decisions,
        members=np.array([member for gate in switching.gates for member in gate], np.intp),
        starts=np.cumsum([0, *(len(gate) for gate in switching.gates)], dtype=np.intp)[:-1],
        notes=held.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arranged:
    """A copy of a model before it is rewritten: what is rounded when everything is low, and which nodes decide."""

    work: Rewriting
    precision: str
    plan: Plan
    settled: frozenset[ir.Value]
    switching: Switching
    notes: tuple[Skip, ...]


def arranged(
    model: ir.Model,
    precision: Format | str,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    keeps_nan: bool = True,
    compiled: bool = False,
    products: Mapping[str, Scalings] = _NO_PRODUCTS,
    inside: bool = False,
) -> Arranged:
    """The copy that `switchable` rewrites; arguments as there. `keeps_nan` rewrites maxima so that they hand NaN on.

    Raises:
        ParityError: the format cannot be simulated, or the opset cannot be converted up.
    """
    number_format = format_named(precision) if isinstance(precision, str) else precision
    if number_format.name not in PRECISIONS and not (number_format.name == "f32" and products):
        raise ParityError(
            f"{number_format.name} cannot be simulated in float32", fix=f"use one of: {', '.join(PRECISIONS)}"
        )
    name = number_format.name
    stored = not bounded and name == "f16"  # float16's significand with FP32's range: see `simulate`
    if stored:
        number_format = format_named("tf32")
    oldest = PRECISIONS["f8e4m3"] if products else _OPSET
    copy = prepared(model, max(oldest, PRECISIONS.get(number_format.name, oldest)))
    wanted = None if number_format.name == "f32" else number_format
    infer_types(copy)
    names = Names(copy)
    parted = tuple(divided(copy.graph)) if inside else ()  # a recurrent operator becomes a Scan that is none of these
    rounds = rounds_inside(name)
    held = registers(take_apart(copy, names, terms=rounds.terms), rounds.stored)
    if keeps_nan:
        propagate_nans(copy, names)
    typed, settled, kept = retype(copy, names)
    typed = {value: each for value, each in typed.items() if value not in held}
    notes = (*kept, *not_simulated(copy, wanted))
    plan = uniform(copy, wanted, typed, stored=stored, registers=held)
    settled |= already_rounded(copy, plan)
    if overflow == "infinity":  # what is rounded in a run is not saturated
        plan, settled = untabled(copy, plan, settled)
    work = Rewriting(model=copy, names=names, overflow=overflow, compiled=compiled)
    # What the model itself types in a lower format is rounded in every assignment.
    insert(Plan(storage=typed, operands={}, exact=plan.exact), settled, work)
    plan = Plan(
        storage={value: held for value, held in plan.storage.items() if value not in typed},
        operands=plan.operands,
        exact=plan.exact,
    )
    switching = decide(plan, settled, work, products, parted)
    return Arranged(work=work, precision=name, plan=plan, settled=settled, switching=switching, notes=notes)


def _build(parts: Arranged, full: Format | None) -> None:
    """Puts the gated nodes into branches, and the input that opens them into the graph."""
    switching, work = parts.switching, parts.work
    if not switching.gates:
        return
    graph = work.model.graph
    count = len(switching.gates)
    flags = ir.Value(name=FLAGS, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([count]))
    graph.inputs.append(flags)
    sizes = np.ones(count, np.int64)
    tensor = ir.tensor(sizes, name=work.names.fresh(FLAGS, "sizes"))
    held = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(sizes.shape), const_value=tensor)
    graph.register_initializer(held)
    split = ir.Node("", "Split", [flags, held], [ir.AttrInt64("axis", 0)], num_outputs=count, name=f"{FLAGS}::split")
    for number, value in enumerate(split.outputs):
        value.name = f"{FLAGS}::{number}"
        value.type = ir.TensorType(ir.DataType.BOOL)
        value.shape = ir.Shape([1])
    first = graph[0]
    builder = Builder(plan=parts.plan, settled=parts.settled, work=work, flags=split.outputs, full=full)
    for gated in switching.gated:
        builder.switch(gated)
    for border in switching.borders:
        builder.enclose(border)
    graph.insert_before(first if first.graph is graph else graph[0], split)
