"""Which map turns one side's prepared input into the other's: two captured tensors, no model.

The map that is fitted: candidate[c] = gain[c] * moved(reference)[order[c]] + offset[c], where `moved` mirrors the image
and shifts it by whole pixels. Each channel of the candidate is regressed on each channel of the reference (ordinary least
squares); where the mirror images and no shift explain it badly, the shift is read from the peak of the cross-correlation
of the two (computed with the FFT), and the regression is repeated on the part that both have.

R^2 is one minus the residual's energy over the candidate's variance, of the worst channel. FP32 preprocessing on both
sides leaves 1 - R^2 near the square of 2^-24 times the largest element over the deviation: 1e-9 allows for a mean that is
a hundred deviations, and is far from any other map's (a mean of 0.485 for 0.5 leaves none, as it is an offset).
"""

from __future__ import annotations

import itertools

import numpy as np

from parityscope.light_dataclasses import dataclass

# 1 - R^2 that is rounding; see above.
EXACT = 1e-9

# Offsets and gains that differ from nothing by less are rounding, in units of the candidate's largest element.
_ROUNDING = 1e-5

# Axes of (n, c, h, w) along which the image may be mirrored.
_MIRRORS: tuple[tuple[int, ...], ...] = ((), (3,), (2,), (2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """candidate[c] = gain[c] * moved(reference)[order[c]] + offset[c].

    `axis` is that of the channels. `mirrored` are the axes along which `moved` mirrors, `shift` how far it moves the image
    along the two axes of the image (down, right), in pixels, after it mirrored; what is shifted in is not compared.
    `r2` is of the worst channel; NaN where the candidate is constant.
    """

    axis: int
    order: tuple[int, ...]
    gain: tuple[float, ...]
    offset: tuple[float, ...]
    mirrored: tuple[int, ...]
    shift: tuple[int, int]
    r2: float

    @property
    def is_exact(self) -> bool:
        """Whether nothing but rounding is left."""
        return 1.0 - self.r2 <= EXACT

    @property
    def words(self) -> str:
        """What the deployment does to the reference's input, "the same" where it does nothing."""
        said = [_order_words(self.order)] if self.order != tuple(range(len(self.order))) else []
        across = max(place for place in range(1, 4) if place != self.axis)
        said += [
            "mirrors the image left to right" if place == across else "turns the image upside down"
            for place in self.mirrored
        ]
        if any(self.shift):
            said.append(f"shifts the image by {self.shift[0]} down and {self.shift[1]} right")
        if not _are_all_near(self.gain, 1.0, 1.0):
            said.append(f"multiplies by {_format_numbers(self.gain)}")
        if not _are_all_near(self.offset, 0.0, max(1.0, *map(abs, self.gain))):
            said.append(f"adds {_format_numbers(self.offset)}")
        return " and ".join(said) if said else "the same"


def fit_inputs(reference: np.ndarray, candidate: np.ndarray, *, axis: int = 1) -> Fit:
    """The best map from `reference` to `candidate`: any numeric dtype, of one shape, rank 4 with channels on `axis`.

    Raises:
        ValueError: the shapes differ, the rank is not 4, or an element is not finite.
    """
    if reference.shape != candidate.shape or reference.ndim != 4:
        raise ValueError(f"two arrays of one shape and rank 4 are needed, not {reference.shape} and {candidate.shape}")
    source, target = (np.moveaxis(np.asarray(each, np.float64), axis, 1) for each in (reference, candidate))
    if not (np.isfinite(source).all() and np.isfinite(target).all()):
        raise ValueError("an element is not finite, and no affine map makes that")
    places = [place for place in range(1, 4) if place != axis]
    found: list[Fit] = []
    for mirrored in _MIRRORS:
        flipped = np.flip(source, mirrored) if mirrored else source
        own = tuple(places[place - 2] for place in mirrored)
        fit = _regress_channels(flipped, target, axis, own, (0, 0))
        found.append(fit)
        if fit.is_exact:
            return fit
    for fit, flips in zip(tuple(found), _MIRRORS, strict=True):
        flipped = np.flip(source, flips) if flips else source
        found.extend(
            _regress_channels(flipped, target, axis, fit.mirrored, shift) for shift in _likely_shifts(flipped, target)
        )
    return max(found, key=lambda fit: -1.0 if np.isnan(fit.r2) else fit.r2)


def fit_channels(reference: np.ndarray, candidate: np.ndarray, *, axis: int = 1) -> Fit:
    """As `fit_inputs`, without mirroring and shifting: channels, gains and offsets alone.

    Raises:
        ValueError: the shapes differ or the rank is not 4.
    """
    if reference.shape != candidate.shape or reference.ndim != 4:
        raise ValueError(f"two arrays of one shape and rank 4 are needed, not {reference.shape} and {candidate.shape}")
    source, target = (np.moveaxis(np.asarray(each, np.float64), axis, 1) for each in (reference, candidate))
    return _regress_channels(source, target, axis, (), (0, 0))


def _regress_channels(
    source: np.ndarray, target: np.ndarray, axis: int, mirrored: tuple[int, ...], shift: tuple[int, int]
) -> Fit:
    """The regression of each target channel on its best source channel, (n, c, h, w), over what both have."""
    down, right = shift
    height, width = source.shape[2:]
    here = (
        slice(None),
        slice(None),
        slice(max(0, down), height + min(0, down)),
        slice(max(0, right), width + min(0, right)),
    )
    there = (
        slice(None),
        slice(None),
        slice(max(0, -down), height + min(0, -down)),
        slice(max(0, -right), width + min(0, -right)),
    )
    rows = source[there].swapaxes(0, 1).reshape(source.shape[1], -1)
    wanted = target[here].swapaxes(0, 1).reshape(target.shape[1], -1)
    chosen = [_regress_channel(rows, each, channel) for channel, each in enumerate(wanted)]
    return Fit(
        axis=axis,
        order=tuple(one[0] for one in chosen),
        gain=tuple(one[1] for one in chosen),
        offset=tuple(one[2] for one in chosen),
        mirrored=mirrored,
        shift=shift,
        r2=float(np.min([one[3] for one in chosen])),
    )


def _regress_channel(rows: np.ndarray, wanted: np.ndarray, channel: int) -> tuple[int, float, float, float]:
    """Source channel, gain, offset and R^2; among channels that do equally well, the channel itself."""
    centred = wanted - wanted.mean()
    energy = float(np.square(centred).sum())
    best = (channel, 1.0, 0.0, np.nan)
    for place in [channel, *(each for each in range(len(rows)) if each != channel)]:
        mean = float(rows[place].mean())
        around = rows[place] - mean
        size = float(np.square(around).sum())
        gain = float((around * centred).sum()) / size if size else 0.0
        offset = float(wanted.mean()) - gain * mean
        rest = centred - gain * around
        left = float(np.square(rest).sum())
        if energy == 0.0:
            r2 = 1.0 if np.array_equal(rows[place], wanted) else np.nan
            gain, offset = (1.0, 0.0) if r2 == 1.0 else (gain, offset)
        else:
            r2 = 1.0 - left / energy
        if np.isnan(best[3]) or r2 > best[3] + EXACT:
            best = (place, gain, offset, r2)
    return best


def _likely_shifts(source: np.ndarray, target: np.ndarray) -> list[tuple[int, int]]:
    """The shifts at which the images' channel means agree best and, for negative gains, are most opposed."""
    height, width = source.shape[2:]
    padded = (2 * height, 2 * width)
    pictures = [each.mean(axis=(0, 1)) for each in (source, target)]
    spectra = [np.fft.rfft2(picture - picture.mean(), padded) for picture in pictures]
    correlation = np.fft.irfft2(spectra[1] * np.conj(spectra[0]), padded)
    found = []
    for place in (int(correlation.argmax()), int(correlation.argmin())):
        down, right = divmod(place, padded[1])
        shift = (down - padded[0] if down > height else down, right - padded[1] if right > width else right)
        # A shift by more than half leaves too little in common to be believed.
        if abs(shift[0]) <= height // 2 and abs(shift[1]) <= width // 2 and shift != (0, 0):
            found.append(shift)
    return found


def _order_words(order: tuple[int, ...]) -> str:
    moved = [channel for channel, place in enumerate(order) if channel != place]
    if len(moved) == 2 and order[moved[0]] == moved[1] and order[moved[1]] == moved[0]:
        return f"exchanges channels {moved[0]} and {moved[1]}"
    return f"takes channels {', '.join(map(str, order))}"


def _are_all_near(numbers: tuple[float, ...], wanted: float, unit: float) -> bool:
    return all(abs(number - wanted) <= _ROUNDING * unit for number in numbers)


def _format_numbers(numbers: tuple[float, ...]) -> str:
    """One number where all are the same, else all of them."""
    same = all(abs(a - b) <= _ROUNDING * max(1.0, abs(a)) for a, b in itertools.pairwise(numbers))
    return ", ".join(f"{number:.6g}" for number in (numbers[:1] if same else numbers))
