"""Which nodes of a graph can be low on their own, and which follow others.

Every value has a set of nodes that must all be low for it to hold rounded numbers: itself the maker of what a node
computes; whatever its inputs need, for what a node only moves. Integers, constants (each branch has its own) and what
is rounded in every assignment need none. Inputs of the model are never stored rounded, so that what reads them rounds
them itself; a node that moves them, or weights that rounding changes, is gated as well, and decides where no other
node does.

A node with bodies decides for all that is in them; or, where it is to be divided, about what it takes, carries from one
iteration to the next and gives (its border), and the nodes inside decide for themselves.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.arithmetic.rounding import changed_by
from parityscope.arithmetic.standard import SHAPE_READERS
from parityscope.case.graph import bodies_of_node, constant_value, node_name
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from parityscope.arithmetic.float8 import OperandScaling
    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.arithmetic.sites import RoundingPlan

_ALWAYS: frozenset[int] = frozenset()
# What they give does not depend on how the numbers they read are rounded: NaN stays NaN, and nothing becomes one.
_UNMOVED = SHAPE_READERS | {"IsNaN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """A node that can be low: its name (unique), its operator, and the first tensor that it gives."""

    name: str
    op_type: str
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A node that stands in branches.

    `low` is the gate that says whether it is low; `plain` the one that says whether all that it reads was stored
    rounded (None: it rounds what `operands` and `captures` name). `operands` are the inputs that it rounds, `captures`
    what its bodies read from outside and is rounded for them, `results` the outputs that it rounds. `scaled` are the
    inputs that a product takes in FP8, and `eighth` the gate of that (None: they are whenever the node is low).
    """

    node: ir.Node
    low: int
    plain: int | None
    operands: tuple[tuple[int, Format], ...]
    captures: tuple[tuple[ir.Value, Format], ...]
    results: Mapping[ir.Value, Format]
    scaled: Mapping[int, OperandScaling] = field(default_factory=lambda: MappingProxyType({}))
    eighth: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """A node with bodies that decides about its border alone: while the gate `low` is open, all of that is rounded.

    `operands` are its inputs (index, format), `given` the outputs of its bodies (body, position, format).
    """

    node: ir.Node
    low: int
    operands: tuple[tuple[int, Format], ...]
    given: tuple[tuple[int, int, Format], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """The nodes that decide, the gates (positions of the nodes that must all be low), and what stands behind them."""

    decisions: tuple[NodeDecision, ...]
    gates: tuple[tuple[int, ...], ...]
    gated: tuple[Gated, ...]
    borders: tuple[Border, ...] = ()


def decide_nodes(
    plan: RoundingPlan,
    settled: frozenset[ir.Value],
    model: ir.Model,
    overflow: Overflow,
    products: Mapping[str, Mapping[int, OperandScaling]],
    divided: Collection[ir.Node] = (),
) -> Switching:
    """Says of every node of the main graph whether it decides, follows or stands outside.

    `plan` is what is rounded when every node is low; `settled` the values that need no rounding of their own. Each of
    `products` (by the name of its node) decides once more, behind all others: whether it takes its operands in FP8.
    Nodes with bodies among `divided` decide about their border, and the nodes inside for themselves.
    """
    search = _SwitchingSearch(plan=plan, settled=settled, overflow=overflow, divided=frozenset(divided))
    search.needs.update(dict.fromkeys(value for value in model.graph.inputs if value in plan.storage))
    _visit_graph(model.graph, search)
    for node in model.graph:
        if (
            node.name
            and node.name in products
            and any(value.uses() or value.is_graph_output() for value in node.outputs)
        ):
            _decide_scaling(node, products[node.name], search)
    return Switching(
        decisions=tuple(search.decisions),
        gates=tuple(search.gates),
        gated=tuple(search.gated),
        borders=tuple(search.borders),
    )


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Every node inside the bodies of `node`, however deep, in order."""
    for body in bodies_of_node(node):
        for inner in body:
            yield inner
            yield from inner_nodes(inner)


def inner_values(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that the bodies of `node` define, however deep, in order."""
    for body in bodies_of_node(node):
        yield from body.inputs
        yield from body.initializers.values()
        for inner in body:
            yield from inner.outputs
            yield from inner_values(inner)


@dataclass(slots=True, kw_only=True)
class _SwitchingSearch:
    """What is known on the way through the graph. `needs` is None for what is never stored rounded."""

    plan: RoundingPlan
    settled: frozenset[ir.Value]
    overflow: Overflow
    divided: frozenset[ir.Node]
    needs: dict[ir.Value, frozenset[int] | None] = field(default_factory=dict)
    decisions: list[NodeDecision] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    gates: dict[tuple[int, ...], int] = field(default_factory=dict)
    gated: list[Gated] = field(default_factory=list)
    borders: list[Border] = field(default_factory=list)

    def gate(self, members: frozenset[int]) -> int:
        """The gate that is open when all of `members` are low, made once."""
        return self.gates.setdefault(tuple(sorted(members)), len(self.gates))

    def decision(self, node: ir.Node, index: int) -> int:
        """Makes `node` one that decides; names that several nodes have are told apart by their index."""
        name = node_name(node, index)
        name = f"{name}#{index}" if name in self.taken else name
        self.taken.add(name)
        self.decisions.append(NodeDecision(name=name, op_type=node.op_type, tensor=str(node.outputs[0].name)))
        return len(self.decisions) - 1


def _visit_graph(graph: ir.Graph, search: _SwitchingSearch) -> None:
    for index, node in enumerate(node for node in graph if node.op_type != "Constant"):
        if any(value.uses() or value.is_graph_output() for value in node.outputs):
            (_enter_divided if node in search.divided else _examine_node)(node, index, search)


def _enter_divided(node: ir.Node, index: int, search: _SwitchingSearch) -> None:
    """A node with bodies that is divided: it decides about its border, the nodes inside for themselves."""
    plan, inside = search.plan, bodies_of_node(node)
    operands = _rounded_operands(node, plan)
    given = [
        (number, position, plan.storage[value])
        for number, body in enumerate(inside)
        for position, value in enumerate(body.outputs)
        if value in plan.storage
    ]
    entering = [value for body in inside for value in body.inputs if value in plan.storage]
    own = frozenset({search.decision(node, index)}) if operands or given or entering else _ALWAYS
    search.needs.update(dict.fromkeys(entering, own))
    for body in inside:
        _visit_graph(body, search)
    if own:
        search.borders.append(Border(node=node, low=search.gate(own), operands=tuple(operands), given=tuple(given)))
    search.needs.update({value: own if _carries_numbers(value, plan) else _ALWAYS for value in node.outputs})


def _examine_node(node: ir.Node, index: int, search: _SwitchingSearch) -> None:
    plan = search.plan
    operands, captures = _rounded_operands(node, plan), _rounded_captures(node, plan)
    results = {value: plan.storage[value] for value in node.outputs if _is_rounded(value, search)}
    read = {node.inputs[position]: number_format for position, number_format in operands} | dict(captures)
    computed = [value for value in read if value is not None and constant_value(value) is None]
    before = [search.needs.get(value, _ALWAYS) for value in computed]
    members = frozenset[int]().union(*(each for each in before if each is not None))
    surely = None not in before and not plan.operands
    decides = bool(results) or bool(plan.operands and operands) or _rounds_inside(node, plan)
    if node.op_type in _UNMOVED or not (decides or None in before or _reads_changed(read, search)):
        moved = members if None not in before else None
        search.needs.update({value: moved if _carries_numbers(value, plan) else _ALWAYS for value in node.outputs})
        return
    plain = search.gate(members) if surely and members else None
    if decides or not members:
        members = frozenset({search.decision(node, index)})
    low = search.gate(members)
    if surely and plain in (None, low):  # all that it computes with is rounded whenever it is low
        operands = [(at, held) for at, held in operands if node.inputs[at] not in computed]
        captures = [(value, held) for value, held in captures if value not in computed]
        plain = None
    gated = Gated(node=node, low=low, plain=plain, operands=tuple(operands), captures=tuple(captures), results=results)
    search.gated.append(gated)
    search.needs.update({value: members if _carries_numbers(value, plan) else _ALWAYS for value in node.outputs})


def _decide_scaling(node: ir.Node, scalings: Mapping[int, OperandScaling], search: _SwitchingSearch) -> None:
    """Lets a product decide whether it takes its operands in FP8; it may not have been gated before."""
    decision = NodeDecision(name=f"{node.name}{IN_FP8}", op_type=node.op_type, tensor=str(node.outputs[0].name))
    search.decisions.append(decision)
    gate = search.gate(frozenset({len(search.decisions) - 1}))
    for place, one in enumerate(search.gated):
        if one.node is node:
            search.gated[place] = replace(one, scaled=scalings, eighth=gate)
            return
    alone = Gated(node=node, low=gate, plain=None, operands=(), captures=(), results={}, scaled=scalings)
    search.gated.append(alone)


def _rounded_operands(node: ir.Node, plan: RoundingPlan) -> list[tuple[int, Format]]:
    """The inputs that a low node takes rounded."""
    found = []
    for index, value in enumerate(node.inputs):
        if (node, index) in plan.operands:
            found.append((index, plan.operands[node, index]))
        elif value is not None and value in plan.storage and plan.reads_rounded(node, index):
            found.append((index, plan.storage[value]))
    return found


def _rounded_captures(node: ir.Node, plan: RoundingPlan) -> list[tuple[ir.Value, Format]]:
    """What the bodies of a node read from outside and get rounded."""
    inside = set(inner_values(node))
    found: dict[ir.Value, Format] = {}
    for inner in inner_nodes(node):
        for index, value in enumerate(inner.inputs):
            if value is None or value not in plan.storage or value in inside:
                continue
            if plan.reads_rounded(inner, index):
                found[value] = plan.storage[value]
    return list(found.items())


def _is_rounded(value: ir.Value, search: _SwitchingSearch) -> bool:
    """Whether a computed value is rounded for storage: it is to be, anything reads that, and it is not so anyway."""
    if value not in search.plan.storage or value in search.settled:
        return False
    return value.is_graph_output() or any(search.plan.reads_rounded(*use) for use in value.uses())


def _rounds_inside(node: ir.Node, plan: RoundingPlan) -> bool:
    if any(value in plan.storage for value in inner_values(node)):
        return True
    return any((inner, index) in plan.operands for inner in inner_nodes(node) for index in range(len(inner.inputs)))


def _reads_changed(read: Mapping[ir.Value | None, Format], search: _SwitchingSearch) -> bool:
    """Whether rounding changes a constant among `read`."""
    for value, number_format in read.items():
        tensor = constant_value(value) if value is not None else None
        if tensor is not None and changed_by(tensor.numpy(), number_format, overflow=search.overflow):
            return True
    return False


def _carries_numbers(value: ir.Value, plan: RoundingPlan) -> bool:
    """Whether a value holds numbers that are rounded: tensors that the plan stores, and sequences of tensors."""
    return value in plan.storage or (value.type is not None and not isinstance(value.type, ir.TensorType))
