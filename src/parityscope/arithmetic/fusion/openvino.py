"""OpenVINO's CPU plugin: oneDNN kernels with everything pointwise behind them, and an FP32 tail.

What is fused, in the plugin's own order (`intel_cpu/src/graph_optimizer.cpp`, and the common transformations before
it). The runtime's executed graph says which of it happened; this file predicts it from the ONNX graph alone:

* decomposed SiLU, HardSwish, HardSigmoid, GELU (not if its cube is written as products), Mish, LayerNormalization (as
  MVN) and RMSNormalization are recognised;
* a convolution takes BatchNormalization and constants for each channel into its weights, then any chain of unary
  operators and of constants for each channel; a bare one takes a residual addition and one activation behind it;
* a product with constant weights (FullyConnected) or of two tensors takes the same chain, but no residual;
* attention becomes one kernel (a "Subgraph"), Softmax inside it in FP32;
* two pointwise layers in a row become one, unless both read the same tensor.

In bfloat16 (`Graph::EnforceInferencePrecision` in `intel_cpu/src/graph.cpp`): every layer, except the tail, which is
everything from an output upwards to the first convolution, product, recurrence or resize; those run in bfloat16 and
write FP32. Constants stay FP32, those that are computed from constants too (dequantized embeddings), but for the weights
and biases of products, which are folded in FP32 before. Pointwise layers read what is fed to the graph unrounded. A few
operators exist in FP32 alone.

In float16 (`mark_subgraphs_to_keep_in_mixed_precision.cpp` in the common transformations): every constant is converted
first, saturated at ±65504. What divides by something with a small ε (decomposed normalizations) stays FP32, and Exp above
a sum (decomposed softmax), with all pointwise and data-moving operators that are connected with them through such
operators; what is given back is float16 even so. Operators are marked before anything is fused, and nothing is fused
across a mark. Its maxima lose NaN (seen: networks that are full of NaN give finite numbers).

Recurrent operators (oneDNN's) store the state between time steps in the format, and add up in FP32 (measured on LSTM and GRU).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusionProfile, GraphFusion
from parityscope.arithmetic.fusion.folding import linear_chain
from parityscope.arithmetic.fusion.layers import cut_into_layers
from parityscope.arithmetic.fusion.matching import PRODUCTS, data_inputs, is_static, scalar_constant
from parityscope.arithmetic.fusion.patterns import fused_by
from parityscope.arithmetic.recurrent import Recurrence
from parityscope.case.graph import bodies_of_node, constant_value

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

# Layers that take pointwise operators behind them, besides convolutions and products.
_TAKES_SIMPLE = frozenset(
    {"GlobalAveragePool", "NormalizeL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Resize"}
)
# ONNX operators of one input that are Eltwise layers there, and what patterns make such layers.
_UNARY = frozenset(
    {
        *(
            "Abs",
            "Ceil",
            "Clip",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "GeluInner",
            "HardSwish",
            "LeakyRelu",
            "Mish",
            "Reciprocal",
            "Relu",
        ),
        *("Round", "Sigmoid", "Silu", "Softplus", "Sqrt", "Swish", "Tanh"),
    }
)
_BINARY = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"})
# Pointwise layers of two inputs for which it matters which of them the layer above is.
_ORDERED = frozenset({"Div", "PRelu", "Pow", "Sub"})
_ACTIVATIONS_OF_SUM = frozenset(
    {"Clip", "Elu", "Gelu", "GeluInner", "HardSwish", "Mish", "Relu", "Sigmoid", "Silu", "Swish", "Tanh"}
)
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
# Layers for which the plugin has no kernel of lower precision: node type Math (seen in executed graphs), and others
# whose supported descriptors are FP32 alone (their node files).
_FLOAT32_ONLY = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Selu", "Sign"),
        *("Softsign", "Neg", "HardSigmoid", "Log", "GridSample", "NonMaxSuppression", "CumSum", "RMSNormalization"),
    }
)
# Layers that compute in bfloat16 and write FP32: spatial pooling by the plugin's Reduce (outputPrecisions of executed graphs).
_WRITES_FLOAT32 = frozenset({"GlobalAveragePool"})


def _is_eltwise(layer: Layer) -> bool:
    """Whether a layer is one of OpenVINO's Eltwise layers."""
    if layer.kind == "HardSigmoid":
        return len(layer.nodes) > 1
    return layer.kind in _UNARY | _BINARY


def _is_product(layer: Layer) -> bool:
    """Whether a layer multiplies and accumulates."""
    return layer.kind in PRODUCTS


def _merge_all(layers: FusedLayers) -> None:
    """Applies the rules, in the order in which the plugin does."""
    for layer in layers.each():
        if _is_product(layer):
            _merge_folded(layers, layer)
    for layer in layers.each():
        if layer.kind in {"Conv", "Gemm", "MatMul"} | _TAKES_SIMPLE:
            _merge_simple(layers, layer)
    for layer in layers.each():
        if layer.kind == "Add":
            _merge_sum(layers, layer)
    for layer in layers.each():
        if _is_eltwise(layer) and layer in layers.of.values():
            _merge_pointwise(layers, layer)


def _merge_folded(layers: FusedLayers, layer: Layer) -> None:
    """Constants for each output channel behind a product go into its weights and bias."""
    weights = layer.nodes[0].inputs[1]
    if weights is None or not is_static(weights):
        return
    for node, _ in linear_chain(layer.nodes[0], lambda user: user in layers.of):
        child = layers.of[node]
        if len(child.nodes) != 1 or layers.only_child(layer) is not child:
            return
        layers.merge(layer, child)
        layer.merged.clear()  # folded away: what follows finds a bare product


def _merge_simple(layers: FusedLayers, layer: Layer) -> None:
    """The chain of unary operators, and of those with a constant for each channel, behind a layer."""
    while (child := layers.only_child(layer)) is not None and _is_simple(layers, layer, child):
        layers.merge(layer, child)


def _is_simple(layers: FusedLayers, layer: Layer, child: Layer) -> bool:
    if not _is_eltwise(child) or len(layers.inputs(child)) != 1 or child.merged:
        return False
    if child.kind in _UNARY or child.kind == "HardSigmoid":
        return True
    node = child.nodes[0]
    if child.kind == "Pow" or (child.kind in _ORDERED and node.inputs[0] is not layer.output):
        return False
    constant = next((value for value in node.inputs if value is not None and is_static(value)), None)
    tensor = None if constant is None else constant_value(constant)
    return tensor is not None and _is_per_channel(tuple(int(dim) for dim in tensor.shape.numpy()), layer)


def _is_per_channel(shape: tuple[int, ...], layer: Layer) -> bool:
    """Whether a constant is one number, or one for each channel where the layer's kind has them.

    Channels are dimension 1 (`Node::canBePerformedAsScaleShift`), the last one of products of matrices.
    """
    wide = [axis for axis, dim in enumerate(shape) if dim != 1]
    if not wide:
        return True
    if layer.kind in {"Gemm", "MatMul"}:
        return wide == [len(shape) - 1]
    return len(wide) == 1 and len(shape) - wide[0] == 3


def _merge_sum(layers: FusedLayers, layer: Layer) -> None:
    """A residual addition goes into the bare convolution above, and one activation with it."""
    parents = layers.parents(layer)
    if len(parents) != 2 or len(layer.nodes) != 1 or layer.merged:
        return
    for parent in parents:
        if parent is None or parent.kind != "Conv" or parent.merged or layers.only_child(parent) is not layer:
            continue
        if any(value in layers.inputs(parent) for value in layers.inputs(layer)):
            continue
        layers.merge(parent, layer)
        child = layers.only_child(parent)
        if child is not None and child.kind in _ACTIVATIONS_OF_SUM and not child.merged:
            layers.merge(parent, child)
        _merge_simple(layers, parent)
        return


def _merge_pointwise(layers: FusedLayers, layer: Layer) -> None:
    """Pointwise layers in a row, unless the second reads what the first reads too, or the outcome of a Split."""
    while (child := layers.only_child(layer)) is not None and _is_eltwise(child) and not child.merged:
        shared = set(layers.inputs(layer)) & set(layers.inputs(child))
        split = any(parent is not None and parent.kind == "Split" for parent in layers.parents(child))
        first = child.nodes[0].inputs[0]
        # x - y becomes x + (-1)·y before (ConvertSubtract), so that for Sub the place does not matter.
        swapped = (
            child.kind in _ORDERED - {"Sub"} and first is not layer.output and len(data_inputs(child.nodes[0])) > 1
        )
        if shared or split or swapped:
            return
        layers.merge(layer, child)


def _tail_layers(layers: FusedLayers, model: ir.Model) -> set[Layer]:
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


def _sensitive_layers(layers: FusedLayers) -> set[Layer]:
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
            (layer.kind in _RESHAPES or _is_eltwise(layer)) and any(one in path for one in readers)
        ):
            path.add(layer)
    return {layer for layer in path if layer.kind == "Exp"}


def _propagates_mark(layer: Layer) -> bool:
    return layer.kind in _PROPAGATES or _is_eltwise(layer)


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


def _predict_fusion(model: ir.Model, precision: str) -> GraphFusion | None:
    if precision not in {"bf16", "f16"}:
        return None
    layers = cut_into_layers(model, fused_by("openvino"))
    if precision == "f16":  # marked before anything is fused, and fused among its own kind
        layers = replace(layers, apart=frozenset(node for layer in _sensitive_layers(layers) for node in layer.nodes))
    _merge_all(layers)
    wide = (
        layers.apart if precision == "f16" else {node for layer in _tail_layers(layers, model) for node in layer.nodes}
    )

    def runs_in(layer: Layer) -> str:
        # HardSigmoid as one ONNX node is a Math layer; put together from nodes it is pointwise.
        alone = layer.kind in _FLOAT32_ONLY and len(layer.nodes) == 1
        folded = precision == "bf16" and is_static(layer.output)
        return "f32" if layer.nodes[0] in wide or alone or folded else precision

    def writes(layer: Layer) -> str:
        if precision == "f16" and layer.output.is_graph_output():
            return precision
        pooled = precision == "bf16" and layer.kind in _WRITES_FLOAT32
        return "f32" if pooled else runs_in(layer)

    inputs = frozenset(str(value.name) for value in model.graph.inputs)
    return GraphFusion(
        kernels=layers.kernels(runs_in, writes, lambda layer: inputs if _is_pointwise(layer) else frozenset()),
        default=precision,
        stores_constants=precision == "f16",
        folds=True,
        overflow="saturate",
        keeps_nan=False,
        recurrence=Recurrence(stored=frozenset({"states"})),
    )


def _is_pointwise(layer: Layer) -> bool:
    return _is_eltwise(layer) or layer.kind == "Attention"


PROFILE = FusionProfile(name="openvino", title="OpenVINO on the CPU", predict=_predict_fusion)
