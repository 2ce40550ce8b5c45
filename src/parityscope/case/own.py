"""What the deployment gave its own model, where that was recorded: arrays of any names, dtypes and shapes.

Nothing is checked against the model here, because what a wrong preprocessing makes may not fit it: that is the evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.npz import open_npz
from parityscope.case.formats.safetensors_file import open_safetensors
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np

    from parityscope.case.formats import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInputs:
    """The recorded inputs: `read(index)` gives those of one sample by their names; `origin` says where they lie.

    `read` raises ParityError where the sample was not recorded.
    """

    origin: str
    read: Callable[[int], Mapping[str, np.ndarray]]


def stored_arrays(path: Path) -> Stored:
    """The arrays by name in a file, a folder of files, or the `inputs` of a recording.

    Raises:
        ParityError: nothing lies there, or nothing of that kind.
    """
    if not path.exists():
        raise ParityError(f"there is no {path}", fix="give the folder of .npz that the deployment's inputs lie in")
    if path.is_file():
        return open_safetensors([path], str(path)) if path.suffix == ".safetensors" else open_npz([path], str(path))
    folder = path / "inputs" if (path / "inputs").is_dir() else path
    found = survey_folder(folder)
    origin = f"{len(found.files)} files in {folder}"
    match found.kind:
        case "npz":
            return open_npz(found.files, origin)
        case "safetensors":
            return open_safetensors(found.files, origin)
    raise ParityError(
        f"{folder.name} holds {found.kind}, not arrays by name",
        where=str(folder),
        fix="record the inputs as .npz or .safetensors, one file a sample",
    )
