"""Loops that numba compiles, and whose machine code it keeps on disk: the one place that says how.

numba's cache is code that is run without being looked at, so it is used only where nobody else could have put it: a folder that
belongs to the user (or to root) and that no one else may write to. Elsewhere the loop is compiled in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

from parityscope.private_folders import is_private

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*, reassociate: bool = False, kept: bool = False) -> Callable[[F], F]:
    """Compiles with numba; the loop holds no lock while it runs.

    Args:
        reassociate: Sums may be taken in any order, and products added without rounding between; never with the "no NaN" or
            "no infinity" flags.
        kept: The machine code is kept on disk, so that the next process need not compile. Loops that only others call
            are part of these.
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
                return cast("F", made)
        return cast("F", njit(**options)(function))

    return decorate
