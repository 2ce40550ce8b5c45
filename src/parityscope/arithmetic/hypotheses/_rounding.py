"""Transforms and roundings that the arithmetic hypotheses are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.hypotheses import Accumulator, Rounding, Variant
from parityscope.arithmetic.hypotheses._attributes import attributes_change, attributes_rounded
from parityscope.arithmetic.hypotheses._folding import fold, foldable
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.sites import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Operand, Transform
    from parityscope.arithmetic.rounding import Mode, Overflow

__all__ = [
    "FOLDED",
    "TENSOR_CORES",
    "always",
    "has_product",
    "inputs_of",
    "magnitude",
    "operands_scaled",
    "output_rounding",
    "rounded",
    "storage_variants",
    "weight_axis",
]

_FLOATS = ("float32", "float64")
FOLDED = "scales behind a product folded into its weights first"

# What may have run products of narrow operands: an FP32 accumulator that drops bits after every 4 terms, the fewest of any
# generation (TF32 on Ampere 4, on Hopper 8; FP16 and BF16 up to 16; Fasi et al., PeerJ CS 330; arXiv 2511.10909).
TENSOR_CORES = Accumulator(unit=FORMATS["f32"].unit_roundoff, block=4, truncates=True)


def always(_node: ir.Node, _graph: ir.Graph) -> bool:
    """Applies to every region."""
    return True


def has_product(_node: ir.Node, graph: ir.Graph) -> bool:
    """Whether the region multiplies and accumulates."""
    return any(each.op_type in PRODUCTS for each in graph)


def rounded(
    name: str, *, mode: Mode = "nearest-even", overflow: Overflow = "infinity", subnormals: bool = True
) -> Transform:
    """Rounds what is read to the format called `name`."""
    number_format = FORMATS[name]

    def transform(array: np.ndarray, _: Operand) -> np.ndarray:
        if array.dtype.name not in _FLOATS:
            return array
        return round_to(array, number_format, mode=mode, overflow=overflow, subnormals=subnormals)

    return transform


def output_rounding(name: str, *, subnormals: bool = True, overflow: Overflow = "infinity") -> Rounding:
    """Rounds a region's output to the format called `name`, to nearest even."""
    number_format = FORMATS[name]
    return Rounding(
        name=name,
        unit=number_format.unit_roundoff,
        apply=lambda array: round_to(array, number_format, subnormals=subnormals, overflow=overflow),
    )


def inputs_of(name: str, graph: ir.Graph) -> Iterator[Variant]:
    """Inputs rounded, result kept in FP32: what products multiply, or everything that the region reads."""
    title = FORMATS[name].title
    for variant in (
        Variant(words=f"what is multiplied is rounded to {title}", operands=rounded(name)),
        Variant(words=f"inputs and parameters are stored in {title}", stored=rounded(name)),
    ):
        yield replace(variant, accumulator=TENSOR_CORES)
    if foldable(graph):
        yield Variant(
            words=f"what is multiplied is rounded to {title}, {FOLDED}",
            rewrite=fold,
            operands=rounded(name),
            accumulator=TENSOR_CORES,
        )


def storage_variants(name: str, graph: ir.Graph) -> Iterator[Variant]:
    """Inputs and output rounded: fused (only the region's edges are stored) or with every tensor between stored too.

    Where a float attribute is another number in the format, also with attributes rounded.
    """
    for variant in _stored(name, graph):
        yield replace(variant, accumulator=TENSOR_CORES)
    if attributes_change(name, graph):
        title, output = FORMATS[name].title, output_rounding(name)
        for words, between in (
            ("inputs, parameters and output are stored", None),
            ("every tensor is stored", rounded(name)),
        ):
            yield Variant(
                words=f"{words} in {title}, attributes rounded too",
                rewrite=attributes_rounded(name),
                stored=rounded(name),
                between=between,
                output=output,
                accumulator=TENSOR_CORES,
            )


def _stored(name: str, graph: ir.Graph) -> Iterator[Variant]:
    title = FORMATS[name].title
    output = output_rounding(name)
    yield Variant(words=f"inputs, parameters and output are stored in {title}", stored=rounded(name), output=output)
    yield Variant(
        words=f"what is multiplied and the output are rounded to {title}, a bias is added in FP32",
        operands=rounded(name),
        output=output,
    )
    yield Variant(
        words=f"every tensor is stored in {title}", stored=rounded(name), between=rounded(name), output=output
    )
    if foldable(graph):
        yield Variant(
            words=f"inputs, parameters and output are stored in {title}, {FOLDED}",
            rewrite=fold,
            stored=rounded(name),
            output=output,
        )
        yield Variant(
            words=f"what is multiplied and the output are rounded to {title}, {FOLDED}, a bias is added in FP32",
            rewrite=fold,
            operands=rounded(name),
            output=output,
        )
    for rewrite in (fold, None) if foldable(graph) else (None,):
        yield Variant(
            words=f"what products read, their bias too, and the output are stored in {title}, the rest is fused in FP32"
            f"{f'; {FOLDED}' if rewrite else ''}",
            rewrite=rewrite,
            stored=_of_products(rounded(name)),
            output=output,
        )


def _of_products(transform: Transform) -> Transform:
    """The transform, of what products read: measured on an engine to keep the constants of fused pointwise nodes in FP32."""

    def chosen(array: np.ndarray, operand: Operand) -> np.ndarray:
        return transform(array, operand) if operand.node.op_type in PRODUCTS else array

    return chosen


def weight_axis(operand: Operand) -> int | None:
    """The axis of a constant operand that output channels lie on; None where there is none."""
    rank_two = {"Gemm", "FusedGemm"}
    if operand.node.op_type in rank_two:
        transposed = operand.node.attributes.get("transB")
        return 0 if transposed is not None and transposed.as_int() else 1
    return {"Conv": 0, "FusedConv": 0, "NhwcFusedConv": 0, "ConvTranspose": 1, "MatMul": -1, "FusedMatMul": -1}.get(
        operand.node.op_type
    )


def operands_scaled(name: str, *, by_channel: bool) -> Transform:
    """Rounds to a narrow format after scaling the largest magnitude to the format's largest number.

    Per tensor; with `by_channel` parameters have a scale for every output channel.
    Source: absmax scaling, as in "FP8 Formats for Deep Learning", arXiv 2209.05433, section 3.
    """
    number_format = FORMATS[name]

    def transform(array: np.ndarray, operand: Operand) -> np.ndarray:
        if array.dtype.name not in _FLOATS or array.size == 0:
            return array
        scale = magnitude(array, operand, by_channel=by_channel) / number_format.largest
        small = round_to((array / scale).astype(array.dtype), number_format, overflow="saturate")
        return np.asarray(small * scale, array.dtype)

    return transform


def magnitude(array: np.ndarray, operand: Operand, *, by_channel: bool) -> np.ndarray:
    """The largest finite magnitude, per tensor or per output channel of a parameter; 1 where all are zero."""
    sizes = np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)
    axis = weight_axis(operand) if by_channel and operand.constant and operand.index == 1 else None
    if axis is None or array.ndim < 2:
        largest = np.asarray(sizes.max(initial=0.0), array.dtype)
    else:
        others = tuple(each for each in range(array.ndim) if each != axis % array.ndim)
        largest = sizes.max(axis=others, keepdims=True, initial=0.0)
    return np.asarray(np.where(largest > 0, largest, 1), array.dtype)
