"""The roundings that follow from a `GraphFusion`: what each kernel takes, what it writes, and what becomes of constants.

* A tensor is rounded where it leaves its kernel for memory. Readers in the same kernel read the register: what was
  there before rounding. A tensor that never leaves is never rounded.
* A kernel of lower precision rounds what it reads in a wider format (a conversion stands before it), and, inside, the
  operands of its products: matrix units take nothing wider (the probabilities of a fused attention, for one).
* Constants are rounded as the fusion's `constants` says, beyond range as its `overflow` says.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.folding import fold_constants
from parityscope.arithmetic.graphs import all_values
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.sites import PRODUCTS, RoundingPlan, exact_uses, is_float
from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import STANDARD, of_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.fusion import FusedKernel, GraphFusion
    from parityscope.arithmetic.rounding import Overflow

# What of a recurrent operator is rounded like the weights of a product (its bias is added to an accumulator).
_RECURRENT = {name: STANDARD[name].multiplies or () for name in of_kind("recurrent")}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanningWork:
    """What is planned so far; `formats` gives the format that a kernel's short name stands for (None: FP32)."""

    fusion: GraphFusion
    owner: Mapping[ir.Node, FusedKernel]
    formats: Mapping[str, Format]
    typed: Mapping[ir.Value, Format]
    steering: frozenset[tuple[ir.Node, int]]
    storage: dict[ir.Value, Format] = field(default_factory=dict)
    operands: dict[tuple[ir.Node, int], Format] = field(default_factory=dict)
    inner: set[tuple[ir.Node, int]] = field(default_factory=set)
    constants: dict[tuple[ir.Node, int], np.ndarray] = field(default_factory=dict)

    def takes(self, node: ir.Node) -> Format | None:
        """The format in which the kernel of `node` takes its inputs."""
        kernel = self.owner.get(node)
        return self.formats.get(self.fusion.default if kernel is None else kernel.precision)

    def writes(self, node: ir.Node | None) -> Format | None:
        """The format in which the kernel of `node` (None: whoever feeds the graph) stores what leaves it."""
        kernel = None if node is None else self.owner.get(node)
        return self.formats.get(self.fusion.default if kernel is None else kernel.stored)

    def together(self, first: ir.Node | None, second: ir.Node) -> bool:
        """Whether two nodes are of one kernel."""
        return first is not None and first in self.owner and self.owner[first] is self.owner.get(second)


def plan_fusion(
    model: ir.Model,
    fusion: GraphFusion,
    formats: Mapping[str, Format],
    typed: Mapping[ir.Value, Format],
    overflow: Overflow,
    registers: Collection[ir.Value] = (),
) -> RoundingPlan:
    """The plan of `fusion`, which is about `model` or the graph that it was made from.

    `formats` are the formats of the kernels' precisions by short name; a precision that is not there is FP32. `typed`
    holds the values whose own type is a format: they are stored in that. `registers` are inner values of recurrent
    operators that are not.
    """
    owner = _kernel_owners(model, fusion)
    steering = frozenset(
        (node, index)
        for node, index in exact_uses(model)
        if node.inputs[index : index + 1] and node.inputs[index] not in typed
    )
    work = _PlanningWork(fusion=fusion, owner=owner, formats=formats, typed=typed, steering=steering)
    for value in all_values(model):
        if value in registers or (not is_float(value) and value not in typed):
            continue
        if constant_value(value) is None:
            _plan_tensor(value, work)
        else:
            _plan_constant(value, work)
    if fusion.folds:
        _plan_folds(model, work, fusion.overflow or overflow)
    return RoundingPlan(
        storage=work.storage,
        operands=work.operands,
        exact=steering,
        inner=frozenset(work.inner),
        constants=work.constants,
    )


def _kernel_owners(model: ir.Model, fusion: GraphFusion) -> dict[ir.Node, FusedKernel]:
    """The kernel of each node; one that is in none belongs to the first that reads it.

    Such nodes come from a conversion between opsets (a Softmax that became Flatten, Softmax and Reshape).
    """
    kernels = {name: kernel for kernel in fusion.kernels for name in kernel.values}
    owner: dict[ir.Node, FusedKernel] = {}
    for node in reversed(list(model.graph.all_nodes())):
        found = [kernels[value.name] for value in node.outputs if value.name in kernels]
        found += [owner[user] for value in node.outputs for user, _ in value.uses() if user in owner]
        if found:
            owner[node] = found[0]
    return owner


def _plan_tensor(value: ir.Value, work: _PlanningWork) -> None:
    producer = value.producer()
    uses = [use for use in value.uses() if use not in work.steering]
    inside = [use for use in uses if work.together(producer, use[0])]
    outside = [use for use in uses if use not in inside]
    stored = work.typed.get(value) or work.writes(producer)
    if producer is None and value not in work.typed:
        # What is fed is rounded by the kernels that read it, each in its own way.
        stored = stored if any(_takes_rounded(use, value, work) for use in outside) else None
        work.inner.update(use for use in outside if not _takes_rounded(use, value, work))
    if stored is not None and (outside or value.is_graph_output() or not uses):
        work.storage[value] = stored
        work.inner.update(inside)
    for use in inside:
        taken = work.takes(use[0])
        if taken is not None and _is_operand(use):
            work.operands[use] = taken
    for use in outside:
        taken = work.takes(use[0])
        if use in work.inner or taken is None or not _takes_rounded(use, value, work):
            continue
        if stored is None or not taken.contains(stored):
            work.operands[use] = taken


def _takes_rounded(use: tuple[ir.Node, int], value: ir.Value, work: _PlanningWork) -> bool:
    """Whether the kernel that reads `value` at `use` takes it in a lower precision."""
    kernel = work.owner.get(use[0])
    spared = kernel is not None and value.name in kernel.exact_inputs
    return work.takes(use[0]) is not None and not spared


def _is_operand(use: tuple[ir.Node, int]) -> bool:
    node, index = use
    if node.op_type not in PRODUCTS or node.domain not in {"", "com.microsoft"}:
        return False
    chosen = PRODUCTS[node.op_type]
    return chosen is None or index in chosen


def _plan_constant(value: ir.Value, work: _PlanningWork) -> None:
    """Rounds a constant for the kernels of lower precision, where the engine stores constants in that."""
    if value in work.typed:
        work.storage[value] = work.typed[value]
        return
    if not work.fusion.stores_constants:
        return
    uses = [use for use in value.uses() if use not in work.steering]
    rounded = {use: taken for use in uses if (taken := work.takes(use[0])) is not None}
    if not rounded:
        return
    first = next(iter(rounded.values()))
    work.storage[value] = first
    work.inner.update(use for use in uses if use not in rounded)
    work.operands.update({use: taken for use, taken in rounded.items() if not taken.contains(first)})


def _plan_folds(model: ir.Model, work: _PlanningWork, overflow: Overflow) -> None:
    for node in model.graph.all_nodes():
        number_format = work.takes(node)
        if number_format is None:
            continue
        if node.op_type in _RECURRENT:
            work.constants.update(_rounded_weights(node, number_format, overflow))
        elif node.op_type in PRODUCTS and node.op_type != "Einsum" and not node.domain:
            inside = partial(work.together, node)
            work.constants.update(
                fold_constants(node, inside, number_format, overflow, _stored_constants(node, work, overflow))
            )


def _stored_constants(node: ir.Node, work: _PlanningWork, overflow: Overflow) -> dict[tuple[ir.Node, int], np.ndarray]:
    """The constants of the kernel of `node` as they are stored before anything is folded."""
    if not work.fusion.stores_constants:
        return {}
    found: dict[tuple[ir.Node, int], np.ndarray] = {}
    kernel = work.owner.get(node)
    nodes = [each for each in work.owner if work.owner[each] is kernel] if kernel is not None else [node]
    for each in nodes:
        for index, value in enumerate(each.inputs):
            tensor = None if value is None else constant_value(value)
            if value is not None and tensor is not None and value in work.storage and (each, index) not in work.inner:
                found[each, index] = round_to(tensor.numpy(), work.storage[value], overflow=overflow)
    return found


def _rounded_weights(node: ir.Node, number_format: Format, overflow: Overflow) -> dict[tuple[ir.Node, int], np.ndarray]:
    found = {}
    for index in _RECURRENT[node.op_type]:
        value = node.inputs[index]
        tensor = None if value is None else constant_value(value)
        if tensor is not None:
            found[node, index] = round_to(tensor.numpy(), number_format, overflow=overflow)
    return found
