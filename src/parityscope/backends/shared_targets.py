"""Targets that workers open and ask: a task is a group of samples, which every open session of a worker answers.

What a target needs on another machine: the files that it names, a GPU, its runtime.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import Capture, backend_named
from parityscope.backends.both import open_both
from parityscope.backends.opening import open_target
from parityscope.case import load_model
from parityscope.case.intake import external_files, read_message
from parityscope.custom_operators import library_in_use
from parityscope.light_dataclasses import dataclass, replace
from parityscope.workers import Job, Shipped, ShippedFiles
from parityscope.workers.packing import pack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.backends import Session
    from parityscope.case import Model, Sample
    from parityscope.records import Target
    from parityscope.workers import Do

_ON_GPU = ("cuda", "tensorrt", "gpu")


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
            files=(_files_of_model(model.path), *files_of_targets(shared.targets)),
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


def _files_of_model(path: Path) -> ShippedFiles:
    """A model with its external data."""
    return ShippedFiles(path=path, files=(path, *external_files(read_message(path), path)))


def files_of_targets(targets: Sequence[Target]) -> tuple[ShippedFiles, ...]:
    """All that options of targets name and that is here, each once."""
    return tuple({found.path: found for target in targets for found in _named_files(target)}.values())


def locate_target(target: Target, places: Mapping[str, Path]) -> Target:
    """The target with its files where they lie there; `places` by the paths that they have here."""
    return replace(target, options=tuple((key, str(places.get(value, value))) for key, value in target.options))


def needs_gpu(target: Target) -> bool:
    """Whether a target runs on an NVIDIA GPU."""
    device = target.option("device") or target.option("provider")
    return backend_named(target.backend).tensorrt == "yes" or device.lower().startswith(_ON_GPU)


def _named_files(target: Target) -> Iterator[ShippedFiles]:
    for _, value in target.options:
        path = Path(value)
        try:
            is_file, is_folder = path.is_file(), path.is_dir()
        except OSError:  # too long for a name
            continue
        if is_folder:
            yield ShippedFiles(path=path, files=tuple(sorted(one for one in path.rglob("*") if one.is_file())))
        elif is_file:
            yield _files_of_model(path) if path.suffix == ".onnx" else ShippedFiles(path=path, files=(path,))
