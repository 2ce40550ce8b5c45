"""NVIDIA's driver -> the GPUs that it has, with their compute capability and memory, and the CUDA that it brings.

Asked of libcuda.so.1 itself, by the functions of the driver API (cuda.h), so no runtime has to be installed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Any

from parityscope.light_dataclasses import dataclass

# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h.
_CAPABILITY_ATTRIBUTES = (75, 76)
_NAME_BYTES = 256
# nvidia-smi's fields and our facts of them; the recorder for boxes with TensorRT asks for the same.
_SETTINGS = {
    "name": "gpu",
    "driver_version": "driver",
    "compute_cap": "compute capability",
    "clocks.sm": "gpu clock",
    "persistence_mode": "persistence mode",
    "mig.mode.current": "mig",
}
_PATIENCE_S = 60.0
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


def settings_of_gpu() -> dict[str, str]:
    """What nvidia-smi tells of the first GPU, its clock, persistence mode and MIG too; nothing where it tells nothing."""
    if not shutil.which("nvidia-smi"):
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(_SETTINGS)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return {}
    values = [value.strip() for value in said.split("\n", maxsplit=1)[0].split(",")]
    if len(values) != len(_SETTINGS):
        return {}
    return {key: value for key, value in zip(_SETTINGS.values(), values, strict=True) if not value.startswith("[")}


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
