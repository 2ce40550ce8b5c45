"""trtexec's files of raw bytes: dumped bindings and plain blobs; `exported.py` reads its JSON.

* `--dumpRawBindingsToFile`: `<name>.<input|output>.<1.3.4>.<type>.raw`, one inference, inputs and outputs together; a shape that
  the run decides stands there as -1, and has to be given.
* `--saveAllDebugTensors` into the same folder: tensors inside, see `debug_tensors.py`.
* Plain blobs: `<name>.bin`, the raw bytes that `--loadInputs=name:file` takes; `polygraphy run --save-input-blob`
  writes them into one folder a sample (`0000000000/<name>.bin`).

trtexec makes file names safe: every byte but ASCII letters, digits and `._-,` becomes `_`, and of more than 150 bytes
the first and last 73 stay around `...` (`genFilenameSafeString` in TensorRT's `samples/common/common.h`). Names are
found by doing the same to the model's names, so a match is exact; two names that look alike then are an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.case.formats import UNREADABLE, Stored, dtype_of, unreadable_error
from parityscope.case.formats.debug_tensors import debug_files
from parityscope.case.formats.npy import read_npy_file
from parityscope.case.formats.packed import HALF_BYTES, nbytes_of, pack_array, unpack_array
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from parityscope.records import ValueInfo

_LONGEST = 150  # bytes of a file name, and what stays of longer ones at either end: (150 - 3) // 2
_KEPT = (_LONGEST - len("...")) // 2
_DUMPED = re.compile(r"^.+\.(input|output)\.((?:-?\d+(?:\.-?\d+)*)?)\.([a-z0-9]+)\.raw$")
# How trtexec prints types (`operator<<` of DataType in its sampleOptions.cpp).
_TYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1fn",
    "int64": "int64",
    "int32": "int32",
    "int8": "int8",
    "int4": "int4",
    "uint8": "uint8",
    "bool": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a model declares about the tensors in a folder of raw bytes, and the shapes given for dynamic ones.

    `inside` are the names of the tensors that its nodes compute.
    """

    values: tuple[ValueInfo, ...]
    kind: Literal["input", "output"]
    shapes: Mapping[str, tuple[int, ...]]
    inside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blob:
    path: Path
    dtype: str | None  # None: what the model declares
    shape: tuple[int, ...] | None


def file_name(name: str) -> str:
    """The file name that trtexec makes of `name`."""
    raw = name.encode()
    if len(raw) <= _LONGEST:
        return _safe_file_name(raw)
    return f"{_safe_file_name(raw[:_KEPT])}...{_safe_file_name(raw[-_KEPT:])}"


def write_blobs(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the raw bytes of each array, in C order, as `--loadInputs` takes them; elements of four bits two to a byte.

    Raises:
        ParityError: two names make one file name, or nothing can be written there.
    """
    names = {file_name(name): name for name in arrays}
    if len(names) < len(arrays):
        both = [name for name in arrays if names[file_name(name)] != name]
        raise ParityError(f"{both[0]!r} and {names[file_name(both[0])]!r} have one file name", fix="rename one of them")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            (folder / f"{file_name(name)}.bin").write_bytes(pack_array(array))
    except OSError as error:
        raise ParityError(
            f"{folder.name} cannot be written: {error}", where=str(folder), fix="free some space, or use another folder"
        ) from error


def open_raw(folder: Path, expected: Expected) -> Stored:
    """The samples in a folder of raw bytes: one, or one in each subfolder whose name is a number.

    Raises:
        ParityError: two files stand for one tensor.
    """
    numbered = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isdigit())
    loose = [path.name for path in folder.iterdir() if path.suffix in {".bin", ".raw"}]
    if numbered and loose:
        raise ParityError(
            f"{folder.name} holds both {loose[0]} and a folder {numbered[0].name}",
            where=str(folder),
            fix="keep either one sample's files or one folder a sample",
        )
    folders = numbered or [folder]
    samples = [_find_blobs(place, expected) for place in folders]
    for name, blob in ((value.name, blobs.get(value.name)) for blobs in samples for value in expected.values):
        if blob is not None and blob.path.suffix != ".npy":
            _layout_of_blob(name, blob, expected)

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        return {name: _load_blob(name, samples[index][name], expected) for name in wanted}

    return Stored(
        origin=f"raw bytes in {folder}",
        labels=tuple(place.name for place in folders),
        names=lambda index: tuple(samples[index]),
        read=read,
    )


def _find_blobs(folder: Path, expected: Expected) -> dict[str, _Blob]:
    found: dict[str, _Blob] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if dumped := _DUMPED.match(relative):
            kind, dims, dtype = dumped.groups()
            if kind != expected.kind:
                continue
            shape = tuple(int(dim) for dim in dims.split(".") if dim)
            blob = _Blob(path=path, dtype=dtype, shape=shape if all(dim >= 0 for dim in shape) else None)
            name = _tensor_of_file(path, relative, f".{kind}.{dims}.{dtype}.raw", expected)
        elif path.is_file() and path.suffix == ".bin":
            blob = _Blob(path=path, dtype=None, shape=None)
            name = _tensor_of_file(path, relative, ".bin", expected)
        else:
            continue
        if name in found:
            raise ParityError(
                f"{found[name].path.name} and {path.name} both stand for {name!r}",
                where=str(folder),
                fix="keep one of them",
            )
        found[name] = blob
    for each in debug_files(folder, expected.inside, file_name) if expected.kind == "output" else ():
        found.setdefault(each.name, _Blob(path=each.path, dtype=each.dtype or None, shape=each.shape))
    return found


def _tensor_of_file(path: Path, relative: str, ending: str, expected: Expected) -> str:
    """The tensor whose file this is; a file of no declared tensor keeps the name it has."""
    names = [v.name for v in expected.values if relative in {v.name + ending, file_name(v.name + ending)}]
    if len(names) > 1:
        raise ParityError(
            f"{path.name} may be any of {', '.join(names)}: their file names are the same",
            where=str(path),
            fix="save the tensors as .npz or .safetensors, which keep names as they are",
        )
    return names[0] if names else relative.removesuffix(ending)


def _load_blob(name: str, blob: _Blob, expected: Expected) -> np.ndarray:
    if blob.path.suffix == ".npy":
        return read_npy_file(blob.path)
    dtype, shape = _layout_of_blob(name, blob, expected)
    with open_regular_file(blob.path, blob.path.name) as file:
        try:
            return unpack_array(np.fromfile(file, np.uint8), dtype, shape)
        except UNREADABLE as error:
            raise unreadable_error(blob.path, error) from error


def _layout_of_blob(name: str, blob: _Blob, expected: Expected) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The elements' type and shape, of which the file has just the bytes."""
    info = next((value for value in expected.values if value.name == name), None)
    text = blob.dtype or (info.dtype if info else "")
    dtype = dtype_of(_TYPES.get(text, "str") if blob.dtype else text or "str")
    if dtype is None:
        raise ParityError(
            f"the element type of {name!r} is {text or 'unknown'}, which raw bytes cannot be read as",
            where=str(blob.path),
            fix="save it as .npz or .safetensors",
        )
    shape = blob.shape if blob.shape is not None else _shape_of_blob(name, info, expected, blob.path)
    needed = nbytes_of(dtype, shape)
    with open_regular_file(blob.path, blob.path.name):
        found = blob.path.stat().st_size
    if found != needed:
        how = "two elements to a byte, the first in the low half" if dtype.name in HALF_BYTES else "numpy's tofile"
        raise ParityError(
            f"{name!r} as {dtype.name} {list(shape)} needs {needed} bytes, and {blob.path.name} has {found}",
            where=str(blob.path),
            fix=f"write it as plain {dtype.name} in C order ({how}), or correct its shape or I/O format",
        )
    return dtype, shape


def _shape_of_blob(name: str, info: ValueInfo | None, expected: Expected, path: Path) -> tuple[int, ...]:
    if name in expected.shapes:
        return expected.shapes[name]
    declared = info.shape if info else None
    if declared is not None and all(isinstance(dim, int) for dim in declared):
        return tuple(dim for dim in declared if isinstance(dim, int))
    told = "unknown" if declared is None else f"[{', '.join(str(dim or '?') for dim in declared)}]"
    flag = "--shapes " if expected.kind == "input" else "&shapes="
    raise ParityError(
        f"raw bytes have no shape, and the model declares {name!r} as {told}",
        where=str(path),
        fix=f"say it: {flag}{name}:1x3x224x224",
    )


def _safe_file_name(raw: bytes) -> str:
    return "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "._-,") else "_" for byte in raw
    )
