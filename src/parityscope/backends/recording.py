"""Runs a target on samples and keeps what it gave: the one way from a `Target` to a `Trace`.

Intermediate tensors are captured in chunks whose estimated size stays under half the memory budget (the other half is
for the runtime's own buffers), each chunk in a session of its own, and spilled to one safetensors file per sample
and chunk. The outputs of every captured run are compared with those of an undisturbed run: capturing changes fusion
and so may change results, and a difference is a fact about the deployment.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, Session, backend
from parityscope.backends._child import open_in_child
from parityscope.backends._onnxruntime import open_bytes
from parityscope.backends.command import seconds
from parityscope.backends.resuming import ledger_of
from parityscope.backends.targets import check_target, format_target
from parityscope.case.extending import SHAPE_SUFFIX, inferred_shapes, with_shape_outputs
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.records import Skip, Target
from parityscope.trace import Trace, write_safetensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Inputs, Model, Sample
    from parityscope.trace import StoredTensor

__all__ = [
    "Progress",
    "Request",
    "model_of",
    "observable",
    "open_target",
    "plan_chunks",
    "record",
    "silent",
    "tensor_shapes",
]

Progress = Callable[[str, int, int], None]  # (what is done, step, steps)

_ISOLATED_TIMEOUT_S = 600.0  # chosen, as for `command`
_WIDEST_FLOAT = 4  # bytes; intermediate tensors are float32 but for a few index tensors


def silent(what: str, step: int, steps: int) -> None:
    """The progress that nobody watches."""


def model_of(model: Model, target: Target) -> Model:
    """The model that `target` runs: its own (`model=PATH`) or the reference's."""
    path = target.option("model")
    return load_model(path) if path else model


@contextlib.contextmanager
def open_target(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    """A session of `target`, in a child process if the target asks for one (`isolate=on`, `timeout=SECONDS`).

    Raises:
        ParityError: the backend is unknown or unusable here, an option is, or the runtime refuses the model.
    """
    runtime = backend(target.backend)
    check_target(target, runtime)
    if problem := (probe := runtime.probe()).problem:
        raise ParityError(problem, where=format_target(target), fix=probe.fix)
    if capture.tensors and not runtime.observes:
        raise ParityError(f"{runtime.name} shows no intermediate tensors", fix="compare its outputs only")
    own = model_of(model, target)
    timeout = target.option("timeout")
    if runtime.name == "command" or not (timeout or target.option("isolate") == "on"):
        with runtime.open(own, target, capture) as session:
            yield session
        return
    left = tuple((key, value) for key, value in target.options if key not in {"timeout", "isolate", "model"})
    inner = Target(backend=target.backend, precision=target.precision, options=left)
    with open_in_child(own, inner, capture, seconds(timeout, _ISOLATED_TIMEOUT_S)) as session:
        yield session


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to record: which samples, which tensors besides the outputs, where to spill, how much memory (bytes)."""

    samples: tuple[int, ...]
    tensors: tuple[str, ...] = ()
    folder: Path | None = None
    memory: int = 512 << 20
    label: str = "trace"


def record(model: Model, inputs: Inputs, target: Target, request: Request, progress: Progress = silent) -> Trace:
    """Runs `target` on the samples asked for.

    `model` is the reference's; tensors are named as in the model that the target runs (`model=PATH`).

    Raises:
        ParityError: the target cannot run, or the disk has no room for the tensors.
    """
    plain = _record_chunk(model, inputs, target, request, (), None, progress)
    if not request.tensors:
        return plain
    if request.folder is None:
        raise ValueError("capturing intermediate tensors needs a folder to spill to")
    own = model_of(model, target)
    chunks = plan_chunks(own, inputs.sample(request.samples[0]), request.tensors, request.memory // 2)
    _check_room(chunks, len(request.samples), request.folder)
    ledger = ledger_of(request.folder, target, own)
    tensors: dict[tuple[int, str], np.ndarray | StoredTensor] = dict(plain.tensors)
    absent: dict[str, Skip] = {}
    disturbance = 0.0
    spent = plain.seconds
    last = plain
    for number, chunk in enumerate(chunks):
        kept = ledger.kept(request.label, number, request.samples, tuple(chunk)) if ledger else None
        last = kept or _record_chunk(model, inputs, target, request, tuple(chunk), number, progress)
        if ledger and kept is None:
            ledger.keep(request.label, number, tuple(chunk), last)
        disturbance = max(disturbance, _distance(plain, last))
        # Outputs of the last chunk stay: they belong to the same run as the tensors just before them.
        tensors.update(last.tensors)
        absent.update((skip.what, skip) for skip in last.absent)
        spent += last.seconds
    held = {name for _, name in tensors}
    return Trace(
        target=target,
        environment=last.environment,
        samples=request.samples,
        names=(*plain.outputs, *(name for name in request.tensors if name in held and name not in plain.outputs)),
        outputs=plain.outputs,
        disturbs=last.disturbs,
        disturbance=disturbance,
        absent=tuple(absent.values()),
        seconds=spent,
        executed=plain.executed or last.executed,
        tensors=tensors,
    )


def tensor_shapes(model: Model, sample: Sample, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of intermediate tensors on one sample: by shape inference, and by one run where that cannot tell.

    The run has a Shape node behind each tensor that is open; no tensor is kept.
    """
    found = inferred_shapes(model.path, {name: array.shape for name, array in sample.arrays.items()})
    left = [name for name in names if name not in found]
    if left:
        # Nothing is optimized: a session that runs once would spend longer on that than it saves.
        run = open_bytes(
            with_shape_outputs(model.path, left),
            outputs=[name + SHAPE_SUFFIX for name in left],
            optimization="disabled",
            folder=model.path.parent,
        )
        for name, shape in run(sample.arrays).items():
            found[name.removesuffix(SHAPE_SUFFIX)] = tuple(int(dim) for dim in shape)
    return {name: found[name] for name in names}


def plan_chunks(model: Model, sample: Sample, names: Sequence[str], limit: int) -> list[dict[str, int]]:
    """Cuts `names` (kept in order) into chunks of at most `limit` bytes each: name -> estimated bytes.

    A tensor that is larger than the limit is a chunk of its own. Without a reference that can run the model the
    sizes are unknown and everything is one chunk.
    """
    try:
        shapes = tensor_shapes(model, sample, names)
    except ParityError:
        return [dict.fromkeys(names, 0)]
    chunks: list[dict[str, int]] = [{}]
    filled = 0
    for name in names:
        nbytes = int(np.prod(shapes[name], dtype=np.int64)) * _WIDEST_FLOAT
        if chunks[-1] and filled + nbytes > limit:
            chunks.append({})
            filled = 0
        chunks[-1][name] = nbytes
        filled += nbytes
    return chunks


def observable(model: Model) -> list[str]:
    """Names of the intermediate tensors that could be captured, in topological order, outputs left out."""
    outputs = {value.name for value in model.outputs}
    return [name for name in model.sites if name not in outputs]


def _record_chunk(
    model: Model,
    inputs: Inputs,
    target: Target,
    request: Request,
    tensors: tuple[str, ...],
    number: int | None,
    progress: Progress,
) -> Trace:
    own = model_of(model, target)
    found: dict[tuple[int, str], np.ndarray | StoredTensor] = {}
    spent = 0.0
    names: tuple[str, ...] = ()
    what = format_target(target) + ("" if number is None else f", tensors (part {number + 1})")
    with open_target(model, target, Capture(tensors=tensors)) as session:
        for position, index in enumerate(request.samples):
            progress(what, position, len(request.samples))
            sample = inputs.sample(index)
            start = time.perf_counter()
            arrays = session.run(sample)
            spent += time.perf_counter() - start
            names = tuple(arrays)
            if number is None or request.folder is None:
                found.update(((index, name), array) for name, array in arrays.items())
            else:
                path = request.folder / f"{request.label}-{index:06d}-{number:03d}.safetensors"
                storable = {name: array for name, array in arrays.items() if array.dtype.kind not in "OUS"}
                found.update(((index, name), held) for name, held in write_safetensors(path, storable).items())
        progress(what, len(request.samples), len(request.samples))
        outputs = tuple(value.name for value in own.outputs if value.name in names)
        unseen = {skip.what for skip in session.absent}
        absent = [
            Skip(what=f"tensor {name}", reason=f"{target.backend} did not give it back")
            for name in (*outputs, *tensors)
            if name not in names and f"tensor {name}" not in unseen
        ]
        return Trace(
            target=target,
            environment=session.environment,
            samples=request.samples,
            names=names,
            outputs=outputs,
            disturbs=session.disturbs,
            absent=(*session.absent, *absent),
            seconds=spent,
            executed=session.executed,
            tensors=found,
        )


def _distance(plain: Trace, captured: Trace) -> float:
    """The worst relative L2 distance between the outputs of the undisturbed and of the captured run."""
    worst = 0.0
    for (sample, name), array in plain.tensors.items():
        if not captured.has(sample, name):
            continue
        before = np.asarray(array, dtype=np.float64) if _is_number(array) else None
        if before is None:
            continue
        after = np.asarray(captured.get(sample, name), dtype=np.float64)
        if before.shape != after.shape:
            return float("inf")
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        if same.all():
            continue
        difference = after[~same] - before[~same]
        norm = float(np.linalg.norm(before[np.isfinite(before)]))
        size = float(np.linalg.norm(difference))
        worst = max(worst, size / norm if norm and np.isfinite(size) else float("inf"))
    return worst


def _is_number(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind not in "OUS"


def _check_room(chunks: Sequence[Mapping[str, int]], samples: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    needed = samples * sum(sum(chunk.values()) for chunk in chunks)
    # What an interrupted run left here is used again or written over.
    free = shutil.disk_usage(folder).free + sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if needed > free:
        raise ParityError(
            f"the tensors need {needed / 2**30:.1f} GiB and the disk has {free / 2**30:.1f} GiB free",
            where=str(folder),
            fix="put the study on a larger disk (--study DIR), or take fewer samples (--samples N)",
        )
