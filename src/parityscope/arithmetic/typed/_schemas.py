"""Which operators may compute in a format, by ONNX's own schemas at the model's opset.

An operator takes a format if every tensor of numbers that it would read or give in that format may be of it, and no
input that steers it (`sites.EXACT_INPUTS`: the scale of a quantization, the limits of a Range) shares a type with
one of those: that one has to stay exact. ONNX Runtime's own operators have no schema here; those whose float tensors all
have one type take float16 by its documentation (docs/ContribOperators.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from parityscope.arithmetic.element_types import LIKE_FIRST_INPUT
from parityscope.arithmetic.standard import schema_of
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir

__all__ = ["DTYPE_ATTRIBUTES", "QUANTIZERS", "carries_format", "outputs_in_format"]

# Attributes that say the element type of what an operator makes out of nothing, or whatever it is given.
DTYPE_ATTRIBUTES: Mapping[str, str] = {
    one.name: one.typed_by for one in STANDARD.values() if one.typed_by and one.name not in {"BitCast", "Multinomial"}
}
# Up to opset 22 their data has the type of their scale, which stays exact; ONNX Runtime 1.31 reads it so at 23 as well.
QUANTIZERS = frozenset({"DequantizeLinear", "QuantizeLinear"})
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
