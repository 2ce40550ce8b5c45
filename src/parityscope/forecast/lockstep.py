"""Runs the reference and its simulations side by side and measures every tensor while it is in the cache.

All are worlds of one evaluation (`evaluation.evaluate`): the reference as it is, a simulation for each format, and for each of
them its **severed replay**, which computes every tensor in the reference's arithmetic on what the simulation stored of its
inputs. That is what separates introduced from inherited error: c - r = (c - f(c_in)) + (f(c_in) - r), exactly. Where a
simulation computes with the reference's own weights on what it stored, f(c_in) is its result before it is rounded, and costs
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.sim import prepare
from parityscope.evaluation.evaluating import evaluate
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.forecast._rows import Crew
from parityscope.forecast.plans import Findings, Meters, Plan, concluded, meters_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.recording import Progress
    from parityscope.evaluation.evaluating import Moment

__all__ = ["Findings", "Plan", "run_layers", "run_outputs"]

_PLAIN, _REPLAYED = "reference", "replayed: "


def run_outputs(plan: Plan, progress: Progress) -> Findings:
    """Every output of every format; nothing but what they depend on is run."""
    names = [value.name for value in plan.model.outputs]
    return _run(replace(plan, introduced=False), names, "predicting outputs", progress)


def run_layers(plan: Plan, progress: Progress) -> Findings:
    """Every tensor that nodes of the main graph compute."""
    return _run(plan, list(plan.model.sites), "predicting layers", progress)


def _run(plan: Plan, names: Sequence[str], doing: str, progress: Progress) -> Findings:
    meters = meters_of(plan, names)
    if not names:
        return concluded(meters)
    plain = World(name=_PLAIN, program=wide_program(plan.model)[1])
    worlds = [plain]
    for name, target in plan.targets.items():
        simulated, skipped = prepare(plan.model, target, names)
        meters.skipped.extend(skipped)
        worlds.append(replace(simulated, name=name))
        if plan.introduced:
            worlds.append(World(name=_REPLAYED + name, program=plain.program, follows=name))
    known = {*plain.program.steps_of, *plain.program.constants, *plain.program.inputs}
    meters.unread.update((name, "the reference did not give it back") for name in names if name not in known)
    watch = [name for name in names if name in known]
    sessions = Sessions(threads=plan.threads)
    with Crew.of(plan.threads) as crew:
        for position, sample in enumerate(plan.inputs):
            for moment in evaluate(worlds, sample.arrays, watch, sessions):
                index = 0 if moment.step is None else moment.step.index
                progress(
                    doing, position * len(plain.program.steps) + index, len(plan.inputs) * len(plain.program.steps)
                )
                _measure(moment, meters, crew)
    progress(doing, 1, 1)
    return concluded(meters)


def _measure(moment: Moment, meters: Meters, crew: Crew) -> None:
    sites = moment.sites
    expected = {site: moment.stored(_PLAIN, site) for site in sites}
    for name, tally in meters.formats.items():
        found = _there({site: moment.stored(name, site) for site in sites})
        # At inputs and constants nothing is computed, and nothing introduced.
        again = {} if moment.step is None else {site: moment.computed(_REPLAYED + name, site) for site in sites}
        tally.add(sites, expected, found, _there(again), crew)
    if meters.alone is not None:
        meters.alone.add(sites, expected, expected, {}, crew)


def _there(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {site: value for site, value in values.items() if value is not None}
