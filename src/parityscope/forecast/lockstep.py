"""Runs the reference and its simulations side by side and measures every tensor while both are in memory.

Where the runtime takes compiled operators (`_operators`), reference and simulation are one graph that measures itself
(`together`). Elsewhere they give their tensors back stretch by stretch (`chunks`). Outputs alone are compared in
undisturbed runs.

**Introduced error.** Each tensor is computed a third time, in the reference's arithmetic on what the *simulation*
stored of its inputs (the severed replay of `localization`): c - r = (c - f(c_in)) + (f(c_in) - r), exactly.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.sizing import tensor_shapes
from parityscope.errors import ParityError
from parityscope.forecast._rows import Crew
from parityscope.forecast.chunks import opened_chunks, run_chunk
from parityscope.forecast.plans import Findings, Meters, Plan, concluded, meters_of
from parityscope.forecast.together import opened
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.backends.recording import Progress
    from parityscope.forecast.together import Pair

__all__ = ["Findings", "Plan", "run_layers", "run_outputs"]

_REFERENCE = Target(backend="ort")


def run_outputs(plan: Plan, progress: Progress) -> Findings:
    """Every output of every format, in undisturbed runs."""
    names = [value.name for value in plan.model.outputs]
    meters = meters_of(plan, names)
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
    return concluded(meters)


def run_layers(plan: Plan, progress: Progress) -> Findings:
    """Every tensor that nodes of the main graph compute."""
    names = list(plan.model.sites)
    meters = meters_of(plan, names)
    if not names:
        return concluded(meters)
    if pairs := _pairs(plan, names, meters):
        _run_pairs(pairs, plan, meters, progress)
        return replace(concluded(meters), together=True)
    chunks = opened_chunks(plan, names, meters)
    steps = len(chunks) * len(plan.inputs)
    with Crew.of(plan.threads) as crew:
        for position, sample in enumerate(plan.inputs):
            held: dict[str, dict[str, np.ndarray]] = {name: {} for name in ("", *plan.targets)}
            for number, chunk in enumerate(chunks):
                progress("predicting layers", position * len(chunks) + number, steps)
                run_chunk(chunk, sample, held, meters, crew)
    progress("predicting layers", steps, steps)
    return concluded(meters)


def _pairs(plan: Plan, names: Sequence[str], meters: Meters) -> dict[str, Pair]:
    """For each format the graph that measures itself; empty where one of them is not to be had."""
    pairs: dict[str, Pair] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    if plan.targets:
        with contextlib.suppress(ParityError):
            shapes = tensor_shapes(plan.model, next(iter(plan.inputs)), names)
    for name, target in plan.targets.items():
        try:
            pair = opened(plan.model, target, names, shapes, introduced=plan.introduced)
        except ParityError:
            return {}  # what can be said against the model is said by the sessions that each run one side
        if pair is None:
            return {}
        pairs[name] = pair
    meters.skipped.extend(skip for pair in pairs.values() for skip in pair.skipped)
    return pairs


def _run_pairs(pairs: Mapping[str, Pair], plan: Plan, meters: Meters, progress: Progress) -> None:
    with Crew.of(plan.threads) as crew:
        for position, sample in enumerate(plan.inputs):
            progress("predicting layers", position, len(plan.inputs))
            for name, pair in pairs.items():
                pair.add(sample.arrays, meters.formats[name], crew)
    progress("predicting layers", len(plan.inputs), len(plan.inputs))
