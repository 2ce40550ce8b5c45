"""Runs a target on samples and keeps what it gave: the one way from a `Target` to a `Trace`.

Intermediate tensors are captured in chunks whose estimated size stays under half the memory budget (the other half is
for the runtime's own buffers), each chunk in a session of its own, and spilled to one safetensors file per sample
and chunk. What a chunk's tensors are computed from is recorded again with it, so that both are of one run (`parts.py`).
The outputs of every captured run are compared with those of an undisturbed run: capturing changes fusion and so may
change results, and a difference is a fact about the deployment.

A runtime whose process dies of what it was asked to show is asked by halves; what takes it down alone is told as missing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import model_of, open_target, shapes_for
from parityscope.backends.parts import KeptParts, PartsPlan, next_part, order_with_outputs, size_of
from parityscope.backends.resuming import ledger_of
from parityscope.backends.sizing import tensor_sizes
from parityscope.backends.targets import format_target, with_option
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.trace import Trace, write_safetensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Inputs, Model
    from parityscope.records import Target
    from parityscope.trace import StoredTensor

_DEATHS = 12  # of one recording; chosen: one tensor among a thousand is found in ten

Progress = Callable[[str, int, int], None]  # (what is done, step, steps); without steps: something that is known now


def ignore_progress(what: str, step: int, steps: int) -> None:
    """The progress that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRequest:
    """What to record: which samples, which tensors besides the outputs, where to spill, how much memory (bytes).

    `reads` tells what each tensor and output is computed from among them, where that is to be recorded with it; it is only
    asked when not all fit into one chunk. `tensors` are then in topological order.
    """

    samples: tuple[int, ...]
    tensors: tuple[str, ...] = ()
    folder: Path | None = None
    memory: int = 512 << 20
    label: str = "trace"
    reads: Callable[[], Mapping[str, Sequence[str]]] = dict


def record_trace(
    model: Model, inputs: Inputs, target: Target, request: RecordingRequest, progress: Progress = ignore_progress
) -> Trace:
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
    outputs = [value.name for value in own.outputs]
    plan = _plan_parts(own, inputs, request)
    left = order_with_outputs(request.tensors, outputs, plan.reads)
    _check_room(left, plan, len(request.samples), request.folder)
    ledger = ledger_of(request.folder, target, own)
    kept = KeptParts(tensors=dict(plain.tensors))
    disturbance = 0.0
    spent = plain.seconds
    last = plain
    number = 0
    asking = AskedTensors(target=target)
    while left:
        part = next_part(left, kept.absent.keys(), plan, most=asking.most)
        marked = tuple(name for name in (*part.inputs, *part.members) if name not in outputs)
        before = ledger.kept(request.label, number, request.samples, marked) if ledger else None
        try:
            last = before or _record_chunk(model, inputs, asking.target, request, marked, number, progress)
        except ParityError as error:
            if not error.over or not marked:
                raise
            if asking.deaths == 0:
                plan = replace(plan, reads=request.reads())
                left = order_with_outputs([name for name in left if name not in outputs], outputs, plan.reads)
            asking = asking.after_death(len(part.members))
            given_up = left if asking.over else part.members if len(part.members) == 1 else ()
            if set(outputs) >= {*left[len(given_up) :], *kept.parts}:  # it shows nothing
                raise
            for name in given_up:
                if name not in outputs:
                    kept.absent[name] = Skip(what=f"tensor {name}", reason=reason_of_death(error))
            left = left[len(given_up) :]
            continue
        left = left[len(part.members) :]
        if ledger and before is None:
            ledger.keep(request.label, number, marked, last)
        disturbance = max(disturbance, _distance_between_runs(plain, last))
        kept.add(last, part, number)
        spent += last.seconds
        number += 1
    held = {name for _, name in kept.tensors}
    return Trace(
        target=target,
        environment=last.environment,
        samples=request.samples,
        names=(*plain.outputs, *(name for name in request.tensors if name in held and name not in plain.outputs)),
        outputs=plain.outputs,
        disturbs=last.disturbs,
        disturbance=disturbance,
        absent=tuple(kept.absent.values()),
        seconds=spent,
        executed=plain.executed or last.executed,
        tensors=kept.tensors,
        parts=kept.parts if number > 1 else {},
        copies=kept.copies,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTensors:
    """How a target is asked for tensors: `most` at once (0: any number), after so many `deaths` of its process."""

    target: Target
    most: int = 0
    deaths: int = 0

    @property
    def over(self) -> bool:
        """Whether so many died that nobody asks again."""
        return self.deaths >= _DEATHS

    def after_death(self, asked: int) -> AskedTensors:
        """Half as many at once; and by name, where the target shows what it likes unless it is told otherwise."""
        target = self.target
        if "observe" in backend_named(target.backend).options and not target.option("observe"):
            target = with_option(target, "observe", "all")
        return AskedTensors(target=target, most=max(1, asked // 2), deaths=self.deaths + 1)


def reason_of_death(error: ParityError) -> str:
    """Why a tensor is missing whose asking for took the target's process down."""
    return f"asked to show it, {error.problem}"


def _plan_parts(own: Model, inputs: Inputs, request: RecordingRequest) -> PartsPlan:
    """One part where all fits, or where no size is known; what tensors are computed from is then of no interest."""
    limit = request.memory // 2
    try:
        sizes = tensor_sizes(own, inputs.sample(request.samples[0]), request.tensors, limit)
    except ParityError:
        sizes = {}
    fits = sum(sizes.values()) <= limit
    return PartsPlan(reads={} if fits else request.reads(), sizes=sizes, limit=limit)


def observable_tensors(model: Model) -> list[str]:
    """Names of the intermediate tensors that could be captured, in topological order, outputs left out."""
    outputs = {value.name for value in model.outputs}
    return [name for name in model.sites if name not in outputs]


def _record_chunk(
    model: Model,
    inputs: Inputs,
    target: Target,
    request: RecordingRequest,
    tensors: tuple[str, ...],
    number: int | None,
    progress: Progress,
) -> Trace:
    own = model_of(model, target)
    found: dict[tuple[int, str], np.ndarray | StoredTensor] = {}
    spent = 0.0
    names: tuple[str, ...] = ()
    what = format_target(target) + ("" if number is None else f", tensors (part {number + 1})")
    with open_target(model, target, Capture(tensors=tensors, shapes=shapes_for(model, target, inputs))) as session:
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


def _distance_between_runs(plain: Trace, captured: Trace) -> float:
    """The worst distance between the outputs of the undisturbed and of the captured run."""
    return max(
        (
            distance_between(np.asarray(array), np.asarray(captured.get(sample, name)))
            for (sample, name), array in plain.tensors.items()
            if captured.has(sample, name) and _is_number(array)
        ),
        default=0.0,
    )


def _is_number(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind not in "OUS"


def _check_room(left: Sequence[str], plan: PartsPlan, samples: int, folder: Path) -> None:
    """Whether all parts fit on the disk, were every tensor given."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = samples * size_of(left, plan)
    # What an interrupted run left here is used again or written over.
    free = shutil.disk_usage(folder).free + sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if needed > free:
        raise ParityError(
            f"the tensors need {needed / 2**30:.1f} GiB and the disk has {free / 2**30:.1f} GiB free",
            where=str(folder),
            fix="put the study on a larger disk (--study DIR), or take fewer samples (--samples N)",
        )
