"""A model that holds float16 or bfloat16 values turned into one that computes in float32, and the values to round.

Exists because ONNX Runtime's CPU provider computes float16 nodes in float32 and removes the roundings between them,
at every optimization level: a model typed in float16 cannot be evaluated there as it stands. Here every such value
becomes float32, and is remembered with the format of its former type, to which it is to be rounded.

Inputs and outputs of the model keep their types, through Casts at the border. Operators that are not ONNX's own (and
not in `element_types.LIKE_FIRST_INPUT`), and BitCast, may exist for their type only: they keep it, between Casts, and
what they do inside is a Skip. Large tables that are only gathered from keep it too (`tables`): what is taken out of them
is made float32. float64 stays float64: it is computed as such. Quantization to float8 is written out as
divisions, products and Casts, which round as it does (`_quantizers`).
"""

from __future__ import annotations

import onnx_ir as ir

from parityscope.arithmetic._quantizers import FLOAT8, written_out
from parityscope.arithmetic.element_types import LIKE_FIRST_INPUT, infer_types
from parityscope.arithmetic.formats import FORMATS, Format
from parityscope.arithmetic.graphs import Names, all_values, cast_node, give_back, prepend_nodes, redirect_uses
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.arithmetic.standard import DOMAINS
from parityscope.arithmetic.tables import nodes_reading_tables
from parityscope.case.graph import constant_value
from parityscope.records import Skip

HALF = {ir.DataType.FLOAT16: FORMATS["f16"], ir.DataType.BFLOAT16: FORMATS["bf16"]}
# Attributes of ONNX operators whose integer is an element type.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype", "stash_type", "precision", "softmax_precision")


def retype_to_float(model: ir.Model, names: Names) -> tuple[dict[ir.Value, Format], frozenset[ir.Value], list[Skip]]:
    """Makes every float16 and bfloat16 value of `model` (edited in place, types inferred) float32.

    Returns:
        Those values by the format of their former type; those of them that hold rounded numbers already; and what
        could not be retyped.
    """
    written_out(model, names)
    foreign = [node for node in model.graph.all_nodes() if _is_foreign(node) and _touches_half(node)]
    kept: set[ir.Value] = set()
    rounded: dict[ir.Value, Format] = {}
    for node in foreign:
        rounded.update(_fence_node(node, names, kept))
    tables = nodes_reading_tables(model, HALF)
    kept.update(value for node in tables if (value := node.inputs[0]) is not None)
    for node in tables:
        rounded.update(_taken_out(node, names, kept))
    rounded.update(_cast_inputs_up(model, names, kept))
    typed = {
        value: HALF[dtype]
        for value in all_values(model)
        if value not in kept and (dtype := _half_type_of(value)) is not None
    }
    for value in typed:
        _make_float(value)
    for node in model.graph.all_nodes():
        if node not in foreign and not (node.op_type == "Cast" and node.outputs[0] in kept):
            _retype_attributes(node)
    _cast_outputs_back(model, names, typed)
    return {**typed, **rounded}, frozenset(rounded), _skips_of_fenced(foreign)


def is_wide(model: ir.Model) -> bool:
    """Whether `float32_copy` would change nothing in a model that `prepare_copy` gave and whose types are inferred."""
    sixteen = {int(dtype) for dtype in HALF}
    return not (
        any(value.type is None or _is_narrow(value.dtype) for value in all_values(model))
        or any(
            _asks_for(attribute, sixteen) for node in model.graph.all_nodes() for attribute in node.attributes.values()
        )
    )


def _is_narrow(dtype: ir.DataType | None) -> bool:
    return dtype in HALF or dtype in FLOAT8


def _asks_for(attribute: ir.Attr, types: set[int]) -> bool:
    """Whether an attribute is, or holds, an element type of these."""
    if attribute.type == ir.AttributeType.INT:
        return attribute.name in _TYPE_ATTRIBUTES and attribute.value in types
    return attribute.type == ir.AttributeType.TENSOR and int(attribute.value.dtype) in types


def float32_copy(model: ir.Model) -> ir.Model:
    """A copy of `model` whose float16 and bfloat16 values are float32 and rounded nowhere: what ONNX Runtime's CPU makes of it.

    Values keep their names; functions are inlined and constants are initializers.
    """
    copy = prepare_copy(model, OLDEST)
    infer_types(copy)
    retype_to_float(copy, Names(copy))
    return copy


def _half_type_of(value: ir.Value | None) -> ir.DataType | None:
    """The element type of a float16 or bfloat16 value (or sequence), None for any other."""
    dtype = value.dtype if value is not None and value.type is not None else None
    return dtype if dtype in HALF else None


def _is_foreign(node: ir.Node) -> bool:
    return (node.domain not in DOMAINS and node.op_type not in LIKE_FIRST_INPUT) or node.op_type == "BitCast"


def _touches_half(node: ir.Node) -> bool:
    return any(_half_type_of(value) for value in (*node.inputs, *node.outputs))


def _cast_inputs_up(model: ir.Model, names: Names, kept: set[ir.Value]) -> dict[ir.Value, Format]:
    """Casts the model's own float16 and bfloat16 inputs up; they keep their types."""
    entered = {}
    for value in model.graph.inputs:
        dtype = _half_type_of(value)
        if dtype is None:
            continue
        uses = list(value.uses())
        node = cast_node(value, ir.DataType.FLOAT, names.fresh(value.name, "f32"))
        redirect_uses(uses, node.outputs[0])
        prepend_nodes(model.graph, [node])
        kept.add(value)
        entered[node.outputs[0]] = HALF[dtype]
    return entered


def _cast_outputs_back(model: ir.Model, names: Names, typed: dict[ir.Value, Format]) -> None:
    """Casts outputs that were float16 or bfloat16 back to it, under their own names."""
    for position, value in enumerate(model.graph.outputs):
        if value not in typed:
            continue
        name = str(value.name)
        value.name = names.fresh(name, "f32")
        dtype = next(dtype for dtype, number_format in HALF.items() if number_format == typed[value])
        node = cast_node(value, dtype, name)
        model.graph.append(node)
        model.graph.outputs[position] = node.outputs[0]


def _fence_node(node: ir.Node, names: Names, kept: set[ir.Value]) -> dict[ir.Value, Format]:
    """Puts Casts around a node that keeps its types; gives the float32 values that stand for its outputs."""
    graph = node.graph
    if graph is None:
        raise ValueError(f"{node.name} belongs to no graph")
    for index, value in enumerate(node.inputs):
        dtype = _half_type_of(value)
        if value is not None and dtype is not None:
            down = cast_node(value, dtype, names.fresh(value.name, "typed"))
            graph.insert_before(node, down)
            node.replace_input_with(index, down.outputs[0])
            kept.add(down.outputs[0])
    return _taken_out(node, names, kept)


def _taken_out(node: ir.Node, names: Names, kept: set[ir.Value]) -> dict[ir.Value, Format]:
    """Casts the outputs of a node that keeps its types up; gives the float32 values that stand for them."""
    graph = node.graph
    if graph is None:
        raise ValueError(f"{node.name} belongs to no graph")
    stand_ins = {}
    for value in node.outputs:
        dtype = _half_type_of(value)
        if dtype is not None:
            name = str(value.name)
            value.name = names.fresh(name, "typed")
            uses = list(value.uses())
            up = cast_node(value, ir.DataType.FLOAT, name)
            redirect_uses(uses, up.outputs[0])
            give_back(value, up.outputs[0])
            graph.insert_after(node, up)
            kept.add(value)
            stand_ins[up.outputs[0]] = HALF[dtype]
    return stand_ins


def _skips_of_fenced(foreign: list[ir.Node]) -> list[Skip]:
    return [
        Skip(
            what=f"de-typing of node {node.name or node.outputs[0].name}",
            reason=f"{node.domain or 'ai.onnx'}.{node.op_type} may exist for its type only: it runs as it is typed",
        )
        for node in foreign
    ]


def _make_float(value: ir.Value) -> None:
    """Gives `value` elements of float32; a constant's own elements are converted, which is exact."""
    tensor = constant_value(value)
    if value.type is not None:
        value.type = _float_type(value.type)
    if value.is_initializer() and tensor is not None:
        value.const_value = _as_float(tensor)


def _float_type(held: ir.TypeProtocol) -> ir.TypeProtocol:
    """The same kind of type over float32 (a new one: values may share theirs)."""
    if isinstance(held, ir.SequenceType):
        return ir.SequenceType(_float_type(held.elem_type))
    if isinstance(held, ir.OptionalType):
        return ir.OptionalType(_float_type(held.elem_type))
    return ir.TensorType(ir.DataType.FLOAT)


def _as_float(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype("float32"), name=tensor.name)


def _retype_attributes(node: ir.Node) -> None:
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in HALF:
            node.attributes[name] = ir.AttrTensor(name, _as_float(attribute.as_tensor()))
        elif (
            name in _TYPE_ATTRIBUTES
            and attribute.type == ir.AttributeType.INT
            and attribute.as_int() in {int(dtype) for dtype in HALF}
        ):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
