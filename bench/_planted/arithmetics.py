"""Arithmetics by other means than the hypotheses': ml_dtypes' casts, integer masks, ONNX Runtime on a permuted axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from _planted.layer import Arrays, Layer, run

Cast = Callable[[np.ndarray], np.ndarray]

# What an honest engine computes in.
CLEAN = ("f32_reordered", "tf32_nearest", "f16_inputs_output", "bf16_inputs_output")


def cast(dtype: object) -> Cast:
    def convert(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return array.astype(np.dtype(dtype)).astype(np.float32) if array.dtype == np.float32 else array

    return convert


def tf32_nearest(array: np.ndarray) -> np.ndarray:
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(
        np.float32
    )


def tf32_cut(array: np.ndarray) -> np.ndarray:
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def same(array: np.ndarray) -> np.ndarray:
    return array


def scaled_cast(dtype: object, largest: float) -> Cast:
    def convert(array: np.ndarray) -> np.ndarray:
        scale = np.float32(np.abs(array).max() / np.float32(largest))
        return cast(dtype)((array / scale).astype(np.float32)) * scale

    return convert


def int8(array: np.ndarray) -> np.ndarray:
    scale = np.abs(array).max() / 127
    return (np.clip(np.rint(array / scale), -127, 127) * scale).astype(np.float32)


def tensor_core(image: np.ndarray, weight: np.ndarray, block: int = 8) -> np.ndarray:
    """(m, k) times (k, n) in TF32 as Hopper's tensor cores: 25 fraction bits after alignment, then cut to FP32."""
    image, weight = tf32_nearest(image).astype(np.float64), tf32_nearest(weight).astype(np.float64)
    total = np.zeros((image.shape[0], weight.shape[1]))
    for start in range(0, image.shape[1], block):
        terms = [image[:, [k]] * weight[[k]] for k in range(start, min(start + block, image.shape[1]))]
        terms = np.stack([*terms, total])
        unit = 2.0 ** (np.frexp(np.abs(terms).max(axis=0))[1] - 1.0 - 25.0)
        exact = (np.trunc(terms / unit) * unit).sum(axis=0)
        near = exact.astype(np.float32)
        total = np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near).astype(np.float64)
    return total.astype(np.float32)


f16, bf16 = cast(np.float16), cast(ml_dtypes.bfloat16)
_STORAGE: dict[str, Cast] = {"f16_inputs_output": f16, "bf16_inputs_output": bf16}


def emulated(
    layer: Layer,
    feeds: Arrays,
    generator: np.random.Generator,
    operands: Cast = same,
    stored: Cast = same,
    output: Cast = same,
) -> np.ndarray:
    """The layer with its numbers rounded and its products summed in another order."""
    arrays = {**layer.parameters, **feeds}
    arrays = {name: stored(array) for name, array in arrays.items()}
    arrays = {name: operands(array) if name in layer.operands else array for name, array in arrays.items()}
    if layer.contracted:
        name, axis = layer.contracted[0]
        order = generator.permutation(arrays[name].shape[axis])
        for name, axis in layer.contracted:
            arrays[name] = np.ascontiguousarray(np.take(arrays[name], order, axis))
    changed = replace(layer, parameters={name: arrays[name] for name in layer.parameters})
    return output(run(changed, {name: arrays[name] for name in feeds}))


def arithmetic(layer: Layer, feeds: Arrays, truth: str, generator: np.random.Generator) -> np.ndarray:
    """`layer` in the arithmetic called `truth`."""
    if truth in _STORAGE:
        return emulated(layer, feeds, generator, stored=_STORAGE[truth], output=_STORAGE[truth])
    if truth == "tf32_nearest":
        return emulated(layer, feeds, generator, operands=tf32_nearest)
    return emulated(layer, feeds, generator)


def entering(layer: Layer, truth: str, generator: np.random.Generator) -> Arrays:
    """What the candidate's layer reads: in FP16 and BF16 engines already on the grid, most of the time."""
    if truth in _STORAGE and generator.random() < 0.7:
        return {name: _STORAGE[truth](array) for name, array in layer.feeds.items()}
    return layer.feeds
