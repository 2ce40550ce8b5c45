"""How large intermediate tensors are before anything is captured, and chunks of them that fit into a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.onnxruntime_sessions import open_bytes
from parityscope.case.extending import SHAPE_SUFFIX, inferred_shapes, with_shape_outputs
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.case import Model, Sample

_FEW, _FAR = 8, 4  # chosen: one of so many is open, and so many times what is expected would fit
_WIDEST_FLOAT = 4  # bytes; intermediate tensors are float32 but for a few index tensors


def tensor_shapes(model: Model, sample: Sample, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of intermediate tensors on one sample: by shape inference, and by one run where that cannot tell.

    The run has a Shape node behind each tensor that is open; no tensor is kept.
    """
    found = inferred_shapes(model.path, {name: array.shape for name, array in sample.arrays.items()})
    left = [name for name in names if name not in found]
    if left:
        # Nothing is optimized: a session that runs once would spend longer on that than it saves.
        run = open_bytes(
            with_shape_outputs(model.path, left),
            outputs=[name + SHAPE_SUFFIX for name in left],
            optimization="disabled",
            folder=model.path.parent,
        )
        for name, shape in run(sample.arrays).items():
            found[name.removesuffix(SHAPE_SUFFIX)] = tuple(int(dim) for dim in shape)
    return {name: found[name] for name in names}


def plan_chunks(model: Model, sample: Sample, names: Sequence[str], limit: int) -> list[dict[str, int]]:
    """Cuts `names` (kept in order) into chunks of at most `limit` bytes each: name -> estimated bytes.

    A tensor that is larger than the limit is a chunk of its own. Without a reference that can run the model the
    sizes are unknown and everything is one chunk.
    """
    try:
        sizes = tensor_sizes(model, sample, names, limit)
    except ParityError:
        return [dict.fromkeys(names, 0)]
    chunks: list[dict[str, int]] = [{}]
    filled = 0
    for name in names:
        nbytes = sizes[name]
        if chunks[-1] and filled + nbytes > limit:
            chunks.append({})
            filled = 0
        chunks[-1][name] = nbytes
        filled += nbytes
    return chunks


def tensor_sizes(model: Model, sample: Sample, names: Sequence[str], limit: int = 0) -> dict[str, int]:
    """The estimated bytes of intermediate tensors on one sample.

    Where all are far within `limit` bytes if the few that inference cannot tell are as large as the largest that it can, these
    are taken to be that large, and nothing is run.
    """
    known = inferred_shapes(model.path, {name: array.shape for name, array in sample.arrays.items()})
    left = [name for name in names if name not in known]
    largest = max(map(_bytes_of, known.values()), default=0)
    sizes = {name: _bytes_of(known[name]) if name in known else largest for name in names}
    if len(left) <= len(known) // _FEW and sum(sizes.values()) <= limit // _FAR:
        return sizes
    return {name: _bytes_of(shape) for name, shape in tensor_shapes(model, sample, names).items()}


def _bytes_of(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * _WIDEST_FLOAT
