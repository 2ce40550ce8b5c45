"""An ONNX file as data: what it declares, its digest, and a fresh graph to edit whenever one is needed.

In: the path of an ONNX file (weights inside, or beside it as external data of any size).
Out: a `Model` record that holds no weights; `Model.graph()` reads the file again and gives an `onnx_ir` graph whose
external weights stay on disk (memory-mapped), so that models over 2 GB cost nothing until they run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.case.declaring import (
    DTYPE_NAMES,
    declared_value,
    external_files,
    message_sites,
    node_count,
    read_message,
)
from parityscope.case.graph import sites
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.records import Site, ValueInfo

__all__ = ["Model", "dtype_name", "load_model", "read_graph"]

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What an ONNX file declares. Equal digests are equal models (external data is part of the digest).

    `sites` holds every value that nodes of the main graph compute, in topological order.
    """

    path: Path
    sha256: str
    nbytes: int
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    nodes: int
    sites: Mapping[str, Site] = field(repr=False, compare=False)

    def graph(self) -> ir.Model:
        """A fresh, editable copy of the graph; weights in external files stay there until they are asked for."""
        return read_graph(self.path)


def load_model(path: str | Path) -> Model:
    """Reads what `path` declares.

    Raises:
        ParityError: the file is missing, is not an ONNX model, has no graph or lacks external data.
    """
    path = Path(path)
    if not path.is_file():
        raise ParityError(f"there is no model at {path}", fix="give the path of an .onnx file")
    message = read_message(path)
    graph = message.graph
    places = message_sites(graph)
    digest = hashlib.sha256()
    nbytes = _digest(path, digest)
    for external in external_files(message, path.parent):
        nbytes += _digest(external, digest)
    initializers = {tensor.name for tensor in graph.initializer}
    return Model(
        path=path,
        sha256=digest.hexdigest(),
        nbytes=nbytes,
        inputs=tuple(declared_value(value, path) for value in graph.input if value.name not in initializers),
        outputs=tuple(declared_value(value, path) for value in graph.output),
        opsets={entry.domain: entry.version for entry in message.opset_import},
        ir_version=int(message.ir_version),
        producer=" ".join(part for part in (message.producer_name, message.producer_version) if part),
        nodes=node_count(graph),
        sites=MappingProxyType(sites(read_graph(path)) if places is None else places),
    )


def dtype_name(dtype: ir.DataType) -> str:
    """The numpy or ml_dtypes name of an ONNX element type ("float32", "bfloat16", "int64", "str")."""
    return DTYPE_NAMES.get(dtype.name, dtype.name.lower())


def read_graph(path: Path) -> ir.Model:
    """A fresh `onnx_ir` model of the file.

    Raises:
        ParityError: it cannot be read as ONNX.
    """
    import onnx_ir as ir
    from google.protobuf.message import DecodeError

    try:
        model = ir.load(path)
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise ParityError(
            f"{path.name} is not a readable ONNX model: {error}",
            where=str(path),
            fix="check that the download or export finished; `python -m onnx.checker` on the file says more",
        ) from error
    if len(model.graph) == 0 and not model.graph.outputs:
        raise ParityError(
            f"{path.name} holds no graph",
            where=str(path),
            fix="give an .onnx file; if it is one, export it again: it is empty or truncated",
        )
    return model


def _digest(path: Path, digest: hashlib._Hash) -> int:
    nbytes = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            nbytes += len(block)
    return nbytes
