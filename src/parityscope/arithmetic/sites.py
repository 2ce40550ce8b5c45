"""What is rounded: which tensors an engine stores in a format, which inputs it rounds on their way into a product.

A `RoundingPlan` says it value by value and input by input, so that any assignment of formats can be written down;
`uniform_plan` is the plan of one format for a whole graph. What keeps full precision, and why:

* integers, booleans, strings: not floating point;
* inputs that say *how* and not *what* to compute (`EXACT_INPUTS`: the scales of Resize, the limits of Range, a
  quantization scale): engines keep them in FP32 or read them on the host;
* shape arithmetic: floats computed from shapes and constants alone that end in such inputs alone (`Shape -> Cast ->
  Mul -> Floor -> Cast -> Reshape`): engines evaluate it on the host. The same float also used as data is rounded there.

float64 tensors are rounded as float32 ones are: no engine of lower precision keeps them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.graphs import all_values
from parityscope.arithmetic.recurrent import is_recurrent, why_not_apart
from parityscope.arithmetic.standard import SHAPE_READERS, opset_of
from parityscope.arithmetic.tables import nodes_reading_tables
from parityscope.case.graph import bodies_of_node, constant_value, input_at
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import OPERATORS, STANDARD, with_trait
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy as np

    from parityscope.arithmetic.formats import Format

# Inputs that steer an operator, by operator: never rounded, and where shape arithmetic may end.
EXACT_INPUTS: Mapping[str, tuple[int, ...]] = {one.name: one.steers for one in STANDARD.values() if one.steers}
# Operators that multiply and accumulate, and the inputs that tensor cores take in TF32 (a bias is added in FP32).
# FusedConv, FusedGemm, FusedMatMul and NhwcFusedConv are ONNX Runtime's names for the same with an epilogue.
PRODUCTS: Mapping[str, tuple[int, ...] | None] = {
    one.name: one.multiplies for one in OPERATORS.values() if one.kind == "product" and one.multiplies != ()
}
# Operators with products inside whose inputs cannot be rounded from outside; of recurrent ones `recurrent` tells.
_PRODUCTS_INSIDE = with_trait("products inside")
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingPlan:
    """What is rounded to what.

    `storage`: tensors by the format they are kept in. `operands`: inputs (node, index) by the format in which a
    product takes them. `exact`: inputs (node, index) that read the value as it was before it was rounded for storage,
    because they steer the operator; `inner`: because they read it from a register. `constants`: inputs (node, index)
    that read other numbers than the constant they name.
    """

    storage: Mapping[ir.Value, Format]
    operands: Mapping[tuple[ir.Node, int], Format]
    exact: frozenset[tuple[ir.Node, int]]
    inner: frozenset[tuple[ir.Node, int]] = frozenset()
    constants: Mapping[tuple[ir.Node, int], np.ndarray] = field(default_factory=lambda: MappingProxyType({}))

    def reads_rounded(self, node: ir.Node, index: int) -> bool:
        """Whether input `index` of `node` reads what is stored."""
        return (node, index) not in self.exact and (node, index) not in self.inner


def uniform_plan(
    model: ir.Model,
    number_format: Format | None,
    typed: Mapping[ir.Value, Format],
    *,
    stored: bool = False,
    registers: Collection[ir.Value] = (),
) -> RoundingPlan:
    """The plan of one format for the whole graph, but for what is kept in `registers`.

    `typed` holds the values whose own type is a format: they stay in that. With `number_format` None only those are
    rounded ("as typed"); TF32 concerns products' inputs only (unless it is `stored`), any other format whatever is stored.
    """
    # A value that is float16 by its own type is that for whoever reads it.
    exact = frozenset((node, index) for node, index in exact_uses(model) if input_at(node, index) not in typed)
    storage = {value: held for value, held in typed.items() if value not in registers}
    operands: dict[tuple[ir.Node, int], Format] = {}
    if number_format is not None and number_format.name == "tf32" and not stored:
        operands = {
            use: number_format
            for use, value in _product_inputs(model)
            if value not in storage or not number_format.contains(storage[value])
        }
    elif number_format is not None:
        floats = (value for value in all_values(model) if is_float(value))
        storage.update((value, number_format) for value in floats if value not in typed and value not in registers)
    return RoundingPlan(storage=storage, operands=operands, exact=exact)


def leave_tables_unrounded(
    model: ir.Model, plan: RoundingPlan, settled: frozenset[ir.Value]
) -> tuple[RoundingPlan, frozenset[ir.Value]]:
    """The plan and the settled values with large tables (`tables`) read as they are, and what is taken out rounded."""
    nodes = [
        node
        for node in nodes_reading_tables(model, _FLOATS)
        if node.inputs[0] in plan.storage and plan.reads_rounded(node, 0)
    ]
    taken = {node.outputs[0] for node in nodes}
    return replace(plan, exact=plan.exact | {(node, 0) for node in nodes}), settled - taken


def skips_of_not_simulated(model: ir.Model, number_format: Format | None) -> list[Skip]:
    """What `uniform_plan` cannot round: values of unknown type and arithmetic inside operators."""
    skips = []
    unknown = [str(value.name) for value in all_values(model) if value.name and value.type is None]
    if unknown:
        skips.append(
            Skip(
                what=f"rounding of {len(unknown)} tensors: {', '.join(unknown[:5])}{', ...' if unknown[5:] else ''}",
                reason="their element type is neither declared nor known for the operator that makes them",
                fix="declare the types in the model's value_info",
            )
        )
    tf32 = number_format == FORMATS["tf32"]
    opset = opset_of(model)
    found: dict[tuple[str, str], int] = {}
    for node in model.graph.all_nodes():
        reason = ""
        if is_recurrent(node):
            reason = why_not_apart(node, opset) or "the engine that is simulated computes it in FP32 inside"
        elif tf32 and node.op_type in _PRODUCTS_INSIDE:
            reason = "the inputs of the products inside it cannot be reached from outside"
        if reason:
            found[node.op_type, reason] = found.get((node.op_type, reason), 0) + 1
    skips.extend(
        Skip(
            what=f"rounding inside {count} {op_type} {'node' if count == 1 else 'nodes'}",
            reason=f"{reason}; what is inside stays in FP32",
        )
        for (op_type, reason), count in found.items()
    )
    return skips


def is_float(value: ir.Value) -> bool:
    """Whether a value is a tensor of float32 or float64."""
    return isinstance(value.type, ir.TensorType) and value.dtype in _FLOATS


def _product_inputs(model: ir.Model) -> list[tuple[tuple[ir.Node, int], ir.Value]]:
    found = []
    for node in model.graph.all_nodes():
        if node.op_type not in PRODUCTS:
            continue
        for index in PRODUCTS[node.op_type] or range(len(node.inputs)):
            value = node.inputs[index]
            # Products of float64 are not computed by tensor cores in TF32.
            if value is not None and value.type is not None and value.dtype == ir.DataType.FLOAT:
                found.append(((node, index), value))
    return found


def exact_uses(model: ir.Model) -> frozenset[tuple[ir.Node, int]]:
    """The inputs that keep full precision: steering inputs, and every input of shape arithmetic."""
    nodes = list(model.graph.all_nodes())
    steering = {(node, index) for node in nodes for index in EXACT_INPUTS.get(node.op_type, ())}
    static = _nodes_from_shapes(nodes)
    arithmetic: set[ir.Node] = set()
    for node in reversed(nodes):  # users come behind what they use
        uses = [use for value in node.outputs for use in value.uses()]
        ends = any(value.is_graph_output() for value in node.outputs)
        if node in static and uses and not ends and all(use in steering or use[0] in arithmetic for use in uses):
            arithmetic.add(node)
    return frozenset(steering | {(node, index) for node in arithmetic for index in range(len(node.inputs))})


def _nodes_from_shapes(nodes: list[ir.Node]) -> set[ir.Node]:
    """The nodes whose outputs depend on shapes and constants alone."""
    found: set[ir.Node] = set()
    for node in nodes:
        if bodies_of_node(node):
            continue
        if node.op_type in SHAPE_READERS | {"Constant"}:
            found.add(node)
            continue
        inputs = [value for value in node.inputs if value is not None]
        if inputs and all(constant_value(value) is not None or value.producer() in found for value in inputs):
            found.add(node)
    return found
