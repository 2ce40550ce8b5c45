"""Whether the tensors of a message are what they say: sizes, types and content agree, and external data is where it may be."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx

_MOST_AXES = 64  # numpy's own limit
_MOST_DIGITS = 19  # of a 64-bit number
_IN_MEMORY = "*/"  # ONNX Runtime takes such a location for an address in its own memory
# Weights that share their bytes are few: a file that names the same ones so often, and so much of them, is no model.
_MOST_SHARING, _SHARED_NBYTES = 16, 1 << 30  # chosen
# ONNX's element types: the field that holds their numbers one by one, the bits of an element, the bits that such a number holds.
_STORED = {
    "FLOAT": ("float_data", 32, 32),
    "DOUBLE": ("double_data", 64, 64),
    "COMPLEX64": ("float_data", 64, 32),
    "COMPLEX128": ("double_data", 128, 64),
    "INT64": ("int64_data", 64, 64),
    "UINT64": ("uint64_data", 64, 64),
    "UINT32": ("uint64_data", 32, 32),
    "INT32": ("int32_data", 32, 32),
    "STRING": ("string_data", 8, 8),  # of unknown length: counted as if each had a byte
    **dict.fromkeys(("INT16", "UINT16", "FLOAT16", "BFLOAT16"), ("int32_data", 16, 16)),
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), ("int32_data", 8, 8)),
    **dict.fromkeys(
        ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"), ("int32_data", 8, 8)
    ),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), ("int32_data", 4, 8)),
    **dict.fromkeys(("INT2", "UINT2"), ("int32_data", 2, 8)),
}
_BACK = "put the data file back beside the model, whole, under the name that the model gives"
_EXPORT = "export the model again"


@dataclass(frozen=True, slots=True, kw_only=True)
class _External:
    """Where the content of a tensor lies."""

    path: Path
    offset: int
    nbytes: int


def check_weights(model: onnx.ModelProto, path: Path) -> None:
    """Checks every tensor of the model at `path`.

    Raises:
        ParityError: sizes cannot be, content does not fit, or external data is missing, too short or elsewhere.
    """
    sizes: dict[Path, int] = {}
    named = sum(_check_tensor(tensor, path, sizes) for tensor in _all_tensors(model))
    there = sum(sizes.values())
    if named > max(_SHARED_NBYTES, _MOST_SHARING * there):
        raise ParityError(
            f"the weights are {named} bytes, and the files that they lie in have {there}", where=str(path), fix=_EXPORT
        )


def check_tensor(tensor: onnx.TensorProto, path: Path) -> None:
    """Checks one tensor of the model at `path`.

    Raises:
        ParityError: as `check_weights`.
    """
    _check_tensor(tensor, path, {})


def _check_tensor(tensor: onnx.TensorProto, path: Path, sizes: dict[Path, int]) -> int:
    """Checks a tensor, and gives the bytes of it that lie in another file, whose size is noted in `sizes`."""
    nbytes = _content_nbytes(tensor, path)
    if tensor.data_location != tensor.EXTERNAL:
        _check_content(tensor, nbytes, path)
        return 0
    place = _external_place(tensor, nbytes, path)
    if place.path not in sizes:
        with open_regular_file(place.path, f"the external data of {tensor.name!r}") as file:
            sizes[place.path] = os.fstat(file.fileno()).st_size
    if sizes[place.path] < place.offset + place.nbytes:
        raise ParityError(
            f"the external data of initializer {tensor.name!r} ends early: "
            f"{sizes[place.path]} bytes where {place.offset + place.nbytes} are needed",
            where=str(place.path),
            fix="copy the data file again: it is truncated or belongs to another model",
        )
    return place.nbytes


def external_files(model: onnx.ModelProto, path: Path) -> dict[Path, int]:
    """The files that hold external data of a model that was checked, in order of first use, with where that data ends."""
    ends: dict[Path, int] = {}
    for tensor in _all_tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            place = _external_place(tensor, _content_nbytes(tensor, path), path)
            ends[place.path] = max(ends.get(place.path, 0), place.offset + place.nbytes)
    return ends


def _all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model: of its graph, of bodies, attributes and functions."""
    yield from _tensors_in_graph(model.graph)
    for function in model.functions:
        yield from _tensors_in_nodes(function.node)


def tensors_of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a node's attributes, in bodies too."""
    return _tensors_in_nodes(iter([node]))


def _tensors_in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_in_nodes(graph.node)


def _tensors_in_nodes(nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors_in_graph(attribute.g)
            for body in attribute.graphs:
                yield from _tensors_in_graph(body)


def _content_nbytes(tensor: onnx.TensorProto, path: Path) -> int:
    """The bytes of a tensor's content, or of text the number of its elements."""
    dims = list(tensor.dims)
    if len(dims) > _MOST_AXES or any(dim < 0 for dim in dims):
        said = f"{len(dims)} axes" if len(dims) > _MOST_AXES else f"the shape {dims}"
        raise ParityError(f"{_name_constant(tensor)} has {said}, which no tensor has", where=str(path), fix=_EXPORT)
    kind = _stored_types().get(tensor.data_type)
    if kind is None:
        raise ParityError(
            f"{_name_constant(tensor)} is of the element type {tensor.data_type}, which this version of ONNX does not know",
            where=str(path),
            fix=f"{_EXPORT}, or install a newer onnx",
        )
    elements = math.prod(int(dim) for dim in dims)
    return -(-elements * kind[1] // 8)


def _check_content(tensor: onnx.TensorProto, nbytes: int, path: Path) -> None:
    """Checks that a tensor inside the file has as much content as its shape says."""
    import onnx

    fields = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
    typed = {name: len(getattr(tensor, name)) for name in fields}
    if tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
        if any(typed.values()):
            raise ParityError(f"{_name_constant(tensor)} holds its numbers twice", where=str(path), fix=_EXPORT)
        found, needed, unit = len(tensor.raw_data), nbytes, "bytes"
    else:
        name, _, bits = _stored_types()[tensor.data_type]
        found, needed, unit = typed.pop(name), nbytes * 8 // bits, "numbers"
        if any(typed.values()):
            raise ParityError(
                f"{_name_constant(tensor)} holds numbers of another type too", where=str(path), fix=_EXPORT
            )
    if found != needed:
        raise ParityError(
            (
                f"{_name_constant(tensor)} has the shape {list(tensor.dims)}, for which {needed} {unit} are needed, and "
                f"holds {found}"
            ),
            where=str(path),
            fix=_EXPORT,
        )


@functools.cache
def _stored_types() -> Mapping[int, tuple[str, int, int]]:
    """`_STORED` by ONNX's numbers of element types."""
    import onnx

    return {number: _STORED[name] for name, number in onnx.TensorProto.DataType.items() if name in _STORED}


def _external_place(tensor: onnx.TensorProto, nbytes: int, path: Path) -> _External:
    """The place that a tensor names, which lies in the model's own folder."""
    entries = _external_entries(tensor, path)
    offset = _parse_whole_number(entries.get("offset") or "0", "offset", tensor, path)
    length = _parse_whole_number(entries.get("length") or str(nbytes), "length", tensor, path) or nbytes
    if length != nbytes:
        raise ParityError(
            (
                f"{_name_constant(tensor)} has the shape {list(tensor.dims)}, for which {nbytes} bytes are needed, and "
                f"names {length}"
            ),
            where=str(path),
            fix=_EXPORT,
        )
    location = entries["location"]
    data = path.parent / location
    inside = not PurePosixPath(location).is_absolute() and ".." not in PurePosixPath(location).parts
    # Whoever keeps models by their digests links both the model and its data to where they are kept.
    homes = {path.parent.resolve(), path.resolve().parent}
    if not inside or location.startswith(_IN_MEMORY) or not homes & {*_resolve_target(data, path).parents}:
        raise ParityError(
            f"the external data of {tensor.name!r} is said to lie outside the model's folder, at {location!r}",
            where=str(path),
            fix="put it into the model's folder, and name it there: onnx.save with save_as_external_data=True",
        )
    if not data.exists():
        raise ParityError(f"the external data of initializer {tensor.name!r} is missing", where=str(data), fix=_BACK)
    if data.stat().st_nlink > 1:  # onnx does not read such a one, because it may be a file of somebody else's
        raise ParityError(
            f"the external data of {tensor.name!r} is one file with several names (hard links)",
            where=str(data),
            fix="make a copy of it and put that in its place: cp DATA COPY && mv COPY DATA",
        )
    return _External(path=data, offset=offset, nbytes=nbytes)


def _resolve_target(data: Path, path: Path) -> Path:
    try:
        return data.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ParityError(
            f"the external data at {data.name!r} cannot be there: {error}", where=str(path), fix=_BACK
        ) from error


def _external_entries(tensor: onnx.TensorProto, path: Path) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise ParityError(f"{_name_constant(tensor)} has two entries {entry.key!r}", where=str(path), fix=_EXPORT)
        entries[entry.key] = entry.value
    if not entries.get("location"):
        raise ParityError(
            f"{_name_constant(tensor)} does not say in which file its data lies", where=str(path), fix=_EXPORT
        )
    return entries


def _parse_whole_number(text: str, what: str, tensor: onnx.TensorProto, path: Path) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ParityError(f"{_name_constant(tensor)} has the {what} {text[:40]!r}", where=str(path), fix=_EXPORT)
    return int(text)


def _name_constant(tensor: onnx.TensorProto) -> str:
    return f"the constant {tensor.name!r}" if tensor.name else "a constant without a name"
