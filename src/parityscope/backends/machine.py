"""This machine and this process -> facts: CPU, GPU, driver, libraries that are loaded, switches in the environment.

All is read from files and variables; nothing is loaded, started or asked of a GPU. Where a fact cannot be read (another
system than Linux, no driver) it is left out.

A shared library's file -> the names of the libraries that it was linked with (DT_NEEDED), without loading it.

Source of the layout: System V Application Binary Interface, chapters 4 and 5 (ELF header, program headers, dynamic
section); 64-bit little-endian files only, which is what NVIDIA's and Intel's libraries are.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.environment import facts_of
from parityscope.errors import ParityError
from parityscope.plain_documents import read_json_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_LOAD, _DYNAMIC = 1, 2  # segment types PT_LOAD, PT_DYNAMIC
_NULL, _NEEDED, _STRTAB, _STRSZ = 0, 1, 5, 10  # dynamic tags
_MOST = 1 << 20  # bytes of a dynamic section or a string table that is believed
ENVIRONMENT_FILE = "environment.json"  # what a recording says of the machine it was made on, beside its tensors
# CPU features that decide in which precision, and with how many roundings, a CPU runtime computes.
CPU_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx_vnni",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_fp16",
    "amx_tile",
    "asimdhp",
    "bf16",
)
# Variables that change results; a driver, a library or an operator reads each of them.
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_CBWR",
    "OMP_NUM_THREADS",
)
# Libraries whose version changes results, and the fact that it is.
_LIBRARIES = {
    "libnvinfer": "tensorrt",
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libcublas": "cublas",
    "libcublasLt": "",
    "libonnxruntime": "",
    "libopenvino": "",
}
_VERSIONED = re.compile(r"/(lib[\w+-]+?)\.so((?:\.\d+)+)$")
_UNSET = "not set"
_NBYTES = 256 << 20  # of a file with facts (chosen), which may be a whole study


def machine_facts() -> dict[str, str]:
    """The facts of this machine and process as they are now; libraries are those that are loaded by now."""
    features = cpu_facts()
    found = {
        "cpu": features["name"],
        "cpu features": " ".join(features["features"]),
        "machine": platform.machine(),
        **{name: os.environ.get(name, _UNSET) for name in _VARIABLES},
        "subnormals": _subnormals_fact(),
        **_driver_facts(),
    }
    for library, (version, path) in loaded_libraries().items():
        found[f"loaded {library}"] = version
        fact = _LIBRARIES[library]
        if fact:
            found.setdefault(fact, version)
        for name, linked in _versions_linked_with(path).items():
            found.setdefault(f"linked {name}", linked)
    return {key: value for key, value in found.items() if value}


@functools.cache
def cpu_facts() -> dict[str, Any]:
    """Name and features of the CPU, those of `CPU_FEATURES` that it has."""
    text = _read_text_or_nothing(Path("/proc/cpuinfo"))
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    trimmed = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(trimmed.get("flags", trimmed.get("Features", "")).split())
    return {
        "name": trimmed.get("model name", platform.processor() or platform.machine()),
        "features": [feature for feature in CPU_FEATURES if feature in flags],
    }


def loaded_libraries(maps: str | None = None) -> dict[str, tuple[str, str]]:
    """Versions (several separated by commas) and the first path of the libraries that this process has loaded.

    `maps` is the text of /proc/self/maps, read now if it is not given. The kernel writes the file's own name there, and the
    version is that name's: libcudnn.so.9 is a link to libcudnn.so.9.1.0.
    """
    if maps is None:
        return dict(_libraries_after(_count_loads()))
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in maps.splitlines() if ".so" in line)
    found: dict[str, tuple[list[str], str]] = {}
    for path in paths:
        match = _VERSIONED.search(path)
        if match and match[1] in _LIBRARIES:
            versions, _ = found.setdefault(match[1], ([], path))
            version = match[2].lstrip(".")
            if version not in versions:
                versions.append(version)
    return {library: (", ".join(versions), path) for library, (versions, path) in sorted(found.items())}


@functools.lru_cache(maxsize=1)
def _libraries_after(_loads: object) -> dict[str, tuple[str, str]]:
    """What is loaded now: a process that has loaded much maps thousands of files, which take milliseconds to tell."""
    return loaded_libraries(_read_text_or_nothing(Path("/proc/self/maps")))


class _LoadedObject(ctypes.Structure):
    """What dl_iterate_phdr(3) tells of a loaded object, up to how many were loaded and unloaded so far."""

    _fields_ = (
        ("address", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("headers_count", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
        ("unloads", ctypes.c_ulonglong),
    )


def _count_loads() -> object:
    """What is another value whenever a library was loaded or unloaded since, or where the system does not count them."""
    iterate = getattr(ctypes.CDLL(None), "dl_iterate_phdr", None) if os.name == "posix" else None
    counts: list[tuple[int, int]] = []

    def take_first(told: Any, size: int, _: Any) -> int:
        if size >= ctypes.sizeof(_LoadedObject):
            counts.append((told.contents.loads, told.contents.unloads))
        return 1

    if iterate is not None:
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p)
        iterate(kind(take_first), None)
    return counts[0] if counts else object()


def _packages_by_runtime() -> dict[str, str]:
    """What brings each runtime, by the runtime's name."""
    from parityscope.backends import known_backends

    return {name: one.package or name for name, one in known_backends().items()}


def recorded_facts(path: Path) -> dict[str, str]:
    """The facts in a JSON file that was written where a deployment ran (`parityscope doctor --format json`), or in a study.

    Raises:
        ParityError: the file cannot be read or holds no facts.
    """
    document = read_json_file(path, "the environment", limit=_NBYTES)
    try:
        return facts_of(document, _packages_by_runtime() if "backends" in document else {})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ParityError(
            "this tells nothing of an environment",
            where=str(path),
            fix=f"write it on the other machine: parityscope doctor --format json > {path.name}",
        ) from error


def _versions_linked_with(path: str) -> Mapping[str, str]:
    """The versions of the known libraries that the library at `path` was linked with, by its own list."""
    found = {}
    for name in needed_libraries(Path(path)):
        match = _VERSIONED.search(f"/{name}")
        if match and match[1] in _LIBRARIES:
            found[match[1]] = match[2].lstrip(".")
    return found


def _driver_facts() -> dict[str, str]:
    """Driver and GPUs as the driver's own files tell them; nothing without one."""
    found = {}
    match = re.search(
        r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", _read_text_or_nothing(Path("/proc/driver/nvidia/version"))
    )
    if match:
        found["driver"] = match[1]
    folder = Path("/proc/driver/nvidia/gpus")
    names = [
        line.partition(":")[2].strip()
        for information in (sorted(folder.glob("*/information")) if folder.is_dir() else [])
        for line in _read_text_or_nothing(information).splitlines()
        if line.startswith("Model:")
    ]
    if names:
        found["gpu"] = ", ".join(names)
    return found


def _subnormals_fact() -> str:
    """Whether this thread keeps numbers below the smallest normal float32, or a library made it flush them."""
    import numpy as np

    return "kept" if float(np.float32(2.0**-130) * np.float32(0.5)) > 0.0 else "flushed to zero"


def _read_text_or_nothing(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def needed_libraries(path: Path) -> tuple[str, ...]:
    """The names in the order of the file; empty if it cannot be read or is no such file."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
            if not header.startswith(_MAGIC):
                return ()
            (start,) = struct.unpack_from("<Q", header, 32)
            size, count = struct.unpack_from("<HH", header, 54)
            segments = []
            for number in range(count):
                file.seek(start + number * size)
                kind, _, offset, address, _, stored = struct.unpack("<IIQQQQ", file.read(40))
                segments.append((kind, offset, address, stored))
            dynamic = next(((offset, stored) for kind, offset, _, stored in segments if kind == _DYNAMIC), None)
            if dynamic is None or dynamic[1] > _MOST:
                return ()
            file.seek(dynamic[0])
            entries = list(struct.iter_unpack("<qQ", file.read(dynamic[1] // 16 * 16)))
            tags = dict(entries)
            if _STRTAB not in tags or not 0 < tags.get(_STRSZ, 0) <= 64 * _MOST:
                return ()
            table = _offset_of_address(tags[_STRTAB], segments)
            if table is None:
                return ()
            names = []
            for tag, value in entries:
                if tag == _NULL:
                    break
                if tag == _NEEDED:
                    file.seek(table + value)
                    names.append(file.read(256).split(b"\0", 1)[0].decode("utf-8", "replace"))
            return tuple(names)
    except (OSError, struct.error):
        return ()


def _offset_of_address(address: int, segments: list[tuple[int, int, int, int]]) -> int | None:
    """Where in the file an address lies."""
    for kind, offset, begins, stored in segments:
        if kind == _LOAD and begins <= address < begins + stored:
            return offset + address - begins
    return None
