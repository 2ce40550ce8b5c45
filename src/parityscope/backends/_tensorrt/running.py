"""Runs an engine, strictly by name. NOT RUN: written from NVIDIA's documentation of 8.6 to 11, on which the calls agree.

The calls are those that all these versions have: I/O tensors by name, `set_input_shape`, `set_tensor_address`,
`execute_async_v3`. Device memory is Polygraphy's (it calls the CUDA runtime by itself and needs no other package).
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Session
from parityscope.backends._tensorrt.inspector import engine_layers
from parityscope.backends._tensorrt.network import executed_graph
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.backends._tensorrt.packages import Package
    from parityscope.case import Sample

__all__ = ["open_engine"]

# Every byte of an output before a run: NaN in each float format, and -1 in integers, where nothing was written.
_POISON = 0xFF
_FIX = "build the engine again on this machine, or leave engine= out"


@contextlib.contextmanager
def open_engine(plan: bytes, package: Package, *, where: str, requested: str) -> Iterator[Session]:
    """A session of the engine in `plan`.

    Raises:
        ParityError: TensorRT refuses the engine, or Polygraphy is not installed.
    """
    try:
        from polygraphy import cuda
    except ImportError as error:
        raise ParityError("running an engine needs Polygraphy", fix="pip install 'parityscope[tensorrt]'") from error
    trt = package.module
    logger = trt.Logger(trt.Logger.WARNING)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ParityError("TensorRT refuses the engine; its own words are on stderr", where=where, fix=_FIX)
    context = engine.create_execution_context()
    if context is None:
        raise ParityError("TensorRT has no memory for the engine", where=where, fix="free memory of the GPU")
    with cuda.Stream() as stream:

        def run(sample: Sample) -> Mapping[str, np.ndarray]:
            with contextlib.ExitStack() as memory:
                return _run(trt, engine, context, sample, stream, memory)

        yield Session(
            run=run,
            executed=executed_graph(_inspected(trt, engine), requested or "f32"),
            environment={"tensorrt": f"{trt.__name__} {package.version}"},
        )


def _run(trt: Any, engine: Any, context: Any, sample: Sample, stream: Any, memory: Any) -> dict[str, np.ndarray]:
    from polygraphy import cuda

    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    if absent := [name for name in inputs if name not in sample.arrays]:
        raise ParityError(
            f"sample {sample.name} has no input {absent[0]!r}", fix=f"the engine wants {', '.join(inputs)}"
        )
    for name in inputs:
        array = np.ascontiguousarray(_checked(trt, engine, name, sample.arrays[name]))
        if not context.set_input_shape(name, array.shape):
            raise ParityError(
                f"the engine's profile does not cover shape {list(array.shape)} of input {name!r}",
                fix="build the engine for the shapes of the samples",
            )
        device = memory.enter_context(cuda.DeviceArray(shape=array.shape, dtype=array.dtype))
        device.copy_from(array, stream)
        context.set_tensor_address(name, device.ptr)
    results: dict[str, tuple[Any, np.ndarray]] = {}
    for name in names:
        if name in inputs:
            continue
        shape, dtype = tuple(context.get_tensor_shape(name)), _numpy(trt, engine, name)
        nbytes = math.prod(shape) * dtype.itemsize
        host = np.full(nbytes, _POISON, dtype=np.uint8).view(dtype).reshape(shape)
        device = memory.enter_context(cuda.DeviceArray(shape=host.shape, dtype=host.dtype))
        device.copy_from(host, stream)
        context.set_tensor_address(name, device.ptr)
        results[name] = device, host
    if not context.execute_async_v3(stream.ptr):
        raise ParityError(f"TensorRT failed while running sample {sample.name}", fix="its own words are on stderr")
    for device, host in results.values():
        device.copy_to(host, stream)
    stream.synchronize()
    return {name: host for name, (_, host) in results.items()}


def _checked(trt: Any, engine: Any, name: str, array: np.ndarray) -> np.ndarray:
    wanted = _numpy(trt, engine, name)
    if array.dtype != wanted:
        raise ParityError(
            f"input {name!r} is {array.dtype.name}, the engine wants {wanted.name}",
            fix=f"give {name!r} as {wanted.name} (a wrong type is never cast silently)",
        )
    return array


def _numpy(trt: Any, engine: Any, name: str) -> np.dtype[Any]:
    """The numpy type of a tensor; bfloat16 is ml_dtypes'."""
    import ml_dtypes

    dtype = engine.get_tensor_dtype(name)
    held: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if dtype.name == "BF16" else trt.nptype(dtype))
    return held


def _inspected(trt: Any, engine: Any) -> Any:
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    return engine_layers(json.loads(text))
