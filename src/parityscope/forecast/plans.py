"""What a forecast is to measure, what it measures with, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from parityscope.forecast.tallies import Tally
from parityscope.records import Site, Skip, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Inputs, Model
    from parityscope.forecast.records import Predicted, Range

__all__ = ["Findings", "Meters", "Plan", "concluded", "meters_of"]


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
class Meters:
    """What is measured: a tally for each format, the first of which takes the reference's ranges too.

    Without formats `alone` takes them.
    """

    outputs: frozenset[str]
    formats: dict[str, Tally]
    alone: Tally | None
    skipped: list[Skip] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


def meters_of(plan: Plan, names: Sequence[str]) -> Meters:
    """Empty meters for the tensors `names`."""
    places = {name: plan.model.sites.get(name, Site(tensor=name, node="", op_type="", index=-1)) for name in names}
    first = next(iter(plan.targets), "")
    return Meters(
        outputs=frozenset(value.name for value in plan.model.outputs),
        formats={name: Tally(places, ranged=name == first) for name in plan.targets},
        alone=None if plan.targets else Tally(places, ranged=True),
    )


def concluded(meters: Meters) -> Findings:
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
