"""DATA -> samples by tensor name: which kind it is, and the one interface behind which every kind lies.

A kind of data is one file of this folder whose last line is `SOURCE = DataSource(...)`. Outside packages add theirs through entry
points of the group `parityscope.case.sources`. What a source opens is `Indexed` where a sample can be read again at its
place, and a `Stream` where data can only be read once, from front to back; either way one sample is in memory at a time.

Names are recognised in this order: a loader `file.py:function`; what a source claims by what lies in it (a saved data set, COCO's
annotations); the suffix of a file; the suffixes of the files in a folder, which must be of one kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from parityscope.case.conformance import check_announced, check_names, sole_names
from parityscope.case.formats import Streamed
from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.loader import is_function, read_loader
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.case.formats import Stored
    from parityscope.case.model import Model
    from parityscope.records import Skip, ValueInfo

Option = Literal["stacked", "preprocess"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How DATA is to be read: stacked along axis 0, with which preprocessing, shapes for raw blobs, bytes for a sample."""

    stacked: bool
    preprocess: str
    shapes: Mapping[str, tuple[int, ...]]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Samples that can be read once, from front to back."""

    origin: str
    samples: Iterator[Streamed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """Samples that can be read one at a time, in any order, as often as wanted; front to back is the cheapest.

    `labels` are what a reader knows them by, one each. `prepared` says that reading one costs more than its bytes (a decoder, a
    preprocessing that may not give the same twice). `lost` are shards of `shards` that cannot be read at all.
    """

    origin: str
    labels: Sequence[str]
    read: Callable[[int], Streamed]
    prepared: bool = False
    shards: int = 0
    lost: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What DATA names: its path, the files of the kind in it (the path itself, for a file), and what the model takes."""

    path: Path
    files: tuple[Path, ...]
    inputs: tuple[ValueInfo, ...]

    @property
    def words(self) -> str:
        """Where the files lie, for a reader."""
        folder = self.path.is_dir()
        return f"{len(self.files)} {self.files[0].suffix.lower()} in {self.path}" if folder else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """A kind of data.

    `words` complete "DATA is ...". Files of these `suffixes` are of this kind, also in a folder; `rest` says that they count
    there only where no file of another kind lies (notes beside samples), `classes` that folders in a folder are classes of
    samples. `claims` looks into a file or folder that no suffix tells. `takes` are the options that mean something for it.
    """

    name: str
    words: str
    open: Callable[[Named, ReadingOptions], Indexed | Stream]
    suffixes: frozenset[str] = frozenset()
    claims: Callable[[Path], bool] = lambda _: False
    takes: frozenset[Option] = frozenset()
    rest: bool = False
    classes: bool = False


def data_sources() -> dict[str, DataSource]:
    """Every kind of data, by name."""
    return {one.name: one for one, _ in discover_plugins("parityscope.case.sources", "SOURCE", DataSource).values()}


def open_source(model: Model, data: str | Path, reading: ReadingOptions) -> Indexed | Stream:
    """The samples of `data`, not yet checked against the model.

    Raises:
        ParityError: there is no such file, it is of no kind that is known, or an option does not fit the kind.
    """
    if is_function(str(data)):
        _check_options(None, str(data), reading)
        return Stream(origin=f"the loader {data}", samples=read_loader(str(data)))
    path = Path(data)
    if not path.exists():
        raise ParityError(f"there is no {data}", fix="give a file, a folder, or a loader as file.py:function")
    if path.is_dir() and (path / "inputs").is_dir():
        path = path / "inputs"  # a recording: inputs and outputs side by side
    known = data_sources()
    source, files = _recognise(path, known)
    _check_options(source, str(data), reading)
    return source.open(Named(path=path, files=files, inputs=tuple(model.inputs)), reading)


def index_stored(stored: Stored, inputs: Sequence[ValueInfo], memory: int) -> Indexed:
    """Files of arrays, whose names and sizes are held against the model before an element is read."""

    def read(index: int) -> Streamed:
        label = stored.labels[index]
        names, where = stored.names(index), f"sample {index} ({label})"
        renamed = sole_names(inputs, names)
        check_names(inputs, renamed, where)
        announced = stored.announced(index)
        told = {own: announced[its] for own, its in renamed.items() if its in announced}
        check_announced(inputs, told, where, memory)
        return Streamed(label=label, arrays=stored.read(index, names))

    return Indexed(origin=stored.origin, labels=stored.labels, read=read)


def refuse_unprepared(named: Named, reading: ReadingOptions, holds: str, takes: str) -> None:
    """Raises where nothing says how the model wants what `holds` says; a function of the user's `takes` that.

    Raises:
        ParityError: there is no preprocessing.
    """
    if not reading.preprocess:
        raise ParityError(
            f"{named.path.name} holds {holds}, and nothing says how the model wants them",
            where=str(named.path),
            fix=f"add --preprocess file.py:function: {takes} -> arrays by input name",
        )


def _recognise(path: Path, known: Mapping[str, DataSource]) -> tuple[DataSource, tuple[Path, ...]]:
    claimed = next((one for one in known.values() if one.claims(path)), None)
    if claimed is not None:
        return claimed, (path,)
    suffixes = {suffix: one.name for one in known.values() for suffix in one.suffixes}
    if not path.is_dir():
        name = suffixes.get(path.suffix.lower())
        if name is None or name in _FOLDERS_ONLY:
            raise _unknown_kind(path)
        return known[name], (path,)
    rest, classes = (
        frozenset(one.name for one in known.values() if getattr(one, kind)) for kind in ("rest", "classes")
    )
    found = survey_folder(path, suffixes, rest=rest, classes=classes)
    return known[found.kind], found.files


_FOLDERS_ONLY = frozenset({"npy", "raw"})  # one alone does not say whether it is a sample or holds many


def _unknown_kind(path: Path) -> ParityError:
    match path.suffix.lower():
        case ".py":
            fix = f"name the function that yields samples: {path}:FUNCTION"
        case ".npy":
            fix = f"say which input it is: np.savez('{path.stem}.npz', INPUT=np.load('{path.name}'))"
        case ".gz" | ".tgz":
            fix = "unpack it (gunzip): samples are read at their places in a plain .tar"
        case _:
            fix = (
                "give an .npz, .safetensors, .parquet, .arrow, .tar, .txt, .jsonl or Polygraphy .json, a folder of those, "
                "of images or of .wav, or file.py:function"
            )
    return ParityError(f"{path.name} is of no kind of data that can be read", where=str(path), fix=fix)


def _check_options(source: DataSource | None, data: str, reading: ReadingOptions) -> None:
    kind, takes = ("a loader", frozenset[Option]()) if source is None else (source.words, source.takes)
    if reading.preprocess and "preprocess" not in takes:
        raise ParityError(
            f"preprocessing is for a folder of images, of sounds or of texts, and for rows; {data} is {kind}",
            fix="leave --preprocess out, or give what is not yet prepared",
        )
    if reading.stacked and "stacked" not in takes:
        raise ParityError(f"only .npz and .safetensors can be stacked, and {data} is {kind}", fix="leave --stacked out")
