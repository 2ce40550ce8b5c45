"""Loops that numba compiles, and whose machine code it keeps on disk: the one place that says how.

numba's cache is code that is run without being looked at, so it is used only where nobody else could have put it: a folder that
belongs to the user (or to root) and that no one else may write to. Elsewhere the loop is compiled in every process.

Machine code that is there is loaded without what compiles: numba imports all it knows of Python and numpy before it looks
(0.45 of the 1.0 processor seconds that importing numba and loading one loop took).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.runtime import rtsys

from parityscope.private_folders import is_private

__all__ = ["compile_loop"]

F = TypeVar("F", bound=Callable[..., Any])


def compile_loop(*, reassociate: bool = False, kept: bool = False) -> Callable[[F], F]:
    """Compiles with numba; the loop holds no lock while it runs.

    Args:
        reassociate: Sums may be taken in any order, and products added without rounding between; never with the "no NaN" or
            "no infinity" flags.
        kept: The machine code is kept on disk, so that the next process need not compile. Loops that only others call
            are part of these, so that it is made again when any file of the loop's folder has changed.
    """
    fastmath: set[str] = {"reassoc", "contract", "nsz"} if reassociate else set()
    # numpy's model of errors: a division by zero raises nothing, so that no code for raising is made.
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}

    def decorate(function: F) -> F:
        if kept:
            try:
                made = njit(cache=True, **options)(function)
            except RuntimeError:  # numba found no directory that it may write its cache to
                made = None
            if made is not None and is_private(Path(made.stats.cache_path or "")):
                _stamp_folder(made, Path(function.__code__.co_filename).parent)
                _load_alone(made)
                return cast("F", made)
        return cast("F", njit(**options)(function))

    return decorate


def _stamp_folder(dispatcher: Any, folder: Path) -> None:  # numba's, whose parts have no types
    """Lets the machine code hold for the files of this folder as they are: numba looks at the loop's own file alone."""
    index = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        files = sorted(folder.glob("*.py"))
        vars(index)["_source_stamp"] = [(file.name, file.stat().st_mtime, file.stat().st_size) for file in files]


def _load_alone(dispatcher: Any) -> None:  # numba's, whose parts have no types
    """Lets a loop's cache be read before the compiler is made ready, which it is where there is something to compile."""
    cache = getattr(dispatcher, "_cache", None)
    load = getattr(cache, "_load_overload", None)
    guard = getattr(cache, "_guard_against_spurious_io_errors", None)
    if load is None or guard is None:  # another numba: as it does it itself
        return

    def load_overload(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)  # loaded code refers to numba's runtime
        with guard():  # gives nothing where the disk fails, and the loop is compiled
            return load(signature, context)

    vars(cache)["load_overload"] = load_overload
