"""The kernels of `_kernel` and `_replay_kernel` as machine code that later processes load without numba.

Importing numba and what it needs to call its own cached code takes 0.3 s, which is longer than comparing most models'
outputs; linking a finished object file takes 0.03 s (measured). So the first process that needs a kernel has numba compile it
behind a C interface and keeps the object file, and later ones link that with LLVM's JIT linker, which numba itself uses.

A file is known by everything that its code depends on: the source, numba's and LLVM's versions, the CPU and its features. It lies
beside Python's own bytecode, or in the user's cache where that cannot be written. Where it cannot be read or linked, the
kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison._bins import BLOCK, LANES, SKETCH_WIDTH, VALUE_BINS
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["measure_block", "replay_block"]

_DIGEST_BYTES = 32
_COMPILING = threading.Lock()
_LINKING = threading.Lock()
_ALIVE: list[Any] = []  # what owns machine code that was compiled in this process
# What compiled code calls to raise an error in Python. The kernels raise none, so whoever came here would be lost anyway.
_RAISING = (
    "NRT_Free",
    "NRT_MemInfo_call_dtor",
    "numba_do_raise",
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_runtime_build_excinfo_struct",
    "numba_unpickle",
)


def measure_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    reference_keys: np.ndarray,
    candidate_keys: np.ndarray,
    mask: int,
    first: int,
    inner: int,
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    sketch: np.ndarray,
    values: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
) -> None:
    """`_kernel.measure_block`, which says what the arguments are; it holds no lock while it runs."""
    data = [np.ascontiguousarray(array) for array in (reference, candidate, reference_keys, candidate_keys)]
    _loaded("measure", reference.dtype.name, reference_keys.dtype.name)(
        *map(_address, data),
        reference.size,
        mask,
        first,
        inner,
        squares.shape[1],
        *map(_address, (moments, counts, extremes, sketch, values, squares, disagreeing, *_room())),
    )


def replay_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    first: int,
    inner: int,
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
) -> None:
    """`_replay_kernel.replay_block`, which says what the arguments are; it holds no lock while it runs."""
    data = [np.ascontiguousarray(array) for array in (reference, candidate, replayed)]
    _loaded("replay", reference.dtype.name, "")(
        *map(_address, data),
        reference.size,
        first,
        inner,
        squares.shape[1],
        *map(_address, (moments, counts, extremes, squares, disagreeing, *_room()[:2])),
    )


_WORKING = threading.local()


def _room() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """This thread's room for a block: float64 and int64, (3, BLOCK); uint32, (BLOCK,)."""
    if not hasattr(_WORKING, "arrays"):
        _WORKING.arrays = np.empty((3, BLOCK)), np.empty((3, BLOCK), np.int64), np.empty(BLOCK, np.uint32)
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = _WORKING.arrays
    return found


def _address(array: np.ndarray) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("a kernel's table must be contiguous")
    return array.ctypes.data


def _loaded(name: str, element: str, key: str) -> Callable[..., None]:
    with _COMPILING:
        return _load(name, element, key)


@functools.cache
def _load(name: str, element: str, key: str) -> Callable[..., None]:
    """The kernel for elements and keys of these dtypes ("float32", "int32"): linked, or compiled and kept."""
    kinds = _signature(name, element, key)
    function = ctypes.CFUNCTYPE(None, *(ctypes.c_int64 if kind == "number" else ctypes.c_void_p for kind in kinds))
    identity = _identity(name, element, key)
    for folder in _folders():
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            return function(_linked((folder / identity).read_bytes()))
    entry = _compiled(name, element, key)
    with contextlib.suppress(AttributeError):  # another numba may keep these elsewhere; compiling anew is only slower
        library = entry._library  # noqa: SLF001 - the only way to the object file
        code = library._codegen._tm.emit_object(library._final_module)  # noqa: SLF001 - as above
        symbol = entry._wrapper_name.encode()  # noqa: SLF001 - as above
        _keep(identity, symbol + b"\n" + code)
    called = function(entry.address)
    _ALIVE.append(entry)
    return called


def _signature(name: str, element: str, key: str) -> list[str]:
    """The C arguments: pointers to elements of a dtype, and 64-bit numbers."""
    if name == "measure":
        tables = ["float64", *["int64"] * 4, "float64", "int64", "float64", "int64", "uint32"]
        return [element, element, key, key, *["number"] * 5, *tables]
    tables = ["float64", "int64", "int64", "float64", "int64", "float64", "int64"]
    return [element, element, element, *["number"] * 4, *tables]


def _compiled(name: str, element: str, key: str) -> Any:
    """The kernel compiled behind a C interface, as numba's callback."""
    from numba import carray, cfunc, types

    from parityscope.comparison._kernel import measure_block as measure_kernel
    from parityscope.comparison._replay_kernel import replay_block as replay_kernel

    def measure(r, c, rk, ck, n, mask, first, inner, channels, m, co, ex, sk, va, sq, di, w, k, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by the signature below
        measure_kernel(
            carray(r, (n,)),
            carray(c, (n,)),
            carray(rk, (n,)),
            carray(ck, (n,)),
            mask,
            first,
            inner,
            carray(m, (10,)),
            carray(co, (7,)),
            carray(ex, (8,)),
            carray(sk, (LANES, SKETCH_WIDTH)),
            carray(va, (2, LANES, VALUE_BINS)),
            carray(sq, (2, channels)),
            carray(di, (channels,)),
            carray(w, (3, BLOCK)),
            carray(k, (3, BLOCK)),
            carray(b, (BLOCK,)),
        )

    def replay(r, c, f, n, first, inner, channels, m, co, ex, sq, di, w, k):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by the signature below
        replay_kernel(
            carray(r, (n,)),
            carray(c, (n,)),
            carray(f, (n,)),
            first,
            inner,
            carray(m, (5,)),
            carray(co, (7,)),
            carray(ex, (3,)),
            carray(sq, (2, channels)),
            carray(di, (channels,)),
            carray(w, (3, BLOCK)),
            carray(k, (3, BLOCK)),
        )

    arguments = [
        types.int64 if kind == "number" else types.CPointer(getattr(types, kind))
        for kind in _signature(name, element, key)
    ]
    return cfunc(types.void(*arguments), nopython=True)(measure if name == "measure" else replay)


def _identity(name: str, element: str, key: str) -> str:
    """The name of the object file: everything that its code depends on."""
    import llvmlite.binding as llvm

    text = hashlib.sha256()
    for file in ("_kernel.py", "_replay_kernel.py", "_loops.py", "_bins.py", "_native.py"):
        text.update(Path(__file__).with_name(file).read_bytes())
    facts = [version("numba"), version("llvmlite"), sys.platform, llvm.get_host_cpu_name()]
    facts += [llvm.get_host_cpu_features().flatten()]
    facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]
    text.update("\n".join(facts).encode())
    return f"{name}-{element}-{key or element}-{text.hexdigest()[:20]}.kernel"


def _folders() -> Sequence[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(__file__).with_name("__pycache__"), cache / "parityscope" / "kernels"


def _keep(identity: str, content: bytes) -> None:
    """Writes the object file, whole or not at all, to the first folder that can be written."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / identity, hashlib.sha256(content).digest() + content)
            return


def _linked(held: bytes) -> int:
    """The address of the function in an object file that was kept.

    Raises:
        ValueError: the file is damaged.
        RuntimeError: LLVM refuses it.
    """
    import llvmlite.binding as llvm

    digest, content = held[:_DIGEST_BYTES], held[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("the object file is damaged")
    symbol, _, code = content.partition(b"\n")
    # Two threads at once would each make an engine, and the code that the one linked which is not kept would be freed.
    with _LINKING:
        engine = _engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address: int = engine.get_function_address(symbol.decode())
    if not address:
        raise ValueError("the object file lacks its function")
    return address


@functools.cache
def _engine() -> Any:
    """LLVM's JIT linker; it owns the code, so it lives as long as the process."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    lost = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in _RAISING:
        llvm.add_symbol(name, lost)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
