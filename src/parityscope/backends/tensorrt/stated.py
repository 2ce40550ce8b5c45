"""A dump of an engine's layers beside the reference -> the reference's file with what the dump says otherwise in it.

`trtexec --exportLayerInfo`, or the engine inspector, says of a layer which ONNX nodes it took, and of a convolution, a pooling
or a region in which type it writes, how its window steps, what it pads, its groups, its activation and how many weights it has.
That is put into a copy of the reference's graph, which then is compared as any other file of a candidate. What a dump does not
say (weights, axes, other operators) is the reference's there: nothing is guessed. What it says and no graph of these weights can
have (another number of weights, groups, another kernel) is told in words.

Source: the fields of a detailed dump (`--profilingVerbosity=detailed`) as NVIDIA's TREX and TensorRT issue 4020 quote them.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.inspector import read_layer_items
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.errors import ParityError
from parityscope.private_folders import lasting_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import onnx

    from parityscope.case import Model
    from parityscope.logs import EngineLayer

_WINDOWED = {
    "Convolution": ("Conv", "ConvTranspose"),
    "Deconvolution": ("ConvTranspose",),
    "Pooling": ("AveragePool", "MaxPool"),
}
_EXPLICIT = "kEXPLICIT"
_ACTIVATIONS = {
    "ELU": "Elu",
    "LEAKY_RELU": "LeakyRelu",
    "NONE": "Identity",
    "RELU": "Relu",
    "SIGMOID": "Sigmoid",
    "SOFTPLUS": "Softplus",
    "SOFTSIGN": "Softsign",
    "TANH": "Tanh",
}
_NARROW = {"Half": 10, "BFloat16": 16, "BF16": 16}  # ONNX's numbers of the types that a layer may write instead of FP32
_DETAILED = "trtexec --loadEngine=model.plan --profilingVerbosity=detailed --exportLayerInfo=layers.json"


def stated_file(path: Path, reference: Model) -> tuple[Path, tuple[str, ...]]:
    """The ONNX file that says what the dump at `path` says, and what it says that no such file can.

    Raises:
        ParityError: it is no dump, has names of layers alone, or none of its layers is of this model.
    """
    import onnx

    items = read_layer_items(path)
    message = name_all_nodes(reference.path, {}).message
    onnx.load_external_data_for_model(message, str(reference.path.parent))
    nodes = {node.name: node for node in message.graph.node}
    known = [(layer, told) for layer, told in items if told and any(name in nodes for name in layer.nodes)]
    if not known:
        raise ParityError(
            f"{path.name} says nothing of this model's nodes",
            where=str(path),
            fix=f"write it with its details, of an engine of this model: {_DETAILED}",
        )
    unread = tuple(text for layer, told in known for text in _state_layer(message, nodes, layer, told))
    digest = hashlib.sha256(path.read_bytes() + reference.sha256.encode()).hexdigest()[:16]
    written = lasting_folder("stated") / f"{path.stem}-{digest}.onnx"
    onnx.save(message, written)
    return written, unread


def _state_layer(
    message: onnx.ModelProto, nodes: Mapping[str, onnx.NodeProto], layer: EngineLayer, told: Mapping[str, Any]
) -> Iterator[str]:
    own = [nodes[name] for name in layer.nodes if name in nodes]
    kinds = _WINDOWED.get(str(told.get("ParameterType", "")), ())
    windows = [node for node in own if node.op_type in kinds]
    if len(windows) == 1:
        yield from _state_window(message, windows[0], told)
        _state_activation(own, told)
    types = {tensor.name: tensor.dtype for tensor in layer.outputs}
    for node in own:
        for name in node.output:
            if types.get(name) in _NARROW:
                _state_type(message, name, _NARROW[types[name]])


def _state_window(message: onnx.ModelProto, node: onnx.NodeProto, told: Mapping[str, Any]) -> Iterator[str]:
    """Steps and padding, where the dump's window has as many axes as the node's; what does not fit the weights is told."""
    from onnx import helper

    held = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    sizes = {tensor.name: list(tensor.dims) for tensor in message.graph.initializer}
    shape = sizes.get(node.input[1], []) if len(node.input) > 1 else []
    kernel = list(held.get("kernel_shape", shape[2:]))
    stated = _list_of(told, "Kernel", "WindowSize")
    rank = len(kernel)
    if stated and len(stated) == rank and stated != kernel:
        yield f"{node.op_type} {node.name}: a kernel of {stated} instead of {kernel}"
    count = told.get("Weights", {}).get("Count") if isinstance(told.get("Weights"), dict) else None
    whole = math.prod(shape)
    if shape and isinstance(count, int) and count > 0 and count != whole:
        yield f"{node.op_type} {node.name}: {count} weights instead of {whole}"
    groups = told.get("Groups")
    if shape and isinstance(groups, int) and groups != held.get("group", 1):
        yield f"{node.op_type} {node.name}: {groups} groups instead of {held.get('group', 1)}"
    before, after = _list_of(told, "PrePadding"), _list_of(told, "PostPadding")
    explicit = (
        str(told.get("PaddingMode", _EXPLICIT)).startswith(_EXPLICIT) and held.get("auto_pad", b"NOTSET") == b"NOTSET"
    )
    wanted = {
        "strides": (_list_of(told, "Stride"), [1] * rank),
        "dilations": (_list_of(told, "Dilation"), [1] * rank),
        "pads": (before + after if explicit else [], [0] * 2 * rank),
    }
    for name, (value, usual) in wanted.items():
        if len(value) == len(usual) and value != list(held.get(name, usual)):
            kept = [one for one in node.attribute if one.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _state_activation(own: Sequence[onnx.NodeProto], told: Mapping[str, Any]) -> None:
    """What a layer of a window does last, where one of its nodes is an activation that the dump calls otherwise."""
    stated = _ACTIVATIONS.get(str(told.get("Activation", "RELU" if told.get("HasReLU") else "")), "")
    activations = [node for node in own if node.op_type in _ACTIVATIONS.values()]
    if stated and len(activations) == 1 and activations[0].op_type != stated:
        activations[0].op_type = stated
        del activations[0].attribute[:]


def _state_type(message: onnx.ModelProto, name: str, kind: int) -> None:
    """A value that goes through a narrower type on its way to whoever reads it; outputs are left as they are."""
    from onnx import helper

    narrow, back = f"{name}::narrow", f"{name}::back"
    for node in message.graph.node:
        node.input[:] = [back if one == name else one for one in node.input]
    place = next(place for place, node in enumerate(message.graph.node) if name in node.output)
    message.graph.node.insert(place + 1, helper.make_node("Cast", [name], [narrow], name=narrow, to=kind))
    message.graph.node.insert(place + 2, helper.make_node("Cast", [narrow], [back], name=back, to=1))


def _list_of(told: Mapping[str, Any], *names: str) -> list[int]:
    """The numbers of the first field that is there."""
    found: Any = next((told[name] for name in names if name in told), [])
    return [int(one) for one in found] if isinstance(found, list) and all(isinstance(one, int) for one in found) else []
