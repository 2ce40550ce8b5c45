"""Polygraphy's JSON: saved inputs (`--save-inputs`) and saved outputs (`--save-outputs`), read and written.

* An array is `{"array": base64 of an .npy file, "polygraphy_class": "ndarray"}`.
* Inputs are a list of `{name: array}`, or one such object.
* Outputs are `{"lst": [[runner, [{"outputs": {name: {"values": array, "polygraphy_class": "LazyArray"}}, "runtime":
  seconds, "runner_name": runner, "polygraphy_class": "IterationResult"}]]], "polygraphy_class": "RunResults"}`.
* A folder of `0000000000.json`, `0000000001.json`, ... holds one iteration a file.
* Older files name LazyArray "LazyNumpyArray", mark types as `{"__polygraphy_encoded_<type>":
  "polygraphy_serialized_json_type"}`, and may hold an array as Latin-1 text or as an .npz; they are read, not written.

Source: `polygraphy/json/serde.py` and `polygraphy/comparator/struct.py` of Polygraphy 0.53.6. Torch tensors are
refused: their encoding needs a torch unpickler.

The long strings are left in the file: a first pass replaces each by its place, so that the rest is a small JSON
document, and an array is decoded when it is asked for. This gives random access in any of these files, at the memory
of the arrays that are read.
"""

from __future__ import annotations

import base64
import io
import json
import mmap
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UNREADABLE, Announced, Stored, unreadable_error
from parityscope.case.formats.npy import read_npy
from parityscope.case.formats.npz import read_only_array
from parityscope.errors import ParityError
from parityscope.plain_documents import parse_json
from parityscope.regular_files import open_regular_file, text_of
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

RESULTS = "RunResults"
_CLASS = "polygraphy_class"
_OLD_CLASS = "__polygraphy_encoded_"
_OLD_MARK = "polygraphy_serialized_json_type"
_DIGITS = 10  # of the file names in a folder
# Base64 strings from this length on stay in the file. Longer than any tensor's name, short enough to cost nothing.
_LONG = 4096
_MOST_NBYTES, _MOST_SHORT_NBYTES = 16 << 30, 64 << 20  # of a file, and of what is left of it without its arrays; chosen
_LONG_STRING = re.compile(rb'"([A-Za-z0-9+/]{%d,}=*)"' % _LONG)
_PLACE = "\x00place:"


def open_inputs(paths: Sequence[Path], origin: str) -> Stored:
    """The samples in files of saved inputs: any number of samples a file, in order.

    Raises:
        ParityError: a file is not of this format (and if it holds outputs, it says so).
    """
    samples: list[tuple[Path, str, Mapping[str, Any]]] = []
    for path in paths:
        document = _read_document(path)
        listed = document if isinstance(document, list) else [document]
        for index, sample in enumerate(listed):
            if not isinstance(sample, dict) or type_of(sample) is not None:
                raise _wrong_kind_error(path, "inputs", sample)
            samples.append((path, path.name if len(listed) == 1 else f"sample {index} of {path.name}", sample))
    return _stored_samples(samples, origin)


def open_outputs(paths: Sequence[Path], runner: str, origin: str) -> Stored:
    """The iterations of one runner in files of saved outputs; `runner` may be empty when there is only one.

    Raises:
        ParityError: a file is not of this format, or it does not say which runner is meant.
    """
    runs: dict[str, list[tuple[Path, str, Mapping[str, Any]]]] = {}
    for path in paths:
        for name, iterations in _runs_of_file(path):
            found = runs.setdefault(name, [])
            found.extend((path, f"iteration {len(found) + index} of {name}", it) for index, it in enumerate(iterations))
    listed = ", ".join(runs) or "none"
    if runner and runner not in runs:
        raise ParityError(f"there is no runner {runner!r}", where=origin, fix=f"use one of: {listed}")
    if not runner and len(runs) != 1:
        raise ParityError(
            f"the outputs are of {len(runs)} runners: {listed}", where=origin, fix="say which one: &runner=NAME"
        )
    chosen = runner or next(iter(runs))
    return _stored_samples(runs[chosen], f"{origin}, runner {chosen}")


def write_input(folder: Path, index: int, sample: Mapping[str, np.ndarray]) -> None:
    """Adds one sample to a folder that `polygraphy run --load-inputs` reads."""
    _write_item(folder, index, [{name: _encode_array(array) for name, array in sample.items()}])


def write_output(folder: Path, index: int, runner: str, iteration: tuple[Mapping[str, np.ndarray], float]) -> None:
    """Adds one iteration (outputs by name, seconds) to a folder that `polygraphy run --load-outputs` reads."""
    _write_item(folder, index, _wrap_results(runner, [_encode_iteration(runner, *iteration)]))


def write_inputs(path: Path, samples: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Writes what `polygraphy run --load-inputs` reads: one file, or a folder if `path` has no suffix."""
    _write_json(path, ({name: _encode_array(array) for name, array in sample.items()} for sample in samples), list)


def write_outputs(path: Path, runner: str, iterations: Iterable[tuple[Mapping[str, np.ndarray], float]]) -> None:
    """Writes what `polygraphy run --load-outputs` reads: one file, or a folder if `path` has no suffix.

    `iterations` are (outputs by name, seconds that the inference took).
    """
    encoded = (_encode_iteration(runner, outputs, seconds) for outputs, seconds in iterations)
    if path.suffix:
        _write_json(path, encoded, lambda results: _wrap_results(runner, results))
    else:
        _write_json(path, (_wrap_results(runner, [result]) for result in encoded), list)


def _encode_iteration(runner: str, outputs: Mapping[str, np.ndarray], seconds: float) -> dict[str, Any]:
    return {
        "outputs": {name: {"values": _encode_array(array), _CLASS: "LazyArray"} for name, array in outputs.items()},
        "runtime": seconds,
        "runner_name": runner,
        _CLASS: "IterationResult",
    }


def _wrap_results(runner: str, results: Iterable[Any]) -> dict[str, Any]:
    return {"lst": [[runner, list(results)]], _CLASS: RESULTS}


def type_of(value: object) -> str | None:
    """The Polygraphy type that a JSON value is marked with, by the new or the old marker; None for plain ones."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get(_CLASS), str):
        return str(value[_CLASS])
    old = [key for key, mark in value.items() if key.startswith(_OLD_CLASS) and mark == _OLD_MARK]
    return old[0].removeprefix(_OLD_CLASS) if old else None


def _read_document(path: Path) -> Any:
    """The JSON of `path`, each long string in it replaced by its place in the file."""
    try:
        with (
            open_regular_file(path, path.name, limit=_MOST_NBYTES) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            short = _without_long_strings(text)
    except UNREADABLE as error:
        raise unreadable_error(path, error) from error
    return parse_json(text_of(bytes(short), path.name, path), path.name, path)


def _without_long_strings(text: mmap.mmap) -> bytearray:
    short, begin = bytearray(), 0
    for found in _LONG_STRING.finditer(text):
        _check_short(len(short) + found.start() - begin)
        short += text[begin : found.start()] + b'"\\u0000place:%d:%d"' % found.span(1)
        begin = found.end()
    _check_short(len(short) + len(text) - begin)
    return short + text[begin:]


def _check_short(nbytes: int) -> None:
    if nbytes > _MOST_SHORT_NBYTES:
        raise ValueError(f"it holds more than {_MOST_SHORT_NBYTES >> 20} MiB beside its arrays")


def _runs_of_file(path: Path) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    document = _read_document(path)
    listed = document.get("lst") if type_of(document) == RESULTS else None
    if not isinstance(listed, list):
        raise _wrong_kind_error(path, "outputs", document)
    for entry in listed:
        match entry:
            case [str(name), list(iterations)] if all(
                isinstance(it, dict) and isinstance(it.get("outputs"), dict) for it in iterations
            ):
                yield name, [it["outputs"] for it in iterations]
            case _:
                raise unreadable_error(path, "a runner's entry is not [name, [{outputs: ...}, ...]]")


def _wrong_kind_error(path: Path, wanted: str, found: object) -> ParityError:
    kind = type_of(found) or type(found).__name__
    other = {RESULTS: "outputs (RunResults)", "dict": "inputs", "list": "inputs"}.get(kind, f"a {kind}")
    return ParityError(
        f"{path.name} holds {other}, not Polygraphy's saved {wanted}",
        where=str(path),
        fix=f"give the file that `polygraphy run --save-{wanted} FILE` wrote",
    )


def _stored_samples(samples: Sequence[tuple[Path, str, Mapping[str, Any]]], origin: str) -> Stored:
    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        path, label, sample = samples[index]
        found = {}
        for name in wanted:
            try:
                found[name] = _decode_array(sample[name], path)
            except UNREADABLE as error:
                raise unreadable_error(path, f"{label}, tensor {name!r}: {error}") from error
        return found

    def announced(index: int) -> dict[str, Announced]:
        sizes = {name: _encoded_nbytes(value) for name, value in samples[index][2].items()}
        return {name: Announced(dtype="", shape=(), nbytes=nbytes) for name, nbytes in sizes.items()}

    labels = tuple(label for _, label, _ in samples)
    return Stored(
        origin=origin, labels=labels, names=lambda index: tuple(samples[index][2]), read=read, announced=announced
    )


def _encoded_nbytes(value: object) -> int:
    """The bytes of an encoded array, told from the length of its text; 0 where there is none."""
    text = _encoded_text(_unwrap_array(value))
    if text is None:
        return 0
    start, end = _place_in_file(text) if text.startswith(_PLACE) else (0, len(text))
    return (end - start) * 3 // 4


def _decode_array(value: object, path: Path) -> np.ndarray:
    value = _unwrap_array(value)
    kind = type_of(value)
    if kind == "Tensor":
        raise ValueError("it is a torch tensor; save numpy arrays (for example tensor.cpu().numpy())")
    text = _encoded_text(value)
    if kind != "ndarray" or text is None:
        raise ValueError(f"it is not an encoded array but a {kind or type(value).__name__}")
    data = _encoded_bytes(text, path)
    if data.startswith(b"PK"):
        return read_only_array(io.BytesIO(data))
    return read_npy(io.BytesIO(data), len(data))


def _unwrap_array(value: object) -> object:
    """The array in what Polygraphy loads when it is asked for."""
    if type_of(value) in {"LazyArray", "LazyNumpyArray"} and isinstance(value, dict):
        return value.get("values")
    return value


def _encoded_text(value: object) -> str | None:
    text = value.get("array") if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def _place_in_file(text: str) -> tuple[int, int]:
    """Where in its file an array lies that was left there."""
    start, end = text.removeprefix(_PLACE).split(":")
    return int(start), int(end)


def _encoded_bytes(text: str, path: Path) -> bytes:
    if text.startswith(_PLACE):
        start, end = _place_in_file(text)
        with open_regular_file(path, path.name) as file:
            file.seek(start)
            return base64.b64decode(file.read(end - start), validate=True)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode("latin-1")


def _encode_array(array: np.ndarray) -> dict[str, str]:
    if array.dtype.isbuiltin != 1:
        raise ParityError(
            f"Polygraphy's files cannot hold {array.dtype}", fix="convert it first: array.astype(np.float32)"
        )
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return {"array": base64.b64encode(buffer.getbuffer()).decode("ascii"), _CLASS: "ndarray"}


def _write_json(path: Path, items: Iterable[Any], combine: Any) -> None:
    try:
        if path.suffix:
            write_whole(path, json.dumps(combine(items)))
            return
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ParityError(f"{path} is not empty", where=str(path), fix="name a folder that does not exist yet")
        for index, item in enumerate(items):
            _write_item(path, index, item)
    except OSError as error:
        raise _unwritable_error(path, error) from error


def _write_item(folder: Path, index: int, item: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index:0{_DIGITS}d}.json").write_text(json.dumps(item), encoding="utf-8")
    except OSError as error:
        raise _unwritable_error(folder, error) from error


def _unwritable_error(path: Path, error: OSError) -> ParityError:
    return ParityError(
        f"{path.name} cannot be written: {error}", where=str(path), fix="free some space, or use another folder"
    )
