"""numpy's .npy: what the header announces is held against what is there, before anything is made of it."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UNREADABLE, Stored, to_plain_array, unreadable_error
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path


SOLE = "array"  # what is called so has no name of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What an array says of itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], nbytes: int) -> Header:
    """The header of an array whose file has `nbytes` bytes; the elements are what is left of it.

    Raises:
        ValueError: it is no header, or the elements are more or fewer bytes than it announces.
    """
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if not dtype.itemsize or any(size < 0 for size in shape):
        raise ValueError(f"{dtype} {list(shape)} is no array")
    found, left = Header(shape=shape, fortran=fortran, dtype=dtype), nbytes - file.tell()
    if found.nbytes != left:
        raise ValueError(f"{found.nbytes} bytes are announced for {dtype} {list(shape)}, and {left} are there")
    return found


def read_npy(file: IO[bytes], nbytes: int) -> np.ndarray:
    """The array in a file of `nbytes` bytes, which can be read again from its beginning.

    Raises:
        ValueError: as `read_header`.
    """
    read_header(file, nbytes)
    file.seek(0)
    return to_plain_array(np.lib.format.read_array(file, allow_pickle=False))


def read_npy_file(path: Path) -> np.ndarray:
    """The array in a .npy file.

    Raises:
        ParityError: it is no regular file, or no whole array.
    """
    with open_regular_file(path, path.name) as file:
        try:
            return read_npy(file, path.stat().st_size)
        except UNREADABLE as error:
            raise unreadable_error(path, error) from error


def open_npy(paths: Sequence[Path], origin: str, name: str = "") -> Stored:
    """Samples of which each is one array, called `name` (`SOLE` where nobody says what it is)."""
    called = name or SOLE
    return Stored(
        origin=origin,
        labels=tuple(path.name for path in paths),
        names=lambda _: (called,),
        read=lambda index, _: {called: read_npy_file(paths[index])},
    )


def folders_of_tensors(folder: Path) -> tuple[Path, ...]:
    """The folders in `folder` where each holds one tensor's .npy, a file a sample; none where anything else lies there."""
    try:
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
        return tuple(inner) if inner and all(any(path.glob("*.npy")) for path in inner) else ()
    except OSError:
        return ()


def open_npy_folders(folders: Sequence[Path], origin: str) -> Stored:
    """Samples whose tensors lie in a folder each, which is called as the tensor is: `TENSOR/000000.npy`."""
    held = {folder.name: {path.name: path for path in sorted(folder.glob("*.npy"))} for folder in folders}
    labels = tuple(sorted({label for files in held.values() for label in files}))

    def read(index: int, names: Collection[str]) -> dict[str, np.ndarray]:
        label = labels[index]
        missing = [name for name in names if label not in held[name]]
        if missing:
            raise ParityError(
                f"there is no {missing[0]}/{label}, and another tensor has it",
                where=origin,
                fix="record all of a sample",
            )
        return {name: read_npy_file(held[name][label]) for name in names}

    return Stored(origin=origin, labels=labels, names=lambda _: tuple(held), read=read)
