"""(Case, targets) -> Bench: the reference on changed inputs and both sides' outputs on a few samples, run when asked for.

Nothing is opened before the first question: a diagnosis whose checks ask nothing pays nothing. The reference has one
session for all questions. The candidate's samples are run in one session in their order, as the deployment meets them, so
that what stays behind from one sample is seen in the next. Of a large model one session is open at a time, and none while files
are compared.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import time
from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend_named, is_recording
from parityscope.backends.both import fit_together
from parityscope.backends.opening import model_of, open_target
from parityscope.backends.targets import format_target, plain_target, with_option
from parityscope.bench import Bench
from parityscope.case import Sample, load_model
from parityscope.case.inputs import add_to_digest
from parityscope.diagnosis import SPENT, TimeSpentError
from parityscope.errors import ParityError
from parityscope.examination import Answers
from parityscope.private_folders import scratch_folder
from parityscope.records import Target
from parityscope.study.neighbour_targets import origins_of, peers_of, switched_of
from parityscope.study.outputs import worst_sample
from parityscope.study.search_log import TriedRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import onnx_ir as ir

    from parityscope.backends import Session
    from parityscope.case import Model
    from parityscope.evaluation.partly import PartlyRounded
    from parityscope.examination import Examination
    from parityscope.hypotheses.from_other_graph import Compared, SideOutputs

_KEPT = 64 << 20  # bytes of the reference's answers to changed inputs: many checks ask the same. Chosen
_SAMPLES = 4  # chosen: a hypothesis found on the first must hold on others, and each more costs a run of both sides
# NVIDIA's libraries obey it whatever a program asks for.
_NO_TF32 = "NVIDIA_TF32_OVERRIDE=0"
# The ONNX file as it stands: no optimizer may be what is told apart from the network.
_CONVERTED = Target(backend="ort", options=(("optimization", "disabled"),))
_SIMULATED = frozenset({"tf32", "f16", "bf16"})


@contextlib.contextmanager
def open_bench(
    examination: Examination, *, end: float = math.inf, folder: Path | None = None, deployed: Target | None = None
) -> Iterator[Bench]:
    """The bench of an examination while the block lasts; the sample that is furthest off is among those looked at.

    A recorded reference cannot be asked anything new: ONNX Runtime runs its model instead. After `end`, on `time.monotonic`'s
    clock, nothing is run any more. What searches measure is kept in `folder` (None: in memory), what was answered in the
    examination's `answers`. `deployed` is the target that a recorded candidate is of, if that is known: its file is the
    candidate's.

    Raises:
        ParityError: (by its functions) a side cannot run.
        TimeSpentError: (by its functions) the time is spent.
    """
    case, reference, candidate = examination.case, examination.reference, examination.candidate
    with contextlib.ExitStack() as held:
        asked = _Sessions(examination, held, end)
        deployed = deployed or candidate
        origins = origins_of(reference, candidate)
        write = backend_named(candidate.backend).write_executed
        yield Bench(
            samples=asked.samples,
            before=asked.before,
            outputs=asked.outputs,
            inputs=lambda index: case.inputs.sample(index).arrays,
            reference=asked.reference,
            candidate=asked.candidate,
            answers=None if is_recording(candidate) else asked.answers,
            peers={format_target(peer): asked.runner(peer) for peer in peers_of(case.model, reference)},
            switched={
                **{format_target(other): asked.runner(other, candidate=True) for other in switched_of(candidate)},
                **({_NO_TF32: asked.without_tf32} if backend_named(candidate.backend).runs_program else {}),
            },
            given=asked.given if is_recording(reference) else None,
            origin={format_target(one): asked.runner(one) for one in origins},
            converted=asked.runner(_CONVERTED) if origins else None,
            honest=asked.runner(_honest_target(case.policy.declared)),
            simulated={one: asked.runner(Target(backend="sim", precision=one)) for one in sorted(_SIMULATED)},
            partly=functools.cache(asked.partly),
            kept={} if folder is None else TriedRuns(folder),
            graphs=(lambda: asked.graphs(deployed))
            if deployed.option("model") or backend_named(deployed.backend).write_graph
            else None,
            converted_from=functools.partial(asked.converted_from, origins[0])
            if origins and backend_named(reference.backend).write_graph
            else None,
            executed=functools.partial(asked.executed, write) if write and not candidate.option("model") else None,
            rewritten={
                side: functools.partial(asked.rewritten, side)
                for side, target in (("reference", reference), ("candidate", candidate))
                if backend_named(target.backend).tries_repairs
            },
            watched=asked.watched
            if backend_named(candidate.backend).observes and not is_recording(candidate)
            else None,
        )


def _honest_target(declared: str) -> Target:
    """An honest deployment of this arithmetic: FP32 in other kernels, or a simulation."""
    return Target(backend="sim", precision=declared) if declared in _SIMULATED else _CONVERTED


def _samples_around(indices: tuple[int, ...], worst: int | None) -> tuple[int, ...]:
    """Samples that follow each other: the first ones, or, if the worst is none of them, those from the one before it."""
    place = indices.index(worst) if worst in indices else 0
    start = 0 if place < _SAMPLES else min(place - 1, len(indices) - _SAMPLES)
    return indices[start : start + _SAMPLES]


class _Sessions:
    """What was opened and answered so far."""

    def __init__(self, examination: Examination, held: contextlib.ExitStack, end: float) -> None:
        reference = examination.reference
        recorded = is_recording(reference)
        indices = examination.case.inputs.indices
        self.samples = _samples_around(indices, worst_sample(examination))
        self.before = (
            indices[indices.index(self.samples[0]) - 1] if self.samples and self.samples[0] != indices[0] else None
        )
        self._end = end
        self._case = examination.case
        self._runs_reference = plain_target(reference) if recorded else reference
        self._given = reference
        self._runs_candidate = examination.candidate
        self._names = examination.names
        self._held = held
        self._open: dict[Target, Session] = {}
        self._answers = examination.answers or Answers()
        self._changed: dict[bytes, dict[str, np.ndarray]] = {}
        self._left = _KEPT

    def in_time(self) -> None:
        if time.monotonic() > self._end:
            raise TimeSpentError(SPENT)

    def outputs(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.in_time()
        digest = hashlib.blake2b()
        add_to_digest(arrays, digest)
        asked = digest.digest()
        if asked in self._changed:
            return dict(self._changed[asked])
        # The place is a judged sample's, because a session may look for what belongs to it; only the arrays are changed.
        sample = Sample(index=self._case.inputs.indices[0], name="changed inputs", arrays=arrays)
        found = self._session_of(self._runs_reference).run(sample)
        told = {value.name: found[value.name] for value in self._case.model.outputs if value.name in found}
        size = sum(array.nbytes for array in told.values())
        if size <= self._left:
            self._left -= size
            self._changed[asked] = {name: array.copy() for name, array in told.items()}
        return told

    def reference(self, index: int) -> Mapping[str, np.ndarray]:
        known = self._answers.reference
        if index not in known:
            try:
                known[index] = self.outputs(self._case.inputs.sample(index).arrays)
            except ParityError:  # nothing here runs the model of a recording
                if not is_recording(self._given):
                    raise
                known[index] = self.given(index)
        return known[index]

    def candidate(self, index: int) -> Mapping[str, np.ndarray]:
        known = self._answers.candidate
        if index not in known:
            self.in_time()
            self._make_room(self._runs_candidate)
            with open_target(self._case.model, self._runs_candidate, Capture()) as session:
                for each in self.samples if self.before is None else (self.before, *self.samples):
                    known[each] = self._name_outputs(session.run(self._case.inputs.sample(each)))
        return known[index]

    def graphs(self, deployed: Target) -> Compared:
        """Both files' graphs on the samples that are looked at."""
        from parityscope.hypotheses.from_other_graph import compare_graphs

        found = self._answers.graphs
        if found is None:
            try:
                samples = self._both_sides()
                self._make_room(deployed)
                found = compare_graphs(self._case.model, self._graph_of(deployed, samples), samples)
            except ParityError as error:
                found = error
            self._answers.graphs = found
        if isinstance(found, ParityError):
            raise found
        return found

    def converted_from(self, network: Target) -> Compared:
        """The network's own graph, before its conversion, against the file's."""
        from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs

        self.in_time()
        both = [self.runner(one) for one in (_CONVERTED, network)]
        every = [self._case.inputs.sample(index).arrays for index in self.samples]
        samples = [SideOutputs(inputs=arrays, reference=both[0](arrays), candidate=both[1](arrays)) for arrays in every]
        return compare_graphs(self._case.model, self._graph_of(network, samples), samples)

    def _graph_of(self, deployed: Target, samples: Sequence[SideOutputs]) -> Model:
        """What a target is by itself: its file, or what it writes."""
        write = backend_named(deployed.backend).write_graph
        if deployed.option("model") or write is None:
            return model_of(self._case.model, deployed)
        path = self._held.enter_context(scratch_folder("written")) / "written.onnx"
        write(self._case.model, deployed, [one.inputs for one in samples], path)
        return load_model(path)

    def executed(self, write: Callable[[Model, Target, Path], None]) -> Compared:
        """The graph that the candidate's runtime makes of the file, against the file's."""
        from parityscope.hypotheses.from_other_graph import compare_graphs

        self.in_time()
        samples = self._both_sides()
        self._make_room(self._runs_candidate)
        path = self._held.enter_context(scratch_folder("executed")) / "executed.onnx"
        write(self._case.model, self._runs_candidate, path)
        return compare_graphs(self._case.model, load_model(path), samples)

    def _both_sides(self) -> list[SideOutputs]:
        from parityscope.hypotheses.from_other_graph import SideOutputs

        return [
            SideOutputs(
                inputs=self._case.inputs.sample(index).arrays,
                reference=self.reference(index),
                candidate=self.candidate(index),
                watch=functools.partial(self._watch_reference, index)
                if backend_named(self._given.backend).observes
                else None,
            )
            for index in self.samples
        ]

    def _watch_reference(self, index: int, tensors: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Values inside the reference, run or recorded, as far as it has them."""
        self._make_room(self._given)
        with open_target(self._case.model, self._given, Capture(tensors=tuple(tensors))) as session:
            found = session.run(self._case.inputs.sample(index))
        return {name: found[name] for name in tensors if name in found}

    def rewritten(
        self, side: str, name: str, edit: Callable[[ir.Model], bool]
    ) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None:
        """A side with a copy of its file that `edit` changed; None if that says that there was nothing to change."""
        import onnx_ir as ir

        is_candidate = side == "candidate"
        target = self._runs_candidate if is_candidate else self._runs_reference
        copy = model_of(self._case.model, target).graph()
        if not edit(copy):
            return None
        path = self._held.enter_context(scratch_folder("rewritten")) / f"{name}.onnx"
        ir.save(copy, path)
        return self.runner(with_option(target, "model", str(path)), candidate=is_candidate)

    def partly(self) -> PartlyRounded:
        """The reference's products, each of which can be computed in a coarser format."""
        from parityscope.evaluation.partly import round_partly

        self.in_time()
        return round_partly(self._case.model)

    def watched(self, index: int, tensors: Sequence[str]) -> Mapping[str, np.ndarray]:
        marked = Capture(tensors=tuple(self._names.get(name, name) for name in tensors))
        self._make_room(self._runs_candidate)
        with open_target(self._case.model, self._runs_candidate, marked) as session:
            return self._name_outputs(session.run(self._case.inputs.sample(index)))

    def answers(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.runner(self._runs_candidate, candidate=True)(arrays)

    def without_tf32(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The candidate's program, started with TF32 switched off in its environment."""
        self.in_time()
        name, _, value = _NO_TF32.partition("=")
        before = os.environ.get(name)
        os.environ[name] = value
        try:
            place = self._case.inputs.indices[0]
            self._make_room(self._runs_candidate)
            with open_target(self._case.model, self._runs_candidate, Capture()) as session:
                return self._name_outputs(session.run(Sample(index=place, name="changed inputs", arrays=arrays)))
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    def given(self, index: int) -> Mapping[str, np.ndarray]:
        return self._run_sample(self._given, self._case.inputs.sample(index))

    def runner(
        self, target: Target, *, candidate: bool = False
    ) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        """The outputs of `target` on changed inputs, by the reference's names; its session is opened once.

        A `candidate` calls them as the candidate's file does, all others as the reference's.
        """
        place = self._case.inputs.indices[0]

        def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            found = self._run_sample(target, Sample(index=place, name="changed inputs", arrays=arrays))
            return self._name_outputs(found) if candidate else found

        return run

    def _run_sample(self, target: Target, sample: Sample) -> dict[str, np.ndarray]:
        self.in_time()
        return dict(self._session_of(target).run(sample))

    def _session_of(self, target: Target) -> Session:
        """The session of a target, opened once as long as there is room for it."""
        if target not in self._open:
            self._make_room(target)
            self._open[target] = self._held.enter_context(open_target(self._case.model, target, Capture()))
        return self._open[target]

    def _make_room(self, coming: Target) -> None:
        """Closes what is open, where that and what is coming would be too large together."""
        if not all(fit_together(self._case.model, target, coming) for target in self._open):
            self._open.clear()
            self._held.close()

    def _name_outputs(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = [value.name for value in self._case.model.outputs]
        pairs = [(name, self._names.get(name, name)) for name in outputs]
        return {name: found[other] for name, other in pairs if other in found}
