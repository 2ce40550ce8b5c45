"""What the settings of TensorRT 8 to 10 have in common: how layers are found, and why 11 takes none.

The ONNX parser calls the first layer of a node as the node is called, "node_of_<output>" where it has no name, and
further ones with a number behind it; each layer's metadata says "[ONNX Layer: <node>]" since 8.6 (onnx-tensorrt,
ImporterContext.cpp, registerLayer and processMetadata). Layers are looked up by both.

Sources: NVIDIA TensorRT 10 developer guide, "Layer-Level Control of Precision"; TensorRT 10 to 11 migration guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parityscope.repairs.settings._nodes import Placed

REMOVED = """TensorRT 8 to 10 only. TensorRT 11 removed the precision of layers with all of weak typing: there the ONNX model
itself has to say it, with Casts and typed weights. Parityscope writes such a model, and TensorRT 10 takes it as well
(strongly typed: NetworkDefinitionCreationFlag.STRONGLY_TYPED, trtexec --stronglyTyped)."""

_FUNCTION = '''KEPT = {{
{kept}
}}  # layer of an ONNX node -> the type that it computes in and gives


def set_precisions(network):
    """Sets what each kept layer computes in, and gives the names that no layer was found for."""
    import tensorrt as trt

    floats = {{getattr(trt, name) for name in ("float32", "float16", "bfloat16") if hasattr(trt, name)}}
    found = set()
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        owner = owner_of(layer)
        if owner is None or layer.type in {{trt.LayerType.CONSTANT, trt.LayerType.SHAPE}}:
            continue
        found.add(owner)
        dtype = getattr(trt, KEPT[owner])
        outputs = [number for number in range(layer.num_outputs) if layer.get_output(number).dtype in floats]
        if outputs:
            layer.precision = dtype
        for number in outputs:
            layer.set_output_type(number, dtype)
    return sorted(set(KEPT) - found)


def owner_of(layer):
    """The kept node that a layer comes from, None for any other."""
    metadata = getattr(layer, "metadata", "") or ""
    for name in KEPT:
        if layer.name == name or f"[ONNX Layer: {{name}}]" in metadata:
            return name
        if not metadata and re.fullmatch(re.escape(name) + r"_\\d+", layer.name):
            return name
    return None
'''
NUMPY = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def precision_function(nodes: Iterable[Placed]) -> str:
    """Python that defines KEPT, `set_precisions(network)` and `owner_of(layer)`; it needs `re`."""
    kept = "\n".join(f"    {placed.layer!r}: {NUMPY[placed.format_name]!r}," for placed in nodes)
    return _FUNCTION.format(kept=kept)
