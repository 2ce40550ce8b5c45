"""A data set that Hugging Face's `datasets` saved (`save_to_disk`): its Arrow files, read with pyarrow; no code of it is run."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from parityscope.case.formats import unreadable_error
from parityscope.case.sources import DataSource, Indexed
from parityscope.case.sources.tables import open_tables
from parityscope.errors import ParityError
from parityscope.plain_documents import read_json_file

if TYPE_CHECKING:
    from parityscope.case.sources import Named, ReadingOptions

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_MOST_NBYTES = 16 << 20  # of what lists the files; chosen


def _claims(path: Path) -> bool:
    return path.is_dir() and ((path / _STATE).is_file() or (path / _SPLITS).is_file())


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    folder = named.path
    if not (folder / _STATE).is_file():
        splits = sorted(one.name for one in folder.iterdir() if (one / _STATE).is_file())
        raise ParityError(
            f"{folder.name} holds several splits: {', '.join(splits) or 'none'}",
            where=str(folder),
            fix=f"give one of them: {folder / splits[0]}" if splits else "save it again: dataset.save_to_disk(FOLDER)",
        )
    state = read_json_file(folder / _STATE, _STATE, limit=_MOST_NBYTES)
    try:
        names = [str(one["filename"]) for one in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise unreadable_error(folder / _STATE, f"it lists no files ({error})") from error
    if any(PurePath(name).name != name or name in {"", ".", ".."} for name in names):
        raise ParityError(
            "it names files outside its folder", where=str(folder / _STATE), fix="save the data set again"
        )
    return open_tables([folder / name for name in names], f"the data set {folder}", named, reading)


SOURCE = DataSource(
    name="saved_data_set", words="a saved data set", open=_open, claims=_claims, takes=frozenset({"preprocess"})
)
