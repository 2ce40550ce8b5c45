"""Runs a region node by node, with whatever a variant changes in between.

A region is a small graph, so every node is one ONNX Runtime session (FP32, kept for other variants and suspects that have
the same node), and roundings, other accumulations and noise are numpy between them: nothing has to be expressed
in ONNX, and a rewriting of one node costs the session of that node alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from parityscope.arithmetic._switching import inner_nodes
from parityscope.arithmetic.hypotheses import Operand, Variant
from parityscope.arithmetic.sites import EXACT_INPUTS, PRODUCTS
from parityscope.backends._onnxruntime import open_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.backends._ort_running import Run

__all__ = ["Noise", "Runner", "evaluate", "run_node"]

_THREADS = 1  # regions are small: a thread pool for each of a hundred sessions costs more than it gives
_FLOATS = ("float32", "float64")
_PACKED = frozenset({"float4_e2m1fn", "int2", "int4", "uint2", "uint4"})  # several elements a byte: in files alone


class Noise(Protocol):
    """What a noisy evaluation adds: to what nodes read, and to what they compute."""

    def read(self, node: ir.Node, array: np.ndarray) -> np.ndarray:
        """`array`, which `node` reads, with noise."""
        ...

    def computed(
        self, value: ir.Value, node: ir.Node, arrays: Sequence[np.ndarray | None], array: np.ndarray
    ) -> np.ndarray:
        """`array`, the `value` that `node` made of `arrays`, with noise."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """The sessions opened so far, by what decides what they compute."""

    sessions: dict[tuple[object, ...], Run] = field(default_factory=dict)


def evaluate(
    model: ir.Model,
    feeds: Mapping[str, np.ndarray],
    runner: Runner,
    variant: Variant | None = None,
    noise: Noise | None = None,
) -> dict[str, np.ndarray]:
    """Every value of a sorted region by name, under `variant` (its rewriting already done, its output not yet rounded).

    `feeds` are the region's inputs by name, and all arrays have the shapes and dtypes of the region's own values. A noisy
    evaluation keeps to roundings that noise cannot move: of the region's inputs and parameters.

    Raises:
        ParityError: ONNX Runtime refuses a node.
        NotAccumulatedError: `variant` accumulates products step by step, and one cannot be.
    """
    variant = variant or Variant(words="")
    known = dict(feeds)
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and name not in known:
            known[name] = np.asarray(value.const_value.numpy())
    made: set[str] = set()
    for node in model.graph:
        arrays = [
            None
            if value is None
            else _read(node, index, known[str(value.name)], variant, noise, inner=str(value.name) in made)
            for index, value in enumerate(node.inputs)
        ]
        found = None
        if variant.accumulate is not None and noise is None and node.op_type in PRODUCTS:
            result = variant.accumulate(node, arrays)
            if result is None:
                raise NotAccumulatedError(node.op_type)
            found = [result]
        outputs = found or run_node(model, node, arrays, runner)
        for value, array in zip(node.outputs, outputs, strict=False):
            known[str(value.name)] = _computed(model, node, value, arrays, array, variant, noise)
            made.add(str(value.name))
    return known


class NotAccumulatedError(Exception):
    """A product that is too large, or of another kind, to be accumulated step by step."""


def run_node(model: ir.Model, node: ir.Node, arrays: Sequence[np.ndarray | None], runner: Runner) -> list[np.ndarray]:
    """The outputs of one node on its input arrays, of the dtypes and shapes that ONNX Runtime gives them.

    Args:
        model: Says the opsets.
        node: Need not be in the model's graph.
        arrays: The inputs in order, None where one is left out.
        runner: Keeps sessions; nodes that are alike share one.

    Raises:
        ParityError: ONNX Runtime refuses the node.
    """
    import onnx_ir as ir

    opset = model.opset_imports.get(node.domain, 0)
    steering = EXACT_INPUTS.get(node.op_type, ())
    kinds = tuple(
        None
        if array is None
        else (array.dtype.name, array.ndim, array.tobytes() if _is_fixed(array, index, steering) else b"")
        for index, array in enumerate(arrays)
    )
    texts = tuple(ir.serde.serialize_attribute(each).SerializeToString() for each in node.attributes.values())
    key = (node.domain, node.op_type, opset, texts, kinds, len(node.outputs))
    if key not in runner.sessions:
        runner.sessions[key] = _open(model, node, arrays)
    given = {f"input{index}": array for index, array in enumerate(arrays) if array is not None}
    return list(runner.sessions[key](given).values())


def _open(model: ir.Model, node: ir.Node, arrays: Sequence[np.ndarray | None]) -> Run:
    import onnx_ir as ir

    steering = EXACT_INPUTS.get(node.op_type, ())
    values = [
        None if array is None else _entering(f"input{index}", array, fixed=_is_fixed(array, index, steering))
        for index, array in enumerate(arrays)
    ]
    entering = [value for value in values if value is not None]
    # What a body takes from around it: constants alone, as a recurrent operator that was taken apart is all there is.
    reads = [value for inner in inner_nodes(node) for value in inner.inputs if value is not None]
    captured = dict.fromkeys(value for value in reads if value.graph is model.graph and value.is_initializer())
    copy = ir.Node(node.domain, node.op_type, values, list(node.attributes.values()), num_outputs=len(node.outputs))
    for index, value in enumerate(copy.outputs):
        value.name = f"output{index}"
    graph = ir.Graph(
        [value for value in entering if value.const_value is None],
        list(copy.outputs),
        nodes=[copy],
        initializers=[value for value in entering if value.const_value is not None],
        opset_imports=dict(model.opset_imports),
        name="node",
    )
    for value in captured:
        name = str(value.name)
        held = ir.Value(name=name, type=value.type, shape=value.shape, const_value=value.const_value)
        graph.register_initializer(held)
    single = ir.Model(graph, ir_version=model.ir_version or 8, functions=list(model.functions.values()))
    return open_session(single, threads=_THREADS)


def _is_fixed(array: np.ndarray, index: int, steering: Sequence[int]) -> bool:
    """Whether an input is a constant of the node's graph: what steers the node, and what no runtime takes from outside."""
    return index in steering or array.dtype.name in _PACKED


def _entering(name: str, array: np.ndarray, *, fixed: bool) -> ir.Value:
    """An input of a single node; what steers it (axes, sizes) is a constant of the graph, as shape inference wants."""
    import onnx_ir as ir

    dtype = ir.DataType.from_numpy(array.dtype)
    if not fixed:
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([None] * array.ndim))
    tensor = ir.tensor(np.ascontiguousarray(array), name=name)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor)


def _read(
    node: ir.Node, index: int, array: np.ndarray, variant: Variant, noise: Noise | None, *, inner: bool
) -> np.ndarray:
    if array.dtype.name not in _FLOATS or index in EXACT_INPUTS.get(node.op_type, ()):
        return array
    value = node.inputs[index]
    operand = Operand(node=node, index=index, constant=value is not None and value.is_initializer())
    if variant.stored is not None and not inner:
        array = variant.stored(array, operand)
    if variant.operands is not None and _multiplied(node, index) and not (inner and noise):
        array = variant.operands(array, operand)
    return array if noise is None else noise.read(node, array)


def _multiplied(node: ir.Node, index: int) -> bool:
    if node.op_type not in PRODUCTS:
        return False
    operands = PRODUCTS[node.op_type]
    return operands is None or index in operands


def _computed(
    model: ir.Model,
    node: ir.Node,
    value: ir.Value,
    arrays: Sequence[np.ndarray | None],
    array: np.ndarray,
    variant: Variant,
    noise: Noise | None,
) -> np.ndarray:
    if array.dtype.name not in _FLOATS:
        return array
    if noise is not None:
        return noise.computed(value, node, arrays, array)
    last = any(value is output for output in model.graph.outputs)
    if variant.between is not None and not last:
        return variant.between(array, Operand(node=node, index=-1, constant=False))
    return array
