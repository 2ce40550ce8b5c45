"""An ONNX file that gives back more values, as bytes and without reading its graph; and shapes without a run.

In: the path of a model, the names of values of its main graph. Out: a serialized model with those values as further
outputs, behind the declared ones.

Serialized messages of protocol buffers may be concatenated: fields of a message that occurs twice are merged, and
repeated fields appended ("Last One Wins" in the encoding guide of Protocol Buffers, where merging of embedded messages
is defined). So a few bytes behind the file add outputs or nodes to its graph, whatever its size; reading,
editing and writing the PP-OCRv4 detector through an object graph takes sixty milliseconds instead of two (measured).
An output without a type is completed by the runtime's own inference.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from parityscope.case.intake import read_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import onnx

SHAPE_SUFFIX = "::shape"
_INFERENCE_LIMIT = 1 << 28  # bytes, chosen: reading more takes longer than a run
_SHAPE_NUMBERS = 1 << 10  # elements, chosen: what says how a shape is made has at most a few for each dimension
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def with_outputs(path: Path, names: Sequence[str]) -> bytes:
    """The model with `names` as further outputs; they must be values of the main graph and not outputs already."""
    import onnx

    graph = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name) for name in names])
    return _append_graph(path, graph)


def with_shape_outputs(path: Path, names: Sequence[str]) -> bytes:
    """The model with the shape of each of `names` (int64, 1-D) as a further output called `<name>::shape`."""
    import onnx

    graph = onnx.GraphProto(
        node=[onnx.NodeProto(op_type="Shape", input=[name], output=[name + SHAPE_SUFFIX]) for name in names],
        output=[onnx.ValueInfoProto(name=name + SHAPE_SUFFIX) for name in names],
    )
    return _append_graph(path, graph)


def inferred_shapes(path: Path, inputs: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes that ONNX's shape inference can tell of intermediate values once the shapes of all inputs are known.

    What depends on the numbers in a tensor, and what comes behind it, is left out; so is everything in a large file.
    """
    facts = path.stat()
    if facts.st_size > _INFERENCE_LIMIT:
        return {}
    return dict(_infer_shapes(path, (facts.st_ino, facts.st_size, facts.st_mtime_ns), tuple(sorted(inputs.items()))))


@functools.lru_cache(maxsize=4)  # both sides' files, and each stage asks again
def _infer_shapes(
    path: Path, _facts: tuple[int, ...], inputs: tuple[tuple[str, tuple[int, ...]], ...]
) -> Mapping[str, tuple[int, ...]]:
    import onnx

    model = read_message(path)
    del model.graph.value_info[:]  # what the file declares may be symbolic, or wrong
    _drop_weights(model.graph)
    given = dict(inputs)
    for value in model.graph.input:
        if value.name in given:
            shape = onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension(dim_value=n) for n in given[value.name]])
            value.type.tensor_type.shape.CopyFrom(shape)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError):
        return {}
    found = {}
    for value in inferred.graph.value_info:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            found[value.name] = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return found


def _drop_weights(graph: onnx.GraphProto) -> None:
    """Leaves of large tensors their type and shape: inference takes the message through bytes twice, and reads no weight."""
    held = [attribute.t for node in graph.node if node.op_type == "Constant" for attribute in node.attribute]
    for tensor in (*graph.initializer, *held):
        if math.prod(tensor.dims) > _SHAPE_NUMBERS:
            for field in _DATA:
                tensor.ClearField(field)


def _append_graph(path: Path, graph: onnx.GraphProto) -> bytes:
    import onnx

    added: bytes = onnx.ModelProto(graph=graph).SerializeToString()
    return path.read_bytes() + added
