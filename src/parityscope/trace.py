"""Tensors of one run: lazy, on disk or in memory, of any dtype that ONNX has.

A `Trace` is what a backend gives back: for each sample, arrays by tensor name. Arrays live in memory (outputs) or in
safetensors files, one file a chunk, that are memory-mapped tensor by tensor, so that reading a tensor costs nothing
until its elements are touched and dropping it gives the memory back.

The safetensors layout (8 bytes little-endian header length, JSON header, tensors back to back) is written here and
not by the safetensors package because that one copies every tensor to bytes first: at the size of a chunk this would
double the memory that `--memory` promises. Files are tested to be readable by the package, and the reverse.
"""

from __future__ import annotations

import json
import math
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_documents import parse_json
from parityscope.regular_files import open_regular_file, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from parityscope.records import ExecutedGraph, Skip, Target

# safetensors' names of dtypes, from its format description; the right-hand side is numpy's or ml_dtypes'.
_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_TO_SAFETENSORS = {numpy: name for name, numpy in _SAFETENSORS.items()}
_HEADER_ALIGNMENT = 64  # a multiple of every element size and of a cache line
_HEADER_LIMIT = 100 * (1 << 20)  # the format's own limit on the header, in bytes


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of a numpy or ml_dtypes name ("float32", "bfloat16", "float8_e4m3fn")."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where the elements of one tensor lie in a file."""

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return numpy_dtype(self.dtype).itemsize * math.prod(self.shape)

    def load(self) -> np.ndarray:
        """The tensor, memory-mapped read-only; it stays mapped as long as the array lives."""
        if self.nbytes == 0:
            return np.empty(self.shape, numpy_dtype(self.dtype))
        return np.memmap(self.path, numpy_dtype(self.dtype), "r", self.offset, self.shape)


class TensorFile:
    """A safetensors file that is being written, tensor by tensor; it appears under its name when it is complete.

    A context manager: on an exception nothing is left behind.
    """

    def __init__(self, path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        """Reserves `path` for `tensors`: name -> (dtype name, shape), written in this order."""
        self._path = path
        self._temporary = path.with_name(path.name + ".part")
        self._left = list(tensors)
        self._tensors = tensors
        header: dict[str, Any] = {}
        offset = 0
        for name, (dtype, shape) in tensors.items():
            if dtype not in _TO_SAFETENSORS:
                raise ParityError(f"tensor {name!r} has dtype {dtype}, which cannot be stored", where=str(path))
            nbytes = numpy_dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            end = offset + nbytes
            header[name] = {"dtype": _TO_SAFETENSORS[dtype], "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _HEADER_ALIGNMENT)
        self._file = self._temporary.open("wb")
        self._file.write(len(text).to_bytes(8, "little"))
        self._file.write(text)

    def write(self, name: str, array: np.ndarray) -> None:
        """Appends `array`, which must be the next tensor announced."""
        dtype, shape = self._tensors[name]
        if self._left[0] != name or array.dtype.name != dtype or array.shape != shape:
            raise ValueError(f"{name}: {array.dtype} {array.shape} is not what was announced ({dtype} {shape})")
        self._left.pop(0)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None and not self._left:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> dict[str, StoredTensor]:
    """Writes `tensors` to `path` at once and gives back where each lies."""
    with TensorFile(path, {name: (array.dtype.name, array.shape) for name, array in tensors.items()}) as file:
        for name, array in tensors.items():
            file.write(name, array)
    return read_safetensors(path)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Where each tensor of a safetensors file lies; no element is read.

    Raises:
        ParityError: the header is not that of a safetensors file, or the file ends early.
    """
    with open_regular_file(path, path.name) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _HEADER_LIMIT):
            raise _incomplete_error(path)
        text = text_of(file.read(length), f"the header of {path.name}", path)
    header = parse_json(text, f"the header of {path.name}", path)
    try:
        listed = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _place_tensor(path, entry, 8 + length, size) for name, entry in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _incomplete_error(path) from error


def _place_tensor(path: Path, entry: Any, start: int, size: int) -> StoredTensor:
    """The tensor of an entry of the header, whose elements lie between `start` and `size`."""
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (begin, end, *entry["shape"])):
        raise ValueError("a place or a size is no whole number")
    tensor = StoredTensor(
        path=path, offset=start + begin, dtype=_SAFETENSORS[entry["dtype"]], shape=tuple(entry["shape"])
    )
    if tensor.nbytes != end - begin or start + end > size:
        raise ValueError("a tensor has other bytes than its shape says, or lies outside of the file")
    return tensor


def _incomplete_error(path: Path) -> ParityError:
    return ParityError(f"{path.name} is not a complete safetensors file", where=str(path), fix="write it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one target gave for the samples of a case.

    `samples` are the samples' indices; `names` are the captured tensors (the outputs first). `disturbs` says what
    capturing did ("none", "outputs marked", ...) and `disturbance` what that changed at the outputs: the worst
    relative L2 distance, over outputs, samples and chunks, from the outputs of the undisturbed run. `absent` lists
    every tensor that was asked for and could not be had. `seconds` is the time inside the runtime alone, summed.

    A long recording is made in parts, each in a session of its own, and an engine may give other numbers in each. `parts`
    tells the part that each tensor is from (empty: all are from one), and `copies` holds what a part gave again, by (part,
    sample, name): what its tensors were computed from.
    """

    target: Target
    environment: Mapping[str, str]
    samples: tuple[int, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    disturbs: str
    disturbance: float = 0.0
    absent: tuple[Skip, ...] = ()
    seconds: float = 0.0
    executed: ExecutedGraph | None = None
    tensors: Mapping[tuple[int, str], np.ndarray | StoredTensor] = field(default_factory=lambda: MappingProxyType({}))
    parts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    copies: Mapping[tuple[int, int, str], np.ndarray | StoredTensor] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def has(self, sample: int, name: str) -> bool:
        """Whether tensor `name` of sample `sample` was captured."""
        return (sample, name) in self.tensors

    def get(self, sample: int, name: str) -> np.ndarray:
        """Tensor `name` of sample `sample`: an array in memory or a read-only memory map. KeyError if absent."""
        held = self.tensors[sample, name]
        return held.load() if isinstance(held, StoredTensor) else held

    def beside(self, sample: int, name: str, reader: str) -> np.ndarray:
        """Tensor `name` of the part that `reader` is from; where that part did not give it, as `get`."""
        part = self.parts.get(reader, 0)
        return self.again(part, sample, name) if (part, sample, name) in self.copies else self.get(sample, name)

    def again(self, part: int, sample: int, name: str) -> np.ndarray:
        """The copy of tensor `name` that `part` gave. KeyError if there is none."""
        held = self.copies[part, sample, name]
        return held.load() if isinstance(held, StoredTensor) else held

    def apart(self, sample: int, name: str, reader: str) -> bool:
        """Whether no part gave both `name` and `reader`, as far as is known."""
        part = self.parts.get(reader, 0)
        return self.parts.get(name, 0) != part and (part, sample, name) not in self.copies

    def info(self, sample: int, name: str) -> tuple[str, tuple[int, ...]]:
        """(dtype name, shape) of a captured tensor, without reading it."""
        held = self.tensors[sample, name]
        return (held.dtype, held.shape) if isinstance(held, StoredTensor) else (held.dtype.name, held.shape)

    def items(self, sample: int, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """The captured ones of `names`, one at a time."""
        for name in names:
            if self.has(sample, name):
                yield name, self.get(sample, name)
