"""Injection: a suspect's share of the output error, by adding only the error that it introduces to the reference.

With e the error of all outputs (each divided by its reference's norm) and e_s what suspect s alone causes,
share = <e_s, e> / <e, e>: it adds up to one over all suspects where errors add linearly, and independent roundings,
which add in squares, share by their squares. Where the candidate alone has NaN or Inf at an output, the share is the
part of those elements that the injection makes non-finite too. What all injected suspects together leave over is
`unexplained`. Suspects are injected worst first, until nothing is left over that the others could explain.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.recording import Progress, ignore_progress
from parityscope.comparison.rows import rows_beside
from parityscope.evaluation.evaluating import run_worlds
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.localization.keeping import Programs
from parityscope.localization.replay import LocalizationOptions, introduced_to_sort_by, replayed_values
from parityscope.localization.sides import Sides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Inputs, Model
    from parityscope.records import Localization, Suspect
    from parityscope.trace import Trace

_PLAIN = "plain"
_TOGETHER = 4  # suspects whose effects are followed at once. Chosen: each holds what is live behind it
# Of the squared output error: what the leading suspects leave over is no matter of the others. Chosen: a hundredth of what
# contributes at all.
_NOTHING_LEFT = 1e-4


class Added:
    """Adds an error to a tensor: in floating point; modulo 2^n in integers; exclusive or in booleans."""

    def __init__(self, error: np.ndarray) -> None:
        self._error = error

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The tensor with the error in it, in its own dtype."""
        if array.dtype == np.bool_:
            return np.asarray(np.logical_xor(array, self._error))
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(array + self._error, array.dtype)


def inject_errors(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    localization: Localization,
    sample: int,
    options: LocalizationOptions | None = None,
    progress: Progress = ignore_progress,
) -> Localization:
    """`localization` with the leading suspects' shares of the output error on one sample, ranked by them.

    The output error is the one of the run whose tensors were captured.
    """
    options = options or LocalizationOptions()
    sides = Sides(model=model, inputs=inputs, reference=reference, candidate=candidate, pairing=pairing)
    outputs = sides.float_outputs(sample)
    programs = Programs.of(sides, sides.observed())
    # What makes NaN or Inf of numbers may be next to nothing in size: an epsilon that is zero, before a logarithm.
    first = _finite_before_broken(sides, programs, sample)
    leads = [suspect.site.tensor for suspect in localization.suspects if _is_leading(suspect)]
    leading = [*first, *(name for name in leads if name not in first)][: options.injected]
    if not leading or not outputs:
        return localization
    sessions = Sessions(threads=options.threads)
    errors = _introduced_errors(sides, programs, leading, sample, sessions)
    actual = {name: sides.error(sample, name) for name in outputs}
    plain = World(name=_PLAIN, program=programs.candidates)
    added = {name: Added(error) for name, error in errors.items()}
    feeds = inputs.sample(sample).arrays

    def effects(chosen: Sequence[Sequence[str]]) -> list[dict[str, np.ndarray]]:
        """What adding the errors of each of these sets does to the outputs: worlds that share all before the first of them."""
        worlds = [
            replace(plain, name=str(number), stored={name: added[name] for name in names})
            for number, names in enumerate(chosen)
        ]
        before, *behind = run_worlds([plain, *worlds], feeds, outputs, sessions)
        return [effects_on(before, found) for found in behind]

    shares: dict[str, tuple[float, float]] = {}
    left = math.inf
    while len(shares) < len(leading) and (options.thorough or left > _NOTHING_LEFT):
        progress("injecting", len(shares), len(leading))
        names = leading[len(shares) :][: _TOGETHER if shares or options.thorough else 1]
        alone = effects([[name] for name in names])
        for name, effect in zip(names, alone, strict=True):
            shares[name] = (_reproduced_share(sides, actual, effect, sample), _worst_norm(sides, effect, sample))
        together = alone[0] if len(shares) == 1 else effects([list(shares)])[0]
        left = _left_over(sides, actual, together, sample)
    progress("injecting", len(leading), len(leading))
    suspects = [
        replace(suspect, share=shares[suspect.site.tensor][0], injected=shares[suspect.site.tensor][1])
        if suspect.site.tensor in shares
        else suspect
        for suspect in localization.suspects
    ]
    suspects.sort(key=_share_to_sort_by)
    return replace(localization, suspects=tuple(suspects), unexplained=left)


def effects_on(before: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is another number in each output, in its shape before: float64. A row that is gone is off by its own size.

    An output whose shape differs otherwise tells nothing.
    """
    effects = {}
    for name, array in found.items():
        mine = before[name].astype(np.float64)
        its = rows_beside(mine, array.astype(np.float64))
        with np.errstate(invalid="ignore", over="ignore"):
            effects[name] = its - mine if its.shape == mine.shape else np.zeros(mine.shape)
    return effects


def _introduced_errors(
    sides: Sides, programs: Programs, leading: Sequence[str], sample: int, sessions: Sessions
) -> dict[str, np.ndarray]:
    """The introduced error c - f(c_in) of each leading tensor, in the dtype that the graph holds it in."""
    replayed = dict(replayed_values(sides, programs, leading, sample, sessions))
    errors = {}
    for name in leading:
        mine = sides.candidate.get(sample, sides.pairing[name])
        again = replayed[name]
        if again.dtype == np.bool_:
            errors[name] = mine.astype(np.bool_) ^ again
        elif again.dtype.kind in "iu":
            errors[name] = (mine.astype(again.dtype) - again).astype(again.dtype)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                difference = mine.astype(np.float64) - again.astype(np.float64)
                # Equal infinities differ by nothing, and neither do NaN and NaN.
                same = (mine == again) | (np.isnan(mine) & np.isnan(again))
                errors[name] = np.where(same, 0.0, difference).astype(again.dtype)
    return errors


def _finite_before_broken(sides: Sides, programs: Programs, sample: int) -> list[str]:
    """What the first tensor reads that has NaN or Inf of the candidate's alone, where all of it is finite."""
    for name in sides.observed():
        reference, candidate = sides.reference.get(sample, name), sides.candidate.get(sample, sides.pairing[name])
        if reference.dtype.kind == "f" and bool((~np.isfinite(candidate) & np.isfinite(reference)).any()):
            reads = [read for read in programs.regions[name].reads if read in programs.regions]
            entering = [sides.candidate.get(sample, sides.pairing[read]) for read in reads]
            return reads if all(np.isfinite(array).all() for array in entering if array.dtype.kind == "f") else []
    return []


def _share_to_sort_by(suspect: Suspect) -> tuple[bool, float, tuple[bool, float, int]]:
    known = suspect.share is not None
    return (not known, -(suspect.share or 0.0), introduced_to_sort_by(suspect))


def _is_leading(suspect: Suspect) -> bool:
    return suspect.introduced > suspect.floor or suspect.introduced_nonfinite > 0


def _reproduced_share(
    sides: Sides, actual: Mapping[str, np.ndarray], alone: Mapping[str, np.ndarray], sample: int
) -> float:
    """The part of the actual output error that one suspect alone reproduces (module docstring)."""
    broken = {name: ~np.isfinite(error) for name, error in actual.items()}
    count = sum(int(mask.sum()) for mask in broken.values())
    if count:
        return sum(int((mask & ~np.isfinite(alone[name])).sum()) for name, mask in broken.items()) / count
    dot = square = 0.0
    for name, error in actual.items():
        weight = sides.scale(sample, name) ** 2
        square += float(np.vdot(error, error)) / weight
        finite = np.isfinite(alone[name])
        dot += float(np.vdot(error[finite], alone[name][finite])) / weight
    return dot / square if square else 0.0


def _worst_norm(sides: Sides, errors: Mapping[str, np.ndarray], sample: int) -> float:
    """The relative L2 error of the worst output; inf where an element is not finite."""
    worst = 0.0
    for name, error in errors.items():
        if not np.isfinite(error).all():
            return math.inf
        worst = max(worst, float(np.linalg.norm(error)) / sides.scale(sample, name))
    return worst


def _left_over(
    sides: Sides, actual: Mapping[str, np.ndarray], together: Mapping[str, np.ndarray], sample: int
) -> float:
    """The part of the output error that all injected suspects together do not reproduce, in [0, 1]."""
    broken = {name: ~np.isfinite(error) for name, error in actual.items()}
    count = sum(int(mask.sum()) for mask in broken.values())
    if count:
        missed = sum(int((mask & np.isfinite(together[name])).sum()) for name, mask in broken.items())
        return missed / count
    left = square = 0.0
    for name, error in actual.items():
        weight = sides.scale(sample, name) ** 2
        square += float(np.vdot(error, error)) / weight
        with np.errstate(invalid="ignore"):
            rest = error - together[name]
        if not np.isfinite(rest).all():
            return 1.0
        left += float(np.vdot(rest, rest)) / weight
    return min(1.0, left / square) if square else 0.0
