"""A copy of a model whose intermediate tensors are outputs, for runtimes that are other people's programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.extending import with_outputs
from parityscope.case.intake import external_files, read_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from parityscope.case import Model

__all__ = ["marked_copy"]


def marked_copy(model: Model, tensors: Sequence[str], folder: Path) -> Path:
    """Writes `model` with `tensors` as further outputs into the empty `folder`; weights outside the file are linked, not copied.

    Raises:
        ParityError: the model's external data cannot be read.
        OSError: the folder cannot be written.
    """
    outputs = {value.name for value in model.outputs}
    wanted = [name for name in tensors if name in model.sites and name not in outputs]
    path = folder / model.path.name
    path.write_bytes(with_outputs(model.path, wanted))
    home = model.path.parent
    for file in external_files(read_message(model.path), model.path):
        link = folder / file.relative_to(home)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return path
