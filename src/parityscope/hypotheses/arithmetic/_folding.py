"""Scales and shifts behind a product folded into its parameters, as engines do before they round them.

Conv, MatMul or Gemm followed by Mul, Div, Add, Sub of one number per output channel, or by a BatchNormalization:
w (x gain) and b gain + shift are computed in float64 and stored in float32. What is rounded afterwards is the folded
weight, whose roundings are other ones than the original's.

Source: every deployment engine's constant folding (OpenVINO: ConvMultiplyFusion and
MatMulMultiplyFusion; TensorRT: Conv and Scale fusion).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.fusion.folding import linear_chain, output_channels, spread_over_channels
from parityscope.arithmetic.graphs import set_input
from parityscope.case.graph import constant_input, input_at
from parityscope.hypotheses.arithmetic.edits import substitute_result

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.folding import LinearStep


def can_be_folded(graph: ir.Graph) -> bool:
    """Whether something stands behind a product that can be folded into it."""
    return any(_foldable_chain(node) for node in graph)


def fold_all(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
    """Folds all that can be; a rewriting of a whole region."""
    for node in list(model.graph):
        chain = _foldable_chain(node)
        if chain:
            _fold_into(model, node, [step for _, step in chain])
            behind = [each for each, _ in chain]
            substitute_result(behind[-1], node.outputs[0])
            model.graph.remove(behind, safe=True)


def _foldable_chain(node: ir.Node) -> list[tuple[ir.Node, LinearStep]]:
    """What stands behind a product that holds its parameters, as far as these can take it up."""
    weight = constant_input(node, 1)
    if node.domain or weight is None or weight.dtype != np.float32:
        return []
    if node.op_type == "MatMul" and weight.ndim == 2:  # no bias to take a shift
        return list(itertools.takewhile(lambda one: not one[1].shift.any(), linear_chain(node)))
    plain = all(node.attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    if node.op_type not in {"Conv", "Gemm"} or not plain:
        return []
    return linear_chain(node) if input_at(node, 2) is None or constant_input(node, 2) is not None else []


def _fold_into(model: ir.Model, node: ir.Node, steps: list[LinearStep]) -> None:
    """Gives a product the parameters with which it computes what these steps make of its result."""
    weight, old = constant_input(node, 1), constant_input(node, 2)
    if weight is None:
        raise ValueError(f"{node.op_type} holds no weight")
    scale, bias = np.ones(1), np.zeros(output_channels(node)) if old is None else old.astype(np.float64)
    for step in steps:
        scale, bias = scale * step.scale, bias * step.scale + step.shift
    spread = spread_over_channels(node, 1, scale, weight.ndim)
    set_input(model, node, 1, (weight * spread).astype(np.float32), f"{node.outputs[0].name}::folded_weight")
    if node.op_type != "MatMul" and (old is not None or bias.any()):
        set_input(model, node, 2, bias.astype(np.float32), f"{node.outputs[0].name}::folded_bias")
