"""Whether a file can be loaded: what its text cannot say of itself, ONNX Runtime is asked.

The standard's own checks let pass an axis that a tensor does not have, a stride of 0 or a type that an operator does not take.
Only what says so at once is asked: the graph without its large weights, which are declared as inputs, so that a
file of any size costs little; where that is refused, the file as it stands. Nothing is run.

Then it is opened once more with what can be computed of it without inputs: shapes that contradict one another only once they are
computed. Whatever else an optimizer may say there is about the optimizer.

What the runtime cannot tell because it lacks something itself (an operator of somebody's own, a kernel for a type, a newer
opset) says nothing about the file: that becomes a `Skip`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.standard import DOMAINS
from parityscope.backends.onnxruntime_sessions import open_bytes, open_path
from parityscope.case.intake import read_message
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from parityscope.linting.records import Sheet

_MOST_NODES = (
    50_000  # chosen: the runtime takes 5 KB and 0.15 ms of a node (measured), and real networks have a tenth of that
)
_LARGE = 1024  # elements, chosen: shapes, axes and scales, which a graph is put together with, are smaller
_CONTRADICTION = "ShapeInferenceError"
_SHAPES = "export it again, for inputs of the shapes that it declares"
# What ONNX Runtime says where it is the one that lacks something.
_LACKING = ("not_implemented", "could not find an implementation", "under development", "current official support")


def check_loading(sheet: Sheet) -> tuple[Skip, ...]:
    """Opens the file in ONNX Runtime; gives what could not be seen.

    Raises:
        ParityError: the file cannot be loaded, or no run of it can be right.
    """
    defined = {(function.domain, function.name) for function in sheet.model.functions.values()}
    foreign = sorted(
        {
            f"{place.node.domain}::{place.node.op_type}"
            for place in sheet.places
            if place.node.domain not in {*DOMAINS, "com.microsoft"}
            and (place.node.domain, place.node.op_type) not in defined
        }
    )
    if len(sheet.places) > _MOST_NODES:
        return (
            _skip_of_unseen(
                f"it has {len(sheet.places):,} nodes, and no more than {_MOST_NODES:,} are opened only to look"
            ),
        )
    if foreign:
        return (_skip_of_unseen(f"it needs a library with {', '.join(foreign[:3])}"),)
    try:
        _try_to_open(sheet.path)
    except ParityError as error:
        if any(words in error.problem.lower() for words in _LACKING):
            return (_skip_of_unseen(error.problem),)
        raise
    return ()


def _try_to_open(path: Path) -> None:
    message = read_message(path)
    outputs = [value.name for value in message.graph.output]
    light = _declare_weights_as_inputs(message, path)
    try:
        open_bytes(light, outputs=outputs, optimization="disabled", folder=path.parent)
    except ParityError:  # of weights that have to be constants too, which only the file itself has
        open_path(path, outputs=outputs, optimization="disabled")
        return
    try:
        open_bytes(light, outputs=outputs, optimization="basic", folder=path.parent)
    except ParityError as error:
        if _CONTRADICTION not in error.problem:
            return
        raise ParityError(
            f"its shapes contradict one another once they are computed: {error.problem}", where=str(path), fix=_SHAPES
        ) from error


def _declare_weights_as_inputs(message: onnx.ModelProto, path: Path) -> bytes:
    """The model with its large initializers declared as inputs, and small ones that lie in other files inside."""
    import onnx

    graph = message.graph
    declared = {value.name for value in graph.input}
    kept = []
    for tensor in graph.initializer:
        if math.prod(tensor.dims) > _LARGE:
            if tensor.name not in declared:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            continue
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        kept.append(tensor)
    kept = [tensor.SerializeToString() for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(map(onnx.TensorProto.FromString, kept))
    return bytes(message.SerializeToString())


def _skip_of_unseen(reason: str) -> Skip:
    return Skip(
        what="whether the file can be loaded",
        reason=reason,
        fix="open it in the runtime that it is meant for",
        asked=True,
    )
