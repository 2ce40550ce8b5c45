"""One piece of work in many tasks: in processes of this machine, or on a Ray cluster.

A task has a number and gives bytes. `processes` hands numbers to forked workers, `on_ray` to actors of a cluster; both give
what was done back in whatever order it ends, and give a task that was lost with its worker to another one. `finishing` writes
each once, whole, under its number, and hands all on in the order of their numbers: what is made of them does not depend on
who did what when. `packing` makes bytes of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Job", "group_samples"]

# Samples of one task. Chosen: so few that 256 tasks come of few samples, which keeps many workers busy and loses little with one
# of them; so many that a task of a billion samples costs more than its overhead.
_TASKS, _LARGEST = 256, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tasks from 0 to `count`; `open`, called in each worker, makes it ready and gives what does the task of a number."""

    count: int
    open: Callable[[], AbstractContextManager[Callable[[int], bytes]]]


def group_samples(indices: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The samples of each task: by their number alone, so that the sums are added up alike wherever tasks are done."""
    size = min(_LARGEST, max(1, -(-len(indices) // _TASKS)))
    return [indices[start : start + size] for start in range(0, len(indices), size)]
