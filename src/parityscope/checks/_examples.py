"""Networks and faults that the examples of several checks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Arrays = Mapping[str, np.ndarray]

# Two products, whose sums of 64 terms show every coarser arithmetic.
PRODUCTS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y) {
  a = MatMul(x, w)
  b = Relu(a)
  y = MatMul(b, w)
}"""

# A convolution that sees colours and edges, and a product.
PICTURE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,16] x) => (float[1,24] y) {
  a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
  r = Relu(a)
  f = Flatten(r)
  y = MatMul(f, v)
}"""

# One product of numbers that every precision tells apart.
DENSE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,4] y) { y = MatMul(x, w) }"""
DENSE_CONSTANTS: Arrays = {"w": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}
DENSE_INPUTS: Arrays = {"x": np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 8)}

# ONNX Runtime up to 1.31 at least makes the Pad a padding of the pooling, which does not count it.
POOLED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,6,6] x) => (float[1,2,4,4] y)
<int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, float nought = {0}> {
  p = Pad(x, pads, nought)
  y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(p)
}"""
POOLED_INPUTS: Arrays = {"x": np.linspace(-2, -1, 72, dtype=np.float32).reshape(1, 2, 6, 6)}


def product_arrays(seed: int) -> tuple[Arrays, Arrays]:
    """Constants and inputs of PRODUCTS, normal numbers in float32."""
    draw = np.random.default_rng(seed)
    weights = draw.normal(size=(64, 64)).astype(np.float32)
    return {"w": weights}, {"x": draw.normal(size=(4, 64)).astype(np.float32)}


def picture_arrays(seed: int) -> tuple[Arrays, Arrays]:
    """Constants of PICTURE, normal numbers in float32, and a picture of random bytes in [0, 1]."""
    draw = np.random.default_rng(seed)
    constants = {
        "w": draw.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "b": draw.normal(size=8).astype(np.float32),
        "v": (draw.normal(size=(512, 24)) / 16.0).astype(np.float32),
    }
    return constants, {"x": (draw.integers(0, 256, size=(1, 3, 16, 16)) / 255.0).astype(np.float32)}
