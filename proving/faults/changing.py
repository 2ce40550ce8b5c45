"""Plants of the three commonest kinds: other inputs, other outputs, another graph, each in a drawn arithmetic.

The changed graph is deployed as a user's would be: live (its file is the candidate), or as a recording of all of its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.planting import answers, base_of, edited, live, recorded, stands_out
from proving.faults.records import NoEffectError, Plant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx

    from proving.faults.records import Bed

    Arrays = Mapping[str, np.ndarray]
    # Changes a model in place; gives what it did in words, and the tensors at which that can be seen first.
    Edit = Callable[[onnx.ModelProto, np.random.Generator], tuple[str, tuple[str, ...]]]


def fed(bed: Bed, given: Sequence[Arrays], words: str, *, expected: str = "") -> Plant:
    """A recorded deployment that computed on `given` in place of the bed's samples.

    Raises:
        NoEffectError: that moves its outputs by no more than arithmetic does.
    """
    base = base_of(bed)
    outputs = stands_out(bed, answers(bed.path, given, base), base)
    return Plant(words=f"{words} ({base})", candidate=recorded(bed, outputs, base), declared=base, expected=expected)


def read(bed: Bed, change: Callable[[Sequence[Arrays]], Sequence[Arrays]], words: str) -> Plant:
    """A recorded deployment whose outputs are what `change` makes of the honest ones of all samples.

    Raises:
        NoEffectError: as `fed`.
    """
    base = base_of(bed)
    outputs = stands_out(bed, change(answers(bed.path, bed.samples, base)), base)
    return Plant(words=f"{words} ({base})", candidate=recorded(bed, outputs, base), declared=base)


def altered(bed: Bed, edit: Edit) -> Plant:
    """A deployment that runs another graph: as a file beside the original, or recorded with all of its tensors.

    Raises:
        NoEffectError: as `fed`.
    """
    told: list[tuple[str, tuple[str, ...]]] = []
    path = edited(bed, lambda model: told.append(edit(model, bed.draw)))
    words, sites = told[0]
    base = base_of(bed)
    stands_out(bed, answers(path, bed.samples, base), base)
    if bed.draw.random() < 0.5:
        candidate, way = live(base, path), "its own file"
    else:
        candidate, way = recorded(bed, answers(path, bed.samples, base, inside=True), base), "recorded"
    return Plant(words=f"{words} ({base}, {way})", candidate=candidate, declared=base, sites=sites)


def nodes_of(model: onnx.ModelProto, draw: np.random.Generator, *types: str) -> list[onnx.NodeProto]:
    """The nodes of these types in a drawn order.

    Raises:
        NoEffectError: there are none.
    """
    found = [node for node in model.graph.node if node.op_type in types]
    if not found:
        raise NoEffectError(f"there is no {' or '.join(types)}")
    return [found[place] for place in draw.permutation(len(found))]


def initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto | None:
    """The constant `name`: an initializer, or what a Constant node holds."""
    found: onnx.TensorProto | None = next((one for one in model.graph.initializer if one.name == name), None)
    if found is not None:
        return found
    held = [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] == name]
    return next((one.t for node in held for one in node.attribute if one.name == "value"), None)


def constant(model: onnx.ModelProto, name: str) -> np.ndarray | None:
    """The value of constant `name`, None if it is none."""
    import onnx

    tensor = initializer(model, name)
    return None if tensor is None else np.array(onnx.numpy_helper.to_array(tensor))


def set_constant(model: onnx.ModelProto, name: str, values: np.ndarray) -> None:
    """Another value for constant `name`, of its type."""
    import onnx

    tensor = initializer(model, name)
    if tensor is None:
        raise NoEffectError(f"{name} is no constant")
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(values, kind, order="C"), tensor.name))
