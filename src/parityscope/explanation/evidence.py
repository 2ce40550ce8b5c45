"""Between hypotheses that predict the same: what range, grid and declaration say; and the shape of what is left.

Rounding cannot tell TF32 from FP16 operands: both have 11 bits of significand. Three things can:

* range: an operand above 65504 is infinite in FP16, and one below 2^-14 is rounded more coarsely there;
* grid: an engine that stores FP16 gives numbers that lie on FP16's grid, its inputs do too; TF32 is never stored;
* what the candidate declares, or was seen to execute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.explanation.regression import MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.explanation.claims import ClaimOutcome, RegionScene


_ON_GRID = 0.99  # of the elements; FP32 numbers lie on the grid of FP16 once in 2^13
_SMALL = 0.25  # of the elements; more is no part
_MOST = 0.99  # of the squared error
_GRIDS = ("f16", "bf16", "tf32")


def grid_share(array: np.ndarray, name: str) -> float:
    """The share of the finite non-zero elements of `array` that the format `name` holds exactly; NaN without any.

    `array` is of any float dtype and shape; elements are taken to float64, and the share is in [0, 1].
    """
    numbers = np.asarray(array, np.float64).ravel()
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    if numbers.size == 0:
        return float("nan")
    return float((round_to(numbers, FORMATS[name]) == numbers).mean())


def indistinguishable_outcomes(best: ClaimOutcome, held: Sequence[ClaimOutcome]) -> list[ClaimOutcome]:
    """Those of `held` whose prediction is that of `best` to within the floor, `best` first."""
    same = [best]
    width = MARGIN**2 * float(np.square(best.sigma).sum())
    for outcome in held:
        if outcome is best:
            continue
        with np.errstate(invalid="ignore"):
            apart = outcome.predicted - best.predicted
        apart = apart[np.isfinite(apart)]
        # Ties that fall differently are part of what is left over; predictions closer than that cannot be told apart.
        if float(np.square(apart).sum()) <= max(width, best.line.left2):
            same.append(outcome)
    return same


def order_by_likelihood(
    scene: RegionScene, same: Sequence[ClaimOutcome], declared: str
) -> tuple[list[ClaimOutcome], tuple[str, ...]]:
    """The likeliest first, and the facts that decide it."""
    if len({outcome.claim.hypothesis.name for outcome in same}) < 2:
        return list(same), ()
    inputs = [array for array in scene.feeds.values() if array.dtype.kind == "f"]
    entering = {name: _lowest_grid_share(inputs, name) for name in _GRIDS}
    leaving = {name: grid_share(scene.candidate, name) for name in _GRIDS}
    largest = max((float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) for array in inputs), default=0.0)

    def likely(outcome: ClaimOutcome) -> tuple[bool, bool, bool, float]:
        name = outcome.claim.hypothesis.name
        return (
            bool(declared) and not name.startswith(declared),
            name.startswith("f16") and not entering["f16"] >= _ON_GRID,
            name.startswith("tf32") and entering["f16"] >= _ON_GRID,
            -outcome.line.share,
        )

    facts = [
        f"{share:.0%} of the {what} lie on {FORMATS[name].title}'s grid"
        for what, shares in (("inputs", entering), ("results", leaving))
        for name, share in shares.items()
        if share >= _ON_GRID
    ]
    if largest > FORMATS["f16"].largest:
        facts.append(f"inputs reach {largest:.3g}, beyond FP16's 65504")
    if declared:
        facts.append(f"the candidate computes in {declared}")
    names = ", ".join(dict.fromkeys(outcome.claim.hypothesis.title for outcome in same))
    return sorted(same, key=likely), (f"rounding alone cannot tell these apart: {names}", *facts)


def _lowest_grid_share(arrays: Sequence[np.ndarray], name: str) -> float:
    shares = [share for array in arrays if not np.isnan(share := grid_share(array, name))]
    return min(shares, default=0.0)


def left_over(scene: RegionScene) -> str:
    """Where the introduced error lies, in words; that it is spread where no small part holds nearly all of it."""
    with np.errstate(invalid="ignore"):
        energy = np.square(scene.candidate - scene.replayed)
    broken = ~np.isfinite(energy) & ~((scene.candidate == scene.replayed) | np.isnan(scene.replayed))
    energy = broken.astype(np.float64) if broken.any() else np.where(np.isfinite(energy), energy, 0.0)
    total = float(energy.sum())
    if total == 0:
        return "nothing is left"
    parts = {}
    for axis, length in enumerate(energy.shape):
        sums = energy.sum(axis=tuple(other for other in range(energy.ndim) if other != axis))
        worst = int(sums.argmax())
        if length > 1 and sums[worst] >= _MOST * total and 1 / length <= _SMALL:
            parts[f"in index {worst} of {length} along axis {axis}"] = 1 / length
    for word, bound in (("largest", np.nanmax(scene.replayed)), ("smallest", np.nanmin(scene.replayed))):
        at = scene.replayed == bound
        if 1 < at.sum() <= _SMALL * at.size and energy[at].sum() >= _MOST * total:
            parts[f"only where the reference has its {word} value, {bound:g}"] = float(at.mean())
    if energy.ndim >= 4 and min(energy.shape[-2:]) > 2:
        inside = float(energy[..., 1:-1, 1:-1].sum())
        if inside <= (1 - _MOST) * total:
            parts["at the border"] = 1.0 - energy[..., 1:-1, 1:-1].size / energy.size
    return min(parts, key=lambda words: parts[words], default="it is spread over the tensor")
