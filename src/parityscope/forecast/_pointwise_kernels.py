"""The compiled arithmetic of chains: one node on a block of float32, as ONNX Runtime's own kernels compute it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

__all__ = ["with_number", "with_tensor"]

F = TypeVar("F", bound=Callable[..., Any])

# The numbers of `programs.Code`, which compiled functions take as constants.
_ADD, _SUB, _FROM, _MUL, _DIV, _UNDER, _MAX, _MIN, _CLIP, _SCALE = range(1, 11)
# A division by zero is infinite or NaN, as IEEE 754 and the runtime have it, and no exception of Python's.
_plain = cast("Callable[[F], F]", njit(error_model="numpy"))


@_plain
def with_tensor(code: int, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """One of the codes with a tensor of as many elements; all float32, (n,)."""
    count = out.shape[0]
    if code == _ADD:
        for i in range(count):
            out[i] = np.float32(a[i] + b[i])
    elif code == _SUB:
        for i in range(count):
            out[i] = np.float32(a[i] - b[i])
    elif code == _FROM:
        for i in range(count):
            out[i] = np.float32(b[i] - a[i])
    elif code == _MUL:
        for i in range(count):
            out[i] = np.float32(a[i] * b[i])
    elif code == _DIV:
        for i in range(count):
            out[i] = np.float32(a[i] / b[i])
    elif code == _UNDER:
        for i in range(count):
            out[i] = np.float32(b[i] / a[i])
    elif code == _MAX:
        for i in range(count):
            out[i] = max(a[i], b[i])
    elif code == _MIN:
        for i in range(count):
            out[i] = min(a[i], b[i])


@_plain
def with_number(code: int, a: np.ndarray, b: np.float32, d: np.float32, out: np.ndarray) -> None:
    """One of the codes with numbers."""
    count = out.shape[0]
    if code == _ADD:
        for i in range(count):
            out[i] = np.float32(a[i] + b)
    elif code == _SUB:
        for i in range(count):
            out[i] = np.float32(a[i] - b)
    elif code == _FROM:
        for i in range(count):
            out[i] = np.float32(b - a[i])
    elif code == _MUL:
        for i in range(count):
            out[i] = np.float32(a[i] * b)
    elif code == _DIV:
        for i in range(count):
            out[i] = np.float32(a[i] / b)
    elif code == _UNDER:
        for i in range(count):
            out[i] = np.float32(b / a[i])
    elif code == _MAX:
        for i in range(count):
            out[i] = max(a[i], b)
    elif code == _MIN:
        for i in range(count):
            out[i] = min(a[i], b)
    elif code == _CLIP:
        for i in range(count):
            raised = max(a[i], b)
            out[i] = min(raised, d)
    else:
        for i in range(count):
            out[i] = np.float32(np.float32(a[i] * b) + d)
