"""Random layers with a product: Conv, Gemm and MatMul with a bias and one of six activations."""

from __future__ import annotations

import numpy as np

from _planted.layer import Layer, chain

_ACTIVATIONS = ("", "Relu(t)", "Clip(t, low, high)", "LeakyRelu<alpha = 0.1>(t)", "Sigmoid(t)", "Tanh(t)")


def numbers(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers, or what a Relu leaves of them."""
    array = generator.normal(0.0, scale, shape).astype(np.float32)
    return np.maximum(array, 0) if generator.random() < 0.3 else array


def conv(generator: np.random.Generator, activation: str = "any", pads: str = "") -> Layer:
    channels, filters = int(generator.integers(3, 17)), int(generator.integers(2, 17))
    size, kernel = int(generator.integers(6, 14)), int(generator.choice([1, 3]))
    pads = pads or ("[1, 1, 1, 1]" if kernel == 3 else "[0, 0, 0, 0]")
    kernel = 3 if pads != "[0, 0, 0, 0]" else kernel
    weight = generator.normal(0, 1 / np.sqrt(channels * kernel**2), (filters, channels, kernel, kernel))
    return _linear(
        generator,
        f"Conv<pads = {pads}>(x, w, b)",
        numbers(generator, 1, channels, size, size),
        weight.astype(np.float32),
        (("x", 1), ("w", 1)),
        activation,
        filters,
    )


def gemm(generator: np.random.Generator, activation: str = "any") -> Layer:
    rows, length, columns = (int(generator.integers(low, high)) for low, high in ((4, 20), (8, 200), (4, 40)))
    weight = generator.normal(0, 1 / np.sqrt(length), (columns, length)).astype(np.float32)
    feeds = numbers(generator, rows, length)
    return _linear(generator, "Gemm<transB = 1>(x, w, b)", feeds, weight, (("x", 1), ("w", 1)), activation, columns)


def matmul(generator: np.random.Generator, activation: str = "any") -> Layer:
    rows, length, columns = (int(generator.integers(low, high)) for low, high in ((4, 20), (8, 400), (4, 40)))
    weight = generator.normal(0, 1 / np.sqrt(length), (length, columns)).astype(np.float32)
    feeds = numbers(generator, 2, rows, length)
    return _linear(generator, "MatMul(x, w)", feeds, weight, (("x", 2), ("w", 0)), activation, columns)


def linear(generator: np.random.Generator) -> Layer:
    return LINEAR[int(generator.integers(len(LINEAR)))](generator)


def plain_linear(generator: np.random.Generator) -> Layer:
    return LINEAR[int(generator.integers(len(LINEAR)))](generator, activation="")


def _linear(
    generator: np.random.Generator,
    product: str,
    image: np.ndarray,
    weight: np.ndarray,
    contracted: tuple[tuple[str, int], ...],
    activation: str,
    outputs: int,
) -> Layer:
    activation = str(generator.choice(_ACTIVATIONS)) if activation == "any" else activation
    steps = [product, *(["Add(t, b)"] if product.startswith("MatMul") else []), *([activation] if activation else [])]
    parameters = {"w": weight, "b": generator.normal(0, 0.5, outputs).astype(np.float32)}
    if "Clip" in activation:
        parameters |= {
            "low": np.array(0.0, np.float32),
            "high": np.array(float(generator.uniform(0.3, 1.0)), np.float32),
        }
    return Layer(
        text=chain(steps, image.ndim),
        parameters=parameters,
        feeds={"x": image},
        operands=("x", "w"),
        contracted=contracted,
    )


LINEAR = (conv, gemm, matmul)
