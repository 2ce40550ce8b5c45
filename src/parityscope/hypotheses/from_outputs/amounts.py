"""The numbers of an edit at which it explains most of the error: Gauss-Newton over slopes that are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.hypotheses.from_outputs.residual import Residual

Responses = Mapping[int, Mapping[str, np.ndarray]]  # outputs by name, by sample

# Of the error of the first samples: from here on a number is fitted further, and other samples are asked. Chosen.
PROMISING = 0.2
_FITTINGS, _MOST_FITTINGS = 6, 40  # Gauss-Newton steps; and where each takes a third of what is left. Chosen
_TAKES = 1 / 3
_FITTED = 1 - 1e-10  # of the squared error: what FP32 leaves of it
_PARTS = (1.0, 0.3, 0.1)  # of what least squares say, each where more makes it worse
_CONVERGED = 1e-3  # of what is left
# Times the step over which a slope is measured; the later ones at first, where a usual amount explains most of the error:
# what quantizes on its way is a staircase, and has no slope over a small step. Chosen.
_STEPS, _WIDELY, _MOST = (1.0, 30.0, 300.0), 2, 0.6


def fit_amounts(
    respond: Callable[[np.ndarray], Responses | None],
    residual: Residual,
    start: np.ndarray,
    steps: np.ndarray,
    least: float = PROMISING,
    *,
    usual: bool = False,
) -> tuple[float, np.ndarray, Responses] | None:
    """The numbers whose responses explain most, from `start` on, with that share and the responses; None where none can be had.

    Gauss-Newton: `steps` are what the slopes are measured over, or many times as much where that does not lead far. Nothing is
    fitted where the start explains less than `least`. `usual` says that the start is an amount that people choose.
    """
    responses = respond(start)
    if responses is None:
        return None
    best = residual.share(responses).pooled, start, responses
    for count in range(_MOST_FITTINGS if len(start) else 0):
        if not least <= best[0] < _FITTED:
            break
        better = best
        for times in _STEPS if usual and count < _WIDELY and best[0] >= _MOST else _STEPS[:1]:
            found = _better_amounts(respond, residual, best, steps * times)
            better = found if found is not None and found[0] > better[0] else better
            if better[0] - best[0] >= _TAKES * (1 - best[0]):
                break
        gained, before, best = better[0] - best[0], 1 - best[0], better
        if gained < (_CONVERGED * (1 - best[0]) if count < _FITTINGS else _TAKES * before):
            break
    return best


def _better_amounts(
    respond: Callable[[np.ndarray], Responses | None],
    residual: Residual,
    best: tuple[float, np.ndarray, Responses],
    steps: np.ndarray,
) -> tuple[float, np.ndarray, Responses] | None:
    """Numbers that explain more, along slopes that are measured over `steps`; None where these lead nowhere."""
    change = _change_of(respond, residual, best[1], best[2], steps)
    if change is None:
        return None
    for part in _PARTS:
        responses = respond(best[1] + part * change)
        share = -1.0 if responses is None else residual.share(responses).pooled
        if responses is not None and share > best[0]:
            return share, best[1] + part * change, responses
    return None


def _change_of(
    respond: Callable[[np.ndarray], Responses | None],
    residual: Residual,
    at: np.ndarray,
    here: Responses,
    steps: np.ndarray,
) -> np.ndarray | None:
    """What to add to the numbers: least squares over their slopes."""
    now = {sample: residual.difference(sample, response) for sample, response in here.items()}
    left = np.concatenate([residual.wanted(sample) - now[sample] for sample in now])
    slopes = []
    for index, step in enumerate(steps):
        beside = at.copy()
        beside[index] += step
        responses = respond(beside)
        if responses is None:
            return None
        slopes.append(np.concatenate([residual.difference(s, responses[s]) - now[s] for s in now]) / step)
    table = np.stack(slopes, 1).astype(np.float64)
    if not np.isfinite(table).all() or not table.any():
        return None
    return np.asarray(np.linalg.lstsq(table, left, rcond=1e-9)[0])
