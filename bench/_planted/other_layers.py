"""Random layers of other kinds: normalizations, pooling, Resize, GELU, activations, a depthwise convolution, a division."""

from __future__ import annotations

import numpy as np

from _planted.layer import Layer, chain
from _planted.linear_layers import numbers

_GELU = {
    "exact": ["Div(x, root)", "Erf(t)", "Add(t, one)", "Mul(x, t)", "Mul(t, half)"],
    "tanh": [
        "Mul(x, x)",
        "Mul(t, x)",
        "Mul(t, cubic)",
        "Add(x, t)",
        "Mul(t, outer)",
        "Tanh(t)",
        "Add(t, one)",
        "Mul(x, t)",
        "Mul(t, half)",
    ],
}


def normalization(generator: np.random.Generator) -> Layer:
    width = int(generator.integers(8, 100))
    parameters = {
        "scale": generator.normal(1, 0.3, width).astype(np.float32),
        "shift": generator.normal(0, 0.3, width).astype(np.float32),
    }
    feeds = {"x": generator.normal(0, 0.05, (2, int(generator.integers(3, 20)), width)).astype(np.float32)}
    return Layer(
        text=chain(["LayerNormalization<epsilon = 1e-5>(x, scale, shift)"], 3), parameters=parameters, feeds=feeds
    )


def depthwise(generator: np.random.Generator) -> Layer:
    channels, size = int(generator.integers(4, 17)), int(generator.integers(8, 16))
    parameters = {
        "w": generator.normal(0, 0.2, (channels, 1, 5, 5)).astype(np.float32),
        "b": generator.normal(0, 0.5, channels).astype(np.float32),
    }
    return Layer(
        text=chain([f"Conv<group = {channels}, pads = [2, 2, 2, 2]>(x, w, b)"], 4),
        parameters=parameters,
        feeds={"x": numbers(generator, 1, channels, size, size)},
    )


def division(generator: np.random.Generator) -> Layer:
    divisor = np.array(float(generator.choice([3.0, 6.0, 7.0, 0.3])), np.float32)
    feeds = {"x": generator.normal(0, 1, (2, 9, 32)).astype(np.float32)}
    return Layer(text=chain(["Div(x, divisor)"], 3), parameters={"divisor": divisor}, feeds=feeds)


def batch_normalization(generator: np.random.Generator) -> Layer:
    channels = int(generator.integers(3, 17))
    parameters = {
        "scale": generator.uniform(0.5, 2, channels).astype(np.float32),
        "shift": generator.normal(0, 0.5, channels).astype(np.float32),
        "mean": generator.normal(0, 0.5, channels).astype(np.float32),
        "variance": generator.uniform(0.01, 2, channels).astype(np.float32),
    }
    text = chain(["BatchNormalization<epsilon = 1e-5>(x, scale, shift, mean, variance)"], 4)
    return Layer(text=text, parameters=parameters, feeds={"x": numbers(generator, 2, channels, 7, 7)})


def pool(
    generator: np.random.Generator, step: str = "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
) -> Layer:
    size = int(generator.integers(6, 14))
    feeds = {"x": generator.normal(0, 1, (1, int(generator.integers(2, 9)), size, size)).astype(np.float32)}
    return Layer(text=chain([step], 4), parameters={}, feeds=feeds)


def resize(generator: np.random.Generator) -> Layer:
    mode = str(generator.choice(["nearest", "linear", "cubic"]))
    way = str(generator.choice(["half_pixel", "asymmetric", "align_corners"]))
    rounding = str(generator.choice(["round_prefer_floor", "floor", "ceil"]))
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{way}", nearest_mode = "{rounding}"'
    size, target = int(generator.integers(5, 9)), int(generator.integers(11, 20))
    return Layer(
        text=chain([f"Resize<{attributes}>(x, , , sizes)"], 4),
        parameters={"sizes": np.array([1, 3, target, target], np.int64)},
        feeds={"x": generator.normal(0, 1, (1, 3, size, size)).astype(np.float32)},
    )


def gelu(generator: np.random.Generator, form: str = "") -> Layer:
    form = form or str(generator.choice(list(_GELU)))
    known = {"root": 2**0.5, "one": 1.0, "half": 0.5, "cubic": 0.044715, "outer": (2 / np.pi) ** 0.5}
    text = chain(_GELU[form], 3)
    for number in range(len(_GELU[form])):
        text = text.replace(f"t{number} = Mul(x, t)", f"t{number} = Mul(x, t{number - 1})")
        text = text.replace(f"t{number} = Add(x, t)", f"t{number} = Add(x, t{number - 1})")
    parameters = {name: np.array(value, np.float32) for name, value in known.items() if name in text}
    return Layer(text=text, parameters=parameters, feeds={"x": generator.normal(0, 1.5, (2, 9, 32)).astype(np.float32)})


def activation(generator: np.random.Generator) -> Layer:
    step = str(
        generator.choice(
            ["Relu(x)", "Sigmoid(x)", "LeakyRelu<alpha = 0.1>(x)", "Tanh(x)", "Exp(x)", "Softmax<axis = -1>(x)"]
        )
    )
    return Layer(
        text=chain([step], 3), parameters={}, feeds={"x": generator.normal(0, 1, (2, 9, 32)).astype(np.float32)}
    )


POINTWISE = (normalization, batch_normalization, pool, resize, gelu, activation)
