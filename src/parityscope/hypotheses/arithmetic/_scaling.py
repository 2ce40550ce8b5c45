"""Operands rounded to narrow formats after scaling, per tensor or per output channel of the weights.

Source: absmax scaling, as in "FP8 Formats for Deep Learning", arXiv 2209.05433, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.hypotheses.arithmetic import Variant
from parityscope.hypotheses.arithmetic._rounding import FLOATS, has_product, output_rounding, rounding_to
from parityscope.hypotheses.arithmetic._storage import inputs_and_output_stored
from parityscope.operators import OPERATORS, base_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Operand, RegionContext, Transform, Variants


def operands_scaled(name: str) -> Variants:
    """What is multiplied rounded to the format called `name`: as it is, scaled, or with a scale for every channel.

    The output is kept in FP32, FP16 or BF16. Without a product everything is stored in the format.
    """
    title = FORMATS[name].title
    scalings = {
        "unscaled": rounding_to(name, overflow="saturate"),
        "scaled per tensor": _scale_then_round(name, by_channel=False),
        "weights scaled per channel": _scale_then_round(name, by_channel=True),
    }

    def variants(node: ir.Node, context: RegionContext) -> Iterator[Variant]:
        if not has_product(node, context.model.graph):
            yield from inputs_and_output_stored(name)(node, context)
            return
        for words, transform in scalings.items():
            for output in (None, output_rounding("f16"), output_rounding("bf16")):
                stored = f", output stored in {output.name}" if output else ""
                yield Variant(words=f"{title} operands, {words}{stored}", operands=transform, output=output)

    return variants


def largest_magnitude(array: np.ndarray, operand: Operand, *, by_channel: bool) -> np.ndarray:
    """The largest finite magnitude, per tensor or per output channel of a parameter; 1 where all are zero.

    `array` is of any float dtype, which the result has. It is a scalar, or has the rank of `array` with every axis but the
    channels' of length 1.
    """
    sizes = np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)
    axis = _weight_axis(operand) if by_channel and operand.constant and operand.index == 1 else None
    if axis is None or array.ndim < 2:
        largest = np.asarray(sizes.max(initial=0.0), array.dtype)
    else:
        others = tuple(each for each in range(array.ndim) if each != axis % array.ndim)
        largest = sizes.max(axis=others, keepdims=True, initial=0.0)
    return np.asarray(np.where(largest > 0, largest, 1), array.dtype)


def _scale_then_round(name: str, *, by_channel: bool) -> Transform:
    """Rounds to a narrow format after scaling the largest magnitude to the format's largest number.

    Per tensor; with `by_channel` parameters have a scale for every output channel.
    """
    number_format = FORMATS[name]

    def transform(array: np.ndarray, operand: Operand) -> np.ndarray:
        if array.dtype.name not in FLOATS or array.size == 0:
            return array
        scale = largest_magnitude(array, operand, by_channel=by_channel) / number_format.largest
        small = round_to((array / scale).astype(array.dtype), number_format, overflow="saturate")
        return np.asarray(small * scale, array.dtype)

    return transform


def _weight_axis(operand: Operand) -> int | None:
    """The axis of a constant operand that output channels lie on; None where there is none."""
    op_type = operand.node.op_type
    if base_of(op_type) == "Gemm" and operand.node.attributes.get_int("transB", 0) != 0:
        return 0
    return OPERATORS[op_type].weight_axis if op_type in OPERATORS else None
