"""Where FP16 cannot hold what a model computes, told from the FP32 values alone: the regions of the faults of range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import constant
from proving.faults.planting import answers, recorded
from proving.faults.records import NoEffectError, Plant

if TYPE_CHECKING:
    from collections.abc import Callable

    from proving.faults.records import Bed

_LARGEST = 65504.0  # of FP16
_SMALLEST = 2.0**-24  # of FP16, subnormal


def deployed_in_half(sites_of: Callable[[Bed], tuple[str, ...]], bed: Bed) -> Plant:
    """A fault of range: the model as it is, deployed in FP16 in one of three ways.

    `sites_of` says where FP16 cannot hold what is computed.

    Raises:
        NoEffectError: it holds everything.
    """
    sites = sites_of(bed)
    if not sites:
        raise NoEffectError("FP16 holds everything")
    way = int(bed.draw.integers(3))
    if way == 0:
        candidate = recorded(bed, answers(bed.path, bed.samples, "f16", inside=True), "f16")
    else:
        candidate = ("sim:f16", "sim:f16?overflow=saturate")[way - 1]
    words = ("recorded", "IEEE overflow", "saturating weights")[way]
    return Plant(words=f"deployed in FP16 ({words})", candidate=candidate, declared="f16", sites=sites)


def overflowing(bed: Bed) -> tuple[str, ...]:
    """The tensors beyond FP16 all of whose inputs it holds."""
    import onnx

    model = onnx.load(bed.path)
    size: dict[str, float] = {}
    for arrays in answers(bed.path, bed.samples, inside=True):
        for name, array in arrays.items():
            if array.dtype.kind == "f" and array.size:
                size[name] = max(size.get(name, 0.0), float(np.abs(array.astype(np.float64)).max()))
    found = []
    for node in model.graph.node:
        large = [name for name in node.output if size.get(name, 0.0) > _LARGEST]
        if large and all(size.get(name, 0.0) <= _LARGEST for name in node.input):
            found.extend(large)
    return tuple(found)


def reading_large(bed: Bed) -> tuple[str, ...]:
    """The outputs of nodes that read a constant beyond FP16."""
    return _reading(bed, lambda values: bool((np.abs(values) > _LARGEST).any()))


def reading_small(bed: Bed) -> tuple[str, ...]:
    """The outputs of nodes that read a constant which FP16 takes for nought, and of those that read these."""
    import onnx

    first = _reading(
        bed, lambda values: values.size == 1 and bool((values != 0).all() and (np.abs(values) < _SMALLEST).all())
    )
    graph = onnx.load(bed.path).graph
    return (*first, *(node.output[0] for node in graph.node if set(node.input) & set(first)))


def _reading(bed: Bed, holds: Callable[[np.ndarray], bool]) -> tuple[str, ...]:
    import onnx

    model = onnx.load(bed.path)
    found = []
    for node in model.graph.node:
        values = [constant(model, name) for name in node.input if name]
        if any(
            one is not None and one.dtype.kind == "f" and one.size and holds(one.astype(np.float64)) for one in values
        ):
            found.append(node.output[0])
    return tuple(found)
