"""What a method costs: seconds of CPU, which a machine's other users do not change as they change the clock on the wall."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_ROUNDS = 7  # chosen: runs of each side, in turns, of which the fastest counts


def cpu_seconds() -> float:
    """Seconds of CPU of this process and of the children that it has waited for, all threads together."""
    return sum(os.times()[:4])


def ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times as much CPU `one` takes as `other`: the fastest of several runs in turns, after one of each."""
    least = [float("inf"), float("inf")]
    for number in range(_ROUNDS + 1):
        for place, call in enumerate((one, other)):
            started = time.process_time()
            call()
            least[place] = min(least[place], time.process_time() - started if number else float("inf"))
    return least[0] / least[1] if least[1] else float("inf")
