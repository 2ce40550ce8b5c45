"""Texts with a tokenizer or a function: a line a sample (.txt), an object a line (.jsonl), or, in a folder, a .txt a sample."""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UnreadableError, unreadable_error
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed, refuse_unprepared
from parityscope.case.sources._classes import classes_of, labels_of
from parityscope.case.sources._shards import Shard, index_shards
from parityscope.errors import ParityError
from parityscope.plain_documents import parse_json
from parityscope.regular_files import open_regular_file, read_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parityscope.case.formats import Streamed
    from parityscope.case.preparing import Prepare
    from parityscope.case.sources import Named, ReadingOptions

_TEXT, _OBJECTS = ".txt", ".jsonl"
_LONGEST = 16 << 20  # bytes of one text; chosen


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    objects = named.files[0].suffix.lower() == _OBJECTS
    if any((path.suffix.lower() == _OBJECTS) != objects for path in named.files):
        raise ParityError(
            f"{named.path.name} holds .txt and .jsonl", where=str(named.path), fix="give a folder with one of them"
        )
    if not objects:
        refuse_unprepared(named, reading, "texts", "str")
    prepare = preparation_of(reading.preprocess, named.inputs)
    if named.path.is_dir() and not objects:
        return _open_folder(named, prepare, reading)
    origin = f"the lines of {named.words}" + (f", {reading.preprocess}" if reading.preprocess else "")
    return index_shards(named.files, partial(_shard_of, prepare), origin, prepared=True)


def _open_folder(named: Named, prepare: Prepare, reading: ReadingOptions) -> Indexed:
    labels, truths = labels_of(named), classes_of(named)

    def read(index: int) -> Streamed:
        path = named.files[index]
        content = read_regular_file(path, path.name, limit=min(_LONGEST, reading.memory))
        text = _text_of(content, path, labels[index])
        return prepare(RawSample(label=labels[index], fields={"text": text}, alone=(text,), truths=truths(index)))

    origin = f"{len(named.files)} texts in {named.path}, {reading.preprocess}"
    return Indexed(origin=origin, labels=labels, read=read, prepared=True)


def _shard_of(prepare: Prepare, path: Path) -> Shard:
    """The lines that are not empty, found by their places."""
    places = array("Q")
    with open_regular_file(path, path.name) as file:
        start = 0
        while line := file.readline(_LONGEST):
            if line.strip():
                places.append(start)
            start += len(line)
            while len(line) == _LONGEST and not line.endswith(
                b"\n"
            ):  # what a longer one goes on with is no text of its own
                line = file.readline(_LONGEST)
                start += len(line)

    def label(row: int) -> str:
        return f"text {row} of {path.name}"

    def rows(start: int) -> Iterator[Streamed]:
        with open_regular_file(path, path.name) as file:
            for row in range(start, len(places)):
                file.seek(places[row])
                line = file.readline(_LONGEST + 1)
                if len(line) > _LONGEST:
                    raise UnreadableError(
                        f"{label(row)} is longer than {_LONGEST >> 20} MiB",
                        where=str(path),
                        fix="cut it into several lines, or leave it out",
                    )
                text = _text_of(line, path, label(row)).rstrip("\r\n")
                if path.suffix.lower() == _OBJECTS:
                    yield prepare(RawSample(label=label(row), fields=_fields_of(text, path, label(row))))
                else:
                    yield prepare(RawSample(label=label(row), fields={"text": text}, alone=(text,)))

    return Shard(count=len(places), rows=rows, label=label)


def _text_of(content: bytes, path: Path, label: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable_error(path, f"{label}: {error}") from error


def _fields_of(text: str, path: Path, label: str) -> dict[str, Any]:
    try:
        found = parse_json(text, label, path)
    except ParityError as error:
        raise unreadable_error(path, error.problem) from error
    if not isinstance(found, dict):
        raise UnreadableError(f"{label} is no object", where=str(path), fix="write an object a line: {...}")
    return {name: _as_field(value) for name, value in found.items()}


def _as_field(value: Any) -> Any:
    """A list of numbers as an array: whole numbers are int64, others float32 (JSON does not say)."""
    if not isinstance(value, list):
        return value
    try:
        found = np.asarray(value)
    except ValueError:
        return value
    return found.astype(np.float32) if found.dtype == np.float64 else found


SOURCE = DataSource(
    name="texts",
    words="texts",
    open=_open,
    suffixes=frozenset({_TEXT, _OBJECTS}),
    takes=frozenset({"preprocess"}),
    rest=True,
    classes=True,
)
