"""DATA -> samples by tensor name: which format it is, and the functions that read it.

DATA is an .npz, a folder of .npz, a .safetensors or a folder of them, Polygraphy's saved inputs (JSON or a folder), a
folder of raw blobs, a folder of images with a preprocessing, a loader `file.py:function`, or a recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.images import read_images
from parityscope.case.formats.loader import is_function, read_loader
from parityscope.case.formats.npz import open_npz, read_stacked_npz
from parityscope.case.formats.polygraphy import open_inputs
from parityscope.case.formats.safetensors_file import open_safetensors, open_stacked_safetensors
from parityscope.case.formats.trtexec import Expected, open_raw
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case.formats import Stored, Streamed
    from parityscope.case.model import Model

__all__ = ["ReadingOptions", "Stream", "open_source"]


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


def open_source(model: Model, data: str | Path, reading: ReadingOptions) -> Stored | Stream:
    """The samples of `data`, not yet checked against the model.

    Raises:
        ParityError: there is no such file, it is of no kind that is known, or an option does not fit the kind.
    """
    text = str(data)
    path = Path(data)
    source: Stored | Stream
    if is_function(text):
        kind, source = "a loader", Stream(origin=f"the loader {text}", samples=read_loader(text))
    elif not path.exists():
        raise ParityError(f"there is no {text}", fix="give a file, a folder, or a loader as file.py:function")
    elif path.is_dir():
        kind, source = _open_folder(model, path, reading)
    else:
        kind, source = _open_file(path, reading)
    _check_options(kind, text, reading)
    return source


def _open_file(path: Path, reading: ReadingOptions) -> tuple[str, Stored | Stream]:
    match path.suffix.lower():
        case ".npz" if reading.stacked:
            return "stacked", Stream(origin=f"{path}, stacked along axis 0", samples=read_stacked_npz(path))
        case ".npz":
            return "an .npz", open_npz([path], str(path))
        case ".safetensors" if reading.stacked:
            return "stacked", open_stacked_safetensors(path, f"{path}, stacked along axis 0")
        case ".safetensors":
            return "a .safetensors", open_safetensors([path], str(path))
        case ".json":
            return "Polygraphy's inputs", open_inputs([path], f"Polygraphy's saved inputs {path}")
        case ".py":
            fix = f"name the function that yields samples: {path}:FUNCTION"
        case ".npy":
            fix = f"say which input it is: np.savez('{path.stem}.npz', INPUT=np.load('{path.name}'))"
        case _:
            fix = "give an .npz, .safetensors, Polygraphy .json, a folder of those or of images, or file.py:function"
    raise ParityError(f"{path.name} is of no kind of data that can be read", where=str(path), fix=fix)


def _open_folder(model: Model, folder: Path, reading: ReadingOptions) -> tuple[str, Stored | Stream]:
    if (folder / "inputs").is_dir():
        folder = folder / "inputs"  # a recording: inputs and outputs side by side
    found = survey_folder(folder)
    count = len(found.files)
    match found.kind:
        case "npz":
            return "a folder of .npz", open_npz(found.files, f"{count} .npz in {folder}")
        case "safetensors":
            return "a folder of .safetensors", open_safetensors(found.files, f"{count} .safetensors in {folder}")
        case "json":
            return "Polygraphy's inputs", open_inputs(found.files, f"Polygraphy's saved inputs in {folder}")
        case "raw":
            return "raw blobs", open_raw(folder, Expected(values=model.inputs, kind="input", shapes=reading.shapes))
        case "images":
            if not reading.preprocess:
                raise ParityError(
                    f"{folder.name} holds {count} images, and nothing says how the model wants them",
                    where=str(folder),
                    fix="add --preprocess file.py:function: (height, width, 3) uint8 RGB -> arrays by input name",
                )
            samples = read_images(
                found.files, reading.preprocess, [value.name for value in model.inputs], reading.memory
            )
            return "images", Stream(origin=f"{count} images in {folder}, {reading.preprocess}", samples=samples)


def _check_options(kind: str, data: str, reading: ReadingOptions) -> None:
    if reading.preprocess and kind != "images":
        raise ParityError(
            f"preprocessing is for a folder of images, and {data} is {kind}",
            fix="leave --preprocess out, or give the folder of images",
        )
    if reading.stacked and kind != "stacked":
        raise ParityError(
            f"only one .npz or .safetensors can be stacked, and {data} is {kind}", fix="leave --stacked out"
        )
