"""Operators of our own inside ONNX Runtime's sessions, compiled when they are first needed.

`Round` rounds a tensor in one pass. The pair of Casts that does the same takes two passes and a tensor between them, and
ONNX Runtime's conversions to bfloat16 and float8 are not vectorized (docs/predict.md has the figures).

Runs on Linux on x86-64 only. Where it cannot (another system, a temporary folder that forbids running files, numba that
cannot compile) `library` is empty, and graphs are built of the standard's own operators, which give the same numbers.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends._operators._interface import DOMAIN, Attributes, Operator, registering
from parityscope.backends._operators._machine import address_of
from parityscope.backends._operators._stub import SLOT, stub

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DOMAIN", "SOURCES", "Attributes", "Operator", "address_of", "also", "library", "rounding"]

_HERE = Path(__file__).parent
SOURCES = (_HERE / "_calls.py", _HERE / "_rounding.py")
_FLOAT32_PRECISION, _FLOAT32_EMIN = 24, -126
_others: list[Callable[[], Operator]] = []


def also(operator: Callable[[], Operator]) -> None:
    """Adds an operator to those of every session opened from now on."""
    if operator not in _others:
        _others.append(operator)


@functools.cache
def library() -> str:
    """The path of the shared library to register with a session's options; "" where there is none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ""
    try:
        _round()
        path = Path(_folder().name) / "operators.so"
        path.write_bytes(stub())
        slot = ctypes.c_uint64.in_dll(ctypes.CDLL(str(path)), SLOT.decode())
    except (OSError, ImportError, RuntimeError, ValueError):
        return ""
    slot.value = registering(lambda: (_round(), *(each() for each in _others)))
    return str(path)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where the library lies until the process ends: the runtime opens it by its path for every session."""
    return tempfile.TemporaryDirectory(prefix="parityscope-")


def rounding(attributes: Attributes) -> np.ndarray:
    """The state of a kernel that rounds: int64, (7,), behind places 0 and 1 what says how to round.

    They are, but for the first as bits of float32: how many bits are dropped; the smallest normal number (0 where the
    format has float32's range); the power of two that rounds below it; the largest number; what is beyond it.
    """
    precision, emin = attributes.integer("precision"), attributes.integer("emin")
    tiny = 0.0 if emin <= _FLOAT32_EMIN else 2.0**emin
    step = 2.0 ** (_FLOAT32_PRECISION + emin - precision)
    numbers = np.array([tiny, step, attributes.number("largest"), attributes.number("beyond")], np.float32)
    return np.array([0, 0, _FLOAT32_PRECISION - precision, *numbers.view(np.uint32).tolist()], np.int64)


@functools.cache
def _round() -> Operator:
    module = f"{__name__}._rounding"
    part = address_of(module, "part", result=False, files=SOURCES)

    def state(attributes: Attributes) -> np.ndarray:
        found = rounding(attributes)
        found[1] = part
        return found

    return Operator(
        name="Round", inputs=1, compute=address_of(module, "compute", result=True, files=SOURCES), state=state
    )
