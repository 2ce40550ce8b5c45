"""INT8: what is multiplied was quantized to eight bits.

Weights symmetrically (scale = largest magnitude / 127), per tensor or per output channel; activations symmetrically or
affinely over their own range (scale = (max - min) / 255, zero point rounded). Scales of a calibration on other data
are not these; then INT8 stays unexplained.

Sources: ONNX operators QuantizeLinear and DequantizeLinear; Jacob et al., arXiv 1712.05877; ONNX Runtime, "Quantize
ONNX models" (the range is extended to hold zero).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import has_product, output_rounding
from parityscope.hypotheses.arithmetic._scaling import largest_magnitude

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Operand, Transform

_LARGEST = 127.0
_LEVELS = 255.0


def _quantize_operands(*, by_channel: bool, affine: bool) -> Transform:
    def transform(array: np.ndarray, operand: Operand) -> np.ndarray:
        if array.dtype.kind != "f" or array.size == 0:
            return array
        wide = array.astype(np.float64)
        if affine and not operand.constant:
            return _quantize_affine(wide).astype(array.dtype)
        scale = largest_magnitude(wide, operand, by_channel=by_channel) / _LARGEST
        return np.asarray(np.clip(np.rint(wide / scale), -_LARGEST, _LARGEST) * scale, array.dtype)

    return transform


def _quantize_affine(array: np.ndarray) -> np.ndarray:
    low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
    if not high - low > 0 or not np.isfinite(high - low):
        return array
    scale = (high - low) / _LEVELS
    zero = np.rint(-low / scale)
    return np.asarray((np.clip(np.rint(array / scale) + zero, 0, _LEVELS) - zero) * scale)


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    for by_channel in (False, True):
        for affine in (False, True):
            weights = "per channel" if by_channel else "per tensor"
            words = f"INT8 weights {weights}, {'affine' if affine else 'symmetric'} INT8 activations"
            transform = _quantize_operands(by_channel=by_channel, affine=affine)
            yield Variant(words=words, operands=transform)
            for name in ("f16", "bf16"):
                yield Variant(
                    words=f"{words}, output stored in {name}", operands=transform, output=output_rounding(name)
                )


HYPOTHESIS = Hypothesis(name="int8", title="INT8 operands", applies=has_product, variants=_list_variants)
