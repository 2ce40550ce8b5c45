"""Two images of one thing: how one is scaled, moved, cropped or framed against the other, without the original image.

Bars: rows or columns of one constant colour at the border of the candidate's image that the reference's has not are the
filling of a letterbox; what they leave is the image.

Scale and shift: the map candidate(y, x) = gain * reference(scale_y * y + shift_y, scale_x * x + shift_x) + offset is fitted by
least squares on grey images, from coarse to fine (Lucas and Kanade 1981, with gain and offset; Gauss-Newton), from several
first guesses, because it finds a minimum nearby only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.imaging.kernels import resample_image
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCALES = (1.0, 0.875, 0.75, 1.0 / 0.875, 1.0 / 0.75)  # no crop, and ImageNet's and its like
_COARSEST = 24  # pixels of the shorter side: what is finer is noise to a first guess
_FINEST = 128  # pixels of the shorter side: places are then known to some hundredths of a pixel of that size
_ROUNDS = 25
_STILL = 1e-5  # of the side: moves that end the rounds
_SEEN = 0.25  # of the candidate's image that the reference's has to show
_SAME = 0.002  # a scale that is 1, and a shift (of the side) that is none; chosen: less than a pixel in 320
_BARS = 0.02  # of the side: less is no letterbox
_ENOUGH = 0.5  # of R^2: what explains less is no picture of the same thing; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The map from the reference's image to the candidate's.

    `scale` and `shift` (of the sides) along height and width, in coordinates from 0 to 1; `bars` are the pixels above, below,
    left and right that are filled; `r2` is the part of the variance that the map explains.
    """

    scale: tuple[float, float]
    shift: tuple[float, float]
    bars: tuple[int, int, int, int]
    r2: float

    @property
    def words(self) -> str:
        """What the deployment does to the reference's image; "" where it is the same place."""
        said = []
        if any(self.bars):
            sides = zip(("above", "below", "on the left", "on the right"), self.bars, strict=True)
            told = ", ".join(f"{count} {side}" for side, count in sides if count)
            said.append(f"letterboxes the image: pixels filled {told}")
        elif max(abs(each - 1.0) for each in self.scale) > _SAME:
            height, width = (f"{each:.3g}" for each in self.scale)
            share = height if height == width else f"{height} of the height and {width} of the width"
            smaller = "crops the image to" if max(self.scale) <= 1.0 + _SAME else "shows"
            said.append(f"{smaller} {share} of what the reference shows")
        elif max(map(abs, self.shift)) > _SAME:
            said.append("moves the image by {:.2g} of its height and {:.2g} of its width".format(*self.shift))
        return " and ".join(said)


def register_images(reference: np.ndarray, candidate: np.ndarray) -> Registered | None:
    """The map between two images (height, width, channels), float64; None where they do not show the same thing."""
    mine, its = (_to_grey(each) for each in (reference, candidate))
    if mine.shape != its.shape or min(mine.shape) < _COARSEST:
        return None
    bars = _find_bars(mine, its)
    height, width = its.shape
    inner = its[bars[0] : height - bars[1], bars[2] : width - bars[3]]
    if any(bars) and min(inner.shape) >= _COARSEST:
        whole = resample_image(mine[..., None], "bilinear-antialias", (inner.shape[0], inner.shape[1]), whole=False)[
            ..., 0
        ]
        r2 = _explained_variance(whole, inner)
        if r2 >= _ENOUGH:
            scale = height / inner.shape[0], width / inner.shape[1]
            return Registered(scale=scale, shift=(bars[0] / height, bars[2] / width), bars=bars, r2=r2)
    best = _refine_registration(mine, its)
    return best if best.r2 >= _ENOUGH else None


def _to_grey(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.asarray(image, np.float64).mean(axis=-1))


def _explained_variance(source: np.ndarray, target: np.ndarray) -> float:
    """R^2 of the regression of one on the other; 0 where either is constant."""
    a, b = source - source.mean(), target - target.mean()
    size = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) ** 2 / size if size else 0.0


def _find_bars(reference: np.ndarray, candidate: np.ndarray) -> tuple[int, int, int, int]:
    height, width = candidate.shape
    ends = (
        _count_constant_lines(candidate),
        _count_constant_lines(candidate[::-1]),
        _count_constant_lines(candidate.T),
        _count_constant_lines(candidate.T[::-1]),
    )
    own = (
        _count_constant_lines(reference),
        _count_constant_lines(reference[::-1]),
        _count_constant_lines(reference.T),
        _count_constant_lines(reference.T[::-1]),
    )
    sides = (height, height, width, width)
    kept = [count if count > _BARS * side and not has else 0 for count, has, side in zip(ends, own, sides, strict=True)]
    return kept[0], kept[1], kept[2], kept[3]


def _count_constant_lines(lines: np.ndarray) -> int:
    """How many of the first lines are of one colour."""
    same = np.abs(lines - lines[0, 0]).max(axis=1) <= 1e-6 * max(1.0, float(np.abs(lines).max()))
    return len(same) if same.all() else int(np.argmin(same))


def _refine_registration(reference: np.ndarray, candidate: np.ndarray) -> Registered:
    """From every first guess on the coarsest level; the best of them up to the finest."""
    levels = [
        (_resample_to(reference, size), _resample_to(candidate, size)) for size in _pyramid_sizes(reference.shape)
    ]
    starts = [np.array([guess, (1.0 - guess) / 2.0, guess, (1.0 - guess) / 2.0]) for guess in _SCALES]
    found = max(
        (_gauss_newton(*levels[0], start) for start in starts), key=lambda one: _registration_quality(*levels[0], one)
    )
    for level in levels[1:]:
        found = _gauss_newton(*level, found)
    scales, shifts = [float(each) for each in found[::2]], [float(each) for each in found[1::2]]
    return Registered(
        scale=(scales[0], scales[1]),
        shift=(shifts[0], shifts[1]),
        bars=(0, 0, 0, 0),
        r2=_registration_quality(reference, candidate, found),
    )


def _resample_to(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return resample_image(image[..., None], "bilinear-antialias", size, whole=False)[..., 0]


def _registration_quality(reference: np.ndarray, candidate: np.ndarray, found: np.ndarray) -> float:
    """R^2 where both show something; 0 where that is too little to be believed."""
    picture, inside = _warp_image(reference, found)
    return _explained_variance(picture[inside], candidate[inside]) if inside.mean() > _SEEN else 0.0


def _pyramid_sizes(shape: Sequence[int]) -> list[tuple[int, int]]:
    """From coarse to fine; the shorter side is at most `_FINEST`."""
    share = min(1.0, _FINEST / min(shape))
    sizes = [(max(1, round(shape[0] * share)), max(1, round(shape[1] * share)))]
    while min(sizes[-1]) >= 2 * _COARSEST:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    return sizes[::-1]


def _gauss_newton(reference: np.ndarray, candidate: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Scale and shift (of the sides) along both axes, after some rounds; the start where they lead nowhere."""
    height, width = candidate.shape
    slopes = np.gradient(reference)
    places = [(np.arange(side) + 0.5) / side for side in (height, width)]
    found = start.copy()
    for _ in range(_ROUNDS):
        picture, inside = _warp_image(reference, found)
        if inside.mean() < _SEEN:
            return start
        down, across = (
            _warp_image(slope, found)[0] * side for slope, side in zip(slopes, (height, width), strict=True)
        )
        rows = [down * places[0][:, None], down, across * places[1][None, :], across, picture, np.ones_like(picture)]
        system = np.stack([row[inside] for row in rows], axis=1)
        step, *_ = np.linalg.lstsq(system, candidate[inside], rcond=None)
        gain = step[4]
        if not np.isfinite(step).all() or abs(gain) < 1e-9:
            return start
        moved = step[:4] / gain
        found = found + moved
        if np.abs(moved).max() < _STILL:
            break
    return found


def _warp_image(image: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The image at the mapped places, bilinear, and where those lie inside of it."""
    height, width = image.shape
    rows = (found[0] * (np.arange(height) + 0.5) / height + found[1]) * height - 0.5
    columns = (found[2] * (np.arange(width) + 0.5) / width + found[3]) * width - 0.5
    inside = ((rows >= 0) & (rows <= height - 1))[:, None] & ((columns >= 0) & (columns <= width - 1))[None, :]
    return _tent_weights(rows, height) @ image @ _tent_weights(columns, width).T, inside


def _tent_weights(places: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(np.clip(places, 0, size - 1)[:, None] - np.arange(size)[None, :])))
