"""Runs the reference and its simulations side by side and measures every tensor while both are in memory.

Outputs are compared in undisturbed runs. Intermediate tensors are given back chunk by chunk, a chunk of at most a
quarter of the memory on each side (the runtimes hold the rest), all formats against one run of the reference.

**Introduced error.** Each tensor is computed a third time, in the reference's arithmetic on what the *simulation*
stored of its inputs (the severed replay of `localization`): c - r = (c - f(c_in)) + (f(c_in) - r), exactly.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends import Capture
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import open_target, plan_chunks, tensor_shapes
from parityscope.case.graph import SEVERED_SUFFIX, sever, subgraph
from parityscope.case.model import dtype_name
from parityscope.comparison import measure_replay
from parityscope.errors import ParityError
from parityscope.forecast.ranges import is_real, joined, range_of
from parityscope.forecast.records import Predicted
from parityscope.records import Site, Skip, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.backends._onnxruntime import Run
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model, Sample
    from parityscope.case.graph import Severed
    from parityscope.comparison import ReplayStatistics
    from parityscope.forecast.records import Range

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
    meters = _meters(plan, names, frozenset(names))
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(plan.threads) as pool:
        reference = stack.enter_context(open_target(plan.model, _REFERENCE, Capture()))
        sessions = _simulations(plan, (), stack, meters.findings)
        for position, sample in enumerate(plan.inputs):
            progress("predicting outputs", position, len(plan.inputs))
            expected = reference.run(sample)
            for name, session in sessions.items():
                _measure(meters, pool, name, names, (expected, session.run(sample), {}))
            _measure_ranges(meters, pool, names, expected)
    progress("predicting outputs", 1, 1)
    return _concluded(meters)


def run_layers(plan: Plan, progress: Progress) -> Findings:
    """Every tensor that nodes of the main graph compute."""
    outputs = frozenset(value.name for value in plan.model.outputs)
    names = list(plan.model.sites)
    meters = _meters(plan, names, outputs)
    if not names:
        return meters.findings
    first = next(iter(plan.inputs))
    severed = _severed(plan, first, names, meters.findings)
    chunks = plan_chunks(plan.model, first, names, plan.memory // 4)
    for number, chunk in enumerate(chunks):
        progress("predicting layers", number, len(chunks))
        _run_chunk(plan, list(chunk), severed, meters)
    progress("predicting layers", len(chunks), len(chunks))
    return _concluded(meters)


@dataclass(slots=True, kw_only=True)
class _Meters:
    """Statistics that grow sample by sample, by format and tensor."""

    places: Mapping[str, Site]
    outputs: frozenset[str]
    findings: Findings
    totals: dict[tuple[str, str], ReplayStatistics] = field(default_factory=dict)
    splits: dict[tuple[str, str], ReplayStatistics] = field(default_factory=dict)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def _meters(plan: Plan, names: Sequence[str], outputs: frozenset[str]) -> _Meters:
    places = {name: plan.model.sites.get(name, Site(tensor=name, node="", op_type="", index=-1)) for name in names}
    return _Meters(places=places, outputs=outputs, findings=Findings(predicted={name: {} for name in plan.targets}))


def _simulations(
    plan: Plan, tensors: Sequence[str], stack: contextlib.ExitStack, findings: Findings
) -> dict[str, Session]:
    sessions = {}
    for name, target in plan.targets.items():
        sessions[name] = stack.enter_context(open_target(plan.model, target, Capture(tensors=tuple(tensors))))
        findings.skipped.extend(sessions[name].absent)
    return sessions


def _severed(plan: Plan, sample: Sample, names: Sequence[str], findings: Findings) -> Severed | None:
    """The graph that computes each tensor from what was stored of its inputs; None where it is not wanted."""
    if not plan.introduced:
        return None
    graph = plan.model.graph()
    infer_types(graph)
    types = {value.name: value.dtype for node in graph.graph for value in node.outputs if value.type is not None}
    try:
        shapes = tensor_shapes(plan.model, sample, names)
    except ParityError as error:
        findings.skipped.append(Skip(what="the error that each layer introduces", reason=error.problem, fix=error.fix))
        return None
    known = {
        name: (dtype_name(dtype), len(shapes[name])) for name in names if (dtype := types.get(name)) and name in shapes
    }
    return sever(plan.model.graph(), known)


def _run_chunk(plan: Plan, chunk: list[str], severed: Severed | None, meters: _Meters) -> None:
    replayed = [name for name in chunk if severed is not None and name in severed.reads]
    reads = dict.fromkeys(read for name in replayed if severed for read in severed.reads[name])
    captured = tuple(dict.fromkeys([*chunk, *reads]))
    inner = tuple(name for name in captured if name not in meters.outputs)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(plan.threads) as pool:
        marked = Capture(tensors=tuple(name for name in chunk if name not in meters.outputs))
        reference = stack.enter_context(open_target(plan.model, _REFERENCE, marked))
        sessions = _simulations(plan, inner, stack, meters.findings)
        replay = None
        if severed is not None and replayed:
            replay = open_session(subgraph(severed.model, replayed), folder=plan.model.path.parent)
        for sample in plan.inputs:
            expected = reference.run(sample)
            for name, session in sessions.items():
                found = session.run(sample)
                again = _again(replay, sample, found, expected, reads, meters) if replay is not None else {}
                _measure(meters, pool, name, chunk, (expected, found, again))
            _measure_ranges(meters, pool, chunk, expected)


def _again(
    replay: Run,
    sample: Sample,
    found: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    reads: Mapping[str, None],
    meters: _Meters,
) -> dict[str, np.ndarray]:
    """Every tensor in reference arithmetic on what the simulation stored."""
    feeds = dict(sample.arrays)
    for name in reads:
        if name not in found:
            meters.problems.setdefault(
                name, "the simulation did not give it back, so that what reads it is not replayed"
            )
            return {}
        value = found[name]
        # A simulation holds float16 as float32; the reference's graph wants its own types.
        wanted = expected[name].dtype if name in expected else value.dtype
        feeds[name + SEVERED_SUFFIX] = value.astype(wanted, copy=False)
    return replay(feeds)


def _measure(
    meters: _Meters,
    pool: ThreadPoolExecutor,
    name: str,
    tensors: Sequence[str],
    runs: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray], Mapping[str, np.ndarray]],
) -> None:
    """Adds one sample of one format: (reference, simulation, replay); a tensor a thread."""

    def one(tensor: str) -> tuple[ReplayStatistics, ReplayStatistics | None] | str:
        reference, candidate, again = (run.get(tensor) for run in runs)
        if reference is None or candidate is None:
            return f"the {'reference' if reference is None else 'simulation'} did not give it back"
        try:
            # Against itself the reference inherits nothing: what is "introduced" is the whole error, largest one too.
            total = measure_replay(reference, candidate, reference, channel_axis=None)
            split = None if again is None else measure_replay(reference, candidate, again, channel_axis=None)
        except ValueError as error:
            return str(error)
        return total, split

    for tensor, found in zip(tensors, pool.map(one, tensors), strict=True):
        if isinstance(found, str):
            meters.problems.setdefault(tensor, found)
            continue
        total, split = found
        key = name, tensor
        meters.samples.setdefault(key, []).append(total.introduced)
        meters.totals[key] = meters.totals[key].merge(total) if key in meters.totals else total
        if split is not None:
            meters.splits[key] = meters.splits[key].merge(split) if key in meters.splits else split


def _measure_ranges(
    meters: _Meters, pool: ThreadPoolExecutor, tensors: Sequence[str], expected: Mapping[str, np.ndarray]
) -> None:
    held = [name for name in tensors if name in expected and is_real(expected[name])]
    found = pool.map(lambda name: range_of(meters.places[name], expected[name]), held)
    for name, one in zip(held, found, strict=True):
        before = meters.findings.ranges.get(name)
        meters.findings.ranges[name] = one if before is None else joined(before, one)


def _concluded(meters: _Meters) -> Findings:
    findings = meters.findings
    for (name, tensor), total in meters.totals.items():
        split = meters.splits.get((name, tensor))
        findings.predicted[name][tensor] = Predicted(
            site=meters.places[tensor],
            elements=total.count,
            rel_l2=total.introduced,
            rel_l2_finite=total.introduced_finite,
            max_abs=total.introduced_max,
            worst_index=total.worst_index,
            nonfinite=total.introduced_nonfinite,
            is_output=tensor in meters.outputs,
            exact=total.exact,
            introduced=split.introduced if split else None,
            inherited=split.inherited if split else None,
            per_sample=tuple(meters.samples[name, tensor]),
        )
    findings.skipped.extend(Skip(what=f"tensor {tensor}", reason=reason) for tensor, reason in meters.problems.items())
    return findings
