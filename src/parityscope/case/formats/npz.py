"""numpy's .npz: one file a sample, or one file whose arrays are stacked along axis 0.

The archive is read here and not by `numpy.load` because that one gives back raw bytes for members that are no
arrays, keeps the last of two members of one name, and holds a whole stacked array in memory. Each member's checksum
is verified. The layout: a zip of `<tensor name>.npy`; numpy's documentation of `numpy.lib.format` describes those.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UNREADABLE, Announced, Stored, Streamed, to_plain_array, unreadable_error
from parityscope.case.formats.npy import read_header, read_npy
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

_SUFFIX = ".npy"
_SCALAR = "it is a scalar, and a stacked array has one row a sample"
# What compression may save: zeros become a thousandth, so whoever has larger arrays of nothing stores them as they are.
ALWAYS_NBYTES, _MOST_TIMES = 256 << 20, 100  # chosen

# The record that ends a zip (APPNOTE.TXT 4.3.16): its signature, and the number of entries, 65535 in large archives, which
# hold the number in another record.
_END_OF_DIRECTORY = struct.Struct("<4s6xH10x")
_DIRECTORY_NBYTES = 64 << 20  # chosen: half a million entries with short names
_SIGNATURE = b"PK\x05\x06"
_COUNTED_ELSEWHERE = 0xFFFF


def open_npz(paths: Sequence[Path], origin: str) -> Stored:
    """Samples of which each is one .npz file."""

    def names(index: int) -> tuple[str, ...]:
        with _open_archive(paths[index]) as archive:
            return tuple(_members_by_name(archive, paths[index]))

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        path = paths[index]
        with _open_archive(path) as archive:
            members = _members_by_name(archive, path)
            return {name: _read_member(archive, members[name], path) for name in wanted}

    def announced(index: int) -> dict[str, Announced]:
        path = paths[index]
        with _open_archive(path) as archive:
            return {
                name: _announced_member(archive, member, path)
                for name, member in _members_by_name(archive, path).items()
            }

    labels = tuple(path.name for path in paths)
    return Stored(origin=origin, labels=labels, names=names, read=read, announced=announced)


def count_stacked_npz(path: Path) -> int:
    """How many samples an .npz stacks.

    Raises:
        ParityError: it cannot be read, or its arrays do not stack the same number.
    """
    with _open_archive(path) as archive:
        columns: dict[str, tuple[int, object]] = {}
        for name, member in _members_by_name(archive, path).items():
            shape = _announced_member(archive, member, path).shape
            if not shape:
                raise unreadable_error(path, f"{name}: {_SCALAR}")
            columns[name] = shape[0], None
        return _common_length(columns, path)


def read_stacked_npz(path: Path, start: int = 0) -> Iterator[Streamed]:
    """The samples, from `start` on, of one .npz whose arrays all have one row a sample; each keeps a leading axis of 1.

    Rows are read side by side, so one sample is in memory at a time (an array in Fortran order is read at once).
    """
    with _open_archive(path) as archive, contextlib.ExitStack() as stack:
        columns: dict[str, tuple[int, Iterator[np.ndarray]]] = {}
        for name, member in _members_by_name(archive, path).items():
            try:
                columns[name] = _read_rows(stack.enter_context(archive.open(member)), _expanded_nbytes(archive, member))
            except UNREADABLE as error:
                raise unreadable_error(path, f"{name}: {error}") from error
        for index in range(_common_length(columns, path)):
            try:
                arrays = {name: next(rows) for name, (_, rows) in columns.items()}
            except UNREADABLE as error:
                raise unreadable_error(path, f"row {index}: {error}") from error
            if index < start:
                continue
            yield Streamed(label=f"row {index} of {path.name}", arrays=arrays)


def read_only_array(file: IO[bytes]) -> np.ndarray:
    """The first array of an archive that is held in memory.

    Raises:
        ValueError, zipfile.BadZipFile: it is no whole archive, or becomes too much.
    """
    with zipfile.ZipFile(file) as archive:
        member = archive.namelist()[0]
        with archive.open(member) as opened:
            return read_npy(opened, _expanded_nbytes(archive, member))


def read_member_arrays(file: IO[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    """Name and array of each member of an archive that is held in memory.

    Raises:
        ValueError, zipfile.BadZipFile: it is no whole archive, or becomes too much.
    """
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            with archive.open(member) as opened:
                yield member.removesuffix(_SUFFIX), read_npy(opened, _expanded_nbytes(archive, member))


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `arrays` uncompressed, making the folder; the file appears under its name when it is complete.

    Any tensor name will do (`numpy.savez` cannot store one called "file").

    Raises:
        ParityError: the disk is full or the folder cannot be written to.
    """
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            write_members(archive, arrays)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise ParityError(
            f"{path.name} cannot be written: {error}", where=str(path), fix="free some space, or use another folder"
        ) from error


def write_members(archive: zipfile.ZipFile, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes each array as a member of an open archive; any tensor name will do. Texts are written as such, not as objects."""
    for name, given in arrays.items():
        is_text = given.dtype == object and all(isinstance(one, str) for one in given.flat)
        array = given.astype(np.str_) if is_text else given
        with archive.open(name + _SUFFIX, "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


@contextlib.contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular_file(path, path.name))
        try:
            _check_directory(file)
            archive = stack.enter_context(zipfile.ZipFile(file))
            _check_count(archive, file)
        except UNREADABLE as error:
            raise unreadable_error(path, error) from error
        yield archive


def _check_directory(file: IO[bytes]) -> None:
    """The directory is held in memory at once, with an object for each entry: one that no samples need is not read.

    A large archive's end record names another one, whose place a locator before it gives (APPNOTE.TXT 4.3.14 and 4.3.15).
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _END_OF_DIRECTORY.size - 0xFFFF)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(_SIGNATURE)
    if at < 0 or len(tail) - at < _END_OF_DIRECTORY.size:
        return  # zipfile says that it is no archive
    nbytes = int.from_bytes(tail[at + 12 : at + 16], "little")
    locator = tail[max(0, at - 20) : at]
    if locator.startswith(b"PK\x06\x07"):
        file.seek(int.from_bytes(locator[8:16], "little"))
        nbytes = int.from_bytes(file.read(48)[40:], "little")
    if nbytes > _DIRECTORY_NBYTES:
        raise zipfile.BadZipFile(
            f"its directory takes {nbytes >> 20} MiB, and that of the arrays of a sample takes some kilobytes"
        )


def _check_count(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    """A length in the directory that is too large swallows the entries behind it, and zipfile does not count them."""
    file.seek(-(_END_OF_DIRECTORY.size + len(archive.comment)), os.SEEK_END)
    signature, count = _END_OF_DIRECTORY.unpack(file.read(_END_OF_DIRECTORY.size))
    listed = len(archive.namelist())
    if signature == _SIGNATURE and count not in (listed, _COUNTED_ELSEWHERE):
        raise zipfile.BadZipFile(f"its directory lists {listed} arrays and says that it holds {count}")


def _members_by_name(archive: zipfile.ZipFile, path: Path) -> dict[str, str]:
    """Tensor name -> member of the archive."""
    listed = archive.namelist()
    strangers = [member for member in listed if not member.endswith(_SUFFIX)]
    if strangers:
        raise ParityError(
            f"{path.name} holds {strangers[0]!r}, which is not a .npy array",
            where=str(path),
            fix="write the file with numpy.savez, which stores arrays only",
        )
    members = {member.removesuffix(_SUFFIX): member for member in listed}
    if len(members) != len(listed):
        twice = next(member for member in listed if listed.count(member) > 1)
        raise ParityError(f"{path.name} holds {twice!r} twice", where=str(path), fix="write each tensor once")
    return members


def _read_member(archive: zipfile.ZipFile, member: str, path: Path) -> np.ndarray:
    try:
        with archive.open(member) as file:
            array = read_npy(file, _expanded_nbytes(archive, member))
            _check_end(file)
    except UNREADABLE as error:
        raise unreadable_error(path, f"{member}: {error}") from error
    return array


def _announced_member(archive: zipfile.ZipFile, member: str, path: Path) -> Announced:
    try:
        with archive.open(member) as file:
            header = read_header(file, _expanded_nbytes(archive, member))
    except UNREADABLE as error:
        raise unreadable_error(path, f"{member}: {error}") from error
    return Announced(dtype=header.dtype.name, shape=header.shape, nbytes=header.nbytes)


def _expanded_nbytes(archive: zipfile.ZipFile, member: str) -> int:
    """The bytes that a member becomes."""
    info = archive.getinfo(member)
    if info.file_size > max(ALWAYS_NBYTES, _MOST_TIMES * info.compress_size):
        raise ValueError(f"{info.compress_size} bytes would become {info.file_size}, which no samples do")
    return info.file_size


def _check_end(file: IO[bytes]) -> None:
    """Reaching the end is what makes zipfile compare the checksum; reading the right number of bytes does not."""
    if file.read(1):
        raise ValueError("there are bytes behind the array")


def _read_rows(file: IO[bytes], nbytes: int) -> tuple[int, Iterator[np.ndarray]]:
    """(number of rows, the rows, each with a leading axis of 1)."""
    header = read_header(file, nbytes)
    shape, dtype = header.shape, header.dtype
    if not shape:
        raise ValueError(_SCALAR)
    return shape[0], _fortran_rows(file, shape, dtype) if header.fortran else _c_rows(file, shape, dtype)


def _c_rows(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    for index in range(shape[0]):
        row = _read_elements(file, shape[1:], dtype).reshape((1, *shape[1:]))
        if index == shape[0] - 1:
            _check_end(file)
        yield to_plain_array(row)


def _fortran_rows(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    whole = _read_elements(file, shape, dtype).reshape(shape, order="F")
    _check_end(file)
    for index in range(shape[0]):
        yield to_plain_array(whole[index : index + 1])


def _read_elements(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise EOFError(f"{nbytes} bytes were announced and {len(data)} are there")
    return np.frombuffer(data, dtype)


def _common_length(columns: Mapping[str, tuple[int, object]], path: Path) -> int:
    lengths = {name: length for name, (length, _) in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ParityError(
            f"the arrays of {path.name} do not stack the same number of samples: {told}",
            where=str(path),
            fix="give every array one row a sample along axis 0, or leave --stacked out if the file is one sample",
        )
    return next(iter(lengths.values()), 0)
