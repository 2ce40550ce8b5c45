"""One ONNX Runtime session as a plain function: what `ort`, `sim`, the replay and the injection all run on.

In: a model as a file (run as it stands) or as an `onnx_ir` graph (derived from one), and the values to give back.
Out: `run(arrays by input name) -> arrays by value name`, as `onnxruntime_running` says.

External weights of a derived graph are read from beside the original file through the session option
`session.model_external_initializers_file_folder_path` (ONNX Runtime's own, documented in its C API header
onnxruntime_session_options_config_keys.h), so that a graph of any size is never copied. Weights that a derived graph holds
itself (a simulation's rounded ones) go into its bytes, or, where that would be too much, to the runtime as they are.
"""

from __future__ import annotations

import contextlib
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends.onnxruntime_running import runtime_value, start_session
from parityscope.custom_operators import libraries_for_session
from parityscope.errors import ParityError
from parityscope.evaluation.machine import share_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import onnx_ir as ir

    from parityscope.backends.onnxruntime_running import Run

OPTIMIZATION_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}

SILENT = 4  # ONNX Runtime's logging severity "fatal": what it calls an error is raised too, and told once
_PROTOBUF_LIMIT = (1 << 31) - 1  # bytes; the wire format's own limit on one message
_INLINE_LIMIT = 1 << 29  # bytes, chosen: serializing holds the weights inside a graph three times, 1.5 GiB at this size
_DETACHED_SIZE = 1 << 20  # bytes, chosen: smaller weights stay inside


def open_session(
    model: ir.Model,
    *,
    outputs: Sequence[str] | None = None,
    optimization: str = "all",
    threads: int = 0,
    folder: Path | None = None,
) -> Run:
    """A session of a derived graph that gives back the values named in `outputs`, in this order.

    Args:
        model: The graph; its outputs become exactly `outputs`.
        outputs: Names of values of the main graph; None for the outputs that the graph has.
        optimization: One of `OPTIMIZATION_LEVELS`.
        threads: Threads inside an operator; 0 leaves the choice to the runtime.
        folder: Where external data of the original model lies.

    Raises:
        ParityError: the runtime refuses the graph.
    """
    import onnx_ir as ir

    from parityscope.case.deriving import mark_outputs

    if outputs is not None:
        mark_outputs(model, outputs)
    with _detach_weights(model) as weights:
        data = ir.to_proto(model).SerializeToString()
    return open_bytes(
        data,
        outputs=[str(value.name) for value in model.graph.outputs],
        optimization=optimization,
        threads=threads,
        folder=folder,
        weights=weights,
    )


def open_bytes(
    data: bytes,
    *,
    outputs: Sequence[str],
    optimization: str = "all",
    threads: int = 0,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    folder: Path | None = None,
    custom_ops: str = "",
    bound: str = "",
    deterministic: bool = False,
    weights: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Run:
    """A session of a serialized model; arguments as for `open_session`.

    `providers` are execution providers, first choice first; `custom_ops` is the path of a library with custom operators.
    `weights` take the place of initializers that the model declares as external data; `bound` is the device ("cuda:0") that
    tensors are bound to before the run, "" for none; `deterministic` asks for kernels that give the same sums each time.

    Raises:
        ParityError: the runtime refuses the graph.
    """
    if len(data) > _PROTOBUF_LIMIT:
        raise ParityError(
            "the derived graph is larger than 2 GB",
            fix="save the model with external data (onnx.save with save_as_external_data=True) and give that file",
        )
    options = _session_options(optimization, threads, custom_ops)
    options.use_deterministic_compute = deterministic
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    kept = {name: runtime_value(array, "") for name, array in weights.items()}
    if kept:
        options.add_external_initializers(list(kept), list(kept.values()))
    return start_session(data, options, providers, tuple(outputs), kept, bound)


def open_path(
    path: Path,
    *,
    outputs: Sequence[str],
    optimization: str = "all",
    threads: int = 0,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    custom_ops: str = "",
    bound: str = "",
    deterministic: bool = False,
) -> Run:
    """A session of the file itself, undisturbed, that gives back its declared outputs `outputs`; as for `open_bytes`."""
    options = _session_options(optimization, threads, custom_ops)
    options.use_deterministic_compute = deterministic
    return start_session(str(path), options, providers, tuple(outputs), bound=bound)


def _session_options(optimization: str, threads: int, custom_ops: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, OPTIMIZATION_LEVELS[optimization])
    options.log_severity_level = SILENT
    share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    # Threads that wait busily for more work take the cores from the next session: with two sessions in turn on two cores, a
    # run of the PP-OCRv4 detector took 0.094 s with spinning and 0.042 s without, and as long alone (measured).
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if wanted := threads or _allowed_processors():
        options.intra_op_num_threads = wanted
    for library in libraries_for_session(custom_ops):
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise ParityError(
                f"the custom operator library cannot be loaded: {error}",
                where=library,
                fix="build it for this version of ONNX Runtime and give its full path",
            ) from error
    return options


def _allowed_processors() -> int:
    """The processors this process may run on, where a mask (such as of taskset) leaves it fewer than there are; else 0.

    ONNX Runtime counts the processors of the machine: on two of sixteen its threads would get in each other's way.
    """
    allowed = len(os.sched_getaffinity(0))
    return allowed if allowed < (os.cpu_count() or 1) else 0


@contextlib.contextmanager
def _detach_weights(model: ir.Model) -> Iterator[dict[str, np.ndarray]]:
    """The weights that are too much for the bytes of `model`, which declares them as external data in this block."""
    import onnx_ir as ir

    plain = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64}
    large = [
        (value, tensor)
        for value in model.graph.initializers.values()
        if (tensor := value.const_value) is not None
        and not isinstance(tensor, ir.ExternalTensor)
        and tensor.dtype in plain
        and tensor.nbytes >= _DETACHED_SIZE
    ]
    if sum(tensor.nbytes for _, tensor in large) <= _INLINE_LIMIT:
        yield {}
        return
    weights = {str(value.name): tensor.numpy() for value, tensor in large}
    try:
        for value, tensor in large:
            value.const_value = ir.ExternalTensor(
                "held in memory",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=str(value.name),
            )
        yield weights
    finally:
        for value, tensor in large:
            value.const_value = tensor
