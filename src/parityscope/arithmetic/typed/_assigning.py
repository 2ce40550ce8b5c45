"""Which format each node computes in: its own by the assignment, or that of what it moves or reads.

Names are those of `case.graph.node_name`; where several nodes that decide have one name, the later ones are called
`<name>#<index>`, as a switchable graph calls them. Inside control flow a node has the format of the node around it,
unless its own name is in the assignment; or, where control flow is divided (`divided_nodes`), the low one.

Which operators may compute in a format, by ONNX's own schemas at the model's opset.

An operator takes a format if every tensor of numbers that it would read or give in that format may be of it, and no
input that steers it (`sites.EXACT_INPUTS`: the scale of a quantization, the limits of a Range) shares a type with
one of those: that one has to stay exact. ONNX Runtime's own operators have no schema here; those whose float tensors all
have one type take float16 by its documentation (docs/ContribOperators.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from parityscope.arithmetic.element_types import LIKE_FIRST_INPUT
from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.graphs import divided_nodes
from parityscope.arithmetic.movement import already_rounded
from parityscope.arithmetic.sites import EXACT_INPUTS, uniform_plan
from parityscope.arithmetic.standard import SHAPE_READERS, schema_of
from parityscope.arithmetic.typed.constants import HALF, fixed_constant
from parityscope.case.graph import bodies_of_node, node_name
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir


# Attributes that say the element type of what an operator makes out of nothing, or whatever it is given.
DTYPE_ATTRIBUTES: Mapping[str, str] = {
    one.name: one.typed_by for one in STANDARD.values() if one.typed_by and one.name not in {"BitCast", "Multinomial"}
}
_SPELT = {"f16": "tensor(float16)", "bf16": "tensor(bfloat16)"}
# Of ONNX Runtime's operators with one type, those that have inputs of float32 beside it.
_MIXED = frozenset({"GroupNorm", "SkipGroupNorm"})

# Whose schema allows other formats, and whose definition in terms of other operators adds a float32 constant all the same:
# ONNX's checker and ONNX Runtime refuse it.
_FLOAT32_BY_DEFINITION = frozenset({"MeanVarianceNormalization"})

Formal = onnx.defs.OpSchema.FormalParameter


def carries_format(node: ir.Node, format_name: str, opsets: Mapping[str, int]) -> bool:
    """Whether control flow may take in, hand on and give back tensors of the format (type variable V)."""
    schema = schema_of(node, opsets)
    kinds = [each for each in schema.type_constraints if each.type_param_str == "V"] if schema is not None else []
    return any(_SPELT[format_name] in each.allowed_type_strs for each in kinds)


def outputs_in_format(
    node: ir.Node,
    format_name: str,
    reads: Sequence[int],
    steers: Sequence[int],
    gives: Sequence[int],
    opsets: Mapping[str, int],
) -> tuple[int, ...] | None:
    """Which of the outputs `gives` a node gives in the format if the inputs `reads` are of it; None if they may not be.

    `steers` are the inputs of floats that stay as they are.
    """
    if node.op_type in _FLOAT32_BY_DEFINITION:
        return None
    schema = schema_of(node, opsets)
    if schema is None:
        known = node.op_type in LIKE_FIRST_INPUT - _MIXED and format_name == "f16"
        return tuple(gives) if known else None
    allowed = {each.type_param_str: frozenset(each.allowed_type_strs) for each in schema.type_constraints}
    inputs = [_formal_at(schema.inputs, index) for index in reads]
    bound = {formal.type_str for formal in inputs if formal is not None}
    fixed = {formal.type_str for index in steers if (formal := _formal_at(schema.inputs, index)) is not None}
    if None in inputs or any(_SPELT[format_name] not in allowed.get(kind, ()) for kind in bound):
        return None
    found = []
    for index in gives:
        formal = _formal_at(schema.outputs, index)
        kind = formal.type_str if formal is not None else ""
        said = index == 0 and (node.op_type in DTYPE_ATTRIBUTES or node.op_type == "ConstantOfShape")
        if _SPELT[format_name] in allowed.get(kind, ()) and (kind in bound or said):
            found.append(index)
            bound.add(kind)
    if bound & fixed or (0 in gives and 0 not in found):
        return None
    return tuple(found)


def _formal_at(formals: Iterable[Formal], index: int) -> Formal | None:
    """The formal parameter of the actual one at `index`: the last one is repeated if it is variadic."""
    known = list(formals)
    if index < len(known):
        return known[index]
    variadic = known and known[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return known[-1] if variadic else None


@dataclass(slots=True, kw_only=True)
class Assigning:
    """`origin` are the element types of the floats that the assignment is about, `stored` the formats of those computed.

    `steering` are floats that say how to compute, `decided` the nodes by the names that they decide by, and `used` the
    names that an assignment may hold.
    """

    low: str
    keep: Mapping[str, str]
    origin: Mapping[ir.Value, ir.DataType]
    exact: frozenset[tuple[ir.Node, int]]
    settled: frozenset[ir.Value]
    steering: frozenset[ir.Value]
    divided: frozenset[ir.Node] = frozenset()
    stored: dict[ir.Value, str] = field(default_factory=dict)
    decided: dict[str, ir.Node] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    _taken: set[str] = field(default_factory=set)

    def reads(self, node: ir.Node) -> list[int]:
        """The inputs of floats that the node computes with or moves."""
        return [index for index in self._floats(node) if (node, index) not in self.exact]

    def steers(self, node: ir.Node) -> list[int]:
        """The inputs of floats that say how to compute."""
        return [index for index in self._floats(node) if (node, index) in self.exact]

    def gives(self, node: ir.Node) -> list[int]:
        """The outputs of floats."""
        return [index for index, value in enumerate(node.outputs) if value in self.origin]

    def is_outside(self, node: ir.Node) -> bool:
        """Whether no format concerns the node: it has no floats, reads a shape alone, or does shape arithmetic."""
        if node.op_type in SHAPE_READERS | {"Constant"} or not (self._floats(node) or self.gives(node)):
            return True
        own = EXACT_INPUTS.get(node.op_type, ())
        held = [(node, index) in self.exact for index in range(len(node.inputs))]
        return bool(held) and all(held) and any(index not in own for index in range(len(node.inputs)))

    def follows(self, node: ir.Node) -> bool:
        """Whether the node only moves numbers, or gives none."""
        return not bodies_of_node(node) and all(node.outputs[index] in self.settled for index in self.gives(node))

    def of(self, node: ir.Node, index: int, around: str | None) -> tuple[str, str]:
        """The format of a node, and the name by which it decided on it ("" if it follows others).

        `index` counts the nodes of its graph, `around` is the format of the control flow that it is in, if any.
        """
        if self.follows(node):
            values = [node.inputs[position] for position in self.reads(node)]
            before = {self.stored[value] for value in values if value in self.stored}
            if before:
                return (before.pop() if len(before) == 1 else "f32"), ""
        name = self._name(node, index, around)
        return self.keep.get(name, around or self.low), name

    def _name(self, node: ir.Node, index: int, around: str | None) -> str:
        name = node_name(node, index)
        if around is not None:  # nodes in bodies are only known by names of their own, which may be shared
            self.used.add(node.name or "")
            return node.name or ""
        name = f"{name}#{index}" if name in self._taken else name
        self._taken.add(name)
        self.used.add(name)
        self.decided[name] = node
        return name

    def _floats(self, node: ir.Node) -> list[int]:
        return [index for index, value in enumerate(node.inputs) if value is not None and value in self.origin]


def assign_formats(model: ir.Model, low: str, keep: Mapping[str, str], *, inside: bool = False) -> Assigning:
    """What is known of a model, whose types are inferred, before the first node is visited.

    `inside`: nodes in the bodies of If, Loop and Scan have formats of their own.
    """
    typed = {
        value: FORMATS[name]
        for graph in model.graphs()
        for value in _values_of_graph(graph)
        for name, dtype in HALF.items()
        if value.type is not None and value.dtype == dtype
    }
    plan = uniform_plan(model, FORMATS[low], typed)
    origin = {value: value.dtype for value in plan.storage if value not in typed and value.dtype is not None}
    return Assigning(
        low=low,
        keep=keep,
        origin=origin,
        exact=plan.exact,
        settled=already_rounded(model, plan),
        steering=_steering_floats(plan.exact, origin),
        divided=frozenset(divided_nodes(model.graph)) if inside else frozenset(),
    )


def _values_of_graph(graph: ir.Graph) -> list[ir.Value]:
    return [
        *graph.inputs,
        *graph.initializers.values(),
        *(value for node in graph for value in node.outputs if value.name),
    ]


def _steering_floats(
    exact: frozenset[tuple[ir.Node, int]], origin: Mapping[ir.Value, ir.DataType]
) -> frozenset[ir.Value]:
    """Computed floats that steer an operator."""
    uses = ((node, index) for node, index in exact if node.op_type not in SHAPE_READERS and index < len(node.inputs))
    found = (node.inputs[index] for node, index in uses)
    return frozenset(
        value for value in found if value is not None and value in origin and fixed_constant(value) is None
    )
