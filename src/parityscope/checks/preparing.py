"""Two preprocessings compared without a model: what `parityscope preprocessing` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.images import read_image
from parityscope.checks.preprocessing.parting import Parting, StageResult, compare_preprocessings, stages_of
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case.formats.loader import UserFunction

__all__ = ["Parting", "StageResult", "compare_files"]


def compare_files(
    reference: str | UserFunction, candidate: str | UserFunction, folder: Path, count: int | None = None
) -> Parting:
    """Both preprocessings (`file.py:function`, `file.toml` or a function) on the first `count` images of a folder.

    Raises:
        ParityError: the folder holds no images, one cannot be read, or a preprocessing is missing or fails.
    """
    if not folder.is_dir():
        raise ParityError(f"there is no folder {folder}", fix="give the folder of the images")
    found = survey_folder(folder)
    if found.kind != "images":
        raise ParityError(
            f"{folder.name} holds {found.kind}, not images", where=str(folder), fix="give a folder of images"
        )
    pictures = ((path.name, read_image(path)) for path in found.files[:count])
    return compare_preprocessings(stages_of(reference), stages_of(candidate), pictures)
