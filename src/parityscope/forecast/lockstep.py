"""Runs the reference and its simulations side by side and measures every tensor while both are in memory.

Outputs are compared in undisturbed runs. Intermediate tensors are given back stretch by stretch (`segments`), a stretch
of at most a quarter of the memory on each side (the runtimes hold the rest), all formats against one run of the
reference.

**Introduced error.** Each tensor is computed a third time, in the reference's arithmetic on what the *simulation*
stored of its inputs (the severed replay of `localization`): c - r = (c - f(c_in)) + (f(c_in) - r), exactly.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends import Capture
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import open_target, plan_chunks, tensor_shapes
from parityscope.backends.sim import prepare
from parityscope.case.graph import SEVERED_SUFFIX, sever, subgraph
from parityscope.case.model import dtype_name
from parityscope.errors import ParityError
from parityscope.forecast._rows import Crew
from parityscope.forecast.segments import segments
from parityscope.forecast.tallies import Tally
from parityscope.records import Site, Skip, Target
from parityscope.trace import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends import Session
    from parityscope.backends._onnxruntime import Run
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model, Sample
    from parityscope.case.graph import Severed
    from parityscope.forecast.records import Predicted, Range
    from parityscope.forecast.segments import Segment

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Findings", "Plan", "run_layers", "run_outputs"]

_REFERENCE = Target(backend="ort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run: a model on samples, and a simulation for each format (`targets`)."""

    model: Model
    inputs: Inputs
    targets: Mapping[str, Target]
    memory: int
    threads: int
    introduced: bool

    def only(self, name: str, target: Target) -> Plan:
        """The same with one format."""
        return replace(self, targets={name: target})


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was measured: by format and tensor, and the reference's ranges by tensor."""

    predicted: dict[str, dict[str, Predicted]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    skipped: list[Skip] = field(default_factory=list)


def run_outputs(plan: Plan, progress: Progress) -> Findings:
    """Every output of every format, in undisturbed runs."""
    names = [value.name for value in plan.model.outputs]
    meters = _meters(plan, names)
    with contextlib.ExitStack() as stack:
        crew = stack.enter_context(Crew.of(plan.threads))
        reference = stack.enter_context(open_target(plan.model, _REFERENCE, Capture()))
        sessions: dict[str, Session] = {}
        for name, target in plan.targets.items():
            sessions[name] = stack.enter_context(open_target(plan.model, target, Capture()))
            meters.skipped.extend(sessions[name].absent)
        for position, sample in enumerate(plan.inputs):
            progress("predicting outputs", position, len(plan.inputs))
            expected = reference.run(sample)
            for name, session in sessions.items():
                meters.formats[name].add(names, expected, session.run(sample), {}, crew)
            if meters.alone is not None:
                meters.alone.add(names, expected, expected, {}, crew)
    progress("predicting outputs", 1, 1)
    return _concluded(meters)


def run_layers(plan: Plan, progress: Progress) -> Findings:
    """Every tensor that nodes of the main graph compute."""
    names = list(plan.model.sites)
    meters = _meters(plan, names)
    if not names:
        return _concluded(meters)
    chunks = _opened(plan, names, meters)
    steps = len(chunks) * len(plan.inputs)
    with Crew.of(plan.threads) as crew:
        for position, sample in enumerate(plan.inputs):
            held: dict[str, dict[str, np.ndarray]] = {name: {} for name in ("", *plan.targets)}
            for number, chunk in enumerate(chunks):
                progress("predicting layers", position * len(chunks) + number, steps)
                _run_chunk(chunk, sample, held, meters, crew)
    progress("predicting layers", steps, steps)
    return _concluded(meters)


@dataclass(slots=True, kw_only=True)
class _Meters:
    """What is measured: a tally for each format, the first of which takes the reference's ranges too.

    Without formats `alone` takes them.
    """

    outputs: frozenset[str]
    formats: dict[str, Tally]
    alone: Tally | None
    skipped: list[Skip] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """The stretches of one chunk of tensors: of the reference, of each format, and of the replay if it is wanted.

    `reads` are the tensors that the replay takes from a simulation, with their own dtypes; `keeps` those of the
    reference ("") and of each format that later chunks need.
    """

    names: tuple[str, ...]
    reference: Segment
    formats: Mapping[str, Segment]
    replay: Run | None
    reads: Mapping[str, np.dtype[Any]]
    keeps: Mapping[str, frozenset[str]]


def _meters(plan: Plan, names: Sequence[str]) -> _Meters:
    places = {name: plan.model.sites.get(name, Site(tensor=name, node="", op_type="", index=-1)) for name in names}
    first = next(iter(plan.targets), "")
    return _Meters(
        outputs=frozenset(value.name for value in plan.model.outputs),
        formats={name: Tally(places, ranged=name == first) for name in plan.targets},
        alone=None if plan.targets else Tally(places, ranged=True),
    )


def _opened(plan: Plan, names: Sequence[str], meters: _Meters) -> list[_Chunk]:
    """Every session of every chunk."""
    sample = next(iter(plan.inputs))
    try:
        shapes = tensor_shapes(plan.model, sample, names)
    except ParityError as error:
        shapes = {}
        if plan.introduced:
            meters.skipped.append(
                Skip(what="the error that each layer introduces", reason=error.problem, fix=error.fix)
            )
    ranks = {name: len(shape) for name, shape in shapes.items()}
    cut = [tuple(chunk) for chunk in plan_chunks(plan.model, sample, names, plan.memory // 4)]
    folder = plan.model.path.parent
    reference = segments(plan.model.graph(), cut, ranks, folder)
    formats = {}
    for name, target in plan.targets.items():
        simulation, known, absent = prepare(plan.model, target, names)
        meters.skipped.extend(absent)
        there = frozenset(known)
        formats[name] = segments(
            simulation.model, [[each for each in chunk if each in there] for chunk in cut], ranks, folder
        )
    severed = _severed(plan, names, ranks) if plan.introduced and plan.targets and shapes else None
    replays = [(None, {}) if severed is None else _replay(chunk, severed, folder) for chunk in cut]
    found: list[_Chunk] = []
    later: dict[str, set[str]] = {name: set() for name in ("", *formats)}
    for number in reversed(range(len(cut))):
        replay, reads = replays[number]
        found.append(
            _Chunk(
                names=cut[number],
                reference=reference[number],
                formats={name: each[number] for name, each in formats.items()},
                replay=replay,
                reads=reads,
                keeps={name: frozenset(needed) for name, needed in later.items()},
            )
        )
        later[""].update(reference[number].reads)
        for name, each in formats.items():
            later[name].update((*each[number].reads, *reads))
    return found[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    """The graph that computes each tensor from what was stored of its inputs, and the dtypes of what it reads."""

    graph: Severed
    dtypes: Mapping[str, str]


def _severed(plan: Plan, names: Sequence[str], ranks: Mapping[str, int]) -> _Replayed:
    graph = plan.model.graph()
    infer_types(graph)
    types = {value.name: value.dtype for node in graph.graph for value in node.outputs if value.type is not None}
    dtypes = {name: dtype_name(dtype) for name in names if (dtype := types.get(name)) and name in ranks}
    known = {name: (dtype, ranks[name]) for name, dtype in dtypes.items()}
    return _Replayed(graph=sever(plan.model.graph(), known), dtypes=dtypes)


def _replay(chunk: Sequence[str], replayed: _Replayed, folder: Path) -> tuple[Run | None, Mapping[str, np.dtype[Any]]]:
    """The session that computes the tensors of a chunk again, and what it reads."""
    severed = replayed.graph
    again = [name for name in chunk if name in severed.reads]
    if not again:
        return None, {}
    reads = {read: numpy_dtype(replayed.dtypes[read]) for name in again for read in severed.reads[name]}
    return open_session(subgraph(severed.model, again), folder=folder), reads


def _run_chunk(
    chunk: _Chunk, sample: Sample, held: dict[str, dict[str, np.ndarray]], meters: _Meters, crew: Crew
) -> None:
    """Runs one chunk on one sample and measures it; `held` is what earlier chunks left, and takes what later ones need."""
    expected = chunk.reference.compute(sample.arrays, held[""])
    for name, segment in chunk.formats.items():
        found = segment.compute(sample.arrays, held[name])
        again: Arrays = {}
        if chunk.replay is not None:
            again = _again(chunk, sample, {**held[name], **found}, meters)
        meters.formats[name].add(chunk.names, expected, found, again, crew)
        held[name] = {key: array for key, array in {**held[name], **found}.items() if key in chunk.keeps[name]}
    if meters.alone is not None:
        meters.alone.add(chunk.names, expected, expected, {}, crew)
    held[""] = {key: array for key, array in {**held[""], **expected}.items() if key in chunk.keeps[""]}


def _again(chunk: _Chunk, sample: Sample, found: Arrays, meters: _Meters) -> Arrays:
    """Every tensor in reference arithmetic on what the simulation stored."""
    feeds = dict(sample.arrays)
    for name, dtype in chunk.reads.items():
        if name not in found:
            meters.unread[name] = "the simulation did not give it back, so that what reads it is not replayed"
            return {}
        # A simulation holds float16 as float32; the reference's graph wants its own types.
        feeds[name + SEVERED_SUFFIX] = found[name].astype(dtype, copy=False)
    return {} if chunk.replay is None else chunk.replay(feeds)


def _concluded(meters: _Meters) -> Findings:
    tallies = [*meters.formats.values(), *([meters.alone] if meters.alone else [])]
    problems = dict(meters.unread)
    for tally in tallies:
        problems = {**tally.problems, **problems}
    return Findings(
        predicted={name: tally.predicted(meters.outputs) for name, tally in meters.formats.items()},
        ranges=tallies[0].ranges(),
        skipped=[*meters.skipped, *(Skip(what=f"tensor {name}", reason=why) for name, why in problems.items())],
    )
