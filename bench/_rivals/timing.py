"""What a method costs: seconds of CPU, which a machine's other users do not change as they change the clock on the wall."""

from __future__ import annotations

import os

__all__ = ["cpu_seconds"]


def cpu_seconds() -> float:
    """Seconds of CPU of this process and of the children that it has waited for, all threads together."""
    return sum(os.times()[:4])
