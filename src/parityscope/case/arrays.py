"""Arrays of any library as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from parityscope.errors import ParityError


def as_array(value: Any, where: str) -> np.ndarray:
    """`value` as a numpy array, without a copy where that is possible.

    It may be numpy's own, a number, nested lists, a tensor of torch, or anything that knows `__array__` or DLPack.

    Raises:
        ParityError: it cannot be one.
    """
    try:
        if hasattr(value, "detach"):  # a tensor of torch, which may be part of a graph, or on another device
            value = value.detach().cpu()
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        fix = "give numpy arrays, or what numpy.asarray takes (of bfloat16 tensors: .float())"
        raise ParityError(f"a {type(value).__name__} is no array: {error}", where=where, fix=fix) from error
    if found.dtype == object and not all(isinstance(one, str) for one in found.ravel()):
        raise ParityError(
            f"a {type(value).__name__} is no array of numbers, but an array of Python objects",
            where=where,
            fix="give all its rows the same length and a dtype: np.asarray(rows, dtype=np.float32)",
        )
    return found
