"""What a result has of the samples before: a stale buffer, one that is not cleared, a mean that moves.

Only what the model says of other samples is read, never what the candidate gave there: that holds the error itself. A sample
whose predecessor was not observed says nothing, and an edit that needs it cannot be run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import round_to_nice, slope_through_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.hypotheses.stretch import ComputedStretch

_KINDS_BITS = 6.0  # as many bits as saying that another tensor stands in a result's place
_APART = 1e-5  # of a number between 0 and 1 that is fitted
_ELEMENTS = 4096  # that a mean that moves is fitted to; chosen


def before_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """The result of the sample before, of the first one, or of all so far."""
    if len(stretch.base) < 2:
        return
    previous: dict[str, Callable[[ComputedStretch, int], np.ndarray]] = {
        "the result of the sample before (a stale buffer)": _result_before,
        "the result of the sample before, and 0 for the first": lambda one, sample: (
            _result_before(one, sample) if one.samples_before(sample, 1) else np.zeros_like(one.base[sample])
        ),
        "the result of the first sample (it was kept)": lambda one, sample: one.base[
            (*one.samples_before(sample), sample)[0]
        ],
        "the results of all samples so far added up (a buffer that is not cleared)": lambda one, sample: np.sum(
            [one.replayed[place] for place in (*one.samples_before(sample), sample)], axis=0
        ),
    }
    for words, whole in previous.items():
        yield StretchEdit(words=words, bits=_KINDS_BITS, whole=whole)


def _result_before(stretch: ComputedStretch, sample: int) -> np.ndarray:
    return stretch.base[(sample, *stretch.samples_before(sample, 1))[-1]]


def mixed_before_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """A part of the sample before, or a mean that moves: each by one number."""
    if len(stretch.base) < 2 or stretch.base[0].dtype.kind != "f" or not stretch.knows_before(0, 1):
        return
    known, found = stretch.replayed[0], stretch.found[0]
    before = np.asarray(_result_before(stretch, 0), np.float64)
    if before.shape != known.shape or not stretch.same_shape:
        return
    chosen = np.flatnonzero(stretch.fitted_on & np.isfinite(known) & np.isfinite(found) & np.isfinite(before))
    chosen = chosen[:: max(1, chosen.size // _ELEMENTS)]
    step = (before - known).ravel()[chosen]
    if not step.any():
        return
    part, bits = round_to_nice(slope_through_origin(step, (found - known).ravel()[chosen]))
    yield StretchEdit(
        words=f"{part:.6g} times the result of the sample before mixed in, the rest its own",
        bits=_KINDS_BITS + bits,
        whole=lambda one, sample: one.replayed[sample] + part * (_result_before(one, sample) - one.replayed[sample]),
        numbers={"part": part},
    )
    if not stretch.knows_before(0):
        return
    chain = [stretch.replayed[place].ravel()[chosen] for place in (*stretch.samples_before(0), 0)]
    kept, bits = round_to_nice(_fit_unit_number(lambda by: _moving_mean(chain, by) - found.ravel()[chosen]))
    yield StretchEdit(
        words=f"a moving mean over samples that keeps {kept:.6g} of what it was",
        bits=_KINDS_BITS + bits,
        whole=lambda one, sample: _moving_mean(
            [one.replayed[place] for place in (*one.samples_before(sample), sample)], kept
        ),
        numbers={"kept": kept},
    )


def _moving_mean(results: list[np.ndarray], kept: float) -> np.ndarray:
    mean = results[0]
    for result in results[1:]:
        mean = kept * mean + (1 - kept) * result
    return mean


def _fit_unit_number(left: Callable[[float], np.ndarray]) -> float:
    """The number between 0 and 1 that leaves least."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda by: float(np.square(left(by)).sum()), bounds=(0, 1), method="bounded", options={"xatol": _APART}
    )
    return float(found.x)
