"""Memory of this process in the place of a device's."""

import ctypes

import numpy as np


class Cudart:
    """The calls of CUDA's runtime library that the recorder makes, each giving 0; `limit` is all the memory there is."""

    def __init__(self, limit=1 << 40):
        self.held, self.limit = {}, limit

    def cudaStreamCreate(self, stream):
        stream._obj.value = 7
        return 0

    def cudaMalloc(self, address, size):
        if sum(len(each) for each in self.held.values()) + size.value > self.limit:
            return 2  # cudaErrorMemoryAllocation
        block = np.zeros(size.value, np.uint8)
        self.held[block.ctypes.data] = block
        address._obj.value = block.ctypes.data
        return 0

    def cudaFree(self, address):
        del self.held[address.value]
        return 0

    def cudaMemcpy(self, target, source, size, kind):
        ctypes.memmove(target.value, source.value, size.value)
        return 0

    def cudaStreamSynchronize(self, stream):
        return 0

    def cudaRuntimeGetVersion(self, number):
        number._obj.value = 12060
        return 0

    def cudaDriverGetVersion(self, number):
        return self.cudaRuntimeGetVersion(number)


class _Array:
    def __init__(self, nbytes):
        self.held = np.zeros(nbytes, np.uint8)
        self.ptr = self.held.ctypes.data

    @classmethod
    def raw(cls, shape):
        return cls(shape[0])

    def copy_from(self, content, stream):
        self.held[: content.nbytes] = content

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.held[:] = 0


class Polygraphy:
    """The part of `polygraphy.cuda` that the adapter uses."""

    DeviceArray = _Array

    class MemcpyKind:
        DeviceToHost = "DeviceToHost"

    class Stream:
        ptr = 7

        def synchronize(self):
            return None

    class _Wrapper:
        def memcpy(self, dst, src, nbytes, kind):
            ctypes.memmove(dst, src, nbytes)

        def stream_synchronize(self, stream):
            return None

    @classmethod
    def wrapper(cls):
        return cls._Wrapper()
