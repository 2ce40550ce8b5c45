"""Loads the compiled kernels while something else waits for a runtime, where they will be wanted.

Importing numba and what it compiled takes 0.3 s beside a runtime, and 0.6 of the 2.0 processor seconds of a diagnosis of two
nodes, whose tensors numpy measures in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib

import numpy as np

from parityscope.comparison.blocks import plain_seconds
from parityscope.comparison.measure import measure_pair
from parityscope.forking import started_thread
from parityscope.loading import WORTH_S


def warm_kernels(tensors: int, numbers: int) -> None:
    """Begins to load what float32 tensors are measured with, in a thread that nobody has to wait for.

    Not where numpy measures as many tensors of so many numbers sooner. What goes wrong there goes wrong again, and is told, where
    the first pair is measured.
    """
    if tensors * plain_seconds(numbers) > WORTH_S:
        started_thread("warming kernels", _measure_one)


def _measure_one() -> None:
    one = np.zeros(1, np.float32)
    with contextlib.suppress(Exception):
        importlib.import_module("parityscope.compiling")  # from here on no loop is left to numpy
        measure_pair(one, one, channel_axis=None)
