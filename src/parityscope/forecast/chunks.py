"""Reference and simulations as sessions of their own, which give back their tensors stretch by stretch (`segments`).

A stretch is of at most a quarter of the memory on each side (the runtimes hold the rest), all formats against one run of the
reference. This is the way of machines whose runtime takes no compiled operators, and of models that type tensors in float16
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.sim import prepare
from parityscope.backends.sizing import plan_chunks, tensor_shapes
from parityscope.case.deriving import SEVERED_SUFFIX, sever, subgraph
from parityscope.case.model import dtype_name
from parityscope.errors import ParityError
from parityscope.forecast.segments import segments
from parityscope.records import Skip
from parityscope.trace import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends._ort_running import Run
    from parityscope.case import Sample
    from parityscope.case.deriving import Severed
    from parityscope.forecast._rows import Crew
    from parityscope.forecast.plans import Meters, Plan
    from parityscope.forecast.segments import Segment

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Chunk", "opened_chunks", "run_chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
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


def opened_chunks(plan: Plan, names: Sequence[str], meters: Meters) -> list[Chunk]:
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
    found: list[Chunk] = []
    later: dict[str, set[str]] = {name: set() for name in ("", *formats)}
    for number in reversed(range(len(cut))):
        replay, reads = replays[number]
        found.append(
            Chunk(
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


def run_chunk(chunk: Chunk, sample: Sample, held: dict[str, dict[str, np.ndarray]], meters: Meters, crew: Crew) -> None:
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


def _again(chunk: Chunk, sample: Sample, found: Arrays, meters: Meters) -> Arrays:
    """Every tensor in reference arithmetic on what the simulation stored."""
    feeds = dict(sample.arrays)
    for name, dtype in chunk.reads.items():
        if name not in found:
            meters.unread[name] = "the simulation did not give it back, so that what reads it is not replayed"
            return {}
        # A simulation holds float16 as float32; the reference's graph wants its own types.
        feeds[name + SEVERED_SUFFIX] = found[name].astype(dtype, copy=False)
    return {} if chunk.replay is None else chunk.replay(feeds)
