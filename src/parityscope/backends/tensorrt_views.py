"""What TensorRT makes of an ONNX file, and what its inspector tells of an engine: the public names of `_tensorrt`."""

from __future__ import annotations

from parityscope.backends._tensorrt.engine_log import log_of_layer_info, with_profile
from parityscope.backends._tensorrt.findings import find_in_view
from parityscope.backends._tensorrt.inspector import engine_layers, io_tensors, read_layer_info, read_profile
from parityscope.backends._tensorrt.iotensors import DTYPES
from parityscope.backends._tensorrt.network import NetworkView, executed_graph, network_view
from parityscope.backends._tensorrt.options import TensorrtOptions, options_of
from parityscope.backends._tensorrt.packages import Package, find_package
from parityscope.backends._tensorrt.profiles import ShapeRange, check_covered, ranges_of_samples
from parityscope.backends._tensorrt.settling import value_of

__all__ = [
    "DTYPES",
    "NetworkView",
    "Package",
    "ShapeRange",
    "TensorrtOptions",
    "check_covered",
    "engine_layers",
    "executed_graph",
    "find_in_view",
    "find_package",
    "io_tensors",
    "log_of_layer_info",
    "network_view",
    "options_of",
    "ranges_of_samples",
    "read_layer_info",
    "read_profile",
    "value_of",
    "with_profile",
]
