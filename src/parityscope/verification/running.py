"""Runs a side on every sample, undisturbed, and keeps its outputs, beyond a share of the memory in files (`spilling`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import model_of, open_target, shapes_for
from parityscope.backends.shared_targets import SharedTargets, make_job
from parityscope.backends.targets import format_target
from parityscope.comparison.distance import largest_distance
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.spilling import Keeper, note_read
from parityscope.verification.records import MeasuredSide
from parityscope.workers.choosing import choose_run
from parityscope.workers.finishing import TASKS, finish_tasks
from parityscope.workers.packing import unpack_record

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.backends import Session
    from parityscope.backends.recording import Progress
    from parityscope.case import Case, Sample
    from parityscope.records import Policy, Target

Clock = Callable[[], float]

_TASK = 16  # samples; their outputs are in a worker's memory together. Chosen.


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A side and its outputs by sample index and name; `names` are the samples' own."""

    side: MeasuredSide
    names: Mapping[int, str]
    tensors: Mapping[int, Mapping[str, np.ndarray]]

    def get(self, index: int) -> dict[str, np.ndarray]:
        """The outputs of one sample; those on disk are memory-mapped."""
        return {name: self.output(index, name) for name in self.tensors[index]}

    def output(self, index: int, name: str) -> np.ndarray:
        """One output of one sample."""
        found = self.tensors[index][name]
        note_read(found.nbytes)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SideAnswers:
    """What a side gave for some samples, by their index; of the first task also what the side tells of itself."""

    names: Mapping[int, str]
    outputs: Mapping[int, Mapping[str, np.ndarray]]
    seconds: float
    spread: float | None = None
    environment: Mapping[str, str] | None = None
    executed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """Which outputs of `target` are wanted, and how rows of two runs are matched; `label` names the side in errors."""

    target: Target
    label: str
    outputs: tuple[str, ...]
    policy: Policy
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]

    def __call__(
        self, session: Session, number: int, samples: Iterable[Sample], clock: Clock = time.perf_counter
    ) -> SideAnswers:
        names: dict[int, str] = {}
        outputs: dict[int, Mapping[str, np.ndarray]] = {}
        seconds, spread = 0.0, None
        for sample in samples:
            start = clock()
            found = session.run(sample)
            seconds += clock() - start
            arrays = {name: self._output_given(found, name, sample.name) for name in self.outputs}
            if number == 0 and not outputs:
                spread = largest_distance(*make_aligner(self.policy)(arrays, session.run(sample)))
            names[sample.index], outputs[sample.index] = sample.name, arrays
        answers = SideAnswers(names=names, outputs=outputs, seconds=seconds)
        if number:
            return answers
        executed = session.executed.executed if session.executed is not None else self.target.precision
        return replace(answers, spread=spread, environment=dict(session.environment), executed=executed)

    def _output_given(self, found: Mapping[str, np.ndarray], name: str, sample: str) -> np.ndarray:
        if name not in found:
            raise ParityError(
                f"{self.label} ({format_target(self.target)}) gives no output {name!r}; it gives: "
                f"{', '.join(found) or 'nothing'}",
                where=sample,
                fix="give a model with the reference's inputs and outputs, under the same names",
            )
        return np.array(found[name])


def run_side(
    case: Case,
    target: Target,
    folder: Path,
    label: str,
    progress: Progress,
    clock: Clock = time.perf_counter,
    *,
    workers: str = "",
) -> Recorded:
    """Runs `target` on every sample; `label` names its files in `folder` and the side in errors, `workers` who does it.

    Raises:
        ParityError: it cannot run, or does not give an output of the model back; there are no such workers.
    """
    own = model_of(case.model, target)
    asking = _Asking(
        target=target,
        label=label,
        outputs=tuple(value.name for value in case.model.outputs),
        policy=case.policy,
        shapes=shapes_for(case.model, target, case.inputs),
    )
    keeper, kept = Keeper(), dict[int, Mapping[str, np.ndarray]]()
    names: dict[int, str] = {}
    first, spent = None, 0.0
    title = f"{label}: {format_target(target)}"
    answered = (
        _answers_of_workers(case, asking, folder / f"{TASKS}{label}", workers)
        if workers
        else _answers_in_turn(case, asking, clock)
    )
    with contextlib.closing(answered):
        progress(title, 0, len(case.inputs))
        for answers in answered:
            first = first or answers
            spent += answers.seconds
            names |= answers.names
            for index, arrays in answers.outputs.items():
                # Copies: what a worker gave are views of all that its task gave.
                owned = {name: one if one.base is None else one.copy() for name, one in arrays.items()}
                kept[index] = {name: keeper.keep(one) for name, one in owned.items()}
            progress(title, len(kept), len(case.inputs))
    if first is None:
        raise ValueError("there are no samples")
    ours = backend_named(target.backend).reads_model
    side = MeasuredSide(
        target=target,
        environment=dict(first.environment or {}),
        executed=first.executed,
        nbytes=own.nbytes if ours else None,
        nodes=own.nodes if ours else None,
        spread=first.spread or 0.0,
        seconds=spent,
    )
    return Recorded(side=side, names=names, tensors=kept)


def _answers_in_turn(case: Case, asking: _Asking, clock: Clock) -> Generator[SideAnswers]:
    with open_target(case.model, asking.target, Capture(shapes=asking.shapes)) as session:
        for position, sample in enumerate(case.inputs):
            yield asking(session, position, [sample], clock)


def _answers_of_workers(case: Case, asking: _Asking, folder: Path, workers: str) -> Generator[SideAnswers]:
    indices = case.inputs.indices
    groups = [indices[start : start + _TASK] for start in range(0, len(indices), _TASK)]
    shared = SharedTargets(targets=(asking.target,), asked=asking, shapes=asking.shapes)
    job = make_job(case.model, shared, groups, case.inputs.samples)
    with contextlib.closing(finish_tasks(choose_run(workers, job), job.count, folder, lambda _: None)) as tasks:
        for content in tasks:
            found: SideAnswers = unpack_record(content, (SideAnswers,))
            yield found
