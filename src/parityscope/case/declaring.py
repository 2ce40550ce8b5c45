"""What an ONNX file declares, read from its message alone: no graph object is built and no weight is looked at.

Building the graph of the PP-OCRv4 detector, and importing what it is built with, takes 0.25 s; reading its message 0.01 s
(measured). Most commands never edit a graph, so that is all they read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.operators import STANDARD
from parityscope.records import Site, ValueInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

# What gives no tensor; ZipMap is of ONNX's domain for classical models.
_MAKERS = frozenset(one.name for one in STANDARD.values() if one.gives != "tensor")
# ONNX writes element types in capitals of its own; numpy and ml_dtypes call them so.
DTYPE_NAMES = {
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "STRING": "str",
}
_KINDS = {"sequence_type": "a sequence", "optional_type": "an optional", "map_type": "a map"}


def declared_value(value: onnx.ValueInfoProto, path: Path) -> ValueInfo:
    """Name, dtype and shape of an input or output.

    Raises:
        ParityError: it is not a tensor, or of no type.
    """
    import onnx

    kind = value.type.WhichOneof("value")
    tensor = value.type.tensor_type
    known = tensor.elem_type in onnx.TensorProto.DataType.values()
    if kind != "tensor_type" or not tensor.elem_type or not known or not value.name:
        said = _KINDS.get(kind or "", "nothing" if known else f"a tensor of the unknown type {tensor.elem_type}")
        raise ParityError(
            f"nothing could be compared: input or output {value.name!r} is declared as {said}, and no tensor",
            where=str(path),
            fix="cut the model before it, so that its inputs and outputs are tensors",
            incomparable=kind in _KINDS,
        )
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
        )
    name = onnx.TensorProto.DataType.Name(tensor.elem_type)
    return ValueInfo(name=value.name, dtype=DTYPE_NAMES.get(name, name.lower()), shape=shape)


def message_sites(graph: onnx.GraphProto) -> dict[str, Site] | None:
    """A `Site` for every value that nodes of the main graph compute; None where the nodes are not in topological order.

    Constant nodes are left out, and so are sequences and optionals. The order of the file is the order of the indices.
    """
    if not _is_in_order(graph):
        return None
    others = _list_no_tensors(graph)
    found = {}
    computing = (node for node in graph.node if node.op_type != "Constant")
    for index, node in enumerate(computing):
        name = node.name or f"{node.op_type}#{index}"
        scope = scope_of(node.name)
        for tensor in node.output:
            if tensor and tensor not in others:
                found[tensor] = Site(tensor=tensor, node=name, op_type=node.op_type, index=index, scope=scope)
    return found


def _list_no_tensors(graph: onnx.GraphProto) -> set[str]:
    """The sequences, optionals and maps of a graph in topological order: what is declared to be one, or made by an operator."""
    found = {value.name for value in (*graph.value_info, *graph.output) if _is_no_tensor(value)}
    for node in graph.node:
        if node.op_type in _MAKERS or (node.op_type == "Identity" and set(node.input) & found):
            found.update(node.output)
        for body in bodies_of(node):
            given = body.output[1:] if node.op_type == "Loop" else body.output
            found.update(name for name, value in zip(node.output, given, strict=False) if _is_no_tensor(value))
    return found


def gives_other_values(graph: onnx.GraphProto) -> bool:
    """Whether an output is a sequence, an optional or a map."""
    return any(_is_no_tensor(value) for value in graph.output)


def _is_no_tensor(value: onnx.ValueInfoProto) -> bool:
    return value.type.WhichOneof("value") in {"sequence_type", "optional_type", "map_type"}


def scope_of(name: str) -> str:
    """PyTorch and others put the module path into node names, separated by slashes."""
    return name.strip("/").rpartition("/")[0]


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside a node of a message; none for all but control flow."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _is_in_order(graph: onnx.GraphProto) -> bool:
    """Whether no node of the main graph reads what a later one makes (its bodies' captured values included)."""
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if any(name in later for name in names_read(node)):
            return False
        later.difference_update(node.output)
    return True


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads; of its bodies, every name that they do not make themselves."""
    yield from node.input
    for body in bodies_of(node):
        made = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            yield from (name for name in names_read(inner) if name not in made)
            made.update(inner.output)
        yield from (value.name for value in body.output if value.name not in made)
