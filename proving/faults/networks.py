"""Small networks with drawn weights, each a subject: what public issues break, in a few operators and milliseconds.

`built(text, constants, folder)` writes a model of the ONNX text format with named initializers. A subject's samples follow from
the same generator as its weights, so that no two cases are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.testing.networks import write_network
from proving.faults.records import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]
    Made = tuple[Path, Sequence[Arrays]]

_SAMPLES = 3
_SIDE = 24
_WORDS = 400
_LENGTH = 16

_CONV = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,24,24] x) => (float[1,12] scores) {
  c1 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w1, b1)
  r1 = Clip(c1, low, high)
  c2 = Conv<pads = [0, 1, 2, 1]>(r1, w2, b2)
  n2 = BatchNormalization<epsilon = 1e-3>(c2, scale, shift, mean, variance)
  r2 = LeakyRelu<alpha = 0.1>(n2)
  p2 = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(r2)
  u2 = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(p2, , , sizes)
  c3 = Conv<pads = [1, 1, 1, 1]>(u2, w3, b3)
  r3 = Relu(c3)
  flat = Flatten(r3)
  m4 = MatMul(flat, w4)
  scores = Add(m4, b4)
}"""

_TWO = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,64] a, float[1,64] b) => (float[1,64] y, float[1,64] z) {
  p = MatMul(a, w1)
  p1 = Add(p, b1)
  q = Tanh(b)
  q1 = MatMul(q, w2)
  r = Mul(p1, q1)
  s = Sigmoid(r)
  y = MatMul(s, w3)
  t = Sub(p1, q1)
  z = MatMul(t, w4)
}"""

_ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1,16] input_ids, int64[1,16] attention_mask, int64[1,16] token_type_ids) => (float[1,16,32] hidden) {
  words = Gather(table, input_ids)
  kinds = Gather(types, token_type_ids)
  both = Add(words, kinds)
  e0 = Add(both, places)
  mask = Cast<to = 1>(attention_mask)
  hole = Sub(one, mask)
  far = Mul(hole, lowest)
  wide = Unsqueeze(far, axis)
  q = MatMul(e0, wq)
  k = MatMul(e0, wk)
  v = MatMul(e0, wv)
  kt = Transpose<perm = [0, 2, 1]>(k)
  qk = MatMul(q, kt)
  qks = Mul(qk, narrow)
  qkm = Add(qks, wide)
  att = Softmax<axis = 2>(qkm)
  mixed = MatMul(att, v)
  e1 = Add(e0, mixed)
  m1 = ReduceMean<axes = [-1]>(e1)
  d1 = Sub(e1, m1)
  s1 = Pow(d1, two)
  v1 = ReduceMean<axes = [-1]>(s1)
  g1 = Add(v1, epsilon)
  h1 = Sqrt(g1)
  n1 = Div(d1, h1)
  f1 = MatMul(n1, wf)
  f2 = Add(f1, bf)
  er0 = Div(f2, root)
  er1 = Erf(er0)
  er2 = Add(er1, one)
  er3 = Mul(f2, er2)
  f3 = Mul(er3, half)
  f4 = MatMul(f3, wo)
  hidden = Add(n1, f4)
}"""

_MANY = 8

_ROWS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[6,48] x) => (float[6,20] y) {
  a = MatMul(x, w1)
  b = Add(a, b1)
  c = Relu(b)
  d = MatMul(c, w2)
  e = Tanh(d)
  y = MatMul(e, w3)
}"""

_MAP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,40,600] x) => (float[1,40,600] y) {
  a = MatMul(mix, x)
  b = Tanh(a)
  c = Mul(b, gain)
  y = Add(c, x)
}"""

# A normalization taken apart, whose squares no half-precision number holds.
_NORM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,64] x) => (float[2,24] y) {
  m0 = MatMul(x, w0)
  large = Mul(m0, gain)
  mean = ReduceMean<axes = [-1]>(large)
  d = Sub(large, mean)
  squares = Pow(d, two)
  variance = ReduceMean<axes = [-1]>(squares)
  guarded = Add(variance, epsilon)
  root = Sqrt(guarded)
  n = Div(d, root)
  y = MatMul(n, w1)
}"""

# A logarithm that a small constant guards.
_LOG = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,64] x) => (float[2,24] y) {
  m0 = MatMul(x, w0)
  power = Relu(m0)
  guarded = Add(power, epsilon)
  level = Log(guarded)
  y = MatMul(level, w1)
}"""

# Sums of thousands of terms of one sign.
_LONG = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3000] x) => (float[2,16] y) {
  a = MatMul(x, w0)
  b = Mul(a, a)
  c = MatMul(b, w1)
  y = Mul(c, b)
}"""

# One step of an iteration that doubles an error each time: the logistic map, mixed a little.
_LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,32] h) => (float[1,32] next) {
  a = Mul(h, rate)
  b = Mul(a, h)
  next = Sub(a, b)
}"""

# A model whose own types are half precision.
_HALF = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,64] x) => (float[2,64] y) {
  h = Cast<to = 10>(x)
  a = MatMul(h, w0)
  b = Tanh(a)
  c = MatMul(b, w1)
  y = Cast<to = 1>(c)
}"""


def built(text: str, constants: Mapping[str, np.ndarray], folder: Path, name: str = "model.onnx") -> Path:
    """The model of `text` with these initializers, written into `folder`."""
    return write_network(folder / name, text, constants)


def weights(draw: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal weights whose products keep the size of their input: deviation 1 / sqrt(fan in); float32."""
    fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return np.asarray(draw.normal(size=shape) / np.sqrt(max(1, fan)), np.float32)


def coloured(draw: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A picture of soft blots in three unlike channels on levels of 1/255: float64 (1, 3, height, width) in [0, 1]."""
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    picture = np.empty((3, height, width))
    for channel in range(3):
        total = draw.uniform(0.1, 0.4) + draw.uniform(-0.2, 0.2) * rows + draw.uniform(-0.2, 0.2) * columns
        for _ in range(12):
            top, left, size = draw.uniform(0, 1), draw.uniform(0, 1), draw.uniform(0.03, 0.25)
            total = total + draw.uniform(-0.5, 0.7) * np.exp(-((rows - top) ** 2 + (columns - left) ** 2) / size**2)
        picture[channel] = total
    picture += draw.normal(0, 0.02, picture.shape)
    return np.asarray(np.rint(np.clip(picture, 0, 1) * 255)[None] / 255)


def conv_constants(draw: np.random.Generator) -> dict[str, np.ndarray]:
    """The weights of the convolutional network."""
    return {
        "w1": weights(draw, 8, 3, 3, 3) * np.float32(6),
        "b1": draw.normal(1, 1, 8).astype(np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(round(float(draw.uniform(2, 6)), 1), np.float32),
        "w2": weights(draw, 12, 8, 3, 3),
        "b2": draw.normal(0, 0.5, 12).astype(np.float32),
        "scale": draw.uniform(0.5, 1.5, 12).astype(np.float32),
        "shift": draw.normal(0, 0.5, 12).astype(np.float32),
        "mean": draw.uniform(0.1, 0.6, 12).astype(np.float32),
        "variance": draw.uniform(0.3, 2, 12).astype(np.float32),
        "sizes": np.array([1, 12, 11, 11], np.int64),
        "w3": weights(draw, 10, 12, 3, 3),
        "b3": draw.normal(0, 0.5, 10).astype(np.float32),
        "w4": weights(draw, 10 * 121, 12),
        "b4": draw.normal(0, 0.5, 12).astype(np.float32),
    }


def _conv(folder: Path, draw: np.random.Generator) -> Made:
    images = [{"x": coloured(draw, _SIDE, _SIDE).astype(np.float32)} for _ in range(_SAMPLES)]
    return built(_CONV, conv_constants(draw), folder), images


def _two(folder: Path, draw: np.random.Generator) -> Made:
    names = {"w1": (64, 64), "w2": (64, 64), "w3": (64, 64), "w4": (64, 64)}
    constants = {name: weights(draw, *shape) for name, shape in names.items()}
    constants["b1"] = draw.normal(0, 0.5, 64).astype(np.float32)
    return built(_TWO, constants, folder), _normal(draw, {"a": (1, 64), "b": (1, 64)})


def _encoder(folder: Path, draw: np.random.Generator) -> Made:
    constants: dict[str, np.ndarray] = {
        "table": draw.normal(size=(_WORDS, 32)).astype(np.float32),
        "types": draw.normal(size=(2, 32)).astype(np.float32),
        "places": draw.normal(0, 0.5, (1, _LENGTH, 32)).astype(np.float32),
        "one": np.array(1, np.float32),
        "two": np.array(2, np.float32),
        "half": np.array(0.5, np.float32),
        "root": np.array(np.sqrt(2), np.float32),
        "lowest": np.array(-1e4, np.float32),
        "narrow": np.array(1 / np.sqrt(32), np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "axis": np.array([1], np.int64),
        **{name: weights(draw, 32, 32) * np.float32(1.5) for name in ("wq", "wk", "wv")},
        "wf": weights(draw, 32, 64),
        "bf": draw.normal(0, 0.3, 64).astype(np.float32),
        "wo": weights(draw, 64, 32),
    }
    return built(_ENCODER, constants, folder), [_sentence(draw) for _ in range(_SAMPLES)]


def _sentence(draw: np.random.Generator) -> dict[str, np.ndarray]:
    length = int(draw.integers(8, _LENGTH - 2))
    second = int(draw.integers(3, length - 2))
    ids = np.zeros((1, _LENGTH), np.int64)
    ids[0, :length] = [1, *draw.integers(10, _WORDS, length - 2), 2]
    places = np.arange(_LENGTH)[None]
    return {
        "input_ids": ids,
        "attention_mask": (places < length).astype(np.int64),
        "token_type_ids": ((places >= second) & (places < length)).astype(np.int64),
    }


def _many(folder: Path, draw: np.random.Generator) -> Made:
    inputs = [f"in{place}" for place in range(_MANY)]
    lines = [f"  t{place} = MatMul(in{place}, w{place})\n  u{place} = Tanh(t{place})" for place in range(_MANY)]
    total = ", ".join(f"u{place}" for place in range(_MANY))
    given = ", ".join(f"float[1,24] {name}" for name in inputs)
    text = f'<ir_version: 8, opset_import: ["" : 17]>\ng ({given}) => (float[1,30] y) {{\n'
    text += "\n".join(lines) + f"\n  s = Sum({total})\n  y = Sin(s)\n}}"
    constants = {f"w{place}": weights(draw, 24, 30) for place in range(_MANY)}
    return built(text, constants, folder), _normal(draw, dict.fromkeys(inputs, (1, 24)))


def _rows(folder: Path, draw: np.random.Generator) -> Made:
    constants = {"w1": weights(draw, 48, 40), "w2": weights(draw, 40, 32), "w3": weights(draw, 32, 20)}
    constants["b1"] = draw.normal(0, 0.3, 40).astype(np.float32)
    return built(_ROWS, constants, folder), _normal(draw, {"x": (6, 48)})


def _map(folder: Path, draw: np.random.Generator) -> Made:
    constants = {"mix": weights(draw, 40, 40), "gain": draw.uniform(0.5, 2, (40, 1)).astype(np.float32)}
    return built(_MAP, constants, folder), _normal(draw, {"x": (1, 40, 600)})


def _norm(folder: Path, draw: np.random.Generator) -> Made:
    constants = {
        "w0": weights(draw, 64, 48),
        "gain": np.array(draw.uniform(400, 3000), np.float32),
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "w1": weights(draw, 48, 24),
    }
    return built(_NORM, constants, folder), _normal(draw, {"x": (2, 64)})


def _variance(folder: Path, draw: np.random.Generator) -> Made:
    constants = conv_constants(draw)
    size = np.float32(10.0 ** draw.uniform(5.2, 7.5))
    constants["variance"] = constants["variance"] * size
    constants["scale"] = constants["scale"] * np.sqrt(size)
    images = [{"x": coloured(draw, _SIDE, _SIDE).astype(np.float32)} for _ in range(_SAMPLES)]
    return built(_CONV, constants, folder), images


def _log(folder: Path, draw: np.random.Generator) -> Made:
    constants = {
        "w0": weights(draw, 64, 48),
        "epsilon": np.array(10.0 ** draw.uniform(-12, -8.5), np.float32),
        "w1": weights(draw, 48, 24),
    }
    return built(_LOG, constants, folder), _normal(draw, {"x": (2, 64)})


def _long(folder: Path, draw: np.random.Generator) -> Made:
    constants = {"w0": draw.random((3000, 16)).astype(np.float32), "w1": draw.random((16, 16)).astype(np.float32)}
    constants = {name: array / np.float32(len(array)) for name, array in constants.items()}
    samples = [{"x": np.abs(each["x"])} for each in _normal(draw, {"x": (2, 3000)})]
    return built(_LONG, constants, folder), samples


def _loop(folder: Path, draw: np.random.Generator) -> Made:
    constants = {"rate": np.array([draw.uniform(3.8, 4.0)], np.float32)}
    start = draw.uniform(0.15, 0.85, (_SAMPLES, 1, 32)).astype(np.float32)
    return built(_LOOP, constants, folder), [{"h": one} for one in start]


def _half(folder: Path, draw: np.random.Generator) -> Made:
    constants = {name: weights(draw, 64, 64).astype(np.float16) for name in ("w0", "w1")}
    return built(_HALF, constants, folder), _normal(draw, {"x": (2, 64)})


def _normal(draw: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, np.ndarray]]:
    """Features: normal, each with neighbours that know of each other, as measured ones do."""
    return [{name: _smooth(draw.normal(size=shape)) for name, shape in shapes.items()} for _ in range(_SAMPLES)]


def _smooth(values: np.ndarray) -> np.ndarray:
    mixed = values + 0.7 * np.roll(values, 1, axis=-1)
    return np.asarray(mixed / np.float32(1.2), np.float32)


def _subject(
    name: str,
    shape: str,
    make: Callable[[Path, np.random.Generator], Made],
    normal: str = "",
    *,
    halves: bool = True,
    openvino: bool = True,
) -> Subject:
    return Subject(name=name, trained=False, shape=shape, make=make, normal=normal, halves=halves, openvino=openvino)


NETWORKS: dict[str, Subject] = {
    one.name: one
    for one in (
        _subject("small-conv", "image", _conv, "unit"),
        _subject("small-two", "two inputs", _two),
        # OpenVINO 2026.4 dies when the sum behind the attention (e1) is marked as an output.
        _subject("small-encoder", "tokens", _encoder, openvino=False),
        _subject("small-many", "many inputs", _many),
        _subject("small-rows", "rows", _rows),
        _subject("small-map", "map", _map),
        _subject("small-norm", "norm", _norm, halves=False),
        _subject("small-variance", "variance", _variance, "unit", halves=False),
        _subject("small-log", "logarithm", _log, halves=False),
        _subject("small-long", "sums", _long),
        _subject("small-loop", "loop", _loop),
        _subject("small-half", "half", _half),
    )
}
