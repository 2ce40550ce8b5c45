"""Another slope: LeakyRelu, PRelu, Elu or HardSigmoid with another parameter.

The slope of the negative side (LeakyRelu, and PRelu as one factor on its slopes), the saturation of Elu and the slope of
HardSigmoid are fitted. 0 is a plain Relu, 1 no activation; HardSigmoid's usual slopes are 0.2 (ONNX) and 1/6 (PyTorch).

Sources: ONNX operators LeakyRelu, PRelu, Elu, HardSigmoid; PyTorch Hardsigmoid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import number
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, put, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_DEFAULTS = {"Elu": 1.0, "HardSigmoid": 0.2, "LeakyRelu": 0.01}
_SPAN = (-2.0, 3.0)  # chosen: holds every slope in use, 0 and 1


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type in _DEFAULTS or (node.op_type == "PRelu" and array_of(node, 1) is not None)


def _slope(_: ir.Model, node: ir.Node, slope: float) -> None:
    put(node, "alpha", float(slope))


def _slopes(model: ir.Model, node: ir.Node, factor: float) -> None:
    array = array_of(node, 1)
    if array is not None:
        read(model, node, 1, array * np.float32(factor))


def _variants(node: ir.Node, _context: Context) -> Iterator[Variant]:
    if node.op_type == "PRelu":
        yield Variant(words="the slopes are multiplied by {parameter}", rewrite=_slopes, span=_SPAN, neutral=1.0)
        return
    current = number(node, "alpha", _DEFAULTS[node.op_type])
    yield Variant(words=f"the slope is {{parameter}} and not {current:g}", rewrite=_slope, span=_SPAN, neutral=current)


HYPOTHESIS = Hypothesis(
    name="activation_slope", title="Another slope", family="semantic", applies=_applies, variants=_variants
)
