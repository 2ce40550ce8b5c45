"""Runs the nodes of a model that read constants alone, by ONNX Runtime on this CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.backends.onnxruntime_sessions import open_bytes
from parityscope.backends.tensorrt._inlining import names_read_by
from parityscope.case.declaring import bodies_of
from parityscope.errors import ParityError
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

__all__ = ["constant_of", "run_constants"]

# Engines read these as the types of what is around them.
_KEPT = of_kind("quantization")
_RANDOM = of_kind("random")
_MOST_GROWN = 1 << 22  # bytes, chosen: a larger result stays a node if it is more than four times what it is made of
_GROWTH = 4


def run_constants(message: Any, folder: Path | None) -> dict[str, np.ndarray]:
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


def constant_of(name: str, array: np.ndarray) -> Any:
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
