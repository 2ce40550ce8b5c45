"""The magnitudes and sizes of what the bodies of control flow compute, handed out of them.

In: a graph with If, Loop or Scan. Out: a copy whose outputs are, for each float tensor that a node inside a body gives,
four numbers: the largest finite magnitude, the smallest that is not zero, how many elements there were, and the longest last
dimension, over all iterations of all bodies around it; (0, infinity, 0, 0) where the body did not run. A branch of an If
gives them as outputs, with constants in the other branch; a Loop or Scan stacks them, and they are reduced behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._graphs import Names, bodies, constant_tensor
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.sites import is_float
from parityscope.case.graph import computing, node_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Watched", "Watching", "watching"]

_OPSET = 13
_NOTHING = np.array([0.0, np.inf, 0.0, 0.0], np.float32)
_OVER_ITERATIONS = ("Max", "Min", "Sum", "Max")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watched:
    """A tensor inside the bodies of the main graph's node called `node`; its four numbers are the output `output`."""

    node: str
    value: ir.Value
    output: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watching:
    """The copy, and what its outputs are about, by values of a second copy `original`, which is as it was."""

    model: ir.Model
    original: ir.Model
    tensors: tuple[Watched, ...]


def watching(model: ir.Model) -> Watching | None:
    """The watched copy of `model`, whose nodes have names; None where it has no control flow.

    Raises:
        ParityError: the model's opset cannot be converted up.
    """
    if not any(bodies(node) for node in model.graph):
        return None
    copy, original = (prepared(model, _OPSET) for _ in range(2))
    infer_types(copy)
    infer_types(original)
    work = _Work(names=Names(copy), graph=copy.graph)
    copy.graph.outputs.clear()
    tensors = []
    for index, (node, twin) in enumerate(zip(computing(copy), computing(original), strict=True)):
        if not bodies(node):
            continue
        found = work.node(node)
        inside = list(_floats(twin))
        for value, made in zip(inside, found, strict=True):
            copy.graph.outputs.append(made)
            tensors.append(Watched(node=node_name(twin, index), value=value, output=str(made.name)))
    return Watching(model=copy, original=original, tensors=tuple(tensors))


def _floats(node: ir.Node) -> list[ir.Value]:
    """The float tensors that nodes inside a node give, in the order in which `_Work.node` hands them out."""
    found = []
    for body in bodies(node):
        for inner in body:
            found.extend(_own(inner))
            found.extend(_floats(inner))
    return found


def _own(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.outputs if value.name and is_float(value) and constant_tensor(value) is None]


@dataclass(slots=True, kw_only=True)
class _Work:
    names: Names
    graph: ir.Graph
    constants: dict[str, ir.Value] = field(default_factory=dict)
    made: int = 0

    def node(self, node: ir.Node) -> list[ir.Value]:
        """Makes a node hand out what its bodies compute; gives the new values, in the graph that the node is in."""
        parts = [self._body(body) for body in bodies(node)]
        if node.op_type == "If":
            return self._branches(node, parts)
        return self._iterations(node, parts[0])

    def _body(self, body: ir.Graph) -> list[ir.Value]:
        """The numbers of what a body computes, as values of that body."""
        found: list[ir.Value] = []
        for inner in list(body):
            own = _own(inner)
            deeper = self.node(inner) if bodies(inner) else []
            found.extend(self._numbers(body, value) for value in own)
            found.extend(deeper)
        return found

    def _numbers(self, body: ir.Graph, value: ir.Value) -> ir.Value:
        """(largest finite magnitude, smallest that is not zero, elements, last dimension) of a tensor: float32, (4,)."""
        single = value
        if value.dtype != ir.DataType.FLOAT:
            single = self._add(body, "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
        flat = self._add(body, "Reshape", [single, self._const("flat", np.array([-1]))])
        size = self._add(body, "Abs", [flat])
        zero, infinity = (self._const(name, np.array([x], np.float32)) for name, x in (("none", 0.0), ("no", np.inf)))
        finite = self._add(body, "Less", [size, infinity], dtype=ir.DataType.BOOL)  # nor is NaN
        known = self._add(body, "Where", [finite, size, zero])
        lost = self._add(body, "Equal", [known, zero], dtype=ir.DataType.BOOL)
        whole = [ir.AttrInt64("keepdims", 1)]
        ends = [
            self._add(
                body, f"Reduce{name}", [self._add(body, "Concat", [part, start], [ir.AttrInt64("axis", 0)])], whole
            )
            for name, part, start in (
                ("Max", known, zero),
                ("Min", self._add(body, "Where", [lost, infinity, known]), infinity),
            )
        ]
        return self._add(body, "Concat", [*ends, *self._sizes(body, value)], [ir.AttrInt64("axis", 0)])

    def _sizes(self, body: ir.Graph, value: ir.Value) -> list[ir.Value]:
        """The number of elements of a tensor, and its last dimension (1 of a number): each float32, (1,)."""
        whole = ir.DataType.INT64
        one, last = self._const("one", np.array([1])), self._const("last", np.array([-1]))
        dims = self._add(body, "Shape", [value], dtype=whole)
        dims = self._add(body, "Concat", [one, dims], [ir.AttrInt64("axis", 0)], dtype=whole)
        held = [
            self._add(body, "ReduceProd", [dims], [ir.AttrInt64("keepdims", 1)], dtype=whole),
            self._add(body, "Gather", [dims, last], dtype=whole),
        ]
        return [self._add(body, "Cast", [each], [ir.AttrInt64("to", int(ir.DataType.FLOAT))]) for each in held]

    def _branches(self, node: ir.Node, parts: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
        nothing = self._const("nothing", _NOTHING)
        for number, body in enumerate(bodies(node)):
            for other, values in enumerate(parts):
                for value in values:
                    body.outputs.append(value if other == number else self._add(body, "Identity", [nothing]))
        return self._grow(node, sum(len(values) for values in parts))

    def _iterations(self, node: ir.Node, values: Sequence[ir.Value]) -> list[ir.Value]:
        (body,) = bodies(node)
        body.outputs.extend(values)
        for name in ("scan_output_axes", "scan_output_directions"):
            if name in node.attributes:
                held = [*node.attributes[name].as_ints(), *[0] * len(values)]
                node.attributes[name] = ir.AttrInt64s(name, held)
        graph = node.graph
        if graph is None:
            raise ValueError(f"{node.name} belongs to no graph")
        return [self._reduced(graph, stacked) for stacked in self._grow(node, len(values))]

    def _reduced(self, graph: ir.Graph, stacked: ir.Value) -> ir.Value:
        """The numbers over all iterations, of which there may be none: (iterations, 4) to (4,)."""
        row = self._const("row", _NOTHING.reshape(1, -1))
        rows = self._add(graph, "Concat", [row, stacked], [ir.AttrInt64("axis", 0)])
        flat = self._const("flat", np.array([-1]))
        ends = []
        for at, name in enumerate(_OVER_ITERATIONS):
            column = [rows, self._const(f"column{at}", np.array([at]))]
            numbers = self._add(graph, "Gather", column, [ir.AttrInt64("axis", 1)])
            ends.append(self._add(graph, f"Reduce{name}", [self._add(graph, "Reshape", [numbers, flat])]))
        return self._add(graph, "Concat", ends, [ir.AttrInt64("axis", 0)])

    def _grow(self, node: ir.Node, count: int) -> list[ir.Value]:
        """`count` more outputs of a node, behind those that it has."""
        before = len(node.outputs)
        node.resize_outputs(before + count)
        for value in node.outputs[before:]:
            value.name = self.names.fresh(node.name or node.op_type, "watched")
            value.type = ir.TensorType(ir.DataType.FLOAT)
        return list(node.outputs[before:])

    def _add(
        self,
        graph: ir.Graph,
        op_type: str,
        inputs: Sequence[ir.Value],
        attributes: Sequence[ir.Attr] = (),
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        self.made += 1
        node.outputs[0].name = node.name = self.names.fresh(f"watched{self.made}", op_type.lower())
        node.outputs[0].type = ir.TensorType(dtype)
        graph.append(node)
        return node.outputs[0]

    def _const(self, title: str, array: np.ndarray) -> ir.Value:
        """A constant of the main graph, which every body can read; made once."""
        if title not in self.constants:
            made = array.astype(np.int64) if array.dtype.kind == "i" else array
            tensor = ir.tensor(made, name=self.names.fresh("watched", title))
            value = ir.Value(
                name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(made.shape), const_value=tensor
            )
            self.graph.register_initializer(value)
            self.constants[title] = value
        return self.constants[title]
