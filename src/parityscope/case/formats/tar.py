"""Tar archives as WebDataset writes them, listed and read in place: nothing is ever unpacked.

Members `some/key.ext` that follow each other and share the key (all before the first dot of the file's name) are a sample;
the rest of the name says what a member is. The headers are walked twice: first block by block, so that what a hostile archive
may hold is refused before the library parses it, then by `tarfile`. Refused are links, devices and sparse files (which
announce bytes that are not there), names that are absolute or lead out, and headers with very long extensions. A compressed
archive is none of these.

Layout: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; the convention: WebDataset's documentation of
its format.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from parityscope.case.formats import UNREADABLE, unreadable_error
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.regular_files import open_regular_file

_BLOCK = tarfile.BLOCKSIZE
_EXTENSION_NBYTES = 64 << 10  # of one extended header; chosen: names and times take some hundreds
_SHARED_NBYTES = 4 << 10  # of those for all members, which each member gets a copy of; chosen: git writes 52
_EXTENDED = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME})
_TAKEN = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Where a file lies in the archive, in bytes."""

    start: int
    nbytes: int


Members = dict[str, Member]  # the ends of the names ("jpg", "seg.png") -> where they lie


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The samples of an archive: (key, members) in order; `short` says why there is nothing behind them ("": it is whole)."""

    samples: tuple[tuple[str, Members], ...]
    short: str = ""


def list_samples(path: Path) -> Listing:
    """The samples in an archive, without reading one; an archive that is cut short gives those before the cut.

    Raises:
        ParityError: it is no archive, or holds what none of samples holds.
    """
    with open_regular_file(path, path.name) as file:
        whole, short = _check_headers(file, path)
        found: list[tuple[str, Members]] = []
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # nothing is kept of what was looked at
                    if member.size < 0 or member.offset_data + member.size > whole:  # by an extended header
                        short = short or f"{member.name} is cut short"
                        break
                    if member.isreg():
                        _add_member(found, member, path)
        except (tarfile.TarError, *UNREADABLE) as error:
            if not found:
                raise unreadable_error(path, error) from error
            short = short or str(error)
    if short and not found:
        raise unreadable_error(path, short)
    return Listing(samples=tuple(found), short=short)


def read_member(path: Path, member: Member, memory: int) -> bytes:
    """The bytes of a member.

    Raises:
        ParityError: it takes more than `memory` bytes, or is no longer there.
    """
    if member.nbytes > memory:
        raise ParityError(
            f"{path.name} holds a file of {member.nbytes >> 20} MiB, more than --memory holds",
            where=str(path),
            fix="give more --memory",
        )
    with open_regular_file(path, path.name) as file:
        file.seek(member.start)
        data = file.read(member.nbytes)
    if len(data) != member.nbytes:
        raise unreadable_error(path, "it is shorter than it was")
    return data


def _check_headers(file: IO[bytes], path: Path) -> tuple[int, str]:
    """(bytes up to where the archive is whole, why it ends there).

    Raises:
        ParityError: it holds something that no archive of samples holds.
    """
    size = os.fstat(file.fileno()).st_size
    place = shared = 0
    while place + _BLOCK <= size:
        file.seek(place)
        block = file.read(_BLOCK)
        if not block.strip(b"\0"):
            return place, ""
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            return place, f"at byte {place}: {error}"
        shared += header.size if header.type == tarfile.XGLTYPE else 0
        _check_header(header, path, shared)
        following = place + _BLOCK + -(-header.size // _BLOCK) * _BLOCK
        if header.size < 0 or place + _BLOCK + header.size > size:
            return place, f"{header.name} is cut short"
        place = following
    return min(place, size), f"at byte {place}: truncated header" if place < size else ""


def _check_header(header: tarfile.TarInfo, path: Path, shared: int) -> None:
    name = PurePosixPath(header.name)
    if header.type in _EXTENDED:
        large = header.size > _EXTENSION_NBYTES or shared > _SHARED_NBYTES
        bad = f"an extended header of {max(header.size, shared)} bytes" if large else ""
    elif header.type not in _TAKEN:
        kind = "a link" if header.type in {tarfile.SYMTYPE, tarfile.LNKTYPE} else "no plain file"
        bad = f"{header.name!r}, which is {kind}"
    else:
        bad = f"{header.name!r}, which leads out of it" if name.is_absolute() or ".." in name.parts else ""
    if bad:
        raise ParityError(f"{path.name} holds {bad}", where=str(path), fix="write the archive of plain files only")


def _add_member(found: list[tuple[str, Members]], member: tarfile.TarInfo, path: Path) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:  # by an extended header
        raise ParityError(
            f"{path.name} holds {member.name!r}, which leads out of it",
            where=str(path),
            fix="write the archive of plain files only",
        )
    if member.issparse():
        raise ParityError(
            f"{path.name} holds a sparse file", where=str(path), fix="write the archive of plain files only"
        )
    stem, _, ending = name.name.partition(".")
    if not stem:
        return  # a hidden file is no sample
    key = str(name.parent / stem)
    if not found or found[-1][0] != key:
        found.append((key, {}))
    if ending.lower() in found[-1][1]:
        raise ParityError(
            f"{path.name} holds {member.name!r} twice", where=str(path), fix="write each file of a sample once"
        )
    found[-1][1][ending.lower()] = Member(start=member.offset_data, nbytes=member.size)
