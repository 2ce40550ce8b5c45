"""The formats that an ONNX file holds by its types, read from its message alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.declaring import bodies_of
from parityscope.operators import is_quantized

if TYPE_CHECKING:
    import onnx

# Element types that are a format of arithmetic, the finest format first; QUANTIZED and PACKED stand for operators that say it.
_FORMATS = {
    "f16": {"FLOAT16"},
    "bf16": {"BFLOAT16"},
    "int8": {"QUANTIZED"},
    "f8e4m3": {"FLOAT8E4M3FN", "FLOAT8E4M3FNUZ"},
    "f8e5m2": {"FLOAT8E5M2", "FLOAT8E5M2FNUZ"},
    "int4": {"INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "PACKED"},
}
_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype"}  # of Cast, RandomNormal and QuantizeLinear


def held_formats(model: onnx.ModelProto) -> tuple[str, ...]:
    """The formats below float32 that a file says by its types, the finest first: of inputs, outputs, weights, constants, Casts.

    What lies between follows from these, so that nothing has to be inferred. Eight-bit integers are a format of arithmetic
    where operators quantize, and an image or a mask elsewhere.
    """
    import onnx

    types: set[int] = set()
    operators: set[str] = set()
    parts: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while parts:
        part = parts.pop()
        if isinstance(part, onnx.GraphProto):
            types.update(value.type.tensor_type.elem_type for value in (*part.input, *part.output, *part.value_info))
            types.update(tensor.data_type for tensor in part.initializer)
        for node in part.node:
            operators.add(node.op_type)
            parts.extend(bodies_of(node))
            types.update(one.t.data_type for one in node.attribute)
            types.update(one.i for one in node.attribute if one.name in _TYPE_ATTRIBUTES)
    names = {onnx.TensorProto.DataType.Name(one) for one in types & set(onnx.TensorProto.DataType.values())}
    if any(map(is_quantized, operators - {"DequantizeLinear"})):  # it alone keeps weights small
        names.add("QUANTIZED")
    if any(operator.endswith("NBits") for operator in operators):  # ONNX Runtime's, of weights packed into bytes
        names.add("PACKED")
    return tuple(name for name, among in _FORMATS.items() if among & names)
