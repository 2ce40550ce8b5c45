"""The layers and tensors of a parsed network, and the ONNX node that each layer works for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass, replace
from parityscope.logs.names import metadata_nodes

if TYPE_CHECKING:
    from parityscope.backends.tensorrt.api import NetworkDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTensor:
    """An input or output of the parsed network: its type in the words of numpy and its shape (-1 for a dynamic size)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLayer:
    """A layer of the parsed network, the ONNX node it was made for and the types that it writes.

    A `helper` (a constant, a broadcast, a cast) was added by the parser for no node of its own; `node` is then the one that it
    works for, empty if it works for none.
    """

    name: str
    kind: str
    node: str
    helper: bool
    types: tuple[str, ...]


def network_inputs(network: NetworkDefinition) -> list[Any]:
    """The inputs of a network, in its order."""
    return [network.get_input(index) for index in range(network.num_inputs)]


def network_layers(network: NetworkDefinition) -> list[NetworkLayer]:
    """The layers of a network, in its order."""
    found = []
    names: list[tuple[list[str], list[str]]] = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        nodes = metadata_nodes(layer.metadata)
        inputs = [layer.get_input(place) for place in range(layer.num_inputs)]
        outputs = [layer.get_output(place) for place in range(layer.num_outputs)]
        names.append(([each.name for each in inputs if each is not None], [each.name for each in outputs]))
        found.append(
            NetworkLayer(
                name=layer.name,
                kind=layer.type.name.lower(),
                node=nodes[0] if nodes else "",
                helper=not nodes,
                types=tuple(_numpy_type_word(each.dtype) for each in outputs),
            )
        )
    return _name_nodes_served(found, names)


def _name_nodes_served(layers: list[NetworkLayer], names: list[tuple[list[str], list[str]]]) -> list[NetworkLayer]:
    """The layers with the node that each helper works for: that of the first layer behind it, or before it, with a node."""
    for forward in (True, False):
        touching: dict[str, list[int]] = {}
        for place, (inputs, outputs) in enumerate(names):
            for name in inputs if forward else outputs:
                touching.setdefault(name, []).append(place)
        order = range(len(layers) - 1, -1, -1) if forward else range(len(layers))
        for place in order:
            if layers[place].node:
                continue
            around = names[place][1 if forward else 0]
            nodes = [layers[other].node for name in around for other in touching.get(name, ()) if layers[other].node]
            if nodes:
                layers[place] = replace(layers[place], node=nodes[0])
    return layers


def network_tensor(tensor: Any) -> NetworkTensor:
    """A tensor of a network: its name, numpy's word for its type, and its shape."""
    return NetworkTensor(name=tensor.name, dtype=_numpy_type_word(tensor.dtype), shape=tuple(tensor.shape))


def _numpy_type_word(dtype: Any) -> str:
    words = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8_e4m3fn"}
    name: str = dtype.name
    return words.get(name, name.lower())
