"""When it pays to load numba: a loop that numpy can do as well, if more slowly, is left to numpy until enough comes together.

Importing numba and loading one loop that it compiled takes half a processor second, a third of a short command. Whoever has both
ways of a loop asks here which to take.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WORTH_S = 0.2  # chosen: half of what loading takes, as nobody knows what is still to come
_COMPILING = "parityscope.compiling"
_spent_s = 0.0
_told: list[Callable[[], None]] = []


def pays_to_load(lost_s: float) -> bool:
    """Whether a loop is to be taken compiled, which numpy would do `lost_s` seconds more slowly."""
    global _spent_s  # noqa: PLW0603 - what all loops of this process lost together
    if _COMPILING in sys.modules:
        return True
    _spent_s += lost_s
    return _spent_s > WORTH_S


def when_compiling(tell: Callable[[], None]) -> None:
    """Lets `tell` be called when the first loop has to be compiled, for which a user waits some seconds."""
    _told[:] = [tell]


def tell_compiling() -> None:
    """Tells whoever asked, once, that a loop is being compiled."""
    if _told:
        _told.pop()()
