"""DATA -> samples, checked against what the model declares.

One pass over all samples checks each of them (`case.conformance`), finds NaN, and takes a digest; afterwards samples
are read one at a time. What can be read only once (loaders, iterables) is spooled in that pass, and so is what took a decoder
or a preprocessing, up to a limit (`case.spooling`); memory stays at about one sample whatever the size of the data set. A
sample that is damaged is left out, and told.

The digest is the SHA-256 over the samples in order, and over the tensors of a sample in the order of their names: a
JSON list [name, dtype, shape], then the elements in C order. It does not depend on the file format.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.conformance import (
    check_names,
    check_shapes_option,
    conform_arrays,
    count_nan,
    settle_declarations,
    sole_names,
)
from parityscope.case.formats import NO_ARRAYS, UnreadableError
from parityscope.case.generated import generate_inputs
from parityscope.case.sources import Indexed, ReadingOptions, Stream, index_stored, open_source
from parityscope.case.spooling import MOST_SPOOLED, Sample, Spool
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from parityscope.case.formats import Alike, Streamed
    from parityscope.case.model import Model

__all__ = ["MEMORY", "Inputs", "Sample", "load_inputs"]

_TRUTHS_NBYTES, _TRUTH_NBYTES = 32 << 20, 600  # kept of all samples; of one, beside its elements (measured)
MEMORY = 512 << 20  # bytes for tensors where nothing else is asked for (chosen; --memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A checked data set whose samples are read one at a time.

    `origin` says where it came from in words; `generated` that no real data was given; `seed` is the one it was
    generated with. `truths` gives what is right for a sample, where the data says so. `indices` are the samples that are
    judged, by their place in the data set; `skipped` lists those that are not (NaN in an input), `damaged` the samples and
    shards that could not be read, `count` is the number of samples with all of them. Length and iteration are over the judged
    ones.
    """

    origin: str
    names: tuple[str, ...]
    sha256: str
    indices: tuple[int, ...]
    read: Callable[[int], Sample] = field(repr=False, compare=False)
    generated: bool = False
    seed: int | None = None
    skipped: tuple[Skip, ...] = ()
    damaged: tuple[Skip, ...] = ()
    count: int = 0
    truths: Callable[[int], Mapping[str, np.ndarray]] = field(default=lambda _: NO_ARRAYS, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.read, self.indices)

    @property
    def not_judged(self) -> tuple[Skip, ...]:
        """What is told of the samples that are not judged: the first ones of each kind by name, of the others how many."""
        return (*_shorten_list(self.damaged, "cannot be read"), *_shorten_list(self.skipped, "hold a NaN"))

    def sample(self, index: int) -> Sample:
        """The sample at place `index` of the data set.

        Raises:
            IndexError: it is not one of `indices`.
            ParityError: its file has changed or gone since it was checked.
        """
        if index not in self.indices:
            raise IndexError(f"sample {index} is not judged or does not exist; take one of Inputs.indices")
        return self.read(index)


_LISTED = 20  # samples that are named in a report; chosen: whoever has more looks for what they have in common


def _shorten_list(skips: tuple[Skip, ...], what: str) -> tuple[Skip, ...]:
    if len(skips) <= _LISTED:
        return skips
    rest = skips[_LISTED:]
    more = Skip(what=f"{len(rest)} more samples", reason=f"they {what}", fix=rest[0].fix, asked=rest[0].asked)
    return (*skips[:_LISTED], more)


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
    allow_skipped: float = 0.0,
) -> Inputs:
    """The samples of `data`, or generated ones when it is None, each checked against what `model` declares.

    At most the first `samples` are taken (generated: that many, or one). `spool` is a folder for what can be read only
    once; it is made when it is needed and must stay as long as the result is used. `shapes` gives the shapes of raw
    blobs and of generated inputs by name, and is checked against any other data. No sample may take more than `memory` bytes.
    Samples that are damaged or hold a NaN are left out; up to the share `allow_skipped` of all that is no matter for the verdict.

    Raises:
        ParityError: the data cannot be read, does not fit the model or the memory, is empty, or has a NaN in every sample.
    """
    model = replace(model, inputs=settle_declarations(model.inputs))
    shapes = dict(shapes or {})
    check_shapes_option(model.inputs, shapes)
    if samples is not None and samples < 1:
        raise ParityError(f"{samples} samples cannot be judged", fix="use --samples 1 or more")
    source: Indexed | Stream
    if isinstance(data, Stream):
        source = data
    elif data is None:
        made = generate_inputs(model, 1 if samples is None else samples, seed, shapes)
        source = index_stored(made, model.inputs, memory)
    else:
        source = open_source(
            model, data, ReadingOptions(stacked=stacked, preprocess=preprocess, shapes=shapes, memory=memory)
        )
    taken = _take_samples(model, source, _Taking(shapes=shapes, spool=spool, limit=samples, memory=memory))
    lost, shards = (source.lost, source.shards) if isinstance(source, Indexed) else ((), 0)
    if not taken.count:
        told = f": {lost[0].what}: {lost[0].reason}" if lost else ""
        raise ParityError(f"there are no samples{told}", where=source.origin, fix="give data with at least one sample")
    left = {**taken.damaged, **taken.skipped}
    indices = tuple(index for index in range(taken.count) if index not in left)
    if not indices:
        first = left[min(left)]
        every = "every sample has a NaN" if taken.skipped else "no sample can be read"
        raise ParityError(f"{every}: {first.reason}", where=first.what, fix=first.fix)
    share = max(len(left) / taken.count, len(lost) / max(1, shards))
    asked = share > allow_skipped
    return Inputs(
        origin=source.origin + _describe_calls(model, taken.calls),
        names=tuple(value.name for value in model.inputs),
        sha256=taken.sha256,
        indices=indices,
        read=taken.read,
        generated=data is None,
        seed=seed if data is None else None,
        skipped=tuple(replace(skip, asked=asked) for skip in taken.skipped.values()),
        damaged=tuple(replace(skip, asked=asked) for skip in (*lost, *taken.damaged.values())),
        count=taken.count,
        truths=taken.truths,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taking:
    """How samples are taken: demands on `shapes`, the folder for what is read once, at most `limit`, bytes for one."""

    shapes: Mapping[str, tuple[int, ...]]
    spool: Path
    limit: int | None
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What the first pass found.

    `damaged` and `skipped` (a NaN) by sample index, `calls` what the data calls a sole input otherwise.
    """

    count: int
    sha256: str
    damaged: Mapping[int, Skip]
    skipped: Mapping[int, Skip]
    read: Callable[[int], Sample]
    truths: Callable[[int], Mapping[str, np.ndarray]]
    calls: tuple[str, ...] = ()


def _take_samples(model: Model, source: Indexed | Stream, taking: _Taking) -> _Taken:
    digest = hashlib.sha256()
    damaged: dict[int, Skip] = {}
    skipped: dict[int, Skip] = {}
    calls: set[str] = set()
    spool = Spool(taking.spool)
    seen: dict[int, bytes] = {}  # of what is prepared again when it is read again
    told: dict[int, Mapping[str, np.ndarray]] = {}
    left = _TRUTHS_NBYTES
    count = 0
    conform = _Conforming(model=model, shapes=taking.shapes)
    for index, streamed in _read_in_order(source, taking.limit, damaged):
        count = index + 1
        if streamed is None:
            continue
        sample = conform.sample(index, streamed)
        calls |= {its for own, its in conform.renamed.items() if own != its}
        add_to_digest(sample.arrays, digest)
        left -= _TRUTH_NBYTES + sum(array.nbytes for array in sample.truths.values())
        if left > 0:
            told[index] = {
                name: array.copy() for name, array in sample.truths.items()
            }  # not views of what was read at once
        if (streamed.alike is None or streamed.alike.nan) and (skip := _skip_of_nan(sample)):
            skipped[index] = skip
        if isinstance(source, Stream) or (source.prepared and spool.nbytes < MOST_SPOOLED):
            spool.keep(sample)
        elif source.prepared:
            seen[index] = _short_digest(sample.arrays)

    def read(index: int) -> Sample:
        if index in spool.kept:
            return conform.sample(index, spool.read(index))
        if isinstance(source, Stream):  # all of it was kept
            raise IndexError(index)
        sample = conform.sample(index, source.read(index))
        if index in seen and seen[index] != _short_digest(sample.arrays):
            raise ParityError(
                f"sample {index} is another than when it was checked",
                where=sample.name,
                fix="leave the data alone while it is read; let the preprocessing give the same each time (a seed)",
            )
        return sample

    return _Taken(
        count=count,
        sha256=digest.hexdigest(),
        damaged=damaged,
        skipped=skipped,
        read=read,
        truths=lambda index: told[index] if index in told else read(index).truths,
        calls=tuple(sorted(calls)),
    )


def _read_in_order(
    source: Indexed | Stream, limit: int | None, damaged: dict[int, Skip]
) -> Iterator[tuple[int, Streamed | None]]:
    """Index and sample; None for one that cannot be read, which is noted in `damaged`."""
    if isinstance(source, Stream):
        yield from enumerate(itertools.islice(source.samples, limit if limit is None else min(limit, sys.maxsize)))
        return
    for index in range(len(source.labels) if limit is None else min(limit, len(source.labels))):
        try:
            streamed = source.read(index)
        except UnreadableError as error:
            if len(source.labels) == 1:
                raise
            where = _name_sample(index, source.labels[index])
            damaged[index] = Skip(what=where, reason=error.problem, fix=error.fix, asked=True)
            yield index, None
            continue
        yield index, streamed


@dataclass(slots=True, kw_only=True)
class _Conforming:
    """Samples under the model's names, checked; of those that are alike one. `renamed` are the last one's own names."""

    model: Model
    shapes: Mapping[str, tuple[int, ...]]
    renamed: Mapping[str, str] = field(default_factory=dict)
    alike: Alike | None = None

    def sample(self, index: int, streamed: Streamed) -> Sample:
        """The sample.

        Raises:
            ParityError: it is not as the model declares it.
        """
        declared = self.model.inputs
        if streamed.alike is None or streamed.alike is not self.alike:
            self.alike = None
            where = _name_sample(index, streamed.label)
            self.renamed = sole_names(declared, streamed.arrays)
            check_names(declared, self.renamed, where)
            named = {own: streamed.arrays[its] for own, its in self.renamed.items()}
            arrays = conform_arrays(declared, named, where, self.shapes)
            if all(array is named[name] for name, array in arrays.items()):
                self.alike = streamed.alike
        else:
            arrays = {value.name: streamed.arrays[self.renamed[value.name]] for value in declared}
        return Sample(
            index=index, name=streamed.label, arrays=arrays, original=streamed.original, truths=streamed.truths
        )


def _short_digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    found = hashlib.blake2b(digest_size=8)
    add_to_digest(arrays, found)
    return found.digest()


def _describe_calls(model: Model, calls: tuple[str, ...]) -> str:
    """That a sole input was taken under another name: nothing is renamed silently."""
    return f", whose {' and '.join(map(repr, calls))} is taken as {model.inputs[0].name!r}" if calls else ""


def _name_sample(index: int, label: str) -> str:
    return f"sample {index} ({label})"


@functools.lru_cache(maxsize=1024)
def _digest_head(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return json.dumps([name, dtype.name, list(shape)]).encode()


def add_to_digest(arrays: Mapping[str, np.ndarray], digest: hashlib._Hash | hashlib.blake2b) -> None:
    """Adds a sample: its tensors in the order of their names."""
    for name, array in sorted(arrays.items()):
        digest.update(_digest_head(name, array.dtype, array.shape))
        digest.update(array.reshape(-1).view(np.uint8).data)


def _skip_of_nan(sample: Sample) -> Skip | None:
    told = [f"{name!r} holds {count} NaN" for name, array in sample.arrays.items() if (count := count_nan(array))]
    if not told:
        return None
    return Skip(
        what=_name_sample(sample.index, sample.name),
        reason=f"{', '.join(told)}: whatever a deployment makes of it, it is no error of the deployment",
        fix="mend the data or leave the sample out",
        asked=True,
    )
