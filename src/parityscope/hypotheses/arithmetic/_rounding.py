"""Roundings of what is read and of outputs, and what an arithmetic hypothesis applies to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.sites import PRODUCTS
from parityscope.hypotheses.arithmetic import Accumulator, FormatRounding

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic.rounding import Mode, Overflow
    from parityscope.hypotheses.arithmetic import Operand, Transform

FLOATS = ("float32", "float64")
FOLDED = "scales behind a product folded into its weights first"

# What may have run products of narrow operands: an FP32 accumulator that drops bits after every 4 terms, the fewest of any
# generation (TF32 on Ampere 4, on Hopper 8; FP16 and BF16 up to 16; Fasi et al., PeerJ CS 330; arXiv 2511.10909).
TENSOR_CORES = Accumulator(unit=FORMATS["f32"].unit_roundoff, block=4, truncates=True)


def applies_always(_node: ir.Node, _graph: ir.Graph) -> bool:
    """Applies to every region."""
    return True


def has_product(_node: ir.Node, graph: ir.Graph) -> bool:
    """Whether the region multiplies and accumulates."""
    return any(each.op_type in PRODUCTS for each in graph)


def rounding_to(
    name: str, *, mode: Mode = "nearest-even", overflow: Overflow = "infinity", subnormals: bool = True
) -> Transform:
    """Rounds what is read to the format called `name`."""
    number_format = FORMATS[name]

    def transform(array: np.ndarray, _: Operand) -> np.ndarray:
        if array.dtype.name not in FLOATS:
            return array
        return round_to(array, number_format, mode=mode, overflow=overflow, subnormals=subnormals)

    return transform


def output_rounding(name: str, *, subnormals: bool = True) -> FormatRounding:
    """Rounds a region's output to the format called `name`, to nearest even."""
    number_format = FORMATS[name]
    return FormatRounding(
        name=name,
        unit=number_format.unit_roundoff,
        apply=lambda array: round_to(array, number_format, subnormals=subnormals),
    )
