"""How many threads linear algebra takes: one in our own commands, as many as it likes in what others wrote.

The products that are made here are small. OpenBLAS shares each among all cores and lets its threads wait for one another in
loops, so that two commands at once on two cores took 90 s each where they take 22 s with one thread (measured). It reads the
variable when it is loaded. A candidate that is a program of the user's own gets the environment that the user gave.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_THREADS, _IS_OURS = "OPENBLAS_NUM_THREADS", "PARITYSCOPE_SET_THREADS"


def use_one_thread() -> None:
    """Gives this process and its forks one thread of linear algebra, unless the user chose; before numpy is imported."""
    if _THREADS not in os.environ:
        os.environ[_THREADS] = os.environ[_IS_OURS] = "1"


def environment_of_others(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment, by default this process's, without what only `use_one_thread` put there."""
    found = dict(os.environ if environment is None else environment)
    if found.pop(_IS_OURS, ""):
        found.pop(_THREADS, None)
    return found
