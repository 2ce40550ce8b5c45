"""One run of an engine: inputs to their addresses, outputs into filled memory, and back by name. NOT RUN on a GPU.

Outputs whose shape depends on numbers are written through an output allocator.

TensorRT's output allocator: for outputs whose shape is known only when the engine has run.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from parityscope.backends.tensorrt.api import shape_of
from parityscope.backends.tensorrt.decoding import POISON, decode_tensor, is_unwritten, nbytes_of, to_storable_type
from parityscope.backends.tensorrt.iotensors import check_sample
from parityscope.backends.tensorrt.logger import logging_to
from parityscope.backends.tensorrt.reasons import explain_failure
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from parityscope.backends.tensorrt.api import ExecutionContext
    from parityscope.backends.tensorrt.iotensors import IOFact
    from parityscope.backends.tensorrt.memory import Device
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.case import Sample


class _Memory(Protocol):
    @property
    def device(self) -> Device: ...
    @property
    def memory(self) -> contextlib.ExitStack: ...


@dataclass(slots=True, kw_only=True)
class _Allocated:
    """Where TensorRT wrote an output, and its shape; `keeper` is TensorRT's object, which must live as long."""

    address: int = 0
    shape: tuple[int, ...] = ()
    keeper: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What one run needs; `memory` frees what it takes."""

    package: Package
    context: ExecutionContext
    device: Device
    memory: contextlib.ExitStack
    where: str


def run_once(work: EngineRun, facts: Sequence[IOFact], sample: Sample) -> dict[str, np.ndarray]:
    """The outputs of one sample by the engine's names.

    Raises:
        ParityError: the sample does not fit, TensorRT fails, or an output was not written.
    """
    check_sample(facts, sample.arrays, sample.name, work.where)
    kept = [_feed_input(work, fact, np.ascontiguousarray(sample.arrays[fact.name])) for fact in facts if fact.is_input]
    outputs = {fact.name: _Output.of(work, fact) for fact in facts if not fact.is_input}
    said = io.StringIO()
    with logging_to(work.package.module, said):
        done = work.context.execute_async_v3(work.device.handle)
        found = {name: output.read(work) for name, output in outputs.items()} if done else {}
    if not done:
        errors = [line for line in said.getvalue().split("\n") if "[E]" in line]
        means, fix = explain_failure(errors)
        raise ParityError(
            f"TensorRT failed while running sample {sample.name}{means and f': {means}'}",
            where=" | ".join(errors) or work.where,
            fix=fix or "its own words say where; trtexec --loadEngine with the same inputs should fail likewise",
        )
    del kept  # the CPU's inputs had to stay until here
    idle = [name for name, (content, _) in found.items() if is_unwritten(content)]
    if idle:
        raise ParityError(
            f"the engine wrote nothing into output {idle[0]!r} on sample {sample.name}: its memory still holds what it was "
            "filled with before the run",
            where=work.where,
            fix="this is a fault of the engine or its plugins: build it again, and report it to NVIDIA with the model",
        )
    return {name: array for name, (_, array) in found.items()}


def _feed_input(work: EngineRun, fact: IOFact, array: np.ndarray) -> np.ndarray:
    if not work.context.set_input_shape(fact.name, array.shape):
        raise ParityError(
            f"TensorRT refuses shape {list(array.shape)} of input {fact.name!r}",
            where=work.where,
            fix="build the engine for the shapes of the samples",
        )
    address = array.ctypes.data if fact.host else work.device.put(array, work.memory)
    work.context.set_tensor_address(fact.name, address)
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """Where an output goes: an address on the device, an array on the host, or an allocator that is asked during the run."""

    fact: IOFact
    shape: tuple[int, ...]
    address: int = 0
    host: np.ndarray | None = None
    allocated: _Allocated | None = None

    @staticmethod
    def of(work: EngineRun, fact: IOFact) -> _Output:
        shape = shape_of(work.context.get_tensor_shape(fact.name))
        if -1 in shape:
            return _Output(
                fact=fact, shape=shape, allocated=_set_output_allocator(work.package, work.context, fact.name, work)
            )
        nbytes = nbytes_of(fact.dtype, shape)
        if fact.host:
            held = np.full(max(nbytes, 1), POISON, dtype=np.uint8)
            work.context.set_tensor_address(fact.name, held.ctypes.data)
            return _Output(fact=fact, shape=shape, host=held[:nbytes])
        address = work.device.poisoned(nbytes, work.memory)
        work.context.set_tensor_address(fact.name, address)
        return _Output(fact=fact, shape=shape, address=address)

    def read(self, work: EngineRun) -> tuple[np.ndarray, np.ndarray]:
        """(its bytes, its elements) after the run."""
        shape, address = self.shape, self.address
        if self.allocated is not None:
            work.device.fetch(0, 0)  # the allocator is told the shape before the stream is done
            shape, address = self.allocated.shape, self.allocated.address
        nbytes = nbytes_of(self.fact.dtype, shape)
        if self.host is not None:
            work.device.fetch(0, 0)
            content = self.host
        else:
            content = work.device.fetch(address, nbytes)
        return content, to_storable_type(decode_tensor(content, self.fact.dtype, shape))


def _set_output_allocator(package: Package, context: Any, name: str, memory: _Memory) -> _Allocated:
    """Gives `context` an allocator for the output `name`, whose memory is poisoned before it is written."""
    trt = package.module
    held = _Allocated()

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc,name-defined] # TensorRT calls back only into a class derived from its own
        def reallocate_output(self, _tensor: str, _memory: int, size: int, _alignment: int) -> int:
            held.address = memory.device.poisoned(size, memory.memory)
            return held.address

        def reallocate_output_async(self, tensor: str, before: int, size: int, alignment: int, _stream: int) -> int:
            return self.reallocate_output(tensor, before, size, alignment)

        def notify_shape(self, _tensor: str, shape: Any) -> None:
            held.shape = tuple(shape)

    held.keeper = Allocator()
    context.set_output_allocator(name, held.keeper)
    return held
