"""Epsilon changed: a normalization with another small constant under its root.

Asked of normalization operators, and of an Add of a small constant where a normalization is spelt out. Common values are
tried, and any other up to 1 is fitted: what is normalized has a variance of about 1 (or it would not be called so), and a
constant as large as that is no epsilon. 1 / sqrt(v + e) is monotone in e in each channel, so that the fit has one minimum.

Sources: defaults in PyTorch (BatchNorm 1e-5, LayerNorm 1e-5), TensorFlow (1e-3), BERT (1e-12), ONNX (1e-5); 0 where FP16
loses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import number
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, put, read
from parityscope.arithmetic.standard import DEFAULT_EPSILON

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_NORMALIZATIONS = frozenset(
    {
        "BatchNormalization",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
    }
)
_COMMON = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 0.0)
_LARGEST = 1e-2  # an added constant above this is no epsilon
_SPAN = (0.0, 1.0)
_SAME = 1e-3  # relative: the attribute is a float32


def _added(node: ir.Node) -> int | None:
    """Which input of an Add is a small positive constant."""
    for index in (0, 1):
        array = array_of(node, index) if node.op_type == "Add" else None
        if array is not None and array.size == 1 and 0 < float(array.reshape(-1)[0]) <= _LARGEST:
            return index
    return None


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type in _NORMALIZATIONS or _added(node) is not None


def _set(model: ir.Model, node: ir.Node, epsilon: float) -> None:
    index = _added(node)
    array = None if index is None else array_of(node, index)
    if index is None or array is None:
        put(node, "epsilon", float(epsilon))
    else:
        read(model, node, index, np.full_like(array, epsilon))


def _changed(epsilon: float) -> Variant:
    return Variant(words=f"epsilon is {epsilon:g}", rewrite=lambda model, node, _: _set(model, node, epsilon))


def _variants(node: ir.Node, _context: Context) -> Iterator[Variant]:
    index = _added(node)
    array = None if index is None else array_of(node, index)
    current = number(node, "epsilon", DEFAULT_EPSILON) if array is None else float(array.reshape(-1)[0])
    for epsilon in _COMMON:
        if abs(epsilon - current) > _SAME * current:
            yield _changed(epsilon)
    words = f"epsilon is {{parameter}} and not {current:g}"
    yield Variant(words=words, rewrite=_set, span=_SPAN, neutral=current)


HYPOTHESIS = Hypothesis(
    name="epsilon", title="Epsilon changed", family="semantic", applies=_applies, variants=_variants
)
