"""What an answer becomes on disk: a file whose ending says its form, or a folder that keeps its data and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.report.forms import format_of_file
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.report.forms import Forms


def is_file_name(place: Path) -> bool:
    """Whether a name means a file, by its ending; else it means a folder."""
    return bool(format_of_file(place))


def refuse_file(path: Path) -> None:
    """Refuses a file that is there already.

    Raises:
        ParityError: it is, or there is no folder that it could lie in.
    """
    if path.exists() or path.is_symlink():
        raise ParityError(f"{path} exists already", where=str(path), fix="choose another name, or remove it")
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix=f"mkdir -p {path.parent}")


def write_file(forms: Forms, document: Mapping[str, Any], path: Path) -> None:
    """Writes a document in the form that the file's ending says.

    Raises:
        ParityError: such documents have no form of that ending.
    """
    if path.suffix not in forms.endings:
        fix = f"use one of: {', '.join(forms.endings)}"
        raise ParityError(f"{forms.title} cannot be written as {path.name}", where=str(path), fix=fix)
    write_whole(path, forms.render(document, format_of_file(path)))


def write_folder(forms: Forms, document: Mapping[str, Any], folder: Path) -> None:
    """Writes the data and the page into a new folder, as studies have them.

    Raises:
        ParityError: the folder is there already, or cannot be written.
    """
    from parityscope.study import prepare_folder, write_study

    with prepare_folder(folder) as scratch:
        write_study(scratch, document, forms.as_html)


def write_study_file(document: Mapping[str, Any], path: Path) -> None:
    """Writes a study's document, whose files are named from here, in the form that the file's ending says.

    Raises:
        ParityError: no renderer has that ending.
    """
    from parityscope.report import renderer_for

    write_whole(path, renderer_for(path.name).render(document).rstrip("\n") + "\n")
