"""A model for one set of shapes (and of values that the user fixes) -> the same model with nothing left to decide.

Exists because TensorRT fails on models that another engine takes as they are: several If inside of each other
("Assertion tScope.getType() != ScopeType::kUNDEFINED failed"), and constants in eight bits that a Cast reads ("Quantized
constant ... is only allowed before DQ"). Both are gone once everything that shapes and constants decide is computed:

1. inputs named in `values` become constants (a sample rate, a flag);
2. shapes are inferred from those of the inputs (ONNX's own inference), so that `Shape` and `Size` become constants;
3. nodes whose inputs are all constants are run, by ONNX Runtime on this CPU, and their results take their place;
4. an `If` whose condition is known is replaced by the branch that is taken; then again from 2 until nothing changes.

At these shapes and values the result computes the same numbers, bit for bit where ONNX Runtime computes a folded node as the
engine would. Never folded: Quantize- and DequantizeLinear (engines read them as types), random numbers, and results larger
than `_MOST_GROWN`. Every node that is gone is told, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.backends.tensorrt._folding import constant_of, run_constants
from parityscope.backends.tensorrt._inlining import inline_branch
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Gone", "Settled", "settle_model", "value_of"]

_OF_SHAPE = ("Shape", "Size")
_MOST_ROUNDS = 64  # chosen: nests of branches are a few deep; each round takes away at least one


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A node that is no longer in the model: "folded" or "removed", and why."""

    fate: Literal["folded", "removed"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The settled model's message, and the nodes that are gone by name; `fixed` are inputs that became constants."""

    message: Any
    gone: Mapping[str, Gone] = field(default_factory=lambda: MappingProxyType({}))
    fixed: tuple[str, ...] = ()


def value_of(text: str, where: str) -> np.ndarray:
    """The number or numbers of `16000` or `1,2,3` (int64 unless there is a point in it: then float32; true and false).

    Raises:
        ParityError: it is no number.
    """
    parts = text.split(",")
    try:
        if all(part in {"true", "false"} for part in parts):
            array = np.array([part == "true" for part in parts])
        elif any(mark in text for mark in ".e"):
            array = np.array([float(part) for part in parts], dtype=np.float32)
        else:
            array = np.array([int(part) for part in parts], dtype=np.int64)
    except (ValueError, OverflowError):
        raise ParityError(f"{where}={text} is no number", fix=f"write {where}=16000 or {where}=1,2,3") from None
    return array if len(parts) > 1 else array.reshape(())


def settle_model(
    message: Any, shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray], *, folder: Path | None = None
) -> Settled:
    """Settles `message` (changed in place; node names are unique) for `shapes` and `values`, by input.

    `folder` is where its external data lies.

    Raises:
        ParityError: `values` names no input, or has another type or shape.
    """
    graph = message.graph
    gone: dict[str, Gone] = {}
    for name, array in values.items():
        _fix_input(graph, name, array)
    for value in graph.input:
        if value.name in shapes:
            _set_shape(value, shapes[value.name])
    for _ in range(_MOST_ROUNDS):
        _shapes_become_constants(message, gone)
        _fold_constants(message, gone, folder)
        taken = _take_branches(graph, gone)
        if not taken:
            break
    _drop_unread(graph, gone)
    return Settled(message=message, gone=gone, fixed=tuple(values))


def _fix_input(graph: Any, name: str, array: np.ndarray) -> None:
    import onnx
    from onnx import numpy_helper

    found = [value for value in graph.input if value.name == name]
    if not found:
        names = ", ".join(value.name for value in graph.input)
        raise ParityError(f"there is no input {name!r} to fix", fix=f"name one of: {names}")
    tensor = found[0].type.tensor_type
    wanted = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    rank = len(tensor.shape.dim)
    held = array.astype(wanted)
    if not np.array_equal(held.astype(np.float64), array.astype(np.float64)):
        raise ParityError(f"input {name!r} is {wanted.name} and cannot hold {array.tolist()}", fix="give another value")
    if held.ndim != rank and held.size == 1:
        held = held.reshape((1,) * rank)
    if held.ndim != rank:
        raise ParityError(f"input {name!r} has {rank} dimensions, the value has {held.ndim}", fix="give another value")
    graph.input.remove(found[0])
    for initializer in [each for each in graph.initializer if each.name == name]:
        graph.initializer.remove(initializer)
    graph.initializer.append(numpy_helper.from_array(held, name))


def _set_shape(value: Any, shape: Sequence[int]) -> None:
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add().dim_value = int(size)


def _shapes_become_constants(message: Any, gone: dict[str, Gone]) -> None:
    """`Shape` and `Size` of a tensor whose shape can be inferred become initializers."""
    import onnx

    graph = message.graph
    if not any(node.op_type in _OF_SHAPE for node in graph.node):
        return
    del graph.value_info[:]  # what a file declares may be symbolic, or for other shapes
    declared = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in graph.output]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(message, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return
    finally:
        for value, before in zip(graph.output, declared, strict=True):
            value.CopyFrom(before)
    shapes = {value.name: _static_shape(value) for value in (*inferred.value_info, *inferred.input, *inferred.output)}
    shapes |= {each.name: tuple(each.dims) for each in graph.initializer}
    for node in [each for each in graph.node if each.op_type in _OF_SHAPE]:
        shape = shapes.get(node.input[0])
        if shape is None:
            continue
        marks = {each.name: each.i for each in node.attribute}
        whole = np.array(shape, dtype=np.int64)
        result = whole[marks.get("start", 0) : marks.get("end", len(shape))]
        graph.initializer.append(constant_of(node.output[0], result if node.op_type == "Shape" else whole.prod()))
        graph.node.remove(node)
        gone[node.name] = Gone(fate="folded", reason="shapes are known: computed before TensorRT saw the model")


def _static_shape(value: Any) -> tuple[int, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


def _fold_constants(message: Any, gone: dict[str, Gone], folder: Path | None) -> None:
    graph = message.graph
    results = run_constants(message, folder)
    outputs = {value.name for value in graph.output}
    for node in list(graph.node):
        if not node.output or any(name and name not in results for name in node.output):
            continue
        if outputs & set(node.output):
            continue
        for name in node.output:
            if name:
                graph.initializer.append(constant_of(name, results[name]))
        graph.node.remove(node)
        gone[node.name] = Gone(fate="folded", reason="computed from constants before TensorRT saw the model")


def _take_branches(graph: Any, gone: dict[str, Gone]) -> int:
    """Replaces each `If` of the main graph whose condition is a constant; gives how many."""
    from onnx import numpy_helper

    constants = {each.name: each for each in graph.initializer}
    known = [node for node in graph.node if node.op_type == "If" and node.input[0] in constants]
    for node in known:
        condition = bool(numpy_helper.to_array(constants[node.input[0]]).reshape(-1)[0])
        word = "then_branch" if condition else "else_branch"
        gone[node.name] = Gone(fate="removed", reason=f"its condition is known: {word} stands in its place")
        other = "else_branch" if condition else "then_branch"
        for name in inline_branch(graph, node, word):
            gone[name] = Gone(fate="removed", reason=f"in {other} of {node.name}, which is never taken at these values")
    return len(known)


def _drop_unread(graph: Any, gone: dict[str, Gone]) -> None:
    """Takes away the nodes and constants that nothing reads any more."""
    from parityscope.backends.tensorrt._inlining import names_read_by

    changed = True
    while changed:
        wanted = {value.name for value in graph.output} | {name for node in graph.node for name in names_read_by(node)}
        idle = [node for node in graph.node if not wanted & set(node.output)]
        for node in idle:
            graph.node.remove(node)
            gone.setdefault(node.name, Gone(fate="removed", reason="nothing reads what it computes"))
        changed = bool(idle)
    for initializer in [each for each in graph.initializer if each.name not in wanted]:
        graph.initializer.remove(initializer)
