"""File formats of samples, one a file: what other programs write, read as arrays by tensor name.

A format is a function that opens what lies on disk and gives a `Stored`, or reads one sample as `Streamed`. Nothing here knows a
model's rules: `case.conformance` does; `case.sources` puts every kind of data behind one interface.

Every file is data. Pickle is never read, and whatever can be wrong in a file is a `ParityError` that names it.
"""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

NO_ARRAYS: Mapping[str, np.ndarray] = {}  # no read-only view, which cannot be sent to another process

# What zipfile, the npy header parser, json, base64 and the file system raise on damaged files.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    MemoryError,
    OverflowError,
    SyntaxError,
    RuntimeError,  # an encrypted archive; RecursionError; NotImplementedError: unknown compression
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tokenize.TokenError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Samples that can be read one at a time, in any order, as often as wanted.

    `labels` are what a reader knows the samples by, one each; `names(i)` are the tensors of sample i, without reading
    an element; `read(i, names)` gives those tensors; `announced(i)` is what is said of their sizes before any is read, for as
    many as something is said of. `origin` says in words what this is and where it lies.
    """

    origin: str
    labels: tuple[str, ...]
    names: Callable[[int], tuple[str, ...]]
    read: Callable[[int, Collection[str]], dict[str, np.ndarray]]
    announced: Callable[[int], Mapping[str, Announced]] = lambda _: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a file says of a tensor before its elements are read: dtype, shape, and the bytes that they take in memory."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alike:
    """What samples have in common that were read at once: whether any of them holds a NaN."""

    nan: bool


# Not frozen: one is made of each sample, and that would take three times as long.
@dataclass(slots=True, kw_only=True)
class Streamed:
    """One sample as a source gives it: arrays by name, what is right for it (`truths`, by name), the image it was made from.

    Samples with the same `alike` have arrays of the same names, dtypes and shapes, all in C order.
    """

    label: str
    arrays: Mapping[str, np.ndarray]
    original: Path | None = None
    truths: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_ARRAYS)
    alike: Alike | None = None


class UnreadableError(ParityError):
    """A file, or a sample in it, that is damaged: others of the same data may be read."""


def unreadable_error(path: Path, error: BaseException | str) -> UnreadableError:
    """The error for a file that is missing, cut short, damaged or of another kind than its name says."""
    said = str(error) or type(error).__name__
    return UnreadableError(
        f"{path.name} cannot be read: {said}", where=str(path), fix="check that the file is whole, or write it again"
    )


def dtype_of(name: str) -> np.dtype[Any] | None:
    """The dtype of a numpy or ml_dtypes name ("float32", "bfloat16"); None for "str" and what has no numpy dtype."""
    import ml_dtypes

    if name == "str":
        return None
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        return None


def to_plain_array(array: np.ndarray) -> np.ndarray:
    """`array` in C order and in the machine's byte order, its shape kept (also 0-d); a copy only where needed."""
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return np.asarray(array, dtype=native, order="C")


def view_as_declared(array: np.ndarray, declared: str) -> np.ndarray:
    """`array` seen as `declared`, if it holds plain bytes of that size.

    Exists because npz files store the dtypes of ml_dtypes (bfloat16, float8, int4) as nameless bytes ("V2", "V1").
    """
    if array.dtype.type is not np.void or array.dtype.names is not None:
        return array
    dtype = dtype_of(declared)
    if dtype is None or dtype.kind != "V" or dtype.itemsize != array.dtype.itemsize:
        return array
    return array.view(dtype)


def restore_lost_type(written: str, array: np.ndarray, declared: str, *, fix: str, where: str = "") -> np.ndarray:
    """The array, where its dtype got lost as bytes in an .npz: two bytes are bfloat16, one byte is what is declared.

    `written` says in an error who wrote what.

    Raises:
        ParityError: nothing says what the bytes mean.
    """
    array = view_as_declared(array, "bfloat16" if array.dtype.itemsize == 2 else declared)
    if array.dtype.kind == "O" or array.dtype.type is np.void:
        raise ParityError(f"{written} as {array.dtype}, and nothing says what that means", where=where, fix=fix)
    return array
