"""trtexec's files: exported outputs as JSON (`--exportOutput`), dumped bindings and plain blobs of raw bytes.

* JSON: a list of `{"name": ..., "dimensions": "1x3x4", "values": [...]}`, one inference. Values are printed by a C++
  stream: six significant digits, and bare `nan` and `inf`, which JSON does not know; "(1, 3, 4)" is read as well.
* `--dumpRawBindingsToFile`: `<name>.<input|output>.<1.3.4>.<type>.raw`, one inference, inputs and outputs together.
* Plain blobs: `<name>.bin`, the raw bytes that `--loadInputs=name:file` takes; `polygraphy run --save-input-blob`
  writes them into one folder a sample (`0000000000/<name>.bin`).

trtexec makes file names safe: every byte but ASCII letters, digits and `._-,` becomes `_`, and of more than 150 bytes
the first and last 73 stay around `...` (`genFilenameSafeString` in TensorRT's `samples/common/common.h`). Names are
found by doing the same to the model's names, so a match is exact; two names that look alike then are an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.case.formats import UNREADABLE, Stored, dtype_of, unreadable
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from parityscope.records import ValueInfo

__all__ = ["Expected", "file_name", "open_exported", "open_raw", "write_blobs"]

_LONGEST = 150  # bytes of a file name, and what stays of longer ones at either end: (150 - 3) // 2
_KEPT = (_LONGEST - len("...")) // 2
_DUMPED = re.compile(r"^.+\.(input|output)\.((?:\d+(?:\.\d+)*)?)\.([a-z0-9]+)\.raw$")
# How trtexec prints types (`operator<<` of DataType in its sampleOptions.cpp); int4 and fp4 are packed, and refused.
_TYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int64": "int64",
    "int32": "int32",
    "int8": "int8",
    "uint8": "uint8",
    "bool": "bool",
}
_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:nan|inf)\b(?:\(ind\))?')
_IN_JSON = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a model declares about the tensors in a folder of raw bytes, and the shapes given for dynamic ones."""

    values: tuple[ValueInfo, ...]
    kind: Literal["input", "output"]
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blob:
    path: Path
    dtype: str | None  # None: what the model declares
    shape: tuple[int, ...] | None


def file_name(name: str) -> str:
    """The file name that trtexec makes of `name`."""
    raw = name.encode()
    if len(raw) <= _LONGEST:
        return _safe(raw)
    return f"{_safe(raw[:_KEPT])}...{_safe(raw[-_KEPT:])}"


def write_blobs(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the raw bytes of each array, in C order, as `--loadInputs` takes them.

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
            (folder / f"{file_name(name)}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    except OSError as error:
        raise ParityError(
            f"{folder.name} cannot be written: {error}", where=str(folder), fix="free some space, or use another folder"
        ) from error


def open_exported(path: Path, values: Sequence[ValueInfo]) -> Stored:
    """The outputs in an `--exportOutput` file, in the dtypes that `values` declare (others: float32).

    Raises:
        ParityError: the file is not of this format, or a value is beyond the declared integer type.
    """
    declared = {value.name: value.dtype for value in values}
    arrays: dict[str, np.ndarray] = {}
    try:
        for entry in json.loads(_BARE.sub(_json_number, path.read_text(encoding="utf-8"))):
            name = str(entry["name"])
            if name in arrays:
                raise ValueError(f"tensor {name!r} stands twice")
            arrays[name] = _from_text(entry, declared.get(name, "float32"))
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    return Stored(
        origin=f"trtexec --exportOutput (text of 6 significant digits), {path}",
        labels=(path.name,),
        names=lambda _: tuple(arrays),
        read=lambda _, wanted: {name: arrays[name] for name in wanted},
    )


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
    samples = [_blobs(place, expected) for place in folders]

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        return {name: _load(name, samples[index][name], expected) for name in wanted}

    return Stored(
        origin=f"raw bytes in {folder}",
        labels=tuple(place.name for place in folders),
        names=lambda index: tuple(samples[index]),
        read=read,
    )


def _json_number(match: re.Match[str]) -> str:
    return _IN_JSON.get(match[0].removesuffix("(ind)"), match[0])


def _from_text(entry: Mapping[str, Any], declared: str) -> np.ndarray:
    shape = tuple(int(dim) for dim in re.findall(r"\d+", str(entry["dimensions"])))
    values = entry["values"]
    dtype = dtype_of(declared)
    if dtype is None or not isinstance(values, list):
        raise ValueError(f"tensor {entry['name']!r} cannot be read as {declared}")
    if dtype.kind in "iu" or (dtype.kind == "V" and "int" in declared):
        whole = np.array(values, dtype=object).astype(np.int64)
        if any(value != int(value) for value in values):
            raise ValueError(f"tensor {entry['name']!r} is declared as {declared} and holds a fraction")
        array = whole.astype(dtype)
        if (array.astype(np.int64) != whole).any():
            raise ValueError(f"tensor {entry['name']!r} holds values beyond {declared}")
        return array.reshape(shape)
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float64).astype(dtype).reshape(shape)


def _blobs(folder: Path, expected: Expected) -> dict[str, _Blob]:
    found: dict[str, _Blob] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if dumped := _DUMPED.match(relative):
            kind, dims, dtype = dumped.groups()
            if kind != expected.kind:
                continue
            shape = tuple(int(dim) for dim in dims.split(".") if dim)
            blob = _Blob(path=path, dtype=dtype, shape=shape)
            name = _name(path, relative, f".{kind}.{dims}.{dtype}.raw", expected)
        elif path.is_file() and path.suffix == ".bin":
            blob = _Blob(path=path, dtype=None, shape=None)
            name = _name(path, relative, ".bin", expected)
        else:
            continue
        if name in found:
            raise ParityError(
                f"{found[name].path.name} and {path.name} both stand for {name!r}",
                where=str(folder),
                fix="keep one of them",
            )
        found[name] = blob
    return found


def _name(path: Path, relative: str, ending: str, expected: Expected) -> str:
    """The tensor whose file this is; a file of no declared tensor keeps the name it has."""
    names = [v.name for v in expected.values if relative in {v.name + ending, file_name(v.name + ending)}]
    if len(names) > 1:
        raise ParityError(
            f"{path.name} may be any of {', '.join(names)}: their file names are the same",
            where=str(path),
            fix="save the tensors as .npz or .safetensors, which keep names as they are",
        )
    return names[0] if names else relative.removesuffix(ending)


def _load(name: str, blob: _Blob, expected: Expected) -> np.ndarray:
    info = next((value for value in expected.values if value.name == name), None)
    text = blob.dtype or (info.dtype if info else "")
    dtype = dtype_of(_TYPES.get(text, "str") if blob.dtype else text or "str")
    if dtype is None:
        raise ParityError(
            f"the element type of {name!r} is {text or 'unknown'}, which raw bytes cannot be read as",
            where=str(blob.path),
            fix="save it as .npz or .safetensors",
        )
    shape = blob.shape if blob.shape is not None else _shape(name, info, expected, blob.path)
    needed = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    try:
        found = blob.path.stat().st_size
        if found != needed:
            raise ParityError(
                f"{name!r} as {dtype.name} {list(shape)} needs {needed} bytes, and {blob.path.name} has {found}",
                where=str(blob.path),
                fix=f"write it as plain {dtype.name} in C order (numpy's tofile), or correct its shape or I/O format",
            )
        return np.fromfile(blob.path, dtype).reshape(shape)
    except UNREADABLE as error:
        raise unreadable(blob.path, error) from error


def _shape(name: str, info: ValueInfo | None, expected: Expected, path: Path) -> tuple[int, ...]:
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


def _safe(raw: bytes) -> str:
    return "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "._-,") else "_" for byte in raw
    )
