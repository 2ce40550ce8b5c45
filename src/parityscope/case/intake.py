"""The gate that models come through: what is looked at before a file is parsed, and before anything that it describes is built.

A file is opened if it is a regular one, its bytes are walked through (`_scanning`), it is parsed, and then held against
itself: versions, wiring and functions (`_wiring`), tensors and external data (`_weights`). A refusal costs little, whatever
the file says. What passes can be put together; whether a runtime has the operators is for the runtime to say.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from parityscope.case._scanning import scan_bytes
from parityscope.case._weights import check_weights, external_files
from parityscope.case._wiring import check_functions, check_wiring
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file, read_regular_file, read_text_file

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

__all__ = [
    "external_files",
    "open_regular_file",
    "read_in_part",
    "read_message",
    "read_regular_file",
    "read_text_file",
]

_PROTOBUF_LIMIT = (1 << 31) - 1  # bytes; the wire format's own limit on one message
_EMPTY = "give an .onnx file; if it is one, export it again: it is empty or truncated"
_Key = tuple[str, int, int, int]
_seen: set[_Key] = set()  # files that passed, by path, inode, size and time


def read_message(path: Path) -> onnx.ModelProto:
    """The message in the file, without external data, after all that can be checked of it.

    Raises:
        ParityError: it is no regular file, cannot be read as ONNX, or is a model that nothing could be made of.
    """
    model, key = _parse_message(path)
    if key not in _seen:
        _check_message(model, path)
        _seen.add(key)
    return model


def read_in_part(path: Path) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The message in the file without what is broken in it (`mending`), and what that was.

    Raises:
        ParityError: it is no regular file, cannot be read as ONNX, or nothing can be made of the rest either.
    """
    from parityscope.case.mending import mend_message

    model, key = _parse_message(path)
    if key in _seen:
        return model, ()
    told = mend_message(model, path)
    _check_message(model, path)
    return model, told


def _parse_message(path: Path) -> tuple[onnx.ModelProto, _Key]:
    """The message in the file as it stands, and what it is known by if it passed."""
    import onnx
    from google.protobuf.message import DecodeError

    with open_regular_file(path, "the model", limit=_PROTOBUF_LIMIT) as file:
        found = os.fstat(file.fileno())
        key = str(path.absolute()), found.st_ino, found.st_size, found.st_mtime_ns
        if not found.st_size:
            raise ParityError(f"{path.name} holds no graph", where=str(path), fix=_EMPTY)
        if key not in _seen:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                try:
                    scan_bytes(content, str(path))
                except ParityError as error:
                    raise _error_of_network(path) or error from error
        model = onnx.ModelProto()
        try:
            model.ParseFromString(file.read())
        except DecodeError as error:
            raise ParityError(
                f"{path.name} is not a readable ONNX model",
                where=str(path),
                fix="check that the download or export finished, and export it again",
            ) from error
    return model, key


def _error_of_network(path: Path) -> ParityError | None:
    """The error of who gives a network of PyTorch where its ONNX file is wanted."""
    option = {".pt2": "program", ".pt": "script"}.get(path.suffix)
    if option is None:
        return None
    return ParityError(
        f"{path.name} is a file of PyTorch, and no ONNX model",
        where=str(path),
        fix=f"give its ONNX file as the model, and the network beside it: --reference 'torch?{option}={path.name}'",
    )


def _check_message(model: onnx.ModelProto, path: Path) -> None:
    if not model.graph.node and not model.graph.output:
        raise ParityError(f"{path.name} holds no graph", where=str(path), fix=_EMPTY)
    if not model.graph.output:
        raise ParityError(f"{path.name} gives no output", where=str(path), fix="export it again, with its outputs")
    _check_versions(model, path)
    check_functions(model, str(path))
    check_wiring(model, str(path))
    check_weights(model, path)


def _check_versions(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    wrong = next((version for version in versions if not 1 <= version <= newest), None)
    if model.ir_version > onnx.IR_VERSION:
        said = f"IR version {model.ir_version}, and {onnx.IR_VERSION} is the newest that is known"
    elif wrong is not None:
        said = f"opset {wrong}, and the installed onnx knows 1 to {newest}"
    else:
        return
    raise ParityError(
        f"the model is of {said}", where=str(path), fix="install a newer onnx, or export the model for an older version"
    )
