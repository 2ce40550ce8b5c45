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

from parityscope.case.graph import sites
from parityscope.errors import ParityError
from parityscope.records import ValueInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.records import Site

__all__ = ["Model", "dtype_name", "load_model", "read_graph"]

_BLOCK = 1 << 20

# onnx_ir prints some types in capitals of its own; numpy and ml_dtypes call them so.
_ML_DTYPES = {
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "STRING": "str",
}


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
    model = read_graph(path)
    places = MappingProxyType(sites(model))
    graph = model.graph
    digest = hashlib.sha256()
    nbytes = _digest(path, digest)
    for external in _external_files(model):
        nbytes += _digest(external, digest)
    initializers = set(graph.initializers)
    return Model(
        path=path,
        sha256=digest.hexdigest(),
        nbytes=nbytes,
        inputs=tuple(_declared(value, path) for value in graph.inputs if value.name not in initializers),
        outputs=tuple(_declared(value, path) for value in graph.outputs),
        opsets=dict(model.opset_imports),
        ir_version=int(model.ir_version or 0),
        producer=" ".join(part for part in (model.producer_name, model.producer_version) if part),
        nodes=sum(1 for _ in graph.all_nodes()),
        sites=places,
    )


def dtype_name(dtype: ir.DataType) -> str:
    """The numpy or ml_dtypes name of an ONNX element type ("float32", "bfloat16", "int64", "str")."""
    return _ML_DTYPES.get(dtype.name, dtype.name.lower())


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
            f"{path.name} holds no graph", where=str(path), fix="export the model again: the file is empty or truncated"
        )
    return model


def _declared(value: ir.Value, path: Path) -> ValueInfo:
    if value.dtype is None or not value.name:
        kind = type(value.type).__name__ if value.type is not None else "nothing"
        raise ParityError(
            f"input or output {value.name!r} is declared as {kind}; only tensors can be compared",
            where=str(path),
            fix="cut the model before it, so that its inputs and outputs are tensors",
        )
    shape: tuple[int | str | None, ...] | None = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return ValueInfo(name=value.name, dtype=dtype_name(value.dtype), shape=shape)


def _external_files(model: ir.Model) -> list[Path]:
    """The files that hold external data, in order of first use, each checked to be there and long enough."""
    import onnx_ir as ir

    files: dict[Path, None] = {}
    for graph in [model.graph, *model.graph.subgraphs()]:
        for value in graph.initializers.values():
            tensor = value.const_value
            if not isinstance(tensor, ir.ExternalTensor):
                continue
            path = Path(tensor.path)
            if not path.is_file():
                raise ParityError(
                    f"the external data of initializer {value.name!r} is missing",
                    where=str(path),
                    fix="put the data file back beside the model, under the name that the model gives",
                )
            needed = (tensor.offset or 0) + (tensor.length or 0)
            if path.stat().st_size < needed:
                raise ParityError(
                    f"the external data of initializer {value.name!r} ends early: "
                    f"{path.stat().st_size} bytes where {needed} are needed",
                    where=str(path),
                    fix="copy the data file again: it is truncated or belongs to another model",
                )
            files.setdefault(path)
    return list(files)


def _digest(path: Path, digest: hashlib._Hash) -> int:
    nbytes = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            nbytes += len(block)
    return nbytes
