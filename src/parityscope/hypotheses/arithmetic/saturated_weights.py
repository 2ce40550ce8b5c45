"""Saturated weights: parameters beyond FP16's range became 65504.

TensorRT clamps weights to the largest FP16 number where IEEE 754 would give infinity; the rest of the layer may then run
in FP16 or in FP32. (Weights that become infinity are part of the FP16 hypotheses.)

Source: TensorRT's warning "weights ... were clamped to FP16 range"; docs/numerics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.case.graph import constant_value
from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import output_rounding, rounding_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Operand

_LARGEST = FORMATS["f16"].largest


def _applies_to(_node: ir.Node, graph: ir.Graph) -> bool:
    """Whether a parameter is beyond the range."""
    tensors = (constant_value(value) for node in graph for value in node.inputs)
    arrays = (np.asarray(tensor.numpy()) for tensor in tensors if tensor is not None)
    return any(array.dtype.kind == "f" and bool((np.abs(array) > _LARGEST).any()) for array in arrays)


def _clamp_constants(array: np.ndarray, operand: Operand) -> np.ndarray:
    return np.clip(array, -_LARGEST, _LARGEST) if operand.constant and array.dtype.kind == "f" else array


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    yield Variant(words="parameters clamped to 65504, everything else FP32", stored=_clamp_constants)
    saturated = rounding_to("f16", overflow="saturate")
    yield Variant(words="inputs and parameters in FP16, clamped to 65504", stored=saturated)
    yield Variant(
        words="inputs, parameters and output in FP16, parameters clamped to 65504",
        stored=saturated,
        output=output_rounding("f16"),
    )


HYPOTHESIS = Hypothesis(
    name="saturated_weights",
    title="Saturated weights",
    applies=_applies_to,
    variants=_list_variants,
)
