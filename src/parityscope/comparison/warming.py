"""Loads the compiled kernels while something else waits for a runtime: importing numba and what it compiled takes 0.3 s."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np

from parityscope.comparison.measure import measure_pair
from parityscope.forking import started_thread

__all__ = ["warm_kernels"]


def warm_kernels() -> None:
    """Begins to load what float32 tensors are measured with, in a thread that nobody has to wait for.

    What goes wrong there goes wrong again, and is told, where the first pair is measured.
    """
    started_thread("warming kernels", _measure_one)


def _measure_one() -> None:
    one = np.zeros(1, np.float32)
    with contextlib.suppress(Exception):
        importlib.import_module("parityscope.compiling")  # from here on no loop is left to numpy
        measure_pair(one, one, channel_axis=None)
