"""The elements of a tensor block by block, so that weights of gigabytes are never in memory as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 1 << 20  # elements, chosen: 4 MiB of float32 at a time


def blocks_of(tensor: ir.TensorProtocol) -> Iterator[np.ndarray]:
    """The elements in order, at most `BLOCK` at a time; each block is a flat array that must not be written to.

    Those of a file are read and not mapped: pages of a mapping count as memory of the process as long as it lasts.
    """
    if not isinstance(tensor, ir.ExternalTensor) or tensor.dtype.itemsize < 1:
        flat = np.asarray(tensor.numpy()).reshape(-1)
        yield from (flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK))
        return
    dtype = tensor.dtype.numpy().newbyteorder("<")
    with Path(tensor.path).open("rb") as file:
        file.seek(tensor.offset or 0)
        for start in range(0, tensor.size, BLOCK):
            count = min(BLOCK, tensor.size - start)
            yield np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
