"""One piece of work in many tasks: in processes of this machine, or on a Ray cluster.

A task has a number and gives bytes. `processes` hands numbers to forked workers, `on_ray` to actors of a cluster; both give
what was done back in whatever order it ends, and give a task that was lost with its worker to another one. `finishing` writes
each once, whole, under its number, and hands all on in the order of their numbers: what is made of them does not depend on
who did what when. `packing` makes bytes of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

# Samples of one task. Chosen: so few that 256 tasks come of few samples, which keeps many workers busy and loses little with one
# of them; so many that a task of a billion samples costs more than its overhead, and that its samples are no burden.
_TASKS, _LARGEST = 256, 256


# (number, what was read for it) -> what the task gives
Do = Callable[[int, Iterable[Any]], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFiles:
    """What lies at `path`, a file or a folder: `files` are those that it takes, all of them in the folder that `path` is in."""

    path: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """How a worker of another machine does the same: what it gets once, and what it needs.

    `open` is given where the shipped files lie there, by the path that they have here. It can be pickled. `gpus` is how many a
    worker takes for itself, `runtimes` the backends that must be there.
    """

    files: tuple[ShippedFiles, ...]
    open: Callable[[Mapping[str, Path]], AbstractContextManager[Do]]
    gpus: int = 0
    runtimes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tasks from 0 to `count`: `read` gives what the task of a number is about, such as its samples.

    `open`, called in each worker of this machine, makes it ready and gives what does a task of its number and of what was read.
    """

    count: int
    read: Callable[[int], Iterable[Any]]
    open: Callable[[], AbstractContextManager[Do]]
    shipped: Shipped | None = None


def group_samples(indices: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The samples of each task: by their number alone, so that the sums are added up alike wherever tasks are done."""
    size = min(_LARGEST, max(1, -(-len(indices) // _TASKS)))
    return [indices[start : start + size] for start in range(0, len(indices), size)]
