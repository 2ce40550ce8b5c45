"""Functions as machine code behind a C interface, kept on disk so that later processes need no numba to call them.

The same way as the kernels of `comparison` (`_native` says why): compiled once for a CPU, linked by LLVM afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.comparison._native import _folders, _keep, _linked

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["address_of"]

_ALIVE: list[Any] = []  # what owns machine code that was compiled in this process


def address_of(module: str, function: str, *, result: bool, files: Sequence[Path]) -> int:
    """The address of `module.function`, which takes two 64-bit integers and gives one, or nothing without `result`.

    `files` are the sources that its code depends on.
    """
    identity = _identity(f"{module}.{function}", files)
    for folder in _folders():
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            return _linked((folder / identity).read_bytes())
    from numba import cfunc, types

    signature = (types.int64 if result else types.void)(types.int64, types.int64)
    entry = cfunc(signature, nopython=True)(getattr(import_module(module), function))
    with contextlib.suppress(AttributeError):  # another numba may keep these elsewhere; compiling anew is only slower
        library = entry._library  # noqa: SLF001 - the only way to the object file
        code = library._codegen._tm.emit_object(library._final_module)  # noqa: SLF001 - as above
        _keep(identity, entry._wrapper_name.encode() + b"\n" + code)  # noqa: SLF001 - as above
    _ALIVE.append(entry)
    found: int = entry.address
    return found


def _identity(name: str, files: Sequence[Path]) -> str:
    """The name of the object file: everything that its code depends on."""
    import llvmlite.binding as llvm

    text = hashlib.sha256()
    for file in (Path(__file__), *files):
        text.update(file.read_bytes())
    facts = [name, version("numba"), version("llvmlite"), sys.platform, llvm.get_host_cpu_name()]
    facts += [llvm.get_host_cpu_features().flatten()]
    facts += [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("NUMBA_")]
    text.update("\n".join(facts).encode())
    return f"{name.rpartition('.')[2]}-{text.hexdigest()[:20]}.kernel"
