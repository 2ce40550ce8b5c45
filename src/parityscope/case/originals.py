"""Which image each sample was made from, where samples and images lie in different places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from parityscope.case.formats.folder import survey_folder
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case.inputs import Inputs, Sample


def with_originals(inputs: Inputs, folder: Path) -> Inputs:
    """`inputs` whose samples know their images in `folder`: by name without suffix, else in order if the counts agree.

    Raises:
        ParityError: the folder holds no images, or nothing says which image a sample was made from.
    """
    if not folder.is_dir():
        raise ParityError(
            f"there is no folder {folder}", fix="give the folder of the images that the samples were made from"
        )
    found = survey_folder(folder)
    if found.kind != "images":
        raise ParityError(
            f"{folder.name} holds {found.kind}, not images", where=str(folder), fix="give a folder of images"
        )
    stems = {path.stem: path for path in found.files}
    names = {sample.index: PurePath(sample.name).stem for sample in inputs}
    if all(name in stems for name in names.values()):
        paths = {index: stems[name] for index, name in names.items()}
    elif max(names) < len(found.files) and not any(name in stems for name in names.values()):
        paths = {index: found.files[index] for index in names}
    else:
        index = next(index for index, name in names.items() if name not in stems)
        raise ParityError(
            f"no image belongs to sample {index} ({names[index]})",
            where=str(folder),
            fix="give each image the name of its sample, or as many images as there are samples",
        )

    def read(index: int) -> Sample:
        return replace(inputs.read(index), original=paths.get(index))

    return replace(inputs, read=read)
