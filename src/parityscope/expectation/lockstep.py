"""Runs the reference and its simulations side by side and measures every tensor while it is in the cache.

All are worlds of one evaluation (`evaluation.evaluate`): the reference as it is, a simulation for each format, and for each of
them its **severed replay**, which computes every tensor in the reference's arithmetic on what the simulation stored of its
inputs. That is what separates introduced from inherited error: c - r = (c - f(c_in)) + (f(c_in) - r), exactly. Where a
simulation computes with the reference's own weights on what it stored, f(c_in) is its result before it is rounded, and costs
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.sim import prepare_world
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.room import check_room, nbytes_of_world, split_worlds
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.expectation.tallies import Tally
from parityscope.records import Site, Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.evaluation.evaluating import Moment
    from parityscope.expectation.forecasts import MagnitudeRange, Predicted
    from parityscope.records import Target

__all__ = ["Findings", "LockstepPlan", "run_layers", "run_outputs"]

_PLAIN, _REPLAYED = "reference", "replayed: "


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepPlan:
    """What is run: a model on samples, and a simulation for each format (`targets`)."""

    model: Model
    inputs: Inputs
    targets: Mapping[str, Target]
    threads: int
    introduced: bool

    def only(self, name: str, target: Target) -> LockstepPlan:
        """The same with one format."""
        return replace(self, targets={name: target})


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was measured: by format and tensor, and the reference's ranges by tensor."""

    predicted: dict[str, dict[str, Predicted]] = field(default_factory=dict)
    ranges: dict[str, MagnitudeRange] = field(default_factory=dict)
    skipped: list[Skip] = field(default_factory=list)

    def only(self, names: Sequence[str]) -> Findings:
        """The same of some tensors, in this order."""
        return replace(
            self,
            predicted={
                each: {name: found[name] for name in names if name in found} for each, found in self.predicted.items()
            },
            ranges={name: self.ranges[name] for name in names if name in self.ranges},
        )


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


def run_outputs(plan: LockstepPlan, progress: Progress) -> Findings:
    """Every output of every format; nothing but what they depend on is run."""
    names = [value.name for value in plan.model.outputs]
    return _run_in_lockstep(replace(plan, introduced=False), names, "predicting outputs", progress)


def run_layers(plan: LockstepPlan, progress: Progress) -> Findings:
    """Every tensor that nodes of the main graph compute."""
    return _run_in_lockstep(plan, list(plan.model.sites), "predicting layers", progress)


def _run_in_lockstep(plan: LockstepPlan, names: Sequence[str], doing: str, progress: Progress) -> Findings:
    meters = _meters_of(plan, names)
    if not names:
        return _conclude_findings(meters)
    plain = World(name=_PLAIN, program=wide_program(plan.model)[1])
    others: list[list[World]] = []
    for name, target in plan.targets.items():
        simulated, skipped = prepare_world(plan.model, target, names)
        meters.skipped.extend(skipped)
        others.append([replace(simulated, name=name)])
        if plan.introduced:
            others[-1].append(World(name=_REPLAYED + name, program=plain.program, follows=name))
    known = {*plain.program.steps_of, *plain.program.constants, *plain.program.inputs}
    meters.unread.update((name, "the reference did not give it back") for name in names if name not in known)
    watch = [name for name in names if name in known]
    sessions = Sessions(threads=plan.threads)
    steps = len(plain.program.steps)
    for position, sample in enumerate(plan.inputs):
        nbytes = nbytes_of_world(plan.model, plain.program, sample.arrays)
        check_room(nbytes, 1 + bool(others))
        groups = split_worlds(plain, others, nbytes)
        for number, worlds in enumerate(groups):
            before = (position + number / len(groups)) * steps
            for moment in evaluate_worlds(worlds, sample.arrays, watch, sessions):
                index = 0 if moment.step is None else moment.step.index
                progress(doing, int(before + index / len(groups)), len(plan.inputs) * steps)
                _measure_moment(moment, meters)
    progress(doing, 1, 1)
    return _conclude_findings(meters)


def _measure_moment(moment: Moment, meters: _Meters) -> None:
    sites = moment.sites
    expected = {site: moment.stored(_PLAIN, site) for site in sites}
    for name, tally in meters.formats.items():
        if name not in moment.lanes:
            continue  # its world is in another group
        found = _values_there({site: moment.stored(name, site) for site in sites})
        # At inputs and constants nothing is computed, and nothing introduced.
        again = {} if moment.step is None else {site: moment.computed(_REPLAYED + name, site) for site in sites}
        tally.add(sites, expected, found, _values_there(again))
    if meters.alone is not None:
        meters.alone.add(sites, expected, expected, {})


def _values_there(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {site: value for site, value in values.items() if value is not None}


def _meters_of(plan: LockstepPlan, names: Sequence[str]) -> _Meters:
    """Empty meters for the tensors `names`."""
    places = {name: plan.model.sites.get(name, Site(tensor=name, node="", op_type="", index=-1)) for name in names}
    first = next(iter(plan.targets), "")
    return _Meters(
        outputs=frozenset(value.name for value in plan.model.outputs),
        formats={name: Tally(places=places, ranged=name == first, threads=plan.threads) for name in plan.targets},
        alone=None if plan.targets else Tally(places=places, ranged=True, threads=plan.threads),
    )


def _conclude_findings(meters: _Meters) -> Findings:
    """What was measured, and what could not be."""
    tallies = [*meters.formats.values(), *([meters.alone] if meters.alone else [])]
    problems = dict(meters.unread)
    for tally in tallies:
        problems = {**tally.problems, **problems}
    return Findings(
        predicted={name: tally.predicted(meters.outputs) for name, tally in meters.formats.items()},
        ranges=tallies[0].ranges(),
        skipped=[*meters.skipped, *(Skip(what=f"tensor {name}", reason=why) for name, why in problems.items())],
    )
