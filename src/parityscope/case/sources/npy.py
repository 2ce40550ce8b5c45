"""A folder of numpy's .npy: each a sample of a sole input, or a folder for each input with a file a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.npy import folders_of_tensors, open_npy, open_npy_folders
from parityscope.case.sources import DataSource, Indexed, index_stored
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    if folders := folders_of_tensors(named.path):
        stored = open_npy_folders(folders, f"{len(folders)} folders of .npy in {named.path}")
    elif len(named.inputs) == 1:
        stored = open_npy(named.files, named.words, named.inputs[0].name)
    else:
        names = ", ".join(value.name for value in named.inputs)
        raise ParityError(
            f"{named.path.name} holds one array a file, and the model takes {len(named.inputs)} inputs",
            where=str(named.path),
            fix=f"put the files of each input into a folder called like it ({names}), or write an .npz a sample",
        )
    return index_stored(stored, named.inputs, reading.memory)


SOURCE = DataSource(
    name="npy",
    words="a folder of .npy",
    open=_open,
    suffixes=frozenset({".npy"}),
    claims=lambda path: bool(folders_of_tensors(path)),
    rest=True,
)
