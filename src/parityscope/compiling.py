"""Loops that numba compiles, and whose machine code it keeps on disk: the one place that says how.

numba's cache is code that is run without being looked at, so it is used only where nobody else could have put it: a folder that
belongs to the user (or to root) and that no one else may write to. That is beside the loop's file, or where NUMBA_CACHE_DIR says,
or else in the user's own cache; where none of them is such a folder the loop is compiled in every process.

Machine code that is there is loaded without what compiles: numba imports all it knows of Python and numpy before it looks
(0.45 of the 1.0 processor seconds that importing numba and loading one loop took).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

from parityscope.caches import user_cache
from parityscope.loading import tell_compiling
from parityscope.private_folders import is_private

F = TypeVar("F", bound=Callable[..., Any])

if hasattr(os, "register_at_fork"):
    # What another thread compiles is finished first: its lock would never be given back in the child.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


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
        if kept and (made := _make_kept(function, options)) is not None:
            _stamp_folder(made, Path(function.__code__.co_filename).parent)
            _load_alone(made)
            return cast("F", made)
        return cast("F", njit(**options)(function))

    return decorate


def _make_kept(function: Callable[..., Any], options: dict[str, Any]) -> Any:  # numba's, whose parts have no types
    """The loop with a cache that nobody else could have written to; None where there is no place for one."""
    own = user_cache() / "parityscope" / "loops"
    for place in (config.CACHE_DIR, str(own)):
        before, config.CACHE_DIR = config.CACHE_DIR, place
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # numba found no directory that it may write its cache to
            continue
        finally:
            config.CACHE_DIR = before
        folder = Path(made.stats.cache_path or "")
        if folder.parent == own:
            for each in (own.parent, own, folder):
                each.chmod(0o700)  # numba makes folders as the umask says
        if is_private(folder):
            return made
    return None


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
        found = None
        with guard():  # gives nothing where the disk fails, and the loop is compiled
            found = load(signature, context)
        if found is None:
            tell_compiling()
        return found

    vars(cache)["load_overload"] = load_overload
