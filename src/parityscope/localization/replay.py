"""The severed replay: the error that each region introduces, apart from what it inherits.

Every consumer of a tensor that the candidate let us see reads the *candidate's* value of it: a world in which these are
given (`evaluation`). One pass of it in reference arithmetic gives f(c_in) for every such tensor, and then, exactly,

    c - r  =  (c - f(c_in))  +  (f(c_in) - r)
              introduced        inherited

Where the engine fused nodes and tensors between could not be seen, the same pass gives the error of the *region*
between observable tensors. It costs about one reference inference whatever the number of layers, and the memory of what is
live: each tensor is measured while it is there, and forgotten.

c and c_in have to be of one run. Where the candidate's tensors were recorded in parts, there is a pass for each part, which
reads what that part gave; that is the reason why each part records again what its tensors are computed from. Where a maximum
of the candidate hands NaN on, the replay's does too (`keeping`).

How far apart the runs of a recording are: what was recorded in two of its parts, compared with itself.

A recording in parts gives some tensors several times, because each part records what its own tensors are computed from.
The relative L2 distance of a copy from the tensor that is kept is the candidate's spread between sessions at that tensor:
0 for a runtime that is reproducible to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from parityscope.backends.recording import Progress, ignore_progress
from parityscope.comparison import ReplayStatistics, channel_axis, measure_replay
from parityscope.comparison.distance import distance_between
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.light_dataclasses import dataclass
from parityscope.localization.keeping import Programs
from parityscope.localization.sides import Sides
from parityscope.records import Localization, Site, Skip, Spread, Suspect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy as np

    from parityscope.case import Inputs, Model
    from parityscope.trace import Trace


def between_parts(sides: Sides) -> tuple[Spread, ...]:
    """The tensors that differ by more than one FP32 rounding between the parts that recorded them, the largest first.

    `value` is the worst over samples and copies; a tensor whose copies have other shapes is infinitely far apart.
    """
    candidate = sides.candidate
    names = {other: name for name, other in sides.pairing.items()}
    worst: dict[str, float] = {}
    counts: dict[str, set[int]] = {}
    for part, sample, other in candidate.copies:
        if other not in names or not candidate.has(sample, other):
            continue
        name = names[other]
        counts.setdefault(name, {candidate.parts.get(other, 0)}).add(part)
        apart = distance_between(sides.candidate.get(sample, other), sides.candidate.again(part, sample, other))
        worst[name] = max(worst.get(name, 0.0), apart)
    found = [
        Spread(tensor=name, value=value, runs=len(counts[name]))
        for name, value in worst.items()
        if value > FLOAT32_ROUNDING
    ]
    return tuple(sorted(found, key=lambda spread: -spread.value))


# Relative: less than one rounding of one element among billions. Norms that a mask's guards (-3.4e38) inflate tell of no error.
_NOTHING = FLOAT32_ROUNDING / 2**16
_REPLAYED, _KEEPING = "replayed", "replayed, NaN handed on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizationOptions:
    """How to localize: threads for arithmetic, how many suspects to inject, and whether those that nothing is left for."""

    threads: int = 2
    injected: int = 12
    thorough: bool = False


def localize(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    options: LocalizationOptions | None = None,
    progress: Progress = ignore_progress,
) -> Localization:
    """Introduced and inherited error of every tensor in `pairing`, and the leading suspects' share of the output error.

    `reference` and `candidate` hold the same samples with their intermediate tensors; `pairing` maps the names of
    tensors of the reference's graph to the candidate's. Suspects come worst first: by share where it was measured,
    then by introduced error.
    """
    options = options or LocalizationOptions()
    sides = Sides(model=model, inputs=inputs, reference=reference, candidate=candidate, pairing=pairing)
    places = model.sites
    observed, skipped = observed_tensors(sides)
    if not observed:
        return Localization(suspects=(), method="none", observed=0, windows=0, skipped=tuple(skipped))
    programs = Programs.of(sides, observed)
    skipped += _skips_of_mixed_runs(sides, programs)
    totals: dict[str, list[ReplayStatistics]] = {name: [] for name in observed}
    for found in replay_tensors(sides, programs, observed, options, progress):
        totals[found.tensor].append(found.statistics)
    parts = len({sides.part(name) for name in observed})
    relative = {name: _relative_error(parts) for name, parts in totals.items()}
    suspects = [_make_suspect(places[name], each, programs, model, relative) for name, each in totals.items()]
    suspects.sort(key=introduced_to_sort_by)
    return Localization(
        suspects=tuple(suspects),
        method="severed replay" if parts == 1 else f"severed replay in {parts} parts",
        observed=len(observed),
        windows=parts,
        samples=reference.samples,
        disturbance=candidate.disturbance,
        spreads=between_parts(sides),
        skipped=tuple(skipped),
    )


def observed_tensors(sides: Sides) -> tuple[list[str], list[Skip]]:
    """The tensors that both sides have for every sample, alike in shape and kind, in topological order; and the rest."""
    observed = sides.observed()
    skipped = []
    for name in sorted(set(sides.pairing) & set(sides.model.sites) - set(observed)):
        problem = next(filter(None, (sides.unlike(sample, name) for sample in sides.reference.samples)))
        skipped.append(Skip(what=f"tensor {name}", reason=problem))
    return observed, skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the replay of one tensor on one sample showed."""

    tensor: str
    sample: int
    statistics: ReplayStatistics


class Given(Mapping[str, "np.ndarray"]):
    """The candidate's tensors `names` on one sample, as the run that gave `reader` gave them; read when they are asked for."""

    def __init__(self, sides: Sides, names: Collection[str], sample: int, reader: str) -> None:
        self._sides, self._names, self._sample, self._reader = sides, frozenset(names), sample, reader

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._sides.candidate_tensor(self._sample, name, reader=self._reader)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def replay_tensors(
    sides: Sides,
    programs: Programs,
    wanted: Sequence[str],
    options: LocalizationOptions,
    progress: Progress = ignore_progress,
) -> Iterator[Replayed]:
    """Replays the tensors of `wanted`, sample by sample and part by part, and measures each against both sides."""
    sessions = Sessions(threads=options.threads)
    samples = sides.reference.samples
    for number, sample in enumerate(samples):
        progress("replaying", number, len(samples))
        for name, again in replayed_values(sides, programs, wanted, sample, sessions):
            mine = sides.reference.get(sample, name)
            other = sides.candidate.get(sample, sides.pairing[name])
            statistics = measure_replay(mine, other, again, channel_axis=channel_axis(mine.ndim))
            yield Replayed(tensor=name, sample=sample, statistics=statistics)
    progress("replaying", len(samples), len(samples))


def replayed_values(
    sides: Sides, programs: Programs, wanted: Sequence[str], sample: int, sessions: Sessions
) -> Iterator[tuple[str, np.ndarray]]:
    """f(c_in) of the tensors `wanted` on one sample, one after another, in the graph's own shapes and dtypes.

    Raises:
        ParityError: ONNX Runtime fails on what the candidate gave.
    """
    observed = frozenset(programs.regions)
    parts: dict[int, list[str]] = {}
    for name in wanted:
        parts.setdefault(sides.part(name), []).append(name)
    feeds = sides.inputs.sample(sample).arrays
    for names in parts.values():
        given = Given(sides, observed, sample, names[0])
        worlds = [World(name=_REPLAYED, program=programs.plain, given=given)]
        if programs.keeping is not None:
            worlds.append(World(name=_KEEPING, program=programs.keeping, given=given))
        for moment in evaluate_worlds(worlds, feeds, names, sessions):
            for site in moment.sites:
                yield site, moment.computed(_KEEPING if site in programs.hands_on else _REPLAYED, site)


def _skips_of_mixed_runs(sides: Sides, programs: Programs) -> Iterator[Skip]:
    """Where c and c_in are of different runs after all: the candidate did not give an input back with its output."""
    for name, region in programs.regions.items():
        apart = next((read for read in region.reads if sides.apart(read, reader=name)), None)
        if apart is not None:
            yield Skip(
                what=f"introduced error of {name}",
                reason=f"it holds the difference between two recorded runs at {apart}, which was not given back again",
                fix="record everything in one run, with more memory (--memory)",
            )


def _make_suspect(
    site: Site,
    parts: Sequence[ReplayStatistics],
    programs: Programs,
    model: Model,
    relative: Mapping[str, float],
) -> Suspect:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    entering = math.sqrt(sum(relative[name] ** 2 for name in programs.regions[site.tensor].reads))
    return Suspect(
        site=site,
        introduced=total.introduced,
        inherited=total.inherited,
        gain=total.inherited / entering if entering > _NOTHING and math.isfinite(entering) else math.nan,
        angle=total.angle,
        floor=FLOAT32_ROUNDING,
        region=programs.nodes_of(site.tensor, model),
        introduced_nonfinite=total.introduced_nonfinite,
        introduced_max=total.introduced_max,
        worst_index=total.worst_index,
        per_sample=tuple(part.introduced for part in parts),
    )


def _relative_error(parts: Sequence[ReplayStatistics]) -> float:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total.total


def introduced_to_sort_by(suspect: Suspect) -> tuple[bool, float, int]:
    """Sorts the largest introduced error first, an infinite one before all."""
    size = suspect.introduced
    return (not math.isinf(size), -size if math.isfinite(size) else 0.0, suspect.site.index)
