"""Builds the `If` that a gated node becomes: the node as it is in one branch, rounded in the other.

Branches read what they need from the graph around them, so nothing is passed in and weights are not copied: constants
stay constants, which ONNX Runtime packs for its kernels when it loads the graph. Rounded weights are made once for all
that read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import bodies, constant_like, constant_tensor, feed, give_back
from parityscope.arithmetic._operands import in_eight_bits, in_full
from parityscope.arithmetic._switching import inner_nodes, inner_values
from parityscope.arithmetic.float8 import dequantized
from parityscope.arithmetic.inserting import insert
from parityscope.arithmetic.primitives import Rewriting, rounding_nodes
from parityscope.arithmetic.rounding import changed_by, round_to
from parityscope.arithmetic.sites import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.arithmetic._switching import Border, Gated
    from parityscope.arithmetic.float8 import Scaling
    from parityscope.arithmetic.formats import Format

__all__ = ["Builder"]


@dataclass(slots=True, kw_only=True)
class Builder:
    """Puts nodes of one graph into branches, in topological order.

    `plan` and `settled` speak of the graph as it was; `flags` are the gates' values. `now` follows what replaced a
    value, `rounded` the weights that were rounded. `full` is what products that are not low round their operands to.
    """

    plan: Plan
    settled: frozenset[ir.Value]
    work: Rewriting
    flags: Sequence[ir.Value]
    now: dict[ir.Value, ir.Value] = field(default_factory=dict)
    rounded: dict[tuple[ir.Value, str], ir.Value] = field(default_factory=dict)
    full: Format | None = None

    def switch(self, gated: Gated) -> None:
        """Replaces the node by its `If`."""
        node = gated.node
        graph = node.graph
        if graph is None:
            raise ValueError(f"{node.name} belongs to no graph")
        wanted = [value for value in node.outputs if value.uses() or value.is_graph_output()]
        exact = [value for value in wanted if value in gated.results and _exact_uses(value, self.plan)]
        low = _Branch(builder=self, gated=gated, wanted=wanted, exact=exact)
        given = (*wanted, *exact)
        alone = bool(gated.scaled) and gated.eighth is None
        branches = [low.rounding(reading=True, scaled=alone), low.untouched(scaled=False)]
        if gated.eighth is not None:
            branches[0] = self._nested(gated.eighth, low.rounding(reading=True, scaled=True), branches[0], given)
            branches[1] = self._nested(gated.eighth, low.untouched(scaled=True), branches[1], given)
        if gated.plain is not None:
            stored = low.rounding(reading=False, scaled=alone)
            if gated.eighth is not None:
                stored = self._nested(gated.eighth, low.rounding(reading=False, scaled=True), stored, given)
            branches[0] = self._nested(gated.plain, stored, branches[0], given)
        choice = self._choice(gated.low, *branches)
        graph.insert_after(node, choice)
        for value, made in zip(exact, choice.outputs[len(wanted) :], strict=True):
            made.name = self.work.names.fresh(value.name, "exact")
            feed(_exact_uses(value, self.plan), made)
        for value, made in zip(wanted, choice.outputs, strict=False):
            made.name, value.name = value.name, self.work.names.fresh(value.name, "switched")
            feed(list(value.uses()), made)
            give_back(value, made)
            self.now[value] = made
        graph.remove(node, safe=True)
        low.round_bodies()

    def enclose(self, border: Border) -> None:
        """Rounds what a node with bodies takes and what its bodies give, while its gate is open."""
        node = border.node
        for index, number_format in border.operands:
            value = node.inputs[index]
            if value is not None and node.graph is not None:
                choice = self._rounded_or_not(border.low, value, number_format)
                node.graph.insert_before(node, choice)
                node.replace_input_with(index, choice.outputs[0])
        inside = bodies(node)
        for number, position, number_format in border.given:
            body = inside[number]
            choice = self._rounded_or_not(border.low, body.outputs[position], number_format)
            body.append(choice)
            body.outputs[position] = choice.outputs[0]

    def beside(self, gated: Gated, *, scaled: bool = False) -> dict[ir.Value, ir.Value]:
        """Puts the node rounded, which reads the exact numbers, at the end of its graph; gives its outputs by the exact ones.

        `scaled` rounds its operands to FP8, and nothing else.
        """
        graph = gated.node.graph
        if graph is None:
            raise ValueError(f"{gated.node.name} belongs to no graph")
        wanted = [value for value in gated.node.outputs if value.uses() or value.is_graph_output()]
        low = _Branch(builder=self, gated=gated, wanted=wanted, exact=())
        branch = low.untouched(scaled=True) if scaled else low.rounding(reading=True, scaled=False)
        made = list(branch.outputs)
        branch.outputs.clear()
        nodes = list(branch)
        branch.remove(nodes)
        graph.extend(nodes)
        low.round_bodies()
        return dict(zip(wanted, made, strict=True))

    def constant(self, value: ir.Value, number_format: Format) -> ir.Value:
        """The rounded constant, or the constant itself where rounding changes nothing."""
        key = value, number_format.name
        if key not in self.rounded:
            tensor = constant_tensor(value)
            if tensor is None:
                raise ValueError(f"{value.name} is not a constant")
            array, overflow = tensor.numpy(), self.work.overflow
            name = self.work.names.fresh(value.name, number_format.name)
            changes = changed_by(array, number_format, overflow=overflow)
            rounded = round_to(array, number_format, overflow=overflow) if changes else array
            self.rounded[key] = constant_like(value, rounded, name) if changes else value
        return self.rounded[key]

    def scaled(self, value: ir.Value, scaling: Scaling) -> ir.Value:
        """The constant as a product reads it in FP8; made once for all that do."""
        key = value, f"fp8::{scaling.axis}"
        if key not in self.rounded:
            tensor = constant_tensor(value)
            if tensor is None:
                raise ValueError(f"{value.name} is not a constant")
            array = dequantized(tensor.numpy(), scaling)
            self.rounded[key] = constant_like(value, array, self.work.names.fresh(value.name, "fp8"))
        return self.rounded[key]

    def _rounded_or_not(self, gate: int, value: ir.Value, number_format: Format) -> ir.Node:
        """The choice between a value rounded and as it is."""
        names = self.work.names
        low = rounding_nodes(value, number_format, names.fresh(value.name, "bordered"), self.work)
        plain = ir.Node("", "Identity", [value], num_outputs=1)
        plain.outputs[0].name = names.fresh(value.name, "borderless")
        plain.outputs[0].type, plain.outputs[0].shape = value.type, value.shape
        branches = [
            ir.Graph([], nodes[-1].outputs, nodes=nodes, name=f"{nodes[-1].name}::branch") for nodes in (low, [plain])
        ]
        choice = self._choice(gate, *branches)
        choice.outputs[0].name = names.fresh(value.name, "border")
        return choice

    def _nested(self, gate: int, then: ir.Graph, otherwise: ir.Graph, given: Sequence[ir.Value]) -> ir.Graph:
        """A branch that holds a choice of its own, of two that give the rounded forms of `given`."""
        inner = self._choice(gate, then, otherwise)
        for output, value in zip(inner.outputs, given, strict=True):
            output.name = self.work.names.fresh(value.name, "low")
        return ir.Graph([], inner.outputs, nodes=[inner], name=f"{inner.name}::low")

    def _choice(self, gate: int, then: ir.Graph, otherwise: ir.Graph) -> ir.Node:
        attributes = [ir.AttrGraph("then_branch", then), ir.AttrGraph("else_branch", otherwise)]
        name = self.work.names.fresh(then.outputs[0].name, "switch")  # a model's own nodes may have no names
        node = ir.Node("", "If", [self.flags[gate]], attributes, num_outputs=len(then.outputs), name=name)
        for output, like in zip(node.outputs, then.outputs, strict=True):
            output.type, output.shape = like.type, like.shape
        return node


@dataclass(slots=True, kw_only=True)
class _Branch:
    """The branches of one node. `wanted` are its outputs that are used, `exact` those that are also read unrounded."""

    builder: Builder
    gated: Gated
    wanted: Sequence[ir.Value]
    exact: Sequence[ir.Value]
    copies: list[ir.Node] = field(default_factory=list)

    def untouched(self, *, scaled: bool) -> ir.Graph:
        """The node as it is; `scaled`: but for its operands, which are in FP8."""
        nodes: list[ir.Node] = []
        inputs = in_full(self.builder, self.gated.node, nodes)
        inputs |= in_eight_bits(self.builder, self.gated, inputs, nodes) if scaled else {}
        node = self._copy(inputs, {}, "high")
        nodes.append(node)
        made = dict(zip(self.gated.node.outputs, node.outputs, strict=True))
        return self._graph(nodes, [made[value] for value in self.wanted], made)

    def rounding(self, *, reading: bool, scaled: bool) -> ir.Graph:
        """The node low: with rounded weights and results, and with what it reads rounded too if `reading`.

        `scaled`: its operands are in FP8 besides.
        """
        builder, node = self.builder, self.gated.node
        nodes: list[ir.Node] = []
        known: dict[tuple[ir.Value, str], ir.Value] = {}

        def read(value: ir.Value, number_format: Format) -> ir.Value:
            if constant_tensor(value) is not None:
                return builder.constant(value, number_format)
            if not reading:
                return value
            key = value, number_format.name
            if key not in known:
                name = builder.work.names.fresh(value.name, "read")
                nodes.extend(rounding_nodes(value, number_format, name, builder.work))
                known[key] = nodes[-1].outputs[0]
            return known[key]

        inputs = {
            index: read(value, number_format)
            for index, number_format in self.gated.operands
            if (value := node.inputs[index]) is not None
        }
        current = [(builder.now.get(value, value), number_format) for value, number_format in self.gated.captures]
        captures = {value: read(value, number_format) for value, number_format in current}
        inputs |= in_eight_bits(self.builder, self.gated, inputs, nodes) if scaled else {}
        copy = self._copy(inputs, captures, "low" if reading else "plain")
        self.copies.append(copy)
        nodes.append(copy)
        made = dict(zip(node.outputs, copy.outputs, strict=True))
        outputs = []
        for value in self.wanted:
            output = made[value]
            if value in self.gated.results:
                name = builder.work.names.fresh(value.name, "stored")
                nodes.extend(rounding_nodes(output, self.gated.results[value], name, builder.work))
                output = nodes[-1].outputs[0]
            outputs.append(output)
        return self._graph(nodes, outputs, made)

    def round_bodies(self) -> None:
        """Rounds inside the bodies of the low copies, which stand in the graph by now."""
        original = list(inner_values(self.gated.node))
        nodes = list(inner_nodes(self.gated.node))
        plan, settled = self.builder.plan, self.builder.settled
        for copy in self.copies if original else ():
            twins = dict(zip(original, inner_values(copy), strict=True))
            twin_nodes = dict(zip(nodes, inner_nodes(copy), strict=True))
            own = Plan(
                storage={twin: plan.storage[value] for value, twin in twins.items() if value in plan.storage},
                operands={
                    (twin_nodes[use[0]], use[1]): held for use, held in plan.operands.items() if use[0] in twin_nodes
                },
                exact=frozenset((twin_nodes[each], index) for each, index in plan.exact if each in twin_nodes),
            )
            insert(own, frozenset(twins[value] for value in settled if value in twins), self.builder.work)

    def _copy(self, inputs: Mapping[int, ir.Value], captures: Mapping[ir.Value, ir.Value], suffix: str) -> ir.Node:
        """The node again, with other inputs and with what its bodies read from outside exchanged."""
        node = self.gated.node
        copy = ir.Node(
            node.domain,
            node.op_type,
            [inputs.get(index, value) for index, value in enumerate(node.inputs)],
            [_cloned(attribute) for attribute in node.attributes.values()],
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=f"{node.name}::{suffix}",
        )
        for value, output in zip(node.outputs, copy.outputs, strict=True):
            output.name = self.builder.work.names.fresh(value.name, suffix) if value.name else ""
            output.type, output.shape = value.type, value.shape
        for inner, twin in zip(inner_nodes(node), inner_nodes(copy), strict=True):
            for index, read in enumerate(twin.inputs):
                if read is not None and read in captures and self.builder.plan.reads_rounded(inner, index):
                    twin.replace_input_with(index, captures[read])
        return copy

    def _graph(self, nodes: list[ir.Node], outputs: list[ir.Value], made: Mapping[ir.Value, ir.Value]) -> ir.Graph:
        """A branch: the outputs, and behind them those that some read unrounded."""
        for value in self.exact:
            again = ir.Node("", "Identity", [made[value]], num_outputs=1)
            again.outputs[0].name = self.builder.work.names.fresh(value.name, "unrounded")
            again.outputs[0].type, again.outputs[0].shape = value.type, value.shape
            nodes.append(again)
            outputs.append(again.outputs[0])
        return ir.Graph([], outputs, nodes=nodes, name=f"{self.gated.node.name}::branch")


def _cloned(attribute: ir.Attr) -> ir.Attr:
    if attribute.type == ir.AttributeType.GRAPH:
        return ir.AttrGraph(attribute.name, attribute.as_graph().clone(allow_outer_scope_values=True))
    if attribute.type == ir.AttributeType.GRAPHS:
        graphs = [each.clone(allow_outer_scope_values=True) for each in attribute.as_graphs()]
        return ir.AttrGraphs(attribute.name, graphs)
    return attribute


def _exact_uses(value: ir.Value, plan: Plan) -> list[tuple[ir.Node, int]]:
    return [(node, index) for node, index in value.uses() if not plan.reads_rounded(node, index)]
