"""An ONNX file as data: what it declares, its digest, and a fresh graph to edit whenever one is needed.

In: the path of an ONNX file (weights inside, or beside it as external data of any size).
Out: a `Model` record that holds no weights; `Model.graph()` gives a fresh `onnx_ir` graph whose external weights stay on disk
(memory-mapped), so that models over 2 GB cost nothing until they run. Graphs of a small file share the message that it holds.

The formats that an ONNX file holds by its types, read from its message alone.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.case.deciding import counted_outputs, rules_of_graph
from parityscope.case.declaring import DTYPE_NAMES, bodies_of, declared_value, gives_other_values, message_sites
from parityscope.case.graph import sites_of_values
from parityscope.case.intake import external_files, read_in_part, read_message
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import is_quantized
from parityscope.private_folders import lasting_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    import onnx_ir as ir

    from parityscope.records import CountedOutput, DecisionRule, Site, ValueInfo

# Element types that are a format of arithmetic, the finest format first; QUANTIZED and PACKED stand for operators that say it.
_FORMATS = {
    "f16": {"FLOAT16"},
    "bf16": {"BFLOAT16"},
    "int8": {"QUANTIZED"},
    "f8e4m3": {"FLOAT8E4M3FN", "FLOAT8E4M3FNUZ"},
    "f8e5m2": {"FLOAT8E5M2", "FLOAT8E5M2FNUZ"},
    "int4": {"INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "PACKED"},
}
_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype"}  # of Cast, RandomNormal and QuantizeLinear
_BLOCK = 1 << 20
_SMALL = 1 << 26  # bytes of a file, chosen: its graph is kept for others who only read it
_MESSAGE = 300  # characters of what a library says
_LARGEST = 1_900_000_000  # bytes, below the 2 GiB that one ONNX file holds
_KEPT = 4  # chosen: both sides, a corrected copy, a repaired file
# A file that was written so lately may be written again within what its file system's clock can tell; chosen, ten of its steps.
_SETTLED_NS = 50_000_000


def _held_formats(model: onnx.ModelProto) -> tuple[str, ...]:
    """The formats below float32 that a file says by its types, the finest first: of inputs, outputs, weights, constants, Casts.

    What lies between follows from these, so that nothing has to be inferred. Eight-bit integers are a format of arithmetic
    where operators quantize, and an image or a mask elsewhere.
    """
    import onnx

    types: set[int] = set()
    operators: set[str] = set()
    parts: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while parts:
        part = parts.pop()
        if isinstance(part, onnx.GraphProto):
            types.update(value.type.tensor_type.elem_type for value in (*part.input, *part.output, *part.value_info))
            types.update(tensor.data_type for tensor in part.initializer)
        for node in part.node:
            operators.add(node.op_type)
            parts.extend(bodies_of(node))
            types.update(one.t.data_type for one in node.attribute)
            types.update(one.i for one in node.attribute if one.name in _TYPE_ATTRIBUTES)
    names = {onnx.TensorProto.DataType.Name(one) for one in types & set(onnx.TensorProto.DataType.values())}
    if any(map(is_quantized, operators - {"DequantizeLinear"})):  # it alone keeps weights small
        names.add("QUANTIZED")
    if any(operator.endswith("NBits") for operator in operators):  # ONNX Runtime's, of weights packed into bytes
        names.add("PACKED")
    return tuple(name for name, among in _FORMATS.items() if among & names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What an ONNX file declares. Equal digests are equal models (external data is part of the digest).

    `formats` are those below float32 that its types say, the finest first ("f16", "bf16", "int8" where it quantizes).
    `nodes` counts those of the main graph that compute, Constant nodes left out, as `Site.index` does; `sites` holds every
    value that these compute, in topological order. `unread` says what of the file is broken and left out. `source` is the file
    that a runtime reads, where that is of its own kind and `path` says the same in ONNX. `original` is the file that was named,
    where its outputs are no tensors and those of `path` are. `decides` is what outputs decide, as far as the graph says it,
    and `counted` are those with as many rows as values decide.
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
    formats: tuple[str, ...]
    sites: Mapping[str, Site] = field(repr=False, compare=False)
    decides: Mapping[str, DecisionRule] = field(repr=False, compare=False)
    counted: tuple[CountedOutput, ...] = field(default=(), repr=False, compare=False)
    unread: tuple[str, ...] = ()
    source: Path | None = None
    original: Path | None = None

    @property
    def named(self) -> Path:
        """The file that a user knows."""
        return self.original or self.path

    @property
    def file(self) -> Path:
        """The file that a runtime reads."""
        return self.source or self.path

    def graph(self) -> ir.Model:
        """A fresh, editable copy of the graph; weights in external files stay there until they are asked for."""
        return read_graph(self.path, in_part=bool(self.unread))

    def shared_graph(self) -> ir.Model:
        """The graph in topological order, for those who only read it: of a small file one for all of them."""
        is_small = self.path.stat().st_size <= _SMALL
        return (_shared_graph if is_small else _shared_graph.__wrapped__)(self.path, self.sha256, bool(self.unread))


# Of each two: the model, and what it is compared with.
@functools.lru_cache(maxsize=2)
def _shared_graph(path: Path, _sha256: str, in_part: bool) -> ir.Model:  # noqa: FBT001 - a key of the cache
    model = read_graph(path, in_part=in_part)
    model.graph.sort()
    return model


_loaded: OrderedDict[tuple[Path, str, bool], tuple[Mapping[Path, tuple[int, ...]], Model]] = OrderedDict()


def load_model(path: str | Path, *, in_part: bool = False) -> Model:
    """What `path` declares, read once as long as it and the files of its weights are the same.

    With `in_part` what is broken in it is left out (`Model.unread`): for who compares a file that is run elsewhere.

    Raises:
        ParityError: the file is missing, is not an ONNX model, cannot be put together or lacks external data.
    """
    path = Path(path)
    key = path.absolute(), str(path), in_part
    if key in _loaded:
        marks, model = _loaded.pop(key)
        if all(_mark_of_file(one) == mark for one, mark in marks.items()):
            _loaded[key] = marks, model
            return model
    began = time.time_ns()
    before = _mark_of_file(path)
    model, outside = _read_model(path, in_part=in_part)
    marks = {path: before, **{one: _mark_of_file(one) for one in outside}}
    if all(_is_settled(mark, began) for mark in marks.values()):  # nothing was written while it was read
        while len(_loaded) >= _KEPT:
            _loaded.popitem(last=False)
        _loaded[key] = marks, model
    return model


def _mark_of_file(path: Path) -> tuple[int, ...]:
    """What changes when a regular file is written: its size first; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _is_settled(mark: tuple[int, ...], at: int) -> bool:
    """Whether a file was written well before a time (ns): one that is written later has another mark."""
    return len(mark) > 1 and mark[1] < at - _SETTLED_NS


def _read_model(path: Path, *, in_part: bool) -> tuple[Model, tuple[Path, ...]]:
    """What the file declares, and the files that hold weights of it."""
    message, unread = _message_to_read(path, in_part=in_part)
    graph = message.graph
    if gives_other_values(graph):
        return _read_opened(message, path, in_part=in_part)
    places = message_sites(graph)
    digest = hashlib.sha256()
    nbytes = _add_file_to_digest(path, digest)
    outside = external_files(message, path)
    for external, end in outside.items():
        nbytes += _add_file_to_digest(external, digest, end)
    initializers = {tensor.name for tensor in graph.initializer}
    opsets = {entry.domain: entry.version for entry in message.opset_import}
    model = Model(
        path=path,
        sha256=digest.hexdigest(),
        nbytes=nbytes,
        inputs=tuple(declared_value(value, path) for value in graph.input if value.name not in initializers),
        outputs=tuple(declared_value(value, path) for value in graph.output),
        opsets=opsets,
        ir_version=int(message.ir_version),
        producer=" ".join(part for part in (message.producer_name, message.producer_version) if part),
        nodes=sum(node.op_type != "Constant" for node in graph.node),
        formats=_held_formats(message),
        sites=MappingProxyType(sites_of_values(read_graph(path, in_part=bool(unread))) if places is None else places),
        decides=MappingProxyType(rules_of_graph(graph, opsets.get("", 1))),
        counted=counted_outputs(graph),
        unread=unread,
    )
    return model, tuple(outside)


def _read_opened(message: onnx.ModelProto, path: Path, *, in_part: bool) -> tuple[Model, tuple[Path, ...]]:
    """What the file declares, its outputs as tensors in a copy that lies in a folder of this process."""
    digest = hashlib.sha256()
    nbytes = _add_file_to_digest(path, digest)
    outside = external_files(message, path)
    for external, end in outside.items():
        nbytes += _add_file_to_digest(external, digest, end)
    if nbytes > _LARGEST:
        raise ParityError(
            "the model has outputs that are no tensors, and is too large for a copy in which they are",
            where=str(path),
            fix="cut the model before them, so that its outputs are tensors",
            incomparable=True,
        )
    import onnx

    from parityscope.case.opening_outputs import open_outputs

    opened = open_outputs(message, path)
    if outside:
        onnx.load_external_data_for_model(opened, str(path.parent))
    written = lasting_folder("opened") / digest.hexdigest()[:16] / path.name
    written.parent.mkdir(exist_ok=True)
    written.write_bytes(opened.SerializeToString())
    model, _ = _read_model(written, in_part=in_part)
    return replace(model, original=path, sha256=digest.hexdigest(), nbytes=nbytes), tuple(outside)


def dtype_name(dtype: ir.DataType) -> str:
    """The numpy or ml_dtypes name of an ONNX element type ("float32", "bfloat16", "int64", "str")."""
    return DTYPE_NAMES.get(dtype.name, dtype.name.lower())


def read_graph(path: Path, *, in_part: bool = False) -> ir.Model:
    """A fresh `onnx_ir` model of the file; with `in_part` as `load_model`.

    Raises:
        ParityError: it cannot be read as ONNX, or cannot be put together.
    """
    import onnx_ir as ir

    from parityscope.case._own_names import leave_message_alone

    message, _ = _message_to_read(path, in_part=in_part)
    try:
        model = ir.serde.deserialize_model(message)
    except MemoryError:
        raise
    except Exception as error:  # of the library's own kinds, around whatever its parts raise
        raise ParityError(
            f"{path.name} is no graph that can be built: {_innermost_message(error)}",
            where=str(path),
            fix="export the model again; `python -m onnx.checker` on the file says more",
        ) from error
    ir.external_data.set_base_dir(model.graph, path.parent)
    leave_message_alone(model)
    return model


def _message_to_read(path: Path, *, in_part: bool) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The message in a file, for those who do not change it: of a small file that is not being written one for all of them.

    And what was left out of it.
    """
    mark = _mark_of_file(path)
    is_kept = _is_settled(mark, time.time_ns()) and mark[0] <= _SMALL
    return (_kept_message if is_kept else _kept_message.__wrapped__)(path.absolute(), str(path), mark, in_part)


# Of each two: the model, and what it is compared with.
@functools.lru_cache(maxsize=2)
def _kept_message(
    _whole: Path,
    path: str,
    _mark: tuple[int, ...],
    in_part: bool,  # noqa: FBT001 - a key of the cache
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    return read_in_part(Path(path)) if in_part else (read_message(Path(path)), ())


def _innermost_message(error: BaseException) -> str:
    """What the first of a chain of errors said, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:_MESSAGE] or type(error).__name__


def _add_file_to_digest(path: Path, digest: hashlib._Hash, end: float = math.inf) -> int:
    """Adds what a file holds before the byte `end`."""
    nbytes = 0
    with path.open("rb") as file:
        while block := file.read(int(min(_BLOCK, end - nbytes))):
            digest.update(block)
            nbytes += len(block)
    return nbytes
