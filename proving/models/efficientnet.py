"""EfficientNet-Lite0 as an ONNX model, made from the weights that a package ships for another framework.

The weights are a file of PyTorch's format before 1.6: a few pickles, then each storage's length and elements. Only the four
names that such a file of tensors needs are let through, so that reading it runs no code, and PyTorch is not needed.

The graph: M. Tan's EfficientNet-Lite0 (tensorflow/tpu, `efficientnet/lite`), with padding as TensorFlow's "SAME",
BatchNormalization of epsilon 1e-3 and ReLU6 as Clip.

Input `image`, float32 [1, 3, 224, 224], RGB, (x - 127) / 128; output `logits` [1, 1000].
"""

from __future__ import annotations

import collections
import pickle
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from proving.models.fetching import fetch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx

_SIZE = 224
_EPSILON = 1e-3
_PICKLES = 3  # magic number, protocol and system, before the tensors
# Repeats, kernel, stride, expansion, channels in, channels out.
_BLOCKS = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


def efficientnet_lite0(path: Path) -> Path:
    """Writes the model to `path`.

    Raises:
        Unavailable: the weights cannot be had here.
    """
    import onnx

    onnx.save(_model(read_weights(fetch("eff-weights"))), path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """Where a tensor's elements lie: which storage, from which element on, shape and strides in elements."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a weight file by name, float32 or int64.

    Raises:
        ValueError: the file holds something other than tensors of those types.
    """
    with path.open("rb") as file:
        for _ in range(_PICKLES):
            _Tensors(file).load()
        found = _Tensors(file).load()
        keys = _Tensors(file).load()
        dtypes = dict(each.storage.split(":")[::-1] for each in found.values())
        reader = {f"{dtypes[key]}:{key}": _storage(file, dtypes[key]) for key in keys}
    return {
        name: np.lib.stride_tricks.as_strided(
            reader[each.storage][each.offset :],
            each.shape,
            tuple(stride * reader[each.storage].itemsize for stride in each.strides),
        ).copy()
        for name, each in found.items()
    }


class _Tensors(pickle.Unpickler):
    """A pickle of tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
            ("torch", "FloatStorage"): "float32",
            ("torch", "LongStorage"): "int64",
        }
        if (module, name) not in known:
            raise ValueError(f"{module}.{name} is no part of a file of tensors")
        return known[module, name]

    def persistent_load(self, pid: Any) -> str:
        _, dtype, key, *_ = pid
        return f"{dtype}:{key}"


def _rebuilt(storage: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *rest: Any) -> _Tensor:
    del rest
    return _Tensor(storage=storage, offset=offset, shape=tuple(shape), strides=tuple(strides))


def _storage(file: IO[bytes], dtype: str) -> np.ndarray:
    count = int(np.frombuffer(file.read(8), np.int64)[0])
    return np.frombuffer(file.read(count * np.dtype(dtype).itemsize), dtype)


class _Graph:
    """Nodes and initializers while they are gathered; `size` is that of the image so far."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.size = _SIZE

    def constant(self, name: str, array: np.ndarray) -> str:
        from onnx.numpy_helper import from_array

        self.initializers.append(from_array(array, name))
        return name

    def node(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        from onnx.helper import make_node

        self.nodes.append(make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def convolution(self, value: str, name: str, norm: str, *, stride: int = 1, depthwise: bool = False) -> str:
        """Conv with "SAME" padding, then BatchNormalization."""
        weight = self.weights[f"{name}.weight"]
        kernel = weight.shape[-1]
        after = -(-self.size // stride)
        padding = max((after - 1) * stride + kernel - self.size, 0)
        before = padding // 2
        self.size = after
        made = self.node(
            "Conv",
            [value, self.constant(f"{name}.weight", weight)],
            name,
            strides=[stride, stride],
            pads=[before, before, padding - before, padding - before],
            group=weight.shape[0] if depthwise else 1,
        )
        parts = [self.constant(f"{norm}.{part}", self.weights[f"{norm}.{part}"]) for part in _NORM]
        return self.node("BatchNormalization", [made, *parts], norm, epsilon=_EPSILON)

    def active(self, value: str) -> str:
        return self.node("Clip", [value, "zero", "six"], f"{value}.relu6")


_NORM = ("weight", "bias", "running_mean", "running_var")


def _model(weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    from onnx import TensorProto, helper

    graph = _Graph(weights)
    graph.constant("zero", np.array(0.0, np.float32))
    graph.constant("six", np.array(6.0, np.float32))
    value = graph.active(graph.convolution("image", "_conv_stem", "_bn0", stride=2))
    number = 0
    for repeats, _, stride, expansion, inside, outside in _BLOCKS:
        for repeat in range(repeats):
            step = stride if repeat == 0 else 1
            adds = step == 1 and (repeat > 0 or inside == outside)
            made = _block(graph, value, f"_blocks.{number}", step, expansion)
            value = graph.node("Add", [made, value], f"_blocks.{number}.sum") if adds else made
            number += 1
    value = graph.active(graph.convolution(value, "_conv_head", "_bn1"))
    pooled = graph.node("Flatten", [graph.node("GlobalAveragePool", [value], "pooled")], "features")
    last = [graph.constant(f"_fc.{part}", weights[f"_fc.{part}"]) for part in ("weight", "bias")]
    graph.node("Gemm", [pooled, *last], "logits", transB=1)
    made = helper.make_graph(
        graph.nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, _SIZE, _SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, len(weights["_fc.bias"])])],
        graph.initializers,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _block(graph: _Graph, value: str, name: str, stride: int, expansion: int) -> str:
    """An inverted residual block without the sum."""
    found = value
    if expansion != 1:
        found = graph.active(graph.convolution(found, f"{name}._expand_conv", f"{name}._bn0"))
    found = graph.convolution(found, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride, depthwise=True)
    return graph.convolution(graph.active(found), f"{name}._project_conv", f"{name}._bn2")
