"""What OpenVINO keeps in FP32: the tail in bfloat16, sensitive operators in float16 (see `fusion/openvino.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion._openvino_rules import is_eltwise
from parityscope.arithmetic.fusion.matching import scalar_constant
from parityscope.case.graph import bodies_of_node

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

# "Significant nodes" of Graph::EnforceInferencePrecision for bfloat16; below them the tail begins.
_SIGNIFICANT = frozenset({"Conv", "GRU", "Gemm", "LSTM", "MatMul", "RNN", "Resize", "RoiAlign", "Upsample"})
# propagate_through_ops of the mixed-precision marking, by ONNX's names.
_PROPAGATES = frozenset(
    {
        *("Concat", "Expand", "Gather", "GatherElements", "GatherND", "LayerNormalization", "RMSNormalization"),
        *("InstanceNormalization", "MeanVarianceNormalization", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Split"),
        *("Sqrt", "Squeeze", "Tile", "Unsqueeze", "Flatten"),
    }
)
_SUMS = frozenset({"ReduceMean", "ReduceSum"})
_RESHAPES = frozenset({"Expand", "Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_SMALL_EPSILON = 2.0**-14  # float16's smallest normal number: a larger addend does not count as an epsilon


def tail_layers(layers: FusedLayers, model: ir.Model) -> set[Layer]:
    """The layers from the outputs upwards to the first significant ones, which are not among them.

    The bodies of control flow are graphs of their own there, each with its tail; the layer that holds them has none.
    """
    outputs = [value for graph in model.graphs() for value in graph.outputs]
    found: set[Layer] = set()
    stack = [layers.of[node] for value in outputs if (node := value.producer()) in layers.of and node is not None]
    while stack:
        layer = stack.pop()
        if layer in found or layer.kind in _SIGNIFICANT or any(bodies_of_node(node) for node in layer.nodes):
            continue
        found.add(layer)
        stack.extend(parent for parent in layers.parents(layer) if parent is not None)
    return found


def sensitive_layers(layers: FusedLayers) -> set[Layer]:
    """Layers that divide by something with an epsilon, or exponentiate what is then summed, and what is connected.

    Expects layers that are not merged yet: the operators are marked before any of them is fused.
    """
    found = {layer for layer in layers.each() if _divides_by_epsilon(layer)} | _summed_exponentials(layers)
    for layer in layers.each():
        if _propagates_mark(layer) and any(parent in found for parent in layers.parents(layer) if parent is not None):
            found.add(layer)
    for layer in reversed(layers.each()):
        readers = [layers.of[user] for user, _ in layer.output.uses() if user in layers.of]
        if _propagates_mark(layer) and any(reader in found for reader in readers):
            found.add(layer)
    return found


def _summed_exponentials(layers: FusedLayers) -> set[Layer]:
    """Exp above a sum or mean, with nothing but pointwise and reshaping operators between (MarkExpInReduceOpPath)."""
    path: set[Layer] = set()
    for layer in reversed(layers.each()):
        readers = (layers.of[user] for user, _ in layer.output.uses() if user in layers.of)
        if layer.kind in _SUMS or (
            (layer.kind in _RESHAPES or is_eltwise(layer)) and any(one in path for one in readers)
        ):
            path.add(layer)
    return {layer for layer in path if layer.kind == "Exp"}


def _propagates_mark(layer: Layer) -> bool:
    return layer.kind in _PROPAGATES or is_eltwise(layer)


def _divides_by_epsilon(layer: Layer) -> bool:
    """Whether it divides by `x + ε` or its root, or multiplies by a negative power of it (MarkDivWithEps there).

    A normalization that is one ONNX node does none of it: the reader makes an MVN of it, which is not looked into; only
    RMSNormalization is taken apart.
    """
    if layer.kind == "RMSNormalization":
        return True
    for node in layer.nodes:
        divisor = _divisor_of(node)
        below = None if divisor is None else divisor.producer()
        if below is not None and below.op_type == "Sqrt" and below.inputs[0] is not None:
            below = below.inputs[0].producer()
        if below is None or below.op_type not in {"Add", "Max"}:
            continue
        epsilons = [number for value in below.inputs if (number := scalar_constant(value)) is not None]
        if epsilons and 0 < max(epsilons) <= _SMALL_EPSILON:
            return True
    return False


def _divisor_of(node: ir.Node) -> ir.Value | None:
    if node.op_type == "Div":
        return node.inputs[1]
    exponent = scalar_constant(node.inputs[1]) if node.op_type == "Pow" else None
    return node.inputs[0] if node.op_type == "Reciprocal" or (exponent is not None and exponent < 0) else None
