"""Runs the reference and its simulations side by side and measures every tensor while it is in the cache.

All are worlds of one evaluation (`evaluation.evaluate`): the reference as it is, a simulation for each format, and for each of
them its **severed replay**, which computes every tensor in the reference's arithmetic on what the simulation stored of its
inputs. That is what separates introduced from inherited error: c - r = (c - f(c_in)) + (f(c_in) - r), exactly. Where a
simulation computes with the reference's own weights on what it stored, f(c_in) is its result before it is rounded, and costs
nothing.

What was measured of many tensors so far, sample by sample: a format's world against the plain one (`comparison.replayed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.backends.sim import prepare_world
from parityscope.comparison import measure_replay
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.room import check_room, nbytes_of_world, split_worlds
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.expectation.forecasts import Predicted
from parityscope.expectation.ranges import is_real, join_ranges, range_of
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Site, Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.comparison import ReplayStatistics
    from parityscope.evaluation.evaluating import Moment
    from parityscope.expectation.forecasts import MagnitudeRange
    from parityscope.records import Target

    Arrays = Mapping[str, np.ndarray]

_REMEMBERED = 4096  # bytes, chosen: comparing them costs less than measuring anything

_Measured = tuple["ReplayStatistics", "ReplayStatistics | None"]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was measured of one format, with `ranged` of the reference's ranges too.

    `places` are the tensors that may come, in order; `problems` says why a tensor could not be measured. Of each tensor is kept r
    against c and, where it is wanted, the split of r, c and f(c_in).
    """

    places: Mapping[str, Site]
    ranged: bool
    threads: int = 1
    problems: dict[str, str] = field(default_factory=dict)
    _found: dict[str, _Measured] = field(default_factory=dict)
    _samples: dict[str, list[float]] = field(default_factory=dict)
    _last: dict[str, tuple[object, _Measured]] = field(default_factory=dict)
    _ranges: dict[str, MagnitudeRange] = field(default_factory=dict)

    def add(self, names: Sequence[str], reference: Arrays, candidate: Arrays, replayed: Arrays) -> None:
        """Adds one sample of the tensors `names`; `replayed` lacks those whose introduced error is not wanted."""
        for name in names:
            r, c, f = reference.get(name), candidate.get(name), replayed.get(name)
            if r is None or c is None:
                missing = "reference" if r is None else "simulation"
                self.problems.setdefault(name, f"the {missing} did not give it back")
                continue
            try:
                total, split = self._measure_tensor(name, r, c, f)
            except ValueError as error:
                self.problems.setdefault(name, str(error))
                continue
            self._samples.setdefault(name, []).append(total.total)
            if name in self._found:
                before = self._found[name]
                total = before[0].merge(total)
                split = before[1].merge(split) if before[1] and split else split or before[1]
            self._found[name] = total, split
            if self.ranged and is_real(r):
                held = range_of(self.places[name], r)
                self._ranges[name] = join_ranges(self._ranges[name], held) if name in self._ranges else held

    def _measure_tensor(self, name: str, r: np.ndarray, c: np.ndarray, f: np.ndarray | None) -> _Measured:
        """What one sample says; small tensors (shapes, indices) that are what they were the last time cost nothing."""
        arrays = [r, c] if f is None else [r, c, f]
        small = all(0 < array.nbytes <= _REMEMBERED and array.dtype != object for array in arrays)
        key = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays) if small else ()
        if small and name in self._last and self._last[name][0] == key:
            return self._last[name][1]
        split = None if f is None else measure_replay(r, c, f, channel_axis=None, threads=self.threads)
        # Where f alone is not finite, an element counts for r and c all the same.
        whole = split is not None and not split.left_out
        total = split if split and whole else measure_replay(r, c, r, channel_axis=None, threads=self.threads)
        if small:
            self._last[name] = key, (total, split)
        return total, split

    def predicted(self, outputs: frozenset[str]) -> dict[str, Predicted]:
        """The error of every tensor that was measured, in order."""
        return {name: self._predict_tensor(name, outputs) for name in self.places if name in self._found}

    def ranges(self) -> dict[str, MagnitudeRange]:
        """The reference's range of every tensor of floats that was measured, in order."""
        return {name: self._ranges[name] for name in self.places if name in self._ranges}

    def _predict_tensor(self, name: str, outputs: frozenset[str]) -> Predicted:
        total, split = self._found[name]
        return Predicted(
            site=self.places[name],
            elements=total.count,
            rel_l2=total.total,
            rel_l2_finite=total.total_finite,
            max_abs=total.total_max,
            worst_index=total.total_index,
            nonfinite=total.introduced_nonfinite,
            is_output=name in outputs,
            exact=total.exact,
            introduced=split.introduced if split else None,
            inherited=split.inherited if split else None,
            per_sample=tuple(self._samples[name]),
        )


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
