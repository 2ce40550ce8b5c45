"""Parquet and Arrow files (pyarrow, extra `tables`) as rows: field name -> array, number, text, image or sound.

Rows are read batch by batch, so that memory holds a few, whatever the size of a file. A list of numbers becomes an array
(lists in lists, and fixed-shape tensors, one of several axes); nothing is converted. Where the rows of a batch are alike, whole
columns become arrays, and a row is a place in them. A struct of `bytes` and `path`, as
Hugging Face's data sets hold images and sounds, is decoded by what its first bytes say. Columns of other types are left out.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UnreadableError, unreadable_error
from parityscope.case.formats.images import decode_image
from parityscope.case.formats.sounds import decode_sound
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PARQUET = ".parquet"
_BATCH_NBYTES = 4 << 20  # of a batch, about; chosen: far from --memory, and no cost a row
_MOST_ROWS = 1024
_WIDTHS = {"FLOAT": 4, "DOUBLE": 8, "INT32": 4, "INT64": 8, "BOOLEAN": 1}  # bytes, by Parquet's physical types
_ARROW_FILE = b"ARROW1"
_RIFF = b"RIFF"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`count` rows of a file, of which `first` is the number of the first, and what `row` gives of each, counted from 0.

    `columns` are all fields as arrays (count, ...), texts as objects, where every row has every field in one shape; else None.
    """

    first: int
    count: int
    row: Callable[[int], Row]
    columns: Mapping[str, np.ndarray] | None


def count_rows(path: Path, memory: int) -> int:
    """How many rows a file has; its largest row group or batch must fit into `memory` bytes.

    Raises:
        ParityError: pyarrow is missing, or it is no such file, or one of too large pieces.
    """
    pyarrow = _pyarrow()
    try:
        if path.suffix.lower() == _PARQUET:
            with _open_parquet(path) as file:
                return int(file.metadata.num_rows)
        count = 0
        for batch in _arrow_batches(path, mapped=True):
            if batch.nbytes > memory:
                raise ParityError(
                    f"{path.name} has a batch of {batch.nbytes >> 20} MiB, more than --memory holds",
                    where=str(path),
                    fix="write it in smaller batches, or give more --memory",
                )
            count += batch.num_rows
    except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
        raise unreadable_error(path, error) from error
    return count


def read_batches(path: Path, start: int, memory: int) -> Iterator[Batch]:
    """The batches of a file from the one on in which the row `start` lies.

    Raises:
        ParityError: it is damaged, a row takes more than `memory` bytes, or what it holds cannot be decoded; a `row` raises it
            too.
    """
    pyarrow = _pyarrow()
    batches = _parquet_batches(path, start, memory) if path.suffix.lower() == _PARQUET else _arrow_rows(path, start)
    while True:
        try:
            found = next(batches, None)
            if found is None:
                return
            first, batch = found
            names = batch.schema.names
            stacks = {name: _stack_of(batch.column(place)) for place, name in enumerate(names)}
        except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
            raise unreadable_error(path, error) from error
        known = {name: stack for name, stack in stacks.items() if stack is not None}
        getters = {
            name: get
            for place, name in enumerate(names)
            if (get := _getter_of(batch.column(place), stacks[name], path, memory)) is not None
        }
        yield Batch(
            first=first,
            count=batch.num_rows,
            row=_reader_of_rows(getters, path),
            columns=known if known.keys() == getters.keys() else None,
        )


def _reader_of_rows(getters: Mapping[str, Callable[[int], Any]], path: Path) -> Callable[[int], Row]:
    pyarrow = _pyarrow()

    def read(row: int) -> Row:
        try:
            return {name: get(row) for name, get in getters.items()}
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise unreadable_error(path, error) from error

    return read


def decode_media(content: bytes, name: str, memory: int) -> Any:
    """An image or a sound as an array; the bytes themselves where they are neither.

    Raises:
        ParityError: it is damaged.
    """
    if content[:4] == _RIFF and content[8:12] == b"WAVE":
        return decode_sound(io.BytesIO(content), Path(name), memory)[0]
    return decode_image(io.BytesIO(content), Path(name), memory)


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ParityError(
            "tables need the package pyarrow, which is not installed", fix="pip install 'parityscope[tables]'"
        ) from error
    return pa


def _open_parquet(path: Path) -> Any:
    import pyarrow.parquet

    with open_regular_file(path, path.name):
        pass  # a pipe or a device is refused before anything waits for it
    return pyarrow.parquet.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=1 << 20)


def _parquet_batches(path: Path, start: int, memory: int) -> Iterator[tuple[int, Any]]:
    """(number of its first row, batch) from the one on in which `start` lies."""
    with _open_parquet(path) as file:
        first, group = 0, 0
        while group < file.num_row_groups and first + file.metadata.row_group(group).num_rows <= start:
            first += file.metadata.row_group(group).num_rows
            group += 1
        for each in range(group, file.num_row_groups):
            row_nbytes = _row_nbytes(file.metadata.row_group(each))
            if row_nbytes > memory:
                raise ParityError(
                    f"a row of {path.name} takes {row_nbytes >> 20} MiB, more than --memory holds",
                    where=str(path),
                    fix="give more --memory",
                )
            size = min(_MOST_ROWS, max(1, _BATCH_NBYTES // row_nbytes))
            for batch in file.iter_batches(batch_size=size, row_groups=[each], use_threads=False):
                if first + batch.num_rows > start:
                    yield first, batch
                first += batch.num_rows


def _row_nbytes(group: Any) -> int:
    """What a row of a row group takes, about: numbers as they are decoded, whatever a dictionary makes of them in the file."""
    columns = [group.column(place) for place in range(group.num_columns)]
    whole = sum(max(one.total_uncompressed_size, one.num_values * _WIDTHS.get(one.physical_type, 0)) for one in columns)
    return int(max(1, whole // max(1, group.num_rows)))


def _arrow_rows(path: Path, start: int) -> Iterator[tuple[int, Any]]:
    first = 0
    for batch in _arrow_batches(path, mapped=False):
        if first + batch.num_rows > start:
            yield first, batch
        first += batch.num_rows


def _arrow_batches(path: Path, *, mapped: bool) -> Iterator[Any]:
    """The batches of an Arrow file or stream, whose offsets lead nowhere else; mapped, their bytes are not read."""
    import pyarrow as pa

    with open_regular_file(path, path.name) as file:
        whole = file.read(len(_ARROW_FILE)) == _ARROW_FILE
    with (pa.memory_map if mapped else pa.OSFile)(str(path)) as source:
        batches: Iterator[Any]
        if not whole:
            batches = iter(pa.ipc.open_stream(source))
        else:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
        for batch in batches:
            batch.validate(full=not mapped)  # pyarrow itself believes what a file says, and reads there
            yield batch


def _stack_of(column: Any) -> np.ndarray | None:
    """A column of a batch as an array (rows, ...), texts as objects; None where its rows are not alike, or no plain values."""
    import pyarrow as pa

    kind = column.type
    if column.null_count:
        return None
    if isinstance(kind, pa.FixedShapeTensorType):
        tensors: np.ndarray = column.to_numpy_ndarray()
        return tensors
    if isinstance(kind, pa.BaseExtensionType):
        return _stack_of(column.storage)
    if pa.types.is_dictionary(kind):
        return _stack_of(column.dictionary_decode())
    if _is_plain(kind):
        return _numbers_of(column)
    if pa.types.is_boolean(kind):
        return np.array(column.to_pylist(), np.bool_)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = np.empty(len(column), object)
        try:
            texts[:] = column.to_pylist()
        except UnicodeDecodeError:  # one that is no text costs its own row alone
            return None
        return texts
    if _is_list(kind) and _is_plain(kind.value_type) and not column.values.null_count and len(column):
        bounds = _bounds_of_lists(column)
        length, odd = divmod(bounds[-1] - bounds[0], len(column))
        if not odd and all(end - start == length for start, end in itertools.pairwise(bounds)):
            return _numbers_of(column.values)[bounds[0] : bounds[-1]].reshape(len(column), length)
    return None


def _getter_of(column: Any, stack: np.ndarray | None, path: Path, memory: int) -> Callable[[int], Any] | None:
    """Row -> the value of a column in a batch, which is `stack` where its rows are alike; None for a type that no model reads."""
    import pyarrow as pa

    if stack is not None:
        return stack.item if stack.dtype.kind in "bO" else lambda row: stack[row, ...]
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        tensors = column.to_numpy_ndarray()
        return lambda row: tensors[row] if column[row].is_valid else None
    if isinstance(kind, pa.BaseExtensionType):
        return _getter_of(column.storage, None, path, memory)
    if pa.types.is_dictionary(kind):
        return _getter_of(column.dictionary_decode(), None, path, memory)
    if _is_list(kind):
        if _is_plain(kind.value_type) and not column.null_count and not column.values.null_count:
            elements, bounds = _numbers_of(column.values), _bounds_of_lists(column)
            return lambda row: elements[bounds[row] : bounds[row + 1]]
        return lambda row: _nested_array(column[row].values, path) if column[row].is_valid else None
    if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
        return lambda row: _media_of(column[row].as_py(), path, memory)
    if _is_plain(kind):
        dtype = _dtype_of(kind)
        return lambda row: None if (value := column[row].as_py()) is None else np.array(value, dtype)
    if any(
        ask(kind) for ask in (pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    ):
        return lambda row: column[row].as_py()
    return None


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_plain(kind: Any) -> bool:
    """Whether numbers of this type lie one behind the other, as numpy has them."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # what numpy calls otherwise than Arrow


def _dtype_of(kind: Any) -> np.dtype[Any]:
    return np.dtype(_FLOATS.get(str(kind), str(kind)))


def _numbers_of(column: Any) -> np.ndarray:
    """Plain numbers without gaps where they lie; pyarrow's own way to numpy imports pandas, which takes a second."""
    dtype, held = _dtype_of(column.type), column.buffers()[1]
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(held, dtype, len(column), column.offset * dtype.itemsize)


def _bounds_of_lists(column: Any) -> Sequence[int]:
    """Where each list begins among the elements of all, and where the last one ends."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        width, first = column.type.list_size, column.offset
        return range(first * width, (first + len(column) + 1) * width, width) if width else [0] * (len(column) + 1)
    found: list[int] = column.offsets.to_pylist()
    return found


def _nested_array(values: Any, path: Path) -> np.ndarray:
    """Lists in lists as an array.

    Raises:
        UnreadableError: their lengths differ, or something in them is missing.
    """
    import pyarrow as pa

    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _nested_array(values.storage, path)
    if values.null_count:
        raise UnreadableError("a list has a gap", where=str(path), fix="fill it, or leave the row out")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = {len(one) for one in values}
        if len(lengths) > 1:
            raise UnreadableError("lists in a list have several lengths", where=str(path), fix="give them one length")
        inner = _nested_array(values.flatten(), path)
        return inner.reshape(len(values), next(iter(lengths), 0), *inner.shape[1:])
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    return found.astype(str) if found.dtype == object else found


def _media_of(value: Any, path: Path, memory: int) -> Any:
    if not value or value["bytes"] is None:
        return None  # a path into somebody's disk is not followed
    return decode_media(value["bytes"], value["path"] or path.name, memory)
