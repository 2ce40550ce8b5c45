"""What the deployment gave its own model, where that was recorded: arrays of any names, dtypes and shapes.

Nothing is checked against the model here, because what a wrong preprocessing makes may not fit it: that is the evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.npz import open_npz
from parityscope.case.formats.polygraphy import open_inputs
from parityscope.case.formats.safetensors_file import open_safetensors
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.case.formats import Stored


_OPENED: Mapping[str, Callable[[Sequence[Path], str], Stored]] = {
    "npz": open_npz,
    "safetensors": open_safetensors,
    "json": open_inputs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInputs:
    """The recorded inputs: `read(index)` gives those of one sample by their names; `origin` says where they lie.

    `read` raises ParityError where the sample was not recorded.
    """

    origin: str
    read: Callable[[int], Mapping[str, np.ndarray]]


def stored_arrays(path: Path) -> tuple[Stored, tuple[str, ...]]:
    """The arrays by name in a file, a folder of files, or the `inputs` of a recording; and the name of each sample's own file.

    Raises:
        ParityError: nothing lies there, or nothing of that kind.
    """
    if not path.exists():
        raise ParityError(f"there is no {path}", fix="give the folder of .npz that the deployment's inputs lie in")
    folder = path / "inputs" if (path / "inputs").is_dir() else path
    found = survey_folder(folder) if folder.is_dir() else None
    files, kind = (found.files, found.kind) if found else ((path,), path.suffix.removeprefix("."))
    if found and kind not in _OPENED:
        raise ParityError(
            f"{folder.name} holds {kind}, not arrays by name",
            where=str(folder),
            fix="record the inputs as .npz or .safetensors, one file a sample",
        )
    stored = _OPENED.get(kind, open_npz)(files, f"{len(files)} files in {folder}" if found else str(path))
    alone = found is not None and len(files) == len(stored.labels)
    return stored, tuple(file.name for file in files) if alone else ()
