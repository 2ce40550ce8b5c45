"""Device memory as bytes, through Polygraphy (it calls the CUDA runtime by itself and needs no other package)."""

from __future__ import annotations

import contextlib
import ctypes
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends.tensorrt.decoding import POISON
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Device:
    """A CUDA stream and the memory that was taken for one run. Buffers are freed when the run's stack closes."""

    def __init__(self, cuda: Any, stream: Any, failures: tuple[type[Exception], ...] = ()) -> None:
        self._cuda = cuda
        self._stream = stream
        self._failures = failures  # what Polygraphy raises when CUDA does not give what is asked for

    @property
    def handle(self) -> int:
        """The address of the stream."""
        handle: int = self._stream.ptr
        return handle

    def put(self, content: np.ndarray, memory: contextlib.ExitStack) -> int:
        """The address of device memory that holds a copy of `content` (C order, any type)."""
        return self._filled(np.ascontiguousarray(content).reshape(-1).view(np.uint8), memory)

    def poisoned(self, nbytes: int, memory: contextlib.ExitStack) -> int:
        """The address of device memory of `nbytes` in which every byte is `POISON`."""
        return self._filled(np.full(max(nbytes, 1), POISON, dtype=np.uint8), memory)

    def fetch(self, address: int, nbytes: int) -> np.ndarray:
        """The bytes at an address of the device, uint8, (nbytes,), when all work of the stream is done."""
        held = np.empty(nbytes, dtype=np.uint8)
        self._stream.synchronize()
        if nbytes:
            kind = self._cuda.MemcpyKind.DeviceToHost
            self._cuda.wrapper().memcpy(dst=held.ctypes.data, src=address, nbytes=nbytes, kind=kind)
        return held

    def fetch_from(self, address: int, nbytes: int, stream: int) -> np.ndarray:
        """As `fetch`, of the work of another stream: the one that a listener is told."""
        self._cuda.wrapper().stream_synchronize(stream)
        return self.fetch(address, nbytes)

    def _filled(self, content: np.ndarray, memory: contextlib.ExitStack) -> int:
        try:
            held = memory.enter_context(self._cuda.DeviceArray.raw((max(content.nbytes, 1),)))
            if content.nbytes:
                held.copy_from(content, self._stream)
                # The source may be gone before an asynchronous copy reads it.
                self._stream.synchronize()
        except self._failures as error:
            raise _refusal_of(error, content.nbytes) from error
        address: int = held.ptr
        return address


def _refusal_of(error: Exception, nbytes: int) -> ParityError:
    """CUDA's refusal to hold a tensor of `nbytes`, by the number that Polygraphy tells (2 is cudaErrorMemoryAllocation)."""
    told = re.search(r"CUDA Error: (\d+)", str(error))
    if told and told[1] == "2":
        return ParityError(
            f"the GPU has no memory left for a tensor of {nbytes} bytes",
            fix="end what else uses the GPU, or give smaller samples",
        )
    return ParityError(
        f"CUDA fails while a tensor is copied: {' '.join(str(error).split())[:200]}",
        fix="run it again; if it stays so, parityscope doctor tells what of driver and CUDA does not fit",
    )


@contextlib.contextmanager
def opened_device() -> Iterator[Device]:
    """A stream of the first GPU.

    Raises:
        ParityError: Polygraphy is not installed, or finds no CUDA runtime.
    """
    try:
        from polygraphy import cuda
        from polygraphy.exception import PolygraphyException
    except ImportError as error:
        raise ParityError("running an engine needs Polygraphy", fix="pip install 'parityscope[tensorrt]'") from error
    try:
        stream = cuda.Stream()
    except (PolygraphyException, OSError) as error:
        raise ParityError(
            f"the CUDA runtime cannot be used: {' '.join(str(error).split())[:300]}",
            fix="install CUDA's runtime library (pip install nvidia-cuda-runtime) and NVIDIA's driver; parityscope doctor tells",
        ) from error
    with stream:
        yield Device(cuda, stream, (PolygraphyException,))


def pointer_of(address: Any) -> int:
    """An address that TensorRT's bindings give: a number (10), or a capsule around it (11 and RTX)."""
    if isinstance(address, int):
        return address
    unpack = ctypes.pythonapi.PyCapsule_GetPointer
    unpack.restype, unpack.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found: int = unpack(address, name(address)) or 0
    return found
