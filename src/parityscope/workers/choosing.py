"""What `--workers` says: so many processes of this machine, or a Ray cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.workers.on_ray import AUTO, SCHEME, run_on_ray
from parityscope.workers.processes import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.workers import Job

_MOST = 1024  # processes of one machine; chosen


def check_workers(text: str) -> None:
    """Refuses what is no way to say who does the work; nothing is said by an empty text.

    Raises:
        ParityError: it is neither a number of processes nor a cluster.
    """
    if text and not (_names_cluster(text) or (text.isdecimal() and 1 <= int(text) <= _MOST)):
        raise ParityError(
            f"--workers {text!r} is neither a number of processes from 1 to {_MOST} nor a Ray cluster",
            fix=f"write --workers 8, --workers {SCHEME}HOST:10001, or inside a Ray job --workers {AUTO}",
        )


def choose_run(workers: str, job: Job) -> Callable[[Sequence[int]], Iterator[tuple[int, bytes | ParityError]]]:
    """What does tasks of `job` with these workers.

    Raises:
        ParityError: there are no such workers.
    """
    check_workers(workers)
    if _names_cluster(workers):
        return partial(run_on_ray, job, workers)
    return partial(run_in_processes, job, workers=int(workers))


def _names_cluster(text: str) -> bool:
    return text == AUTO or (text.startswith(SCHEME) and len(text) > len(SCHEME))
