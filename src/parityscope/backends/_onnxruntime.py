"""One ONNX Runtime session as a plain function: what `ort`, `sim`, the replay and the injection all run on.

In: a model as a file (run as it stands) or as an `onnx_ir` graph (derived from one), and the values to give back.
Out: `run(arrays by input name) -> arrays by value name`, with bfloat16 and float8 as ml_dtypes arrays.
Results are views of the runtime's own memory (no copy); the memory is freed when the last array is dropped.

External weights of a derived graph are read from beside the original file through the session option
`session.model_external_initializers_file_folder_path` (ONNX Runtime's own, documented in its C API header
onnxruntime_session_options_config_keys.h), so that a graph of any size is never copied.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.trace import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import onnx_ir as ir

    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

__all__ = ["OPTIMIZATION_LEVELS", "open_path", "open_session"]

OPTIMIZATION_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}

# ONNX Runtime's names of element types that numpy lacks: (ml_dtypes name, TensorProto.DataType).
_ML_TYPES = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}
_SILENT = 3  # ONNX Runtime's logging severity "error": warnings about derived graphs say nothing to the reader
_PROTOBUF_LIMIT = (1 << 31) - 1  # bytes; the wire format's own limit on one message


def open_session(
    model: ir.Model,
    *,
    outputs: Sequence[str] | None = None,
    optimization: str = "all",
    threads: int = 0,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    folder: Path | None = None,
    custom_ops: str = "",
) -> Run:
    """A session of a derived graph that gives back the values named in `outputs`, in this order.

    Args:
        model: The graph; its outputs become exactly `outputs`.
        outputs: Names of values of the main graph; None for the outputs that the graph has.
        optimization: One of `OPTIMIZATION_LEVELS`.
        threads: Threads inside an operator; 0 leaves the choice to the runtime.
        providers: Execution providers, first choice first.
        folder: Where external data of the original model lies.
        custom_ops: Path of a library with custom operators.

    Raises:
        ParityError: the runtime refuses the graph.
    """
    import onnx_ir as ir

    from parityscope.case.graph import mark_outputs

    if outputs is not None:
        mark_outputs(model, outputs)
    data = ir.to_proto(model).SerializeToString()
    if len(data) > _PROTOBUF_LIMIT:
        raise ParityError(
            "the derived graph is larger than 2 GB",
            fix="save the model with external data (onnx.save with save_as_external_data=True) and give that file",
        )
    options = _options(optimization, threads, custom_ops)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return _session(data, options, providers, tuple(str(value.name) for value in model.graph.outputs))


def open_path(
    path: Path,
    *,
    outputs: Sequence[str],
    optimization: str = "all",
    threads: int = 0,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    custom_ops: str = "",
) -> Run:
    """A session of the file itself, undisturbed, that gives back its declared outputs `outputs`."""
    return _session(str(path), _options(optimization, threads, custom_ops), providers, tuple(outputs))


def _options(optimization: str, threads: int, custom_ops: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, OPTIMIZATION_LEVELS[optimization])
    options.log_severity_level = _SILENT
    if threads:
        options.intra_op_num_threads = threads
    if custom_ops:
        try:
            options.register_custom_ops_library(custom_ops)
        except Exception as error:
            raise ParityError(
                f"the custom operator library cannot be loaded: {error}",
                where=custom_ops,
                fix="build it for this version of ONNX Runtime and give its full path",
            ) from error
    return options


def _session(source: str | bytes, options: Any, providers: Sequence[Any], outputs: tuple[str, ...]) -> Run:
    import onnxruntime as ort

    with _refusal("ONNX Runtime cannot load the model", source if isinstance(source, str) else ""):
        session = ort.InferenceSession(source, options, providers=list(providers))
    declared = {value.name: value.type for value in session.get_inputs()}

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = {name: _to_runtime(array, declared[name]) for name, array in arrays.items() if name in declared}
        with _refusal("ONNX Runtime failed while running the model", ""):
            values = session.run_with_ort_values(list(outputs), feeds)
        return {name: _from_runtime(value) for name, value in zip(outputs, values, strict=True)}

    return run


@contextlib.contextmanager
def _refusal(problem: str, where: str) -> Iterator[None]:
    """Turns what ONNX Runtime raises (its own exception types, all direct children of Exception) into one error."""
    try:
        yield
    except (MemoryError, KeyboardInterrupt, ParityError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise ParityError(f"{problem}: {message[:600]}", where=where, fix=_advice(message)) from error


def _advice(message: str) -> str:
    lowered = message.lower()
    if "not a registered function/op" in lowered or "no schema registered" in lowered:
        return "register the operator: ort?custom_ops=/path/to/library.so, or cut the model before it"
    if "not_implemented" in lowered or "could not find an implementation" in lowered:
        return "this build of ONNX Runtime lacks the operator for this type; try a newer one, or another reference"
    if "external data" in lowered:
        return "put the external data file back beside the model"
    if "opset" in lowered or "ir version" in lowered or "ir_version" in lowered:
        return "upgrade onnxruntime, or convert the model to an opset that it knows (onnx.version_converter)"
    return "check that plain ONNX Runtime runs this model on this input"


def _to_runtime(array: np.ndarray, declared: str) -> Any:
    import onnxruntime as ort

    array = np.ascontiguousarray(array)
    if declared in _ML_TYPES:
        bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ML_TYPES[declared][1])
    return ort.OrtValue.ortvalue_from_numpy(array)


def _from_runtime(value: Any) -> np.ndarray:
    kind = value.data_type()
    if kind in _ML_TYPES:
        dtype = numpy_dtype(_ML_TYPES[kind][0])
        shape = tuple(value.shape())
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(value._ortvalue.data_ptr(), nbytes), dtype).reshape(shape)  # noqa: SLF001 - the only way to these bytes
    if not kind.startswith("tensor("):
        raise ParityError(f"a value of kind {kind} is not a tensor", fix="cut the model before it")
    array: np.ndarray = value.numpy()
    return array
