"""What kind of samples a folder holds, by the names of the files in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats import unreadable_error
from parityscope.case.formats.debug_tensors import SUMMARY
from parityscope.case.formats.images import IMAGE_SUFFIXES
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

_SUFFIXES: Mapping[str, str] = {
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".json": "json",
    ".bin": "raw",
    ".npy": "npy",
    ".raw": "raw",
    **dict.fromkeys(IMAGE_SUFFIXES, "images"),
}
# The recorder and the `command` backend put the first beside the samples, `parityscope doctor` the second, trtexec the last.
_NOT_SAMPLES = frozenset({"manifest.json", "environment.json", SUMMARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The kind of a folder, and its files of that kind in the order of their names."""

    kind: str
    files: tuple[Path, ...]


def survey_folder(
    folder: Path,
    suffixes: Mapping[str, str] = _SUFFIXES,
    *,
    rest: AbstractSet[str] = frozenset(),
    classes: AbstractSet[str] = frozenset(),
) -> Survey:
    """Looks at `folder`: hidden files and files of no known kind are not samples.

    `suffixes` say what kind a file is; files of the kinds in `rest` count where there are no others. Where the folder holds
    folders alone, those may hold samples of the kinds in `classes`.

    Raises:
        ParityError: there are no samples in it, or samples of two kinds.
    """
    listed = _list_folder(folder)
    found = _files_by_kind(listed, suffixes)
    if (folder / SUMMARY).is_file():
        found.pop("npy", None)
    if not found and classes:
        inner = [
            path for each in listed if each.is_dir() and not each.name.startswith(".") for path in _list_folder(each)
        ]
        found = {kind: files for kind, files in _files_by_kind(inner, suffixes).items() if kind in classes}
    if len(found) > 1:
        found = {kind: files for kind, files in found.items() if kind not in rest} or found
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
            fix=f"give a folder of images, or of {', '.join(sorted(set(suffixes) - IMAGE_SUFFIXES))}",
        )
    ((kind, files),) = found.items()
    return Survey(kind=kind, files=tuple(files))


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise unreadable_error(folder, error) from error


def _files_by_kind(paths: list[Path], suffixes: Mapping[str, str]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        if path.name.startswith(".") or path.name in _NOT_SAMPLES:
            continue
        numbered = path.name.isdigit() and path.is_dir() and _SUFFIXES[".raw"] in suffixes.values()
        kind = "raw" if numbered and _holds_blobs(path) else suffixes.get(path.suffix.lower())
        if kind:
            found.setdefault(kind, []).append(path)
    return found


def _holds_blobs(folder: Path) -> bool:
    """Whether a numbered folder is a sample of raw blobs; such may be the name of a class, too."""
    return not any(path.suffix.lower() in IMAGE_SUFFIXES for path in _list_folder(folder))
