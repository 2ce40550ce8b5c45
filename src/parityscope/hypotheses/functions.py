"""Elementwise functions, of float64 arrays: those of ONNX's standard and of the frameworks that export to it.

Sources: ONNX operator specification (Relu, LeakyRelu, Elu, Celu, Selu, Sigmoid, HardSigmoid, HardSwish, Softplus, Softsign,
Mish, Gelu and the elementary functions) with its default parameters; PyTorch's and TensorFlow's defaults where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SMALLEST_HALF = 2.0**-14
_LARGEST_HALF = 65504.0


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return np.asarray(erf(x))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))))


def _selu(x: np.ndarray) -> np.ndarray:
    alpha, gamma = 1.6732632423543772, 1.0507009873554805
    return np.asarray(gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))


FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
    "LeakyRelu with slope 0.01": lambda x: np.where(x < 0, 0.01 * x, x),
    "LeakyRelu with slope 0.1": lambda x: np.where(x < 0, 0.1 * x, x),
    "LeakyRelu with slope 0.2": lambda x: np.where(x < 0, 0.2 * x, x),
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Silu (x times Sigmoid)": lambda x: x * _sigmoid(x),
    "Gelu (erf)": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2.0))),
    "Gelu (tanh approximation)": _tanh_gelu,
    "Gelu (x Sigmoid(1.702 x))": lambda x: x * _sigmoid(1.702 * x),
    "Erf (tanh approximation)": lambda x: np.tanh(2.0 / np.sqrt(np.pi) * (x + 0.08943 * x**3)),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "HardSigmoid with slope 1/6": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "Selu": _selu,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Abs": np.abs,
    "negation": np.negative,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "the square": np.square,
    "Reciprocal": lambda x: 1 / x,
    "Erf": _erf,
    "Round": np.round,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "truncation to an integer": np.trunc,
    "Sign": np.sign,
    "Sin": np.sin,
    "Cos": np.cos,
    "1 - x": lambda x: 1 - x,
    "NaN made 0": lambda x: np.nan_to_num(x, posinf=np.inf, neginf=-np.inf),
    "infinities made the largest FP16": lambda x: np.nan_to_num(
        x, nan=np.nan, posinf=_LARGEST_HALF, neginf=-_LARGEST_HALF
    ),
    "what is subnormal in FP16 made 0": lambda x: np.where(np.abs(x) < _SMALLEST_HALF, 0, x),
}
