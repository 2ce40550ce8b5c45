"""TensorRT's output allocator: for outputs whose shape is known only when the engine has run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import contextlib

    from parityscope.backends.tensorrt.memory import Device
    from parityscope.backends.tensorrt.packages import Package

__all__ = ["Allocated", "set_output_allocator"]


class _Memory(Protocol):
    @property
    def device(self) -> Device: ...
    @property
    def memory(self) -> contextlib.ExitStack: ...


@dataclass(slots=True, kw_only=True)
class Allocated:
    """Where TensorRT wrote an output, and its shape; `keeper` is TensorRT's object, which must live as long."""

    address: int = 0
    shape: tuple[int, ...] = ()
    keeper: Any = None


def set_output_allocator(package: Package, context: Any, name: str, memory: _Memory) -> Allocated:
    """Gives `context` an allocator for the output `name`, whose memory is poisoned before it is written."""
    trt = package.module
    held = Allocated()

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
