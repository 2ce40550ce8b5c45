"""Gives every node the types of its format, with Casts where a tensor crosses from one format to another.

Graphs are visited in topological order and bodies of control flow inside the node that holds them, so that the type of
everything a node reads is settled before the node is.

Gives a value in another element type: by one Cast a value and type, or by a converted copy of a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.graphs import Names, cast_node, drop_if_unread, prepend_nodes
from parityscope.arithmetic.opsets import BATCHED_SCAN
from parityscope.arithmetic.standard import SHAPE_READERS
from parityscope.arithmetic.typed._assigning import (
    DTYPE_ATTRIBUTES,
    carries_format,
    outputs_in_format,
)
from parityscope.arithmetic.typed.constants import HALF, RoundingLoss, fixed_constant, low_tensor
from parityscope.case.graph import bodies_of_node
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import QUANTIZERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.arithmetic.typed._assigning import Assigning

_SHORT = {dtype: name for name, dtype in HALF.items()} | {ir.DataType.FLOAT: "f32", ir.DataType.DOUBLE: "f64"}


@dataclass(slots=True, kw_only=True)
class Casting:
    """The Casts and copies that were needed so far; `losses` is what converting constants destroyed."""

    names: Names
    casts: dict[tuple[ir.Value, ir.DataType], ir.Node] = field(default_factory=dict)
    copies: dict[tuple[ir.Value, ir.DataType], ir.Value] = field(default_factory=dict)
    losses: list[RoundingLoss] = field(default_factory=list)

    def as_type(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` with elements of `dtype`."""
        if value.dtype == dtype:
            return value
        tensor = fixed_constant(value)
        if tensor is not None and dtype in _SHORT and _SHORT[dtype] in HALF:
            return self._copy_constant(value, tensor, dtype)
        if (value, dtype) not in self.casts:
            name = self.names.fresh(value.name, _SHORT[dtype])
            node = cast_node(value, dtype, name, f"typed::{name}")
            producer = value.producer()
            if producer is not None:
                producer.append(node)
            elif value.graph is not None:
                prepend_nodes(value.graph, [node])
            else:
                raise ValueError(f"{value.name} belongs to no graph")
            self.casts[value, dtype] = node
        return self.casts[value, dtype].outputs[0]

    def settle(self) -> None:
        """Removes constants that only their copies are read of; one copy takes the name."""
        for value, copy in self._unread_constants():
            name = str(value.name)
            drop_if_unread(value)
            copy.name = name

    def _copy_constant(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.Value:
        if (value, dtype) not in self.copies:
            low, loss = low_tensor(tensor, _SHORT[dtype], str(value.name))
            self.losses.append(loss)
            self.copies[value, dtype] = _place_constant(value, low, self.names.fresh(value.name, _SHORT[dtype]))
        return self.copies[value, dtype]

    def _unread_constants(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        seen: set[ir.Value] = set()
        for (value, _), copy in self.copies.items():
            if value not in seen and not value.uses() and not value.is_graph_output():
                seen.add(value)
                yield value, copy


def _place_constant(value: ir.Value, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    """A constant of the same kind as `value`, in its graph."""
    graph, producer = value.graph, value.producer()
    if graph is None:
        raise ValueError(f"{value.name} belongs to no graph")
    if producer is None:
        made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor)
        graph.register_initializer(made)
        return made
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1, name=producer.name)
    node.outputs[0].name = name
    node.outputs[0].type = ir.TensorType(tensor.dtype)
    node.outputs[0].shape = value.shape
    producer.append(node)
    return node.outputs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A node that cannot be in the format it was to be in, and why."""

    name: str
    op_type: str
    format_name: str
    why: str


@dataclass(slots=True, kw_only=True)
class Writing:
    """What the nodes of a model are made into.

    `formats` says the format of each node that decides, by name; `kept` that of each that is not in the low one.
    """

    assigning: Assigning
    casting: Casting
    opsets: Mapping[str, int]
    formats: dict[str, str] = field(default_factory=dict)
    kept: dict[ir.Node, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    def visit(self, graph: ir.Graph, around: str | None = None, *, own: bool = True) -> None:
        """Writes every node of a graph that lies inside control flow of the format `around`, or of the main one.

        `own` says whether its nodes decide for themselves.
        """
        for index, node in enumerate([node for node in graph if node.op_type != "Constant"]):
            if bodies_of_node(node):
                self._write_control_flow(node, self._decide_format(node, index, around, own=own))
            elif self.assigning.is_outside(node):
                self._restore_types(node, [*self.assigning.reads(node), *self.assigning.steers(node)])
            else:
                self._compute_in_format(node, self._decide_format(node, index, around, own=own))

    def dtype_of(self, value: ir.Value, format_name: str) -> ir.DataType:
        """The element type that a float of the model has in a format."""
        return HALF.get(format_name, self.assigning.origin[value])

    def _decide_format(self, node: ir.Node, index: int, around: str | None, *, own: bool) -> str:
        """The format of a node: the assignment's, unless the operator has none such."""
        wanted, name = self.assigning.of(node, index, around)
        found = wanted
        if wanted in HALF and (why := self._why_refused(node, wanted)):
            known = name or node.name or str(node.outputs[0].name)
            self.refusals.append(Refusal(name=known, op_type=node.op_type, format_name=wanted, why=why))
            found = "f32"
        if name and own:
            self.formats[name] = found
        if found != self.assigning.low and (name or found != wanted):
            self.kept[node] = found
        return found

    def _why_refused(self, node: ir.Node, format_name: str) -> str:
        """Why a node cannot be in a format; empty if it can."""
        known = self.assigning
        title = f"{FORMATS[format_name].dtype} {node.op_type}"
        unknown = f"{node.domain or 'ONNX'} defines no {title} at opset {self._opset_of_node(node)}"
        if bodies_of_node(node):
            batched = node.op_type == "Scan" and self._opset_of_node(node) == BATCHED_SCAN
            return "" if carries_format(node, format_name, self.opsets) and not batched else unknown
        if any(value in known.steering for value in node.outputs):
            return "what it gives steers another operator"
        if node.op_type in QUANTIZERS and not node.domain:
            return "its scale stays exact, and its data is of the scale's type"
        if any(_wraps_tensors(value) for value in (*node.inputs, *node.outputs)):
            return "the elements of sequences and optionals keep their type"
        return unknown if self._outputs_taken(node, format_name) is None else ""

    def _opset_of_node(self, node: ir.Node) -> int:
        return self.opsets.get("" if node.domain == "ai.onnx" else node.domain, self.opsets.get("ai.onnx", 1))

    def _outputs_taken(self, node: ir.Node, format_name: str) -> tuple[int, ...] | None:
        known = self.assigning
        steers = known.steers(node)
        return outputs_in_format(
            node, format_name, self._inputs_to_convert(node), steers, known.gives(node), self.opsets
        )

    def _inputs_to_convert(self, node: ir.Node) -> list[int]:
        """The inputs that have to be of the node's format: not what Cast reads."""
        reads = self.assigning.reads(node)
        if node.op_type == "Cast" and not node.domain:
            unrounded = node.inputs[0] not in self.assigning.stored and not self.assigning.gives(node)
            return reads if unrounded else []
        return reads

    def _compute_in_format(self, node: ir.Node, format_name: str) -> None:
        """Gives a node its inputs and outputs in its format."""
        given = self._outputs_taken(node, format_name) if format_name in HALF else None
        converted = self._inputs_to_convert(node)
        self._restore_types(node, [*self.assigning.steers(node), *(set(self.assigning.reads(node)) - set(converted))])
        for index in converted:
            value = node.inputs[index]
            if value is not None:
                node.replace_input_with(index, self.casting.as_type(value, self.dtype_of(value, format_name)))
        for index in self.assigning.gives(node):
            low = given is not None and index in given
            value = node.outputs[index]
            self.assigning.stored[value] = format_name if low else "f32"
            if low:
                value.type = ir.TensorType(HALF[format_name])
        if given and 0 in given:
            _retype_output(node, format_name)

    def _restore_types(self, node: ir.Node, indices: list[int]) -> None:
        """Gives a node inputs in the type that they had; Cast takes them as they are."""
        if node.op_type in SHAPE_READERS | {"Cast"}:
            return
        for index in indices:
            value = node.inputs[index]
            if value is not None:
                node.replace_input_with(index, self.casting.as_type(value, self.assigning.origin[value]))

    def _write_control_flow(self, node: ir.Node, format_name: str) -> None:
        """Gives control flow, what its bodies carry and what they give back one format, and visits the bodies."""
        known = self.assigning
        for index in [*known.reads(node), *known.steers(node)]:
            value = node.inputs[index]
            if value is not None:
                node.replace_input_with(index, self.casting.as_type(value, self.dtype_of(value, format_name)))
        for body in bodies_of_node(node):
            for value in body.inputs:
                self._hold_in_format(value, format_name)
            divides = node in known.divided
            self.visit(body, known.low if divides else format_name, own=divides)
            for position, value in enumerate(body.outputs):
                if value in known.origin:
                    body.outputs[position] = self.casting.as_type(value, self.dtype_of(value, format_name))
        for value in node.outputs:
            self._hold_in_format(value, format_name)

    def _hold_in_format(self, value: ir.Value, format_name: str) -> None:
        if value in self.assigning.origin:
            value.type = ir.TensorType(self.dtype_of(value, format_name))
            self.assigning.stored[value] = format_name


def _wraps_tensors(value: ir.Value | None) -> bool:
    return value is not None and isinstance(value.type, ir.SequenceType | ir.OptionalType)


def _retype_output(node: ir.Node, format_name: str) -> None:
    """Rewrites the attribute that says the element type of what a node gives."""
    if node.op_type == "ConstantOfShape":
        held = node.attributes["value"].as_tensor() if "value" in node.attributes else ir.tensor([0.0])
        low, _ = low_tensor(held, format_name, held.name or "")
        node.attributes["value"] = ir.AttrTensor("value", low)
    elif node.op_type in DTYPE_ATTRIBUTES and not node.domain:
        name = DTYPE_ATTRIBUTES[node.op_type]
        node.attributes[name] = ir.AttrInt64(name, int(HALF[format_name]))
