"""How much memory worlds take before they are run: how many fit into `--memory` at once, and whether two do.

A world holds the tensors that some later step reads. How large these are says shape inference, as far as it can; what it cannot
tell counts as nothing, so that a network is never refused that would fit. Weights are mapped, and count nowhere.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.case.extending import inferred_shapes
from parityscope.errors import ParityError
from parityscope.memory import allowed_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.evaluation.program import Program
    from parityscope.evaluation.worlds import World

_BESIDE = 128 << 20  # bytes that a command may hold beside `--memory`, chosen: of 300 MB libraries take the rest
_UNTYPED = 4  # bytes of an element whose type nobody tells
_REFERENCE = np.dtype(object).itemsize


def nbytes_of_world(model: Model, program: Program, feeds: Mapping[str, np.ndarray]) -> int:
    """The most bytes of tensors that one world of `program` holds at once on these arrays, as far as shapes can be told."""
    shapes = {name: tuple(map(int, getattr(array, "shape", ()))) for name, array in feeds.items()}
    for value in model.outputs:  # which inference leaves out
        dims = [dim for dim in value.shape or () if isinstance(dim, int)]
        if value.shape is not None and len(dims) == len(value.shape):
            shapes[value.name] = tuple(dims)
    return _nbytes_of_shapes(model.path, model.sha256, program, tuple(sorted(shapes.items())))


@functools.lru_cache(maxsize=4)  # of a model and its copies, which several stages ask for
def _nbytes_of_shapes(
    path: Path, _sha256: str, program: Program, shapes: tuple[tuple[str, tuple[int, ...]], ...]
) -> int:
    return live_nbytes(program, {**inferred_shapes(path, dict(shapes)), **dict(shapes)})


def live_nbytes(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The most bytes of values with a known shape that are there at one step: until the last one that reads them."""
    change = [0] * (len(program.steps) + 2)
    for site in (*program.inputs, *program.steps_of):
        shape = shapes.get(site)
        if shape is None:
            continue
        kind = program.types.get(site)
        nbytes = math.prod(shape) * _element_nbytes(kind)
        made = program.steps_of.get(site)
        start = 0 if made is None else made.index
        change[start] += nbytes
        change[max(start, min(program.last_reader.get(site, start), len(program.steps))) + 1] -= nbytes
    most = held = 0
    for each in change:
        held += each
        most = max(most, held)
    return most


def _element_nbytes(kind: ir.DataType | None) -> int:
    """Bytes of one element; of a text, whose length no type tells, those of the reference to it in an array of objects."""
    if kind is None or kind is ir.DataType.UNDEFINED:
        return _UNTYPED
    return _REFERENCE if kind is ir.DataType.STRING else max(1, kind.bitwidth // 8)


def check_room(nbytes: int, worlds: int = 2) -> None:
    """Checks that so many worlds of `nbytes` each can be held at once.

    Raises:
        ParityError: they are more than `--memory` and what a command may hold beside it; the error says how much they need.
    """
    needed, allowed = nbytes * worlds, allowed_memory()
    if needed > allowed + _BESIDE:
        raise ParityError(
            f"the tensors that are held at once take {-(-needed >> 20):,} MiB, more than the {allowed >> 20:,} MiB of --memory",
            fix=f"give more: --memory {-(-needed >> 30)}GiB; or take smaller samples",
        )


def split_worlds(first: World, others: Sequence[Sequence[World]], nbytes: int) -> list[list[World]]:
    """The worlds that run together: in each group the first one, and as many of the others as fit beside it, at least one.

    Each of `others` is a world and those that follow it, which hold nothing of their own; `nbytes` is what one holds.
    """
    room = max(1, allowed_memory() // max(nbytes, 1) - 1)
    groups = [others[start : start + room] for start in range(0, len(others), room)] or [[]]
    return [[first, *(world for each in group for world in each)] for group in groups]
