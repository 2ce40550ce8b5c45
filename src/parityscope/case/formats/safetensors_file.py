""".safetensors: one file a sample, or one file whose tensors are stacked along axis 0.

Read through `parityscope.trace`, which maps tensors one by one; the safetensors package cannot give float8 as numpy
arrays. bfloat16 and float8 come back as the dtypes of ml_dtypes; formats of less than a byte are refused.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.formats import UNREADABLE, Announced, Stored, unreadable_error
from parityscope.errors import ParityError
from parityscope.trace import numpy_dtype, read_safetensors

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from parityscope.trace import StoredTensor


def open_safetensors(paths: Sequence[Path], origin: str) -> Stored:
    """Samples of which each is one .safetensors file."""

    @functools.lru_cache(
        maxsize=1
    )  # a header may list very many tensors, and is asked for its names and then for some of them
    def tensors_of(index: int, _changed: tuple[int, int]) -> dict[str, StoredTensor]:
        return _stored_tensors(paths[index])

    def listed(index: int) -> dict[str, StoredTensor]:
        return tensors_of(index, _file_state(paths[index]))

    def names(index: int) -> tuple[str, ...]:
        return tuple(listed(index))

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        tensors = listed(index)
        return {name: _copy_elements(tensors[name]) for name in wanted}

    def announced(index: int) -> dict[str, Announced]:
        return {
            name: Announced(dtype=numpy_dtype(one.dtype).name, shape=one.shape, nbytes=one.nbytes)
            for name, one in listed(index).items()
        }

    labels = tuple(path.name for path in paths)
    return Stored(origin=origin, labels=labels, names=names, read=read, announced=announced)


def open_stacked_safetensors(path: Path, origin: str) -> Stored:
    """Samples stacked along axis 0 of the tensors of one file; each sample keeps a leading axis of 1."""
    tensors = _stored_tensors(path)
    lengths = {tensor.shape[0] if tensor.shape else None for tensor in tensors.values()}
    if len(lengths) > 1 or None in lengths:
        told = ", ".join(f"{name} is {list(tensor.shape)}" for name, tensor in tensors.items())
        raise ParityError(
            f"the tensors of {path.name} do not stack the same number of samples: {told}",
            where=str(path),
            fix="give every tensor one row a sample along axis 0, or leave --stacked out if the file is one sample",
        )

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        return {name: _copy_elements(tensors[name], slice(index, index + 1)) for name in wanted}

    labels = tuple(f"row {index} of {path.name}" for index in range(next(iter(lengths), 0) or 0))
    return Stored(origin=origin, labels=labels, names=lambda _: tuple(tensors), read=read)


def _file_state(path: Path) -> tuple[int, int]:
    """What changes when the file does."""
    try:
        found = path.stat()
    except OSError as error:
        raise unreadable_error(path, error) from error
    return found.st_mtime_ns, found.st_size


def _stored_tensors(path: Path) -> dict[str, StoredTensor]:
    try:
        return read_safetensors(path)
    except UNREADABLE as error:
        raise unreadable_error(path, error) from error


def _copy_elements(tensor: StoredTensor, rows: slice | None = None) -> np.ndarray:
    """The elements, copied out of the file so that they outlive it."""
    try:
        mapped = tensor.load()
        return np.array(mapped if rows is None else mapped[rows])
    except UNREADABLE as error:
        raise unreadable_error(tensor.path, error) from error
