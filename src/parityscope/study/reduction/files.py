"""The files of a piece, as a bug report wants them: models, inputs, what is expected, what is given."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.case.formats.npz import write_members
from parityscope.case.intake import external_files, read_message

if TYPE_CHECKING:
    from parityscope.study.reduction.records import Arrays, Reduced

__all__ = ["files_of"]


def files_of(found: Reduced) -> dict[str, bytes]:
    """The content of each file by its name; weights that lie outside of a model's file have theirs beside it."""
    piece = found.piece
    files = _model_files(piece.model.path, "model.onnx")
    if own := piece.candidate.option("model"):
        files |= _model_files(Path(own), "candidate.onnx")
    for folder, samples in (("inputs", piece.samples), ("expected", found.expected), ("actual", found.actual)):
        files |= {f"{folder}/{number:06d}.npz": _pack_arrays(arrays) for number, arrays in enumerate(samples)}
    return files


def _model_files(path: Path, name: str) -> dict[str, bytes]:
    outside = external_files(read_message(path), path)
    files = {str(each.relative_to(path.parent.resolve())): each.read_bytes() for each in map(Path.resolve, outside)}
    return {name: path.read_bytes(), **files}


def _pack_arrays(arrays: Arrays) -> bytes:
    """An .npz of arrays by any name."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed:
        # Text is packed as text: objects could only be read back by whoever lets them run code.
        write_members(packed, {name: one.astype(str) if one.dtype == object else one for name, one in arrays.items()})
    return held.getvalue()
