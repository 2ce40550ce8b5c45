"""measure_pair(reference, candidate) -> Statistics: one blocked pass over two tensors.

Large tensors are cut into one contiguous stretch per thread (the kernels release the GIL); stretches are merged in
order, so that the number of threads changes sums by float64 rounding only and nothing else at all.
"""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from parityscope.comparison._channels import Channels, merge_channels
from parityscope.comparison._exact import compare_exact, compare_text
from parityscope.comparison._layout import STRETCH, Kind, exponent_of, flat_row, kind_of, layout_of, working_dtype
from parityscope.comparison._merging import merge_floats
from parityscope.comparison._scores import can_be_scores, score_rows
from parityscope.comparison.metric import accumulating_metrics
from parityscope.comparison.statistics import Floats, Statistics
from parityscope.forking import kept_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_WORTH_A_THREAD = 1 << 17  # elements: 0.3 ms of work, several times what handing it over costs (measured)


def measure_pair(
    reference: np.ndarray,
    candidate: np.ndarray,
    *,
    channel_axis: int | None,
    threads: int = 1,
    as_scores: bool = False,
) -> Statistics:
    """Measures the candidate against the reference.

    Args:
        reference: any shape; floats of any format, complex numbers, integers, booleans or strings.
        candidate: the same shape and kind. Float formats may differ, integer widths too.
        channel_axis: the axis that channels lie on; None for none. Not used for other than real floats.
        threads: how many may work on a large tensor at once.
        as_scores: the last axis holds logits or probabilities: compare choices and distributions as well.

    Returns:
        Sufficient statistics, from which `measurements` computes every metric.

    Raises:
        ValueError: shapes or kinds differ, a type cannot be compared, the tensor has no such axis, or its last axis
            cannot hold scores (`can_be_scores`).
    """
    kind = kind_of_pair(reference, candidate)
    base = functools.partial(
        Statistics,
        kind=kind,
        reference_dtype=_name_of_type(reference, kind),
        candidate_dtype=_name_of_type(candidate, kind),
        shape=reference.shape,
        samples=1,
    )
    if as_scores and not can_be_scores(reference.dtype, reference.shape):
        raise ValueError(f"a tensor of type {reference.dtype} and shape {reference.shape} has no axis of scores")
    layout = layout_of(reference.shape, channel_axis if kind == "float" else None)
    rows = flat_row(reference), flat_row(candidate)
    if kind in ("exact", "text"):
        compare = compare_exact if kind == "exact" else compare_text
        return base(count=reference.size, exact=compare(*rows, reference.shape))
    from parityscope.comparison._stretch import Rows, measure_stretch

    parts = 2 if kind == "complex" else 1
    if parts == 2:
        rows = real_and_imaginary(rows[0]), real_and_imaginary(rows[1])
    working = working_dtype(rows[0].dtype, rows[1].dtype)
    arguments = Rows(
        reference=rows[0],
        candidate=rows[1],
        working=working,
        exponent=exponent_of(*rows) if working == np.float64 else 0,
        layout=layout,
        shape=reference.shape,
        parts=parts,
    )
    measured = work_in_stretches(functools.partial(measure_stretch, arguments), rows[0].size, threads)
    floats, channels = functools.reduce(_join_measured, measured)
    return base(
        count=rows[0].size,
        floats=floats,
        channels=channels,
        scores=score_rows(reference, candidate) if as_scores else None,
        states=_accumulate_states(*rows),
    )


def _name_of_type(array: np.ndarray, kind: Kind) -> str:
    """The name of a tensor's type; one for all strings, whose width is that of the longest in one array."""
    return "object" if kind == "text" else array.dtype.name


def kind_of_pair(*arrays: np.ndarray) -> Kind:
    """How these tensors are compared with each other.

    Raises:
        ValueError: their shapes or kinds differ, or one has a type that cannot be compared.
    """
    kinds = [kind_of(array.dtype) for array in arrays]
    for array, kind in zip(arrays, kinds, strict=True):
        if array.shape != arrays[0].shape:
            raise ValueError(f"shape {array.shape} cannot be compared with {arrays[0].shape}")
        if kind != kinds[0] or (array.dtype.kind == "b") != (arrays[0].dtype.kind == "b"):
            raise ValueError(f"type {array.dtype} cannot be compared with {arrays[0].dtype}")
    return kinds[0]


def work_in_stretches(work: Callable[[int, int], T], count: int, threads: int) -> list[T]:
    """`work(start, stop)` over 0 to `count`, in as many stretches as are worth a thread; results in order."""
    stretches = max(1, min(threads, count // _WORTH_A_THREAD))
    if stretches == 1:
        return [work(0, count)]
    step = -(-count // stretches // STRETCH) * STRETCH  # whole blocks: conversion then cuts none
    starts = range(0, count, step)
    return list(kept_pool("comparison", threads).map(lambda start: work(start, min(count, start + step)), starts))


def _join_measured(
    one: tuple[Floats, Channels | None], other: tuple[Floats, Channels | None]
) -> tuple[Floats, Channels | None]:
    return merge_floats(one[0], other[0]), merge_channels(one[1], other[1], factors=(1.0, 1.0))


def real_and_imaginary(row: np.ndarray) -> np.ndarray:
    """complex, (n,) as real and imaginary parts, (2 n,)."""
    return row.view(np.dtype(f"{row.dtype.byteorder}f{row.dtype.itemsize // 2}"))


def _accumulate_states(reference: np.ndarray, candidate: np.ndarray) -> Mapping[str, Any]:
    """The states of those metrics that look at the elements themselves: usually there are none, and no second pass."""
    states = {metric.name: metric.start() for metric in accumulating_metrics() if metric.start is not None}
    for start in range(0, reference.size, STRETCH) if states else ():
        part = slice(start, start + STRETCH)
        with np.errstate(invalid="ignore"):  # signalling NaN
            r, c = reference[part].astype(np.float64), candidate[part].astype(np.float64)
        for metric in accumulating_metrics():
            if metric.update is not None:
                states[metric.name] = metric.update(states[metric.name], r, c)
    return MappingProxyType(states)
