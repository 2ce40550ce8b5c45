"""Integers, booleans and strings: compared as they are, before any conversion.

float64 holds integers up to 2^53 only: 2^53 and 2^53 + 1 would be equal in it. Differences are therefore taken as
unsigned 64-bit integers, in which the larger less the smaller is exact for any two int64 or any two uint64 (modulo
2^64); a signed type against uint64 goes through Python's integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parityscope.comparison.statistics import Exact

_BLOCK = 1 << 18  # elements: 2 MiB of int64 on each side


def compare_exact(reference: np.ndarray, candidate: np.ndarray, shape: tuple[int, ...]) -> Exact:
    """Compares flat rows of integers or booleans, (n,), of tensors of `shape`."""
    common = _common_dtype(reference.dtype, candidate.dtype)
    mismatches, largest = 0, 0
    first = at_largest = -1
    for start in range(0, reference.size, _BLOCK):
        r = reference[start : start + _BLOCK].astype(common)
        c = candidate[start : start + _BLOCK].astype(common)
        wrong = np.flatnonzero(r != c)
        if not wrong.size:
            continue
        mismatches += wrong.size
        first = start + int(wrong[0]) if first < 0 else first
        distances = _integer_distances(r[wrong], c[wrong])
        worst = int(np.argmax(distances))
        if int(distances[worst]) > largest:
            largest, at_largest = int(distances[worst]), start + int(wrong[worst])
    return Exact(
        mismatches=mismatches,
        first_mismatch=_unravel_position(first, shape),
        max_difference=largest,
        max_index=_unravel_position(at_largest, shape),
    )


def compare_text(reference: np.ndarray, candidate: np.ndarray, shape: tuple[int, ...]) -> Exact:
    """Compares flat rows of strings, (n,): equal or not."""
    wrong = [at for at, (r, c) in enumerate(zip(reference, candidate, strict=True)) if _as_text(r) != _as_text(c)]
    first = _unravel_position(wrong[0] if wrong else -1, shape)
    return Exact(mismatches=len(wrong), first_mismatch=first, max_difference=None, max_index=None)


def _as_text(value: object) -> str:
    """ONNX strings are UTF-8 bytes; some runtimes give them back as bytes, others decoded."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _common_dtype(reference: np.dtype[Any], candidate: np.dtype[Any]) -> np.dtype[Any]:
    kinds = {
        reference.kind if reference.itemsize == 8 else "small",
        candidate.kind if candidate.itemsize == 8 else "small",
    }
    if "u" not in kinds:
        return np.dtype(np.int64)
    both_unsigned = all(dtype.kind in "bu" for dtype in (reference, candidate))
    return np.dtype(np.uint64) if both_unsigned else np.dtype(object)


def _integer_distances(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    if reference.dtype == object:
        return np.asarray(np.abs(candidate - reference))
    high, low = np.maximum(reference, candidate), np.minimum(reference, candidate)
    return np.asarray(high.view(np.uint64) - low.view(np.uint64))


def _unravel_position(at: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if at < 0 else tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
