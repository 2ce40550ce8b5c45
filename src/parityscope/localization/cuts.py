"""Exact attribution: the output error as a sum over the stretches between cuts through the network.

A cut k is a place in topological order at which every tensor that crosses it was observed. Y(k) is the output of the
reference's suffix behind it when it starts from the candidate's tensors at the cut; Y(start) is the reference's output
and Y(end) the candidate's, so that, exactly and whatever the non-linearity,

    c - r  =  sum over k of (Y(k) - Y(k-1)).

With e = c - r over all float outputs (each divided by its reference's norm), phi(k) = <Y(k) - r, e> / <e, e> runs from 0
to 1, and a stretch's share is what phi gains on it. Where the candidate alone has NaN or Inf at an output, phi is the
part of those elements that are non-finite at the cut. Only stretches whose jump is large are divided further, so that
a single culprit costs about log2(number of cuts) suffix runs.

The cross-check is the injection, which takes every suspect alone: where the two disagree, errors do not simply add up.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.case.crossing import all_crossings
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.program import Program, program_of
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.light_dataclasses import dataclass
from parityscope.localization.injection import effects_on
from parityscope.localization.replay import Given
from parityscope.records import Stretch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.case.crossing import Crossing
    from parityscope.localization.sides import Sides

# A stretch that moves the output by less than a tenth of its error is not looked into: it cannot be the main cause.
_WORTH_DIVIDING = 0.1
_EVALUATIONS = 24  # chosen: finds three separate culprits among 300 cuts (3 log2 300 = 25) in a few seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A cut that was evaluated: its place in the list of cuts, phi, and the outputs' errors Y - r over their scales."""

    place: int
    phi: float
    errors: Mapping[str, np.ndarray]


def attribute_error(sides: Sides, sample: int, *, progress: Progress = ignore_progress) -> tuple[Stretch, ...]:
    """The output error of one sample as shares of stretches of the network, in topological order; they sum to one.

    Empty where no float output differs, or no tensor between inputs and outputs was observed.
    """
    scales = {name: sides.scale(sample, name) for name in sides.float_outputs(sample)}
    errors = {name: sides.error(sample, name) / scale for name, scale in scales.items()}
    cuts = _clean_cuts(sides)
    if not cuts or not any(np.any(error != 0) for error in errors.values()):  # NaN differs from 0 too
        return ()
    runs = _Runs(program=program_of(sides.model), sessions=Sessions())
    total = _finite_norm(errors)
    start = _Point(place=-1, phi=0.0, errors={name: np.zeros_like(error) for name, error in errors.items()})
    end = _Point(place=len(cuts), phi=1.0, errors=errors)
    points = [start, end]
    queue = _Queue(total=total)
    queue.push(start, end)
    used = 0
    while used < _EVALUATIONS and (chosen := queue.pop()) is not None:
        progress("attributing", used, _EVALUATIONS)
        left, right = chosen
        place = (left.place + right.place) // 2
        found = _errors_behind_cut(sides, runs, cuts[place], sample, scales)
        middle = _Point(place=place, phi=_phi_of_cut(found, errors), errors=found)
        points.append(middle)
        queue.push(left, middle)
        queue.push(middle, right)
        used += 1
    progress("attributing", _EVALUATIONS, _EVALUATIONS)
    points.sort(key=lambda point: point.place)
    return tuple(_stretch_between(cuts, left, right, total) for left, right in itertools.pairwise(points))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """The reference as a program, and what runs it."""

    program: Program
    sessions: Sessions


def _clean_cuts(sides: Sides) -> list[Crossing]:
    """The cuts at which every float tensor that crosses was observed.

    Others that cross (shapes, indices) are recomputed from the reference's inputs where they were not observed.
    """
    graph = sides.model.graph()
    infer_types(graph)
    observed = set(sides.observed())
    return [
        cut for cut in all_crossings(graph) if all(value.name in observed or _is_index(value) for value in cut.values)
    ]


def _is_index(value: ir.Value) -> bool:
    return value.dtype is not None and (value.dtype.is_integer() or value.dtype.name == "BOOL")


class _Queue:
    """Stretches that may be divided, the one with the largest jump first."""

    def __init__(self, *, total: float) -> None:
        """`total` is the norm of the output error that jumps are held against."""
        self._total = total
        self._heap: list[tuple[float, int, tuple[_Point, _Point]]] = []
        self._count = 0

    def push(self, left: _Point, right: _Point) -> None:
        """Adds a stretch if there is a cut inside and its jump is worth it."""
        # What phi gains or loses, or the distance itself: two errors inside may cancel in phi.
        jump = max(abs(right.phi - left.phi), _moved_share(left, right, self._total))
        if right.place - left.place > 1 and jump >= _WORTH_DIVIDING:
            heapq.heappush(self._heap, (-jump, self._count, (left, right)))
            self._count += 1

    def pop(self) -> tuple[_Point, _Point] | None:
        """The stretch to divide next; None when none is left."""
        return heapq.heappop(self._heap)[2] if self._heap else None


def _moved_share(left: _Point, right: _Point, total: float) -> float:
    with np.errstate(invalid="ignore"):
        differences = {name: right.errors[name] - before for name, before in left.errors.items()}
    return _finite_norm(differences) / total if total else 0.0


def _finite_norm(errors: Mapping[str, np.ndarray]) -> float:
    """L2 over the finite elements of all outputs."""
    return math.sqrt(sum(float(np.sum(np.square(error[np.isfinite(error)]))) for error in errors.values()))


def _errors_behind_cut(
    sides: Sides, runs: _Runs, cut: Crossing, sample: int, scales: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """(Y(cut) - r) / scale in float64: outputs in front of the cut are the candidate's own."""
    values = {name: sides.candidate_tensor(sample, name, reader=name) for name in scales if name in cut.done}
    behind = [name for name in scales if name not in cut.done]
    if behind:
        known = set(sides.observed())
        crossing = [str(value.name) for value in cut.values if value.name in known]
        # What crosses a cut may be of several recorded runs; as many as can be are of the last one's. The shares sum to one
        # whatever is given.
        given = Given(sides, crossing, sample, crossing[-1]) if crossing else {}
        world = World(name="suffix", program=runs.program, given=given)
        values.update(run_world(world, sides.inputs.sample(sample).arrays, behind, runs.sessions))
    effects = effects_on({name: sides.reference.get(sample, name) for name in scales}, values)
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: effects[name] / scale for name, scale in scales.items()}


def _phi_of_cut(found: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]) -> float:
    broken = {name: ~np.isfinite(error) for name, error in actual.items()}
    count = sum(int(mask.sum()) for mask in broken.values())
    if count:
        return sum(int((mask & ~np.isfinite(found[name])).sum()) for name, mask in broken.items()) / count
    dot = square = 0.0
    for name, error in actual.items():
        finite = np.isfinite(found[name])
        dot += float(np.vdot(error[finite], found[name][finite]))
        square += float(np.vdot(error, error))
    return dot / square


def _stretch_between(cuts: Sequence[Crossing], left: _Point, right: _Point, total: float) -> Stretch:
    first, enters = (0, ()) if left.place < 0 else (cuts[left.place].index, _crossing_names(cuts[left.place]))
    last, leaves = (
        (-1, ()) if right.place == len(cuts) else (cuts[right.place].index - 1, _crossing_names(cuts[right.place]))
    )
    return Stretch(
        first=first,
        last=last,
        enters=enters,
        leaves=leaves,
        share=right.phi - left.phi,
        moved=_moved_share(left, right, total),
    )


def _crossing_names(cut: Crossing) -> tuple[str, ...]:
    return tuple(str(value.name) for value in cut.values)
