"""DATA -> samples, checked against what the model declares.

One pass over all samples checks each of them (`case.conformance`), finds NaN, and takes a digest; afterwards samples
are read one at a time. What can be read only once (loaders, images, stacked .npz) is spooled in that pass, one
uncompressed .npz a sample, so that memory stays at about one sample whatever the size of the data set.

The digest is the SHA-256 over the samples in order, and over the tensors of a sample in the order of their names: a
JSON list [name, dtype, shape], then the elements in C order. It does not depend on the file format.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.conformance import (
    check_announced,
    check_names,
    check_shapes_option,
    conform_arrays,
    count_nan,
    settle_declarations,
    sole_names,
)
from parityscope.case.formats import Stored, Streamed
from parityscope.case.formats.npz import open_npz, write_npz
from parityscope.case.generated import generate_inputs
from parityscope.case.sources import ReadingOptions, Stream, open_source
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from parityscope.case.model import Model

__all__ = ["MEMORY", "Inputs", "Sample", "load_inputs"]

MEMORY = 512 << 20  # bytes for tensors where nothing else is asked for (chosen; --memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One set of model inputs: `arrays` by input name, C-contiguous, in the dtype that the model declares.

    `index` counts from 0 over the data set; `name` is what a reader knows it by (a file name, "row 3 of x.npz");
    `original` is the image it was made from, if it was.
    """

    index: int
    name: str
    arrays: Mapping[str, np.ndarray]
    original: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A checked data set whose samples are read one at a time.

    `origin` says where it came from in words; `generated` that no real data was given; `seed` is the one it was
    generated with. `indices` are the samples that are judged, by their place in the data set; `skipped` lists those
    that are not (NaN in an input). Length and iteration are over the judged ones.
    """

    origin: str
    names: tuple[str, ...]
    sha256: str
    indices: tuple[int, ...]
    read: Callable[[int], Sample] = field(repr=False, compare=False)
    generated: bool = False
    seed: int | None = None
    skipped: tuple[Skip, ...] = ()

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.read, self.indices)

    def sample(self, index: int) -> Sample:
        """The sample at place `index` of the data set.

        Raises:
            IndexError: it is not one of `indices`.
            ParityError: its file has changed or gone since it was checked.
        """
        if index not in self.indices:
            raise IndexError(f"sample {index} is not judged or does not exist; take one of Inputs.indices")
        return self.read(index)


def load_inputs(
    model: Model,
    data: str | Path | Stream | None,
    *,
    spool: Path,
    samples: int | None = None,
    stacked: bool = False,
    preprocess: str = "",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    memory: int = MEMORY,
) -> Inputs:
    """The samples of `data`, or generated ones when it is None, each checked against what `model` declares.

    At most the first `samples` are taken (generated: that many, or one). `spool` is a folder for what can be read only
    once; it is made when it is needed and must stay as long as the result is used. `shapes` gives the shapes of raw
    blobs and of generated inputs by name, and is checked against any other data. No sample may take more than `memory` bytes.

    Raises:
        ParityError: the data cannot be read, does not fit the model or the memory, is empty, or has a NaN in every sample.
    """
    model = replace(model, inputs=settle_declarations(model.inputs))
    shapes = dict(shapes or {})
    check_shapes_option(model.inputs, shapes)
    if samples is not None and samples < 1:
        raise ParityError(f"{samples} samples cannot be judged", fix="use --samples 1 or more")
    source: Stored | Stream
    if isinstance(data, Stream):
        source = data
    elif data is None:
        source = generate_inputs(model, 1 if samples is None else samples, seed, shapes)
    else:
        source = open_source(
            model, data, ReadingOptions(stacked=stacked, preprocess=preprocess, shapes=shapes, memory=memory)
        )
    taken = _take_samples(model, source, shapes, spool, samples, memory)
    if not taken.labels:
        raise ParityError("there are no samples", where=source.origin, fix="give data with at least one sample")
    indices = tuple(index for index in range(len(taken.labels)) if index not in taken.skipped)
    if not indices:
        first = next(iter(taken.skipped.values()))
        raise ParityError(f"every sample has a NaN: {first.reason}", where=first.what, fix=first.fix)
    return Inputs(
        origin=source.origin + _describe_calls(model, taken.calls),
        names=tuple(value.name for value in model.inputs),
        sha256=taken.sha256,
        indices=indices,
        read=taken.read,
        generated=data is None,
        seed=seed if data is None else None,
        skipped=tuple(taken.skipped.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What the first pass found; `skipped` by sample index, `calls` what the data calls a sole input otherwise."""

    labels: tuple[str, ...]
    sha256: str
    skipped: Mapping[int, Skip]
    read: Callable[[int], Sample]
    calls: tuple[str, ...] = ()


def _take_samples(
    model: Model,
    source: Stored | Stream,
    shapes: Mapping[str, tuple[int, ...]],
    spool: Path,
    limit: int | None,
    memory: int,
) -> _Taken:
    digest = hashlib.sha256()
    labels: list[str] = []
    originals: list[Path | None] = []
    skipped: dict[int, Skip] = {}
    calls: set[str] = set()
    stored = source if isinstance(source, Stored) else None
    stream = _is_stored_in_order(model, source, memory) if isinstance(source, Stored) else source.samples
    for index, streamed in enumerate(itertools.islice(stream, limit if limit is None else min(limit, sys.maxsize))):
        where = _name_sample(index, streamed.label)
        renamed = sole_names(model.inputs, streamed.arrays)
        check_names(model.inputs, renamed, where)
        named = {own: streamed.arrays[its] for own, its in renamed.items()}
        arrays = conform_arrays(model.inputs, named, where, shapes)
        calls |= {its for own, its in renamed.items() if own != its}
        _add_to_digest(arrays, digest)
        if skip := _skip_of_nan(arrays, where):
            skipped[index] = skip
        if stored is None:
            write_npz(_spooled_path(spool, index), arrays)
        labels.append(streamed.label)
        originals.append(streamed.original)
    again = stored or open_npz([_spooled_path(spool, index) for index in range(len(labels))], source.origin)

    def read(index: int) -> Sample:
        names = sole_names(model.inputs, again.names(index))
        found = again.read(index, [names.get(value.name, value.name) for value in model.inputs])
        named = {own: found[its] for own, its in names.items() if its in found}
        arrays = conform_arrays(model.inputs, named, _name_sample(index, labels[index]), shapes)
        return Sample(index=index, name=labels[index], arrays=arrays, original=originals[index])

    return _Taken(
        labels=tuple(labels), sha256=digest.hexdigest(), skipped=skipped, read=read, calls=tuple(sorted(calls))
    )


def _is_stored_in_order(model: Model, stored: Stored, memory: int) -> Iterator[Streamed]:
    for index, label in enumerate(stored.labels):
        names, where = stored.names(index), _name_sample(index, label)
        renamed = sole_names(model.inputs, names)
        check_names(model.inputs, renamed, where)
        announced = stored.announced(index)
        told = {own: announced[its] for own, its in renamed.items() if its in announced}
        check_announced(model.inputs, told, where, memory)
        yield Streamed(label=label, arrays=stored.read(index, names))


def _describe_calls(model: Model, calls: tuple[str, ...]) -> str:
    """That a sole input was taken under another name: nothing is renamed silently."""
    return f", whose {' and '.join(map(repr, calls))} is taken as {model.inputs[0].name!r}" if calls else ""


def _spooled_path(spool: Path, index: int) -> Path:
    return spool / f"{index:06d}.npz"


def _name_sample(index: int, label: str) -> str:
    return f"sample {index} ({label})"


def _add_to_digest(arrays: Mapping[str, np.ndarray], digest: hashlib._Hash) -> None:
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)


def _skip_of_nan(arrays: Mapping[str, np.ndarray], where: str) -> Skip | None:
    told = [f"{name!r} holds {count} NaN" for name, array in arrays.items() if (count := count_nan(array))]
    if not told:
        return None
    return Skip(
        what=where,
        reason=f"{', '.join(told)}: whatever a deployment makes of it, it is no error of the deployment",
        fix="mend the data or leave the sample out",
        asked=True,
    )
