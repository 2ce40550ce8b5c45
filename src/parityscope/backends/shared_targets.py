"""Targets that workers open and ask: a task is a group of samples, which every open session of a worker answers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from parityscope.backends import Capture
from parityscope.backends.both import open_both
from parityscope.backends.opening import open_target
from parityscope.backends.sharing import files_of_model, files_of_targets, locate_target, needs_gpu
from parityscope.case import load_model
from parityscope.custom_operators import library_in_use
from parityscope.workers import Job, Shipped
from parityscope.workers.packing import pack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from parityscope.backends import Session
    from parityscope.case import Model, Sample
    from parityscope.records import Target
    from parityscope.workers import Do

__all__ = ["SharedTargets", "make_job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTargets:
    """A target, or reference and candidate, and what is asked of them; it can be pickled.

    `asked` gets the open sessions, the number of a task and its samples, and gives a record that can be packed. `shapes` are
    what the last target is built for, if it is. `prepare` is called in a worker before anything is opened.
    """

    targets: tuple[Target, ...]
    asked: Callable[..., Any]
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    prepare: Callable[[], None] | None = None


def make_job(
    model: Model,
    shared: SharedTargets,
    groups: Sequence[tuple[int, ...]],
    read: Callable[[tuple[int, ...]], Iterator[Sample]],
) -> Job:
    """A task for each group of samples, which `read` gives by their indices."""
    return Job(
        count=len(groups),
        read=lambda number: read(groups[number]),
        open=partial(_open_tasks, model, shared),
        shipped=Shipped(
            files=(files_of_model(model.path), *files_of_targets(shared.targets)),
            open=partial(_open_there, str(model.path), shared),
            gpus=int(any(map(needs_gpu, shared.targets))),
            runtimes=tuple(dict.fromkeys(one.backend for one in shared.targets)),
        ),
    )


@contextlib.contextmanager
def _open_there(path: str, shared: SharedTargets, places: Mapping[str, Path]) -> Iterator[Do]:
    """As `_open_tasks` on another machine, with the files where they lie there; `path` is where the model lies here."""
    targets = tuple(locate_target(one, places) for one in shared.targets)
    with (
        library_in_use(targets[0].option("custom_ops")),
        _open_tasks(load_model(places[path]), replace(shared, targets=targets)) as do,
    ):
        yield do


@contextlib.contextmanager
def _open_tasks(model: Model, shared: SharedTargets) -> Iterator[Do]:
    """A worker's sessions, and what does a task with them."""
    if shared.prepare is not None:
        shared.prepare()
    with _open_sessions(model, shared.targets, Capture(shapes=shared.shapes)) as sessions:
        yield lambda number, samples: pack_record(shared.asked(*sessions, number, samples))


@contextlib.contextmanager
def _open_sessions(model: Model, targets: tuple[Target, ...], last: Capture) -> Iterator[tuple[Session, ...]]:
    if len(targets) == 1:
        with open_target(model, targets[0], last) as session:
            yield (session,)
    else:
        reference, candidate = targets
        with open_both(model, reference, candidate, theirs=last) as sessions:
            yield sessions
