"""What TensorRT's documents say about a typed model: operators, types and opsets that its ONNX parser takes.

This is a look into tables and no run: the parser has conditions of its own on attributes and shapes, and newer versions
take more. TensorRT 11 has no list that is shorter than that of 10.

FP8 is E4M3 in pairs of QuantizeLinear and DequantizeLinear, with zero points of 0 (TensorRT, Working with Quantized
Types: symmetric quantization; FP8E4M3).

Source: onnx-tensorrt, docs/operators.md of release 10.0 ("Supported ONNX Operators"): opsets 9 to 20, types FP32, FP16
and BF16 but for the operators listed here; operators that it does not know are not supported either. Release 10.13
of the same page takes opsets up to 22. One thing is measured and not documented: the builder of TensorRT-RTX 1.7
refuses ConvTranspose of bfloat16, whose parser takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import constant_value
from parityscope.operators import QUANTIZERS
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPSETS = (9, 22)
_UNSUPPORTED = frozenset(
    {
        "AffineGrid",
        "Bernoulli",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "BlackmanWindow",
        "CenterCropPad",
        "Col2Im",
        "Compress",
        "ConcatFromSequence",
        "ConvInteger",
        "DFT",
        "Det",
        "DynamicQuantizeLinear",
        "HammingWindow",
        "HannWindow",
        "ImageDecoder",
        "MatMulInteger",
        "MaxRoiPool",
        "MaxUnpool",
        "MelWeightMatrix",
        "Multinomial",
        "NegativeLogLikelihoodLoss",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "QLinearConv",
        "QLinearMatMul",
        "RegexFullMatch",
        "STFT",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SoftmaxCrossEntropyLoss",
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
        "Unique",
    }
)
_NO_BF16 = frozenset({"DeformConv", "GridSample", "Mish", "NonMaxSuppression", "NonZero", "RoiAlign"})
_NOT_BUILT_IN_BF16 = frozenset({"ConvTranspose"})
_EIGHT = ir.DataType.FLOAT8E4M3FN
_OTHER_EIGHT = frozenset(dtype for dtype in ir.DataType if dtype.name.startswith("FLOAT8") and dtype != _EIGHT)
_TABLE = "TensorRT 10's table of operators"


def tensorrt_concerns(model: ir.Model) -> tuple[Skip, ...]:
    """What the tables have against a model, by operator; nothing means that they have nothing against it."""
    infer_types(model)
    nodes = list(model.graph.all_nodes())
    opset = opset_of(model)
    found = []
    if not _OPSETS[0] <= opset <= _OPSETS[1]:
        first, last = _OPSETS
        found.append(Skip(what=f"opset {opset}", reason=f"TensorRT 10's parser is documented for {first} to {last}"))
    foreign = sorted({f"{node.domain}.{node.op_type}" for node in nodes if node.domain not in {"", "ai.onnx"}})
    found += [Skip(what=name, reason="not ONNX's own: TensorRT needs a plug-in for it") for name in foreign]
    for op_type in _operator_types(node for node in nodes if node.op_type in _UNSUPPORTED):
        found.append(Skip(what=op_type, reason=f"not supported by {_TABLE}"))
    for op_type in _operator_types(
        node for node in nodes if node.op_type in _NO_BF16 and _holds_type(node, ir.DataType.BFLOAT16)
    ):
        found.append(Skip(what=f"{op_type} of BF16", reason=f"{_TABLE} has it in FP32 and FP16 only"))
    for op_type in _operator_types(
        node for node in nodes if node.op_type in _NOT_BUILT_IN_BF16 and _holds_type(node, ir.DataType.BFLOAT16)
    ):
        found.append(Skip(what=f"{op_type} of BF16", reason="parsed, and refused by the builder of TensorRT-RTX 1.7"))
    for dtype in sorted(_OTHER_EIGHT, key=str):
        for op_type in _operator_types(node for node in nodes if _holds_type(node, dtype)):
            found.append(Skip(what=f"{op_type} of {dtype.name}", reason="TensorRT has FP8 as E4M3 alone"))
    for op_type in _operator_types(
        node for node in nodes if _holds_type(node, _EIGHT) and node.op_type not in QUANTIZERS
    ):
        found.append(Skip(what=f"{op_type} of FP8", reason="TensorRT takes FP8 in QuantizeLinear and DequantizeLinear"))
    for op_type in _operator_types(node for node in nodes if _has_zero_point(node)):
        found.append(Skip(what=f"{op_type} with a zero point", reason=f"{_TABLE} wants it to be 0"))
    for op_type in _operator_types(node for node in nodes if _holds_type(node, ir.DataType.DOUBLE)):
        found.append(Skip(what=f"{op_type} of FP64", reason="TensorRT casts FP64 down to FP32"))
    return tuple(found)


def _operator_types(nodes: Iterable[ir.Node]) -> list[str]:
    return sorted({node.op_type for node in nodes})


def _has_zero_point(node: ir.Node) -> bool:
    """Whether a quantizer of FP8 has a zero point other than 0, or one that nobody knows beforehand."""
    value = node.inputs[2] if node.op_type in QUANTIZERS and len(node.inputs) > 2 else None
    if value is None or not _holds_type(node, _EIGHT):
        return False
    tensor = constant_value(value)
    return tensor is None or bool(tensor.numpy().astype("float32").any())


def _holds_type(node: ir.Node, dtype: ir.DataType) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return any(value.type is not None and value.dtype == dtype for value in values)
