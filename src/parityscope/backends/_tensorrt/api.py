"""What is called of TensorRT, as types: the calls that 8.6, 10, 11 and RTX have in common, and those of each that are optional.

Exists because the bindings bring no type information and no engine can be run on most machines that this code is written on:
everything that touches an engine is checked against these protocols. They are written from NVIDIA's Python API reference of
10.13 and 11.4; a test checks them against the type stubs of 10.13 (`tensorrt-stubs`) where those are installed, and another
one that TensorRT-RTX has every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Builder",
    "BuilderConfig",
    "Context",
    "Engine",
    "Named",
    "Network",
    "Profile",
    "Registry",
    "Runtime",
    "Sizes",
    "TypedLayer",
    "shape_of",
]


class Sizes(Protocol):
    """`Dims`: a shape, which is no sequence for type checkers but has a length and items."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...


class Named(Protocol):
    """A member of one of TensorRT's enumerations: `DataType.HALF` and its like."""

    @property
    def name(self) -> str: ...


class Engine(Protocol):
    """`ICudaEngine`: what it tells of its inputs and outputs."""

    @property
    def num_io_tensors(self) -> int: ...
    @property
    def num_optimization_profiles(self) -> int: ...
    def get_tensor_name(self, index: int, /) -> str: ...
    def get_tensor_mode(self, name: str, /) -> Named: ...
    def get_tensor_dtype(self, name: str, /) -> Named: ...
    def get_tensor_shape(self, name: str, /) -> Sizes: ...
    def get_tensor_format(self, name: str, /) -> Named: ...
    def get_tensor_format_desc(self, name: str, /) -> str: ...
    def get_tensor_location(self, name: str, /) -> Named: ...
    def get_tensor_profile_shape(self, name: str, profile_index: int, /) -> Sequence[Sizes]: ...
    def is_shape_inference_io(self, name: str, /) -> bool: ...


class Context(Protocol):
    """`IExecutionContext`: one run of an engine."""

    def set_input_shape(self, name: str, shape: Any, /) -> bool: ...
    def set_tensor_address(self, name: str, memory: int, /) -> bool: ...
    def get_tensor_shape(self, name: str, /) -> Sizes: ...
    def execute_async_v3(self, stream_handle: int, /) -> bool: ...


class TypedLayer(Protocol):
    """`ILayer` of TensorRT 8.6 to 10: a layer whose precision can be asked for. 11 and RTX have no such members."""

    @property
    def name(self) -> str: ...
    @property
    def metadata(self) -> str: ...
    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...

    precision: Any

    def get_input(self, index: int, /) -> Any: ...
    def get_output(self, index: int, /) -> Any: ...
    def set_output_type(self, index: int, dtype: Any, /) -> None: ...


class Network(Protocol):
    """`INetworkDefinition`: what a parser makes of a file."""

    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    def get_input(self, index: int, /) -> Any: ...
    def get_output(self, index: int, /) -> Any: ...
    def get_layer(self, index: int, /) -> Any: ...
    def mark_output(self, tensor: Any, /) -> None: ...


class Profile(Protocol):
    """`IOptimizationProfile`."""

    def set_shape(self, name: str, smallest: Any, usual: Any, largest: Any, /) -> None: ...


class BuilderConfig(Protocol):
    """`IBuilderConfig`: the members that every version has."""

    profiling_verbosity: Any
    hardware_compatibility_level: Any
    builder_optimization_level: int

    def set_flag(self, flag: Any, /) -> None: ...
    def clear_flag(self, flag: Any, /) -> None: ...
    def add_optimization_profile(self, profile: Any, /) -> int: ...
    def create_timing_cache(self, content: Any, /) -> Any: ...
    def set_timing_cache(self, cache: Any, ignore_mismatch: bool, /) -> bool: ...  # noqa: FBT001 - TensorRT's own
    def get_timing_cache(self) -> Any: ...


class Builder(Protocol):
    """`Builder`."""

    def create_network(self, flags: int, /) -> Any: ...
    def create_builder_config(self) -> Any: ...
    def create_optimization_profile(self) -> Any: ...
    def build_serialized_network(self, network: Any, config: Any, /) -> Any: ...
    def get_plugin_registry(self) -> Any: ...


class Registry(Protocol):
    """`IPluginRegistry`; what lists plugins is called `plugin_creator_list` before 10, and `all_creators` since."""

    def load_library(self, path: str, /) -> Any: ...


class Runtime(Protocol):
    """`Runtime`."""

    engine_host_code_allowed: bool

    def deserialize_cuda_engine(self, content: Any, /) -> Any: ...
    def get_plugin_registry(self) -> Any: ...


def shape_of(sizes: Sizes) -> tuple[int, ...]:
    """The sizes as numbers; -1 stands for one that is not known."""
    return tuple(sizes[index] for index in range(len(sizes)))
