"""Which of the differences between two graphs make the error of the outputs, and which are harmless.

Differences that are one change at many places are a unit. With all units in it, the reference's graph must give what the
candidate gave; units are then taken out again, many at once first, as long as it still does (delta debugging: Zeller and
Hildebrandt, 2002), and of a few that are left every part is tried. What is left is the smallest set found: none of it can be left
out. Units share what the set explains of the squared error by what is lost where each is left out alone; what the rest does to
the outputs is measured too.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.rows import fill_rows_apart
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch

    Arrays = Mapping[str, np.ndarray]
    # Gives the outputs of the reference with these differences, on the sample at that position.
    Mix = Callable[[frozenset["GraphDifference"], int], "Arrays"]

_ENOUGH = 1e-10  # of an output's square may be left: 1e-5 in L2, a hundred FP32 roundings; chosen
_AGAIN = 4.0  # of what all differences leave may be left: another order of sums, twice as far in L2; chosen
_MOST = 300  # networks, chosen: each costs what lies behind its differences
_COARSE, _FAR = 0.1, 8.0  # an error that is large by itself, and beside the median of others; chosen
_TOGETHER = 6  # units of which all parts are tried, 62 at most; chosen
_TELLS = 0.5  # of the squared error must be in the graphs, or the cause is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Differences that are one change: `group` says which; `error` is the largest that one of them introduces (relative L2).

    `note` completes the words of one that does not do what others of its kind do.
    """

    group: str
    differences: tuple[GraphDifference, ...]
    error: float
    note: str = ""

    @property
    def declared(self) -> bool:
        """Whether the candidate's own types or quantization say all of it."""
        return not self.note and all(one.declared for one in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideOutputs:
    """A sample, and what each side gave for it, by the reference's names; `watch` gives values inside the reference, by name."""

    inputs: Arrays
    reference: Arrays
    candidate: Arrays
    watch: Callable[[Sequence[str]], Arrays] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDecision:
    """`causes` with their shares of the squared error, `rest` of the units, and what that one does (a share).

    `explained` is the share that all differences explain: below a half (`alone` is false) most of the error comes from elsewhere,
    and the causes are those of what the candidate's file gives for the reference's inputs. `tried` counts the networks that were
    run. `unproved` do something, but only to what lies behind nodes that nothing here runs.
    """

    causes: tuple[tuple[Unit, float], ...]
    rest: tuple[Unit, ...]
    rest_share: float
    explained: float
    tried: int
    alone: bool = True
    unproved: tuple[Unit, ...] = ()


def units_of(stretches: Iterable[DifferingStretch]) -> list[Unit]:
    """What differs, as units, the least errors first; a stretch that gives the same to the last bit has no part in it.

    What the file declares, and errs at one place far more than it does elsewhere, is a unit of its own, and not excused.
    """
    found: dict[str, list[tuple[GraphDifference, float]]] = {}
    notes: dict[str, str] = {}
    for stretch in stretches:
        for one in stretch.differences if stretch.error > 0 else ():
            found.setdefault(one.group, []).append((one, stretch.error))
    for group, held in list(found.items()):
        usual = sorted(error for _, error in held)[len(held) // 2]
        far = [(one, error) for one, error in held if one.declared and error > max(_COARSE, _FAR * usual)]
        if far and len(held) > len(far):
            found[group] = [pair for pair in held if pair not in far]
            for one, error in far:
                found[f"{group} at {one.site}"] = [(one, error)]
                notes[f"{group} at {one.site}"] = f", and errs by {error:.2g} where others err by {usual:.2g}"
    units = [
        Unit(
            group=group,
            differences=tuple(one for one, _ in held),
            error=max(error for _, error in held),
            note=notes.get(group, ""),
        )
        for group, held in found.items()
    ]
    return sorted(units, key=lambda unit: unit.error)


def decide_causes(units: Sequence[Unit], samples: Sequence[SideOutputs], mix: Mix) -> GraphDecision:
    """The smallest set of units found that reproduces the candidate on the first sample, measured on all of them."""
    work = _DecidingWork(samples, mix)
    none, everything = work.left([]), work.left(units)
    explained = 1.0 - everything / none if none > 0 else 0.0
    alone = explained >= _TELLS
    bound = _ENOUGH * len(samples[0].reference)
    kept = (
        _find_smallest_set(work, units, max(_AGAIN * everything, bound))
        if alone
        else _smallest_set_of_file(units, samples[0], mix, bound)
    )
    total, after = work.left([], everywhere=True), work.left(kept, everywhere=True)
    if not alone and not (kept and total > after):
        return GraphDecision(
            causes=(), rest=tuple(units), rest_share=0.0, explained=max(0.0, explained), tried=work.tried, alone=False
        )
    lost = [min(total, work.left([one for one in kept if one is not unit], everywhere=True)) - after for unit in kept]
    parts = sum(max(0.0, one) for one in lost) or 1.0
    gained = 1.0 - after / total if total > 0 else 0.0
    shares = [gained * max(0.0, one) / parts for one in lost]
    rest = tuple(unit for unit in units if unit not in kept)
    return GraphDecision(
        causes=tuple(sorted(zip(kept, shares, strict=True), key=lambda one: -one[1])),
        rest=rest,
        rest_share=work.moved(rest) / total if rest and total > 0 else 0.0,
        explained=gained,
        tried=work.tried,
        alone=alone,
    )


def decide_without_outputs(
    decision: GraphDecision, units: Sequence[Unit], ends: Arrays, sample: SideOutputs, mix: Mix
) -> GraphDecision:
    """With what differs around nodes that cannot be run, judged by what `mix` gives at these `ends` of what can be."""
    causes = [unit for unit, _ in decision.causes]
    found = _smallest_set_of_file(units, replace(sample, reference=ends), mix, _ENOUGH * len(ends))
    unproved = tuple(unit for unit in found if unit not in causes)
    return replace(decision, unproved=unproved, rest=tuple(unit for unit in decision.rest if unit not in unproved))


def _find_smallest_set(work: _DecidingWork, units: Sequence[Unit], bound: float) -> list[Unit]:
    """The smallest set found that leaves no more than the bound."""
    if work.left(units[-1:]) <= bound:
        return [units[-1]]
    return _without_bound_together(work, work.reduced(list(units), bound), bound)


def _without_bound_together(work: _DecidingWork, kept: list[Unit], bound: float) -> list[Unit]:
    """The smallest part of a few units that does as well: a fusion and the node that it took in can only go together."""
    if len(kept) > _TOGETHER:
        return kept
    parts = (list(part) for size in range(1, len(kept)) for part in itertools.combinations(kept, size))
    return next((part for part in parts if work.tried < _MOST and work.left(part) <= bound), kept)


def _smallest_set_of_file(units: Sequence[Unit], sample: SideOutputs, mix: Mix, bound: float) -> list[Unit]:
    """The smallest set found that gives what all units give, whatever the candidate gave; none where that is no network.

    What the file declares itself is not looked for: formats are judged by what they cost, not here.
    """
    if all(unit.declared for unit in units):
        return []
    try:
        said = mix(frozenset(one for unit in units for one in unit.differences), 0)
    except ParityError:
        return []
    own = _DecidingWork([replace(sample, candidate=said)], mix)
    return _find_smallest_set(own, units, bound) if own.left([]) > bound else []


class _DecidingWork:
    """Runs mixtures, each once."""

    def __init__(self, samples: Sequence[SideOutputs], mix: Mix) -> None:
        self.samples, self.mix = samples, mix
        self.tried = 0
        self._known: dict[tuple[frozenset[str], bool], float] = {}

    def left(self, units: Sequence[Unit], *, everywhere: bool = False) -> float:
        """The squared error that the reference with these units leaves, on the first sample or on all."""
        key = frozenset(unit.group for unit in units), everywhere
        if key not in self._known:
            places = range(len(self.samples) if everywhere else 1)
            self._known[key] = sum(self._error_apart(units, place, self.samples[place].candidate) for place in places)
        return self._known[key]

    def moved(self, units: Sequence[Unit]) -> float:
        """What these units do to the reference's outputs, as a squared error on all samples."""
        return sum(self._error_apart(units, place, sample.reference) for place, sample in enumerate(self.samples))

    def reduced(self, kept: list[Unit], bound: float) -> list[Unit]:
        """Without all that may be left out, halves first."""
        size = max(1, len(kept) // 2)
        while True:
            place = 0
            while place < len(kept):
                without = [*kept[:place], *kept[place + size :]]
                if without and self.tried < _MOST and self.left(without) <= bound:
                    kept = without
                else:
                    place += size
            if size == 1:
                return kept
            size //= 2

    def _error_apart(self, units: Sequence[Unit], place: int, target: Arrays) -> float:
        active = frozenset(one for unit in units for one in unit.differences)
        self.tried += bool(active)
        try:
            found = self.mix(active, place) if active else self.samples[place].reference
        except ParityError:  # this mixture is no network
            return math.inf
        return energy_of(found, target, self.samples[place].reference)


def energy_of(found: Arrays, target: Arrays, reference: Arrays) -> float:
    """The squared error over all outputs, each over its own squared norm; what is not finite on one side counts as one each."""
    total = 0.0
    for name, mine in reference.items():
        given, wanted = found.get(name, mine), target.get(name)  # what is not known explains nothing
        if wanted is None or mine.dtype.kind not in "fiubV":
            continue
        if given is wanted:
            continue
        given, wanted = fill_rows_apart(given, wanted)
        if given.shape != wanted.shape:
            return math.inf
        one, other = (np.asarray(side, np.float64).reshape(-1) for side in (given, wanted))
        both = np.isfinite(one) & np.isfinite(other)
        lost = ~both & (one != other) & ~(np.isnan(one) & np.isnan(other))
        flat = np.asarray(mine, np.float64).reshape(-1)
        size = float(np.square(flat[np.isfinite(flat)]).sum())
        total += float(np.square(one[both] - other[both]).sum()) / (size or 1.0) + int(lost.sum())
    return total
