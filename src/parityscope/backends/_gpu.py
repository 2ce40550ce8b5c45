"""NVIDIA's driver -> the GPUs that it has, with their compute capability and memory, and the CUDA that it brings.

Asked of libcuda.so.1 itself, by the functions of the driver API (cuda.h), so no runtime has to be installed.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

__all__ = ["Driver", "Gpu", "find_driver", "none_because"]

# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h.
_CAPABILITY_ATTRIBUTES = (75, 76)
_NAME_BYTES = 256
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU: its name, compute capability ((9, 0) is Hopper), and memory in bytes."""

    name: str
    capability: tuple[int, int]
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """`cuda` is the newest CUDA that the driver serves ("13.0"), "" without one; `problem` says why there are no GPUs."""

    cuda: str = ""
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


def find_driver() -> Driver:
    """The driver and its GPUs."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Driver(problem="no CUDA driver is loaded (libcuda.so.1)")
    number = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    # 12040 is CUDA 12.4.
    cuda = f"{number.value // 1000}.{number.value % 1000 // 10}"
    count = ctypes.c_int(0)
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        words = ctypes.c_char_p()
        if library.cuGetErrorString(status, ctypes.byref(words)) != 0:
            words = ctypes.c_char_p(f"error {status}".encode())
        told = (words.value or b"").decode(errors="replace")
        return Driver(cuda=cuda, problem=none_because(status, told, os.environ.get("CUDA_VISIBLE_DEVICES")))
    return Driver(cuda=cuda, gpus=tuple(_read_gpu(library, place) for place in range(count.value)))


def none_because(status: int, told: str, visible: str | None) -> str:
    """Why there is no GPU: the driver's status and its words for it, and the variable that hides GPUs (None: not set)."""
    if visible is not None and status in {0, _NO_DEVICE}:
        return f"no NVIDIA GPU is visible: CUDA_VISIBLE_DEVICES is {visible!r}"
    if status in {0, _NO_DEVICE}:
        return "there is no NVIDIA GPU"
    return f"the NVIDIA driver cannot be used: {told} (CUDA error {status})"


def _read_gpu(library: Any, place: int) -> Gpu:
    name = ctypes.create_string_buffer(_NAME_BYTES)
    library.cuDeviceGetName(name, _NAME_BYTES, place)
    nbytes = ctypes.c_size_t(0)
    library.cuDeviceTotalMem_v2(ctypes.byref(nbytes), place)
    numbers = []
    for attribute in _CAPABILITY_ATTRIBUTES:
        number = ctypes.c_int(0)
        library.cuDeviceGetAttribute(ctypes.byref(number), attribute, place)
        numbers.append(number.value)
    return Gpu(name=name.value.decode(errors="replace"), capability=(numbers[0], numbers[1]), nbytes=nbytes.value)
