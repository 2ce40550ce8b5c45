"""What TensorRT makes of an ONNX file, and what its inspector tells of an engine: the public names of `_tensorrt`."""

from __future__ import annotations

from parityscope.backends._tensorrt.findings import find_in_view
from parityscope.backends._tensorrt.inspector import engine_layers, io_tensors, read_layer_info, read_profile
from parityscope.backends._tensorrt.network import NetworkView, executed_graph, network_view
from parityscope.backends._tensorrt.packages import Package, find_package

__all__ = [
    "NetworkView",
    "Package",
    "engine_layers",
    "executed_graph",
    "find_in_view",
    "find_package",
    "io_tensors",
    "network_view",
    "read_layer_info",
    "read_profile",
]
