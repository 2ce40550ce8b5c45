"""What kind of samples a folder holds, by the names of the files in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from parityscope.case.formats import unreadable_error
from parityscope.case.formats.debug_tensors import SUMMARY
from parityscope.case.formats.images import IMAGE_SUFFIXES
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Kind", "Survey", "survey_folder"]

Kind = Literal["npz", "safetensors", "json", "images", "raw"]

_SUFFIXES: dict[str, Kind] = {
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".json": "json",
    ".bin": "raw",
    ".raw": "raw",
}
# The recorder and the `command` backend put the first beside the samples, `parityscope doctor` the second, trtexec the last.
_NOT_SAMPLES = frozenset({"manifest.json", "environment.json", SUMMARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The kind of a folder, and its files of that kind in the order of their names."""

    kind: Kind
    files: tuple[Path, ...]


def survey_folder(folder: Path) -> Survey:
    """Looks at `folder`: hidden files and files of no known kind are not samples.

    Raises:
        ParityError: there are no samples in it, or samples of two kinds.
    """
    found: dict[Kind, list[Path]] = {}
    try:
        listed = sorted(folder.iterdir())
    except OSError as error:
        raise unreadable_error(folder, error) from error
    for path in listed:
        if not path.name.startswith(".") and path.name not in _NOT_SAMPLES and (kind := _kind_of_file(path)):
            found.setdefault(kind, []).append(path)
    if len(found) > 1:
        told = ", ".join(f"{files[0].name} ({kind})" for kind, files in found.items())
        raise ParityError(
            f"{folder.name} holds samples of {len(found)} kinds: {told}",
            where=str(folder),
            fix="give a folder with the files of one kind",
        )
    if not found and (folder / SUMMARY).is_file():
        raise ParityError(
            f"{folder.name} holds trtexec's debug tensors and no outputs",
            where=str(folder),
            fix="run trtexec again with --dumpRawBindingsToFile beside --saveAllDebugTensors=summary,numpy",
        )
    if not found:
        raise ParityError(
            f"there are no samples in {folder.name}",
            where=str(folder),
            fix="give a folder of .npz, .safetensors, .json (Polygraphy), .bin or .raw files, or images",
        )
    ((kind, files),) = found.items()
    return Survey(kind=kind, files=tuple(files))


def _kind_of_file(path: Path) -> Kind | None:
    if path.name.isdigit() and path.is_dir():
        return "raw"
    suffix = path.suffix.lower()
    return "images" if suffix in IMAGE_SUFFIXES else _SUFFIXES.get(suffix)
