"""Layers computed in another arithmetic: operands or outputs rounded, sums accumulated narrowly, numbers lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from _planted.arithmetics import bf16, emulated, f16, same
from _planted.linear_layers import linear, matmul, plain_linear
from _planted.other_layers import batch_normalization, division
from _planted.plant import Plant, honest

if TYPE_CHECKING:
    from collections.abc import Callable

    from _planted.arithmetics import Cast
    from _planted.layer import Layer


def operands_rounded(rounding: Cast) -> Callable[[np.random.Generator], Plant]:
    def plant(generator: np.random.Generator) -> Plant:
        layer = linear(generator)
        return Plant(
            truth="",
            layer=layer,
            feeds=layer.feeds,
            candidate=emulated(layer, layer.feeds, generator, operands=rounding),
        )

    return plant


def output_rounded(rounding: Cast) -> Callable[[np.random.Generator], Plant]:
    def plant(generator: np.random.Generator) -> Plant:
        layer = linear(generator)
        return Plant(
            truth="", layer=layer, feeds=layer.feeds, candidate=emulated(layer, layer.feeds, generator, output=rounding)
        )

    return plant


def honestly(truth: str) -> Callable[[np.random.Generator], Plant]:
    return lambda generator: honest(linear(generator), truth, generator)


def accumulated(truth: str) -> Callable[[np.random.Generator], Plant]:
    """Step by step over the contracted axis of a MatMul, in float16 or in a float32 that is cut toward zero."""

    def plant(generator: np.random.Generator) -> Plant:
        layer = matmul(generator, activation="")
        cut = truth == "f32_truncated"
        while cut and layer.parameters["w"].shape[0] < 200:  # shorter sums of a truncating FP32 stay within the floor
            layer = matmul(generator, activation="")
        width = 1 if cut else int(generator.choice([1, 4, 8, 16]))
        image, weight = layer.feeds["x"], layer.parameters["w"]
        if truth == "f16_accumulation":
            image, weight = f16(image), f16(weight)
        else:
            image = np.abs(image)
            layer = replace(layer, parameters={**layer.parameters, "w": np.abs(weight)})
            weight = np.abs(weight)
        total = np.zeros((*image.shape[:2], weight.shape[1]))
        for start in range(0, weight.shape[0], width):
            block = slice(start, start + width)
            total = total + image[..., block].astype(np.float64) @ weight[block].astype(np.float64)
            if truth == "f16_accumulation":
                total = total.astype(np.float16).astype(np.float64)
            else:
                near = total.astype(np.float32)
                total = np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near).astype(
                    np.float64
                )
        candidate = total.astype(np.float32) + layer.parameters["b"]
        feeds = layer.feeds if truth == "f16_accumulation" else {"x": image}
        return Plant(truth=truth, layer=layer, feeds=feeds, candidate=candidate.astype(np.float32))

    return plant


def shuffled(layer: Layer, generator: np.random.Generator) -> Plant:
    """A depthwise convolution in FP16 whose accumulator is FP16 too, its taps in a random order."""
    feeds = {"x": f16(layer.feeds["x"])}
    padded = np.pad(feeds["x"].astype(np.float64), [(0, 0), (0, 0), (2, 2), (2, 2)])
    weight = f16(layer.parameters["w"]).astype(np.float64)
    rows, columns = feeds["x"].shape[2:]
    total = np.zeros(feeds["x"].shape)
    for tap in generator.permutation(25):
        row, column = divmod(int(tap), 5)
        window = padded[:, :, row : row + rows, column : column + columns]
        total = (total + window * weight[None, :, 0, row, column, None, None]).astype(np.float16).astype(np.float64)
    bias = f16(layer.parameters["b"]).astype(np.float64)
    candidate = (total + bias[:, None, None]).astype(np.float16).astype(np.float32)
    return Plant(truth="f16_accumulation", layer=layer, feeds=feeds, candidate=candidate, base="f16_inputs_output")


def reciprocal(generator: np.random.Generator) -> Plant:
    layer = division(generator)
    rounding = f16 if generator.random() < 0.5 else bf16
    feeds = {"x": rounding(layer.feeds["x"])}
    factor = rounding(np.float32(1) / rounding(layer.parameters["divisor"]))
    return Plant(truth="", layer=layer, feeds=feeds, candidate=rounding((feeds["x"] * factor).astype(np.float32)))


def saturated(generator: np.random.Generator) -> Plant:
    layer = batch_normalization(generator)
    variance = np.array(layer.parameters["variance"])
    variance[int(generator.integers(variance.size))] = np.float32(10.0 ** generator.uniform(5.0, 8.0))
    layer = replace(layer, parameters={**layer.parameters, "variance": variance})
    clamped = replace(
        layer, parameters={name: np.clip(array, -65504, 65504) for name, array in layer.parameters.items()}
    )
    half = generator.random() < 0.5
    rounding = f16 if half else same
    candidate = emulated(clamped, layer.feeds, generator, stored=rounding, output=rounding)
    return Plant(truth="", layer=layer, feeds=layer.feeds, candidate=candidate)


def flushed(generator: np.random.Generator) -> Plant:
    layer = plain_linear(generator)
    small = 2.0**-126 if generator.random() < 0.5 else 2.0**-14
    feeds = {"x": (layer.feeds["x"] * np.float32(small)).astype(np.float32)}
    layer = replace(layer, feeds=feeds, parameters={**layer.parameters, "b": np.zeros_like(layer.parameters["b"])})
    weight = layer.parameters["w"]

    def flush(array: np.ndarray) -> np.ndarray:
        return np.where(np.abs(array) < np.float32(small), np.float32(0), array)

    layer = replace(
        layer, parameters={**layer.parameters, "w": np.where(np.abs(weight) < small, np.float32(0), weight)}
    )
    return Plant(
        truth="", layer=layer, feeds=feeds, candidate=emulated(layer, feeds, generator, stored=flush, output=flush)
    )
