"""What a constant is to the node that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic._attributes import input_at

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.lint._records import Place, Sheet

__all__ = ["CHOOSE_ELEMENTS", "kept_in_fp32", "role_of", "stands_for_a_bound"]

# Names of inputs, from the ONNX operator specification.
_INPUTS = {
    "BatchNormalization": ("input", "scale", "bias", "running mean", "running variance"),
    "Conv": ("input", "weight", "bias"),
    "ConvTranspose": ("input", "weight", "bias"),
    "Gemm": ("input", "weight", "bias"),
    "LSTM": ("input", "weight", "recurrent weight", "bias"),
    "GRU": ("input", "weight", "recurrent weight", "bias"),
    "RNN": ("input", "weight", "recurrent weight", "bias"),
    "LayerNormalization": ("input", "scale", "bias"),
    "InstanceNormalization": ("input", "scale", "bias"),
    "GroupNormalization": ("input", "scale", "bias"),
    "RMSNormalization": ("input", "scale"),
    "MatMul": ("left factor", "weight"),
    "Div": ("dividend", "divisor"),
    "Pow": ("base", "exponent"),
    "Where": ("condition", "value where true", "value where false"),
    "Pad": ("input", "padding", "padding value"),
}
# Operators whose constants bound or choose: beyond range they bound nothing that the format can hold.
_BOUNDS = frozenset({("Clip", 1), ("Clip", 2)})
_CHOOSE = frozenset({"Max", "Min"})
# Operators that put elements of a constant beside or in the place of others, and compute nothing.
CHOOSE_ELEMENTS = frozenset({"Where", "Pad", "Concat", "ScatterND", "ScatterElements", "ConstantOfShape", "OneHot"})


def role_of(node: ir.Node, position: int) -> str:
    """What input `position` of a node is called: "running variance", "weight", else "constant"."""
    names = _INPUTS.get(node.op_type, ())
    return names[position] if position < len(names) else "constant"


def stands_for_a_bound(node: ir.Node, position: int) -> bool:
    """Whether the constant at `position` bounds the others (Clip, Max, Min)."""
    return (node.op_type, position) in _BOUNDS or node.op_type in _CHOOSE


def kept_in_fp32(sheet: Sheet, place: Place, position: int) -> bool:
    """Whether a model that computes in 16 bits where it wants to declares this input as wider itself."""
    value = input_at(place.node, position)
    return (
        bool(sheet.typed) and value is not None and value.dtype is not None and value.dtype.name in {"FLOAT", "DOUBLE"}
    )
