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

Runs the nodes of a model that read constants alone, by ONNX Runtime on this CPU.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.backends.onnxruntime_sessions import open_bytes
from parityscope.backends.tensorrt._inlining import inline_branch, names_read_by
from parityscope.case.declaring import bodies_of
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Engines read these as the types of what is around them.
_KEPT = of_kind("quantization")
_RANDOM = of_kind("random")
_MOST_GROWN = 1 << 22  # bytes, chosen: a larger result stays a node if it is more than four times what it is made of
_GROWTH = 4
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
        graph.initializer.append(_constant_of(node.output[0], result if node.op_type == "Shape" else whole.prod()))
        graph.node.remove(node)
        gone[node.name] = Gone(fate="folded", reason="shapes are known: computed before TensorRT saw the model")


def _static_shape(value: Any) -> tuple[int, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


def _fold_constants(message: Any, gone: dict[str, Gone], folder: Path | None) -> None:
    graph = message.graph
    results = _run_constants(message, folder)
    outputs = {value.name for value in graph.output}
    for node in list(graph.node):
        if not node.output or any(name and name not in results for name in node.output):
            continue
        if outputs & set(node.output):
            continue
        for name in node.output:
            if name:
                graph.initializer.append(_constant_of(name, results[name]))
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


def _run_constants(message: Any, folder: Path | None) -> dict[str, np.ndarray]:
    """The values of the main graph that follow from constants alone, by name; initializers and `Constant`s left out.

    What ONNX Runtime refuses, what grows too much and what hangs on it is left out too.
    """
    import onnx

    graph = message.graph
    held = {each.name: each for each in graph.initializer}
    constant = set(held) | {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant":
            nodes.append(node)
        elif _is_foldable(node) and all(name in constant for name in names_read_by(node)):
            nodes.append(node)
            constant.update(node.output)
    wanted = [name for node in nodes if node.op_type != "Constant" for name in node.output if name]
    if not wanted:
        return {}
    read = {name for node in nodes for name in names_read_by(node)}
    part = onnx.ModelProto(ir_version=message.ir_version, opset_import=message.opset_import)
    part.graph.CopyFrom(
        onnx.GraphProto(
            name="constants",
            node=nodes,
            initializer=[tensor for name, tensor in held.items() if name in read],
            output=[onnx.ValueInfoProto(name=name) for name in wanted],
        )
    )
    part.functions.extend(message.functions)
    try:
        run = open_bytes(part.SerializeToString(), outputs=wanted, optimization="disabled", folder=folder)
        results = run({})
    except ParityError:
        return {}
    return _keep_small_results(nodes, held, results)


def _constant_of(name: str, array: np.ndarray) -> Any:
    """An initializer."""
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _is_foldable(node: Any) -> bool:
    return node.op_type not in _KEPT | _RANDOM and not any(True for _ in bodies_of(node)) and bool(node.input)


def _keep_small_results(
    nodes: list[Any], held: dict[str, Any], results: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    sizes = {name: tensor.ByteSize() for name, tensor in held.items()}
    kept: dict[str, np.ndarray] = {}
    for node in nodes:
        sizes.update((name, node.ByteSize()) for name in node.output if node.op_type == "Constant")
        if node.op_type == "Constant" or not all(name in sizes for name in node.input if name):
            continue
        arrays = {name: results[name] for name in node.output if name}
        grown = sum(array.nbytes for array in arrays.values())
        if grown > max(_MOST_GROWN, _GROWTH * sum(sizes[name] for name in node.input if name)):
            continue
        kept.update(arrays)
        sizes.update((name, array.nbytes) for name, array in arrays.items())
    return kept
