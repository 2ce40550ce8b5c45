"""DATA -> samples, checked against what the model declares.

One pass over all samples checks each of them (`case.conformance`), finds NaN, and takes a digest; afterwards samples
are read one at a time. What can be read only once (loaders, iterables) is spooled in that pass, and so is what took a decoder
or a preprocessing, up to a limit (`case.spooling`); memory stays at about one sample whatever the size of the data set. A few
small samples are read once more and then kept: experiments ask for them a hundred times. A sample that is damaged is left out,
and told.

The digest is the SHA-256 over the samples in order, and over the tensors of a sample in the order of their names: a
JSON list [name, dtype, shape], then the elements in C order. It does not depend on the file format.

Where samples are drawn until something is sure, none is read before it is drawn (`Drawn`); the digest is then the SHA-256 over
those of the samples that were taken, in the order of their places.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any, Protocol

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
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from parityscope.case.formats import Alike, Streamed
    from parityscope.case.model import Model

__all__ = ["MEMORY", "Inputs", "Sample", "load_inputs"]

_TRUTHS_NBYTES, _TRUTH_NBYTES = 32 << 20, 600  # kept of all samples; of one, beside its elements (measured)
# What a sample takes in memory beside its elements, and bytes of samples that are kept once they were read again. Chosen: three
# images of 224 x 224 in three colours and FP32; of larger ones a network computes longer than they are read.
_SAMPLE_NBYTES = 2 << 10
_KEPT_NBYTES = 3 * (224 * 224 * 3 * 4 + _SAMPLE_NBYTES)
MEMORY = 512 << 20  # bytes for tensors where nothing else is asked for (chosen; --memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A checked data set whose samples are read one at a time.

    `origin` says where it came from in words; `generated` that no real data was given; `seed` is the one it was
    generated with. `truths` gives what is right for a sample, where the data says so. `indices` are the samples that are
    judged, by their place in the data set; `skipped` lists those that are not (NaN in an input), `damaged` the samples and
    shards that could not be read, `count` is the number of samples with all of them. Length and iteration are over the judged
    ones. With `drawn` nothing is known of a sample yet that was not checked there, and `settle` says what was taken.
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
    drawn: Drawn | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        return self.samples(self.indices)

    @property
    def not_judged(self) -> tuple[Skip, ...]:
        """What is told of the samples that are not judged: the first ones of each kind by name, of the others how many."""
        return (*_shorten_list(self.damaged, "cannot be read"), *_shorten_list(self.skipped, "hold a NaN"))

    def samples(self, indices: Sequence[int]) -> Iterator[Sample]:
        """Those of the samples at `indices` that can be judged; what is drawn is checked by this."""
        return map(self.read, indices if self.drawn is None else self.drawn.check(indices))

    def settle(self, taken: Sequence[int]) -> Inputs:
        """The inputs of which the samples `taken` were drawn and no others.

        Raises:
            ParityError: none of them can be judged.
        """
        if self.drawn is None:
            return replace(self, indices=tuple(taken))
        found = self.drawn.found(taken)
        return replace(
            self, drawn=None, indices=found.indices, sha256=found.sha256, skipped=found.skipped, damaged=found.damaged
        )

    def sample(self, index: int) -> Sample:
        """The sample at place `index` of the data set.

        Raises:
            IndexError: it is not one of `indices`.
            ParityError: its file has changed or gone since it was checked.
        """
        if index not in self.indices:
            raise IndexError(f"sample {index} is not judged or does not exist; take one of Inputs.indices")
        return self.read(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSamples:
    """What became of samples that were drawn, as in `Inputs`."""

    indices: tuple[int, ...]
    sha256: str
    skipped: tuple[Skip, ...]
    damaged: tuple[Skip, ...]


class Drawn(Protocol):
    """Samples that are read when they are drawn."""

    def check(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Reads samples and gives those that can be judged."""

    def found(self, taken: Sequence[int]) -> DrawnSamples:
        """What became of those that were taken."""


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
    draw: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None,
) -> Inputs:
    """The samples of `data`, or generated ones when it is None, each checked against what `model` declares.

    At most the first `samples` are taken (generated: that many, or one). `spool` is a folder for what can be read only
    once; it is made when it is needed and must stay as long as the result is used. `shapes` gives the shapes of raw
    blobs and of generated inputs by name, and is checked against any other data. No sample may take more than `memory` bytes.
    Samples that are damaged or hold a NaN are left out; up to the share `allow_skipped` of all that is no matter for the verdict.
    `draw` says in which order they are taken; those that can be read in any order are then read when they are drawn.

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
    reading = _FirstReading(
        source=source, conform=_Conforming(model=model, shapes=shapes), spool=Spool(spool), allowed=allow_skipped
    )
    if draw is not None and isinstance(source, Indexed):
        reading.digests = {}
        count = _first_of(source, samples)
        if not count:
            raise _no_samples(source.origin, source.lost, ())
        reading.check(range(1))  # what it is called and what it lacks is told before a side is opened
        # Nothing that was found before is taken for what these samples give: they may be others.
        found = DrawnSamples(indices=tuple(range(count)), sha256=uuid.uuid4().hex, skipped=(), damaged=())
    else:
        count = reading.read_all(samples)
        found = reading.found(range(count))
    return Inputs(
        origin=source.origin + _describe_calls(model, tuple(sorted(reading.calls))),
        names=tuple(value.name for value in model.inputs),
        sha256=found.sha256,
        indices=found.indices if draw is None else draw(found.indices),
        read=reading.read,
        generated=data is None,
        seed=seed if data is None else None,
        skipped=found.skipped,
        damaged=found.damaged,
        count=count,
        truths=reading.truths,
        drawn=None if reading.digests is None else reading,
    )


@dataclass(slots=True, kw_only=True)
class _FirstReading:
    """What the first reading of samples finds, and how they are read again.

    `damaged` and `skipped` (a NaN) by sample index, `calls` what the data calls a sole input otherwise, `allowed` the share of
    samples that may be either; `digests` are those of samples that are drawn, None where all are read in order.
    """

    source: Indexed | Stream
    conform: _Conforming
    spool: Spool
    allowed: float
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    digests: dict[int, bytes] | None = None
    damaged: dict[int, Skip] = field(default_factory=dict)
    skipped: dict[int, Skip] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)
    seen: dict[int, bytes] = field(default_factory=dict)  # of what is prepared again when it is read again
    told: dict[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    left: int = _TRUTHS_NBYTES
    kept: dict[int, Sample] = field(default_factory=dict)
    room: int = _KEPT_NBYTES

    def read_all(self, most: int | None) -> int:
        """Reads the samples in order, at most so many, and says how many there are."""
        if isinstance(self.source, Indexed):
            count = _first_of(self.source, most)
            for index in range(count):
                self._read_first(self.source, index)
            return count
        count = 0
        for streamed in itertools.islice(self.source.samples, most if most is None else min(most, sys.maxsize)):
            self._take(count, streamed)
            count += 1
        return count

    def check(self, indices: Sequence[int]) -> tuple[int, ...]:
        """As `Drawn`: reads those that were not read yet."""
        if self.digests is not None and isinstance(self.source, Indexed):
            for index in indices:
                if index not in self.digests and index not in self.damaged:
                    self._read_first(self.source, index)
        return tuple(index for index in indices if index not in self.damaged and index not in self.skipped)

    def found(self, taken: Sequence[int]) -> DrawnSamples:
        """As `Drawn`, and for samples that were read in order.

        Raises:
            ParityError: none of them can be judged.
        """
        self.check(taken)  # what a worker read is not known here
        damaged = [self.damaged[index] for index in taken if index in self.damaged]
        skipped = [self.skipped[index] for index in taken if index in self.skipped]
        lost, shards = (self.source.lost, self.source.shards) if isinstance(self.source, Indexed) else ((), 0)
        left = {**self.damaged, **self.skipped}
        indices = tuple(index for index in taken if index not in left)
        if not indices:
            raise _no_samples(self.source.origin, lost, [left[index] for index in taken], nan=bool(skipped))
        asked = max((len(taken) - len(indices)) / len(taken), len(lost) / max(1, shards)) > self.allowed
        digest = self.digest
        if self.digests is not None:
            digest = hashlib.sha256(b"".join(self.digests[index] for index in taken if index in self.digests))
        return DrawnSamples(
            indices=indices,
            sha256=digest.hexdigest(),
            skipped=tuple(replace(skip, asked=asked) for skip in skipped),
            damaged=tuple(replace(skip, asked=asked) for skip in (*lost, *damaged)),
        )

    def read(self, index: int) -> Sample:
        """A sample again, in arrays of its own.

        Raises:
            ParityError: it has changed or gone since it was checked.
        """
        if index in self.kept:
            return _copy_sample(self.kept[index])
        sample = self._read_again(index)
        nbytes = _SAMPLE_NBYTES + sum(array.nbytes for array in sample.arrays.values())
        texts = any(array.dtype.hasobject for array in sample.arrays.values())  # of any length
        if nbytes <= self.room and not texts:
            self.room -= nbytes
            self.kept[index] = _copy_sample(sample)
        return sample

    def _read_again(self, index: int) -> Sample:
        if index in self.spool.kept:
            return self.conform.sample(index, self.spool.read(index))
        if isinstance(self.source, Stream):  # all of it was kept
            raise IndexError(index)
        sample = self.conform.sample(index, self.source.read(index))
        if index in self.seen and self.seen[index] != _short_digest(sample.arrays):
            raise ParityError(
                f"sample {index} is another than when it was checked",
                where=sample.name,
                fix="leave the data alone while it is read; let the preprocessing give the same each time (a seed)",
            )
        return sample

    def truths(self, index: int) -> Mapping[str, np.ndarray]:
        """What is right for a sample."""
        return self.told[index] if index in self.told else self.read(index).truths

    def _read_first(self, source: Indexed, index: int) -> None:
        """Reads a sample for the first time; one that cannot be read is noted."""
        try:
            streamed = source.read(index)
        except UnreadableError as error:
            if len(source.labels) == 1:
                raise
            where = _name_sample(index, source.labels[index])
            self.damaged[index] = Skip(what=where, reason=error.problem, fix=error.fix, asked=True)
            return
        self._take(index, streamed)

    def _take(self, index: int, streamed: Streamed) -> None:
        sample = self.conform.sample(index, streamed)
        self.calls |= {its for own, its in self.conform.renamed.items() if own != its}
        if self.digests is None:
            add_to_digest(sample.arrays, self.digest)
        else:
            alone = hashlib.sha256()
            add_to_digest(sample.arrays, alone)
            self.digests[index] = alone.digest()
        self.left -= _TRUTH_NBYTES + sum(array.nbytes for array in sample.truths.values())
        if self.left > 0:  # copies, not views of what was read at once
            self.told[index] = {name: array.copy() for name, array in sample.truths.items()}
        if (streamed.alike is None or streamed.alike.nan) and (skip := _skip_of_nan(sample)):
            self.skipped[index] = skip
        prepared = isinstance(self.source, Indexed) and self.source.prepared
        if isinstance(self.source, Stream) or (prepared and self.spool.nbytes < MOST_SPOOLED):
            self.spool.keep(sample)
        elif prepared:
            self.seen[index] = _short_digest(sample.arrays)


def _first_of(source: Indexed, most: int | None) -> int:
    return len(source.labels) if most is None else min(most, len(source.labels))


def _no_samples(origin: str, lost: Sequence[Skip], left: Sequence[Skip], *, nan: bool = False) -> ParityError:
    """The error where no sample can be judged: `left` are those that are there, of which some hold a NaN or none does."""
    if not left:
        told = f": {lost[0].what}: {lost[0].reason}" if lost else ""
        return ParityError(f"there are no samples{told}", where=origin, fix="give data with at least one sample")
    first = left[0]
    every = "nothing could be compared: every sample has a NaN" if nan else "no sample can be read"
    return ParityError(f"{every}: {first.reason}", where=first.what, fix=first.fix, incomparable=nan)


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


def _copy_sample(sample: Sample) -> Sample:
    """The same sample: whoever has it may change its arrays."""
    arrays = {name: array.copy() for name, array in sample.arrays.items()}
    return replace(sample, arrays=arrays)


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
    """Adds a sample: its tensors, of any type and layout, in the order of their names."""
    for name, array in sorted(arrays.items()):
        digest.update(_digest_head(name, array.dtype, array.shape))
        flat = np.ascontiguousarray(array).reshape(-1)
        digest.update(repr(flat.tolist()).encode() if array.dtype == object else flat.view(np.uint8).data)


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
