"""Steps that only the image knows: another kernel, antialiasing, crop or letterbox.

How the reference prepared its input is recognised: every known way of putting the image on the network's size is done,
and the prepared input regressed on it, channel by channel. A way is recognised if it leaves at most `_KNOWN` of the
variance: rounding in another order moves some pixels in a hundred by one level of 255, which leaves 1e-6 of a photograph's
variance, and rounding that is done or not leaves 2e-5; two kernels differ by 1e-3 and more. The steps are then the other ways,
normalized as the reference's input was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.imaging.kernels import KERNELS, kernel_words
from parityscope.case.imaging.recipe import Placing, placed, placing_words
from parityscope.checks._preprocessing.steps import ORIGINAL, PLACING, Step
from parityscope.checks.input_fit import fit_channels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from parityscope.checks._preprocessing.images import Image
    from parityscope.checks.input_fit import Fit

    Change = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray] | None]

__all__ = ["Recognised", "other_words", "placing_steps", "recognised"]

_KNOWN = 1e-4  # 1 - R^2; see above

# Or it leaves less than this, root mean square in levels of a byte. Libraries round to bytes behind each of two passes (0.41
# of a level for two roundings), in fixed point (Pillow: 0.36 measured); of a picture of low contrast that is more than _KNOWN.
_LEVELS = 0.5

# Libraries round resized pixels in their own ways, and their fixed-point kernels are off by a level here and there, which
# the search cannot copy. Two kernels that are not the same differ by more than a third of what no resize differs by; chosen.
_LEAVES = 0.2

# Fillings of letterboxes: black, YOLO's grey, the middle, white, ImageNet's mean.
_FILLS = ((0.0,) * 3, (114.0,) * 3, (128.0,) * 3, (255.0,) * 3, (124.0, 116.0, 104.0))
_POPULAR = ("bilinear-antialias", "bilinear")  # Pillow's and OpenCV's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """The nearest known way from the images to the prepared arrays.

    `left` is the part of the variance that it leaves, `levels` the root mean square of that in levels of a byte.
    """

    placing: Placing
    fit: Fit
    left: float
    levels: float

    @property
    def is_known(self) -> bool:
        """Whether it is that way."""
        return self.left <= _KNOWN or self.levels <= _LEVELS


def recognised(pictures: Sequence[np.ndarray], arrays: Sequence[np.ndarray], axis: int) -> Recognised:
    """How `arrays` (rank 4, a batch of one, channels on `axis`) were made of `pictures` (uint8, RGB)."""
    size = _size(arrays[0], axis)
    place = next((at for at, each in enumerate(pictures) if each.shape[0] != each.shape[1]), 0)
    first = _best(pictures[place], arrays[place], axis, _fittings(size))
    kernels = (replace(first.placing, kernel=kernel, whole=whole) for kernel in KERNELS for whole in (True, False))
    found = _best(pictures[place], arrays[place], axis, [first.placing, *kernels])
    fits = [_fit(found.placing, each, array, axis) for each, array in zip(pictures, arrays, strict=True)]
    levels = max(_levels(fit, array) for fit, array in zip(fits, arrays, strict=True))
    return replace(found, left=max(_left(fit) for fit in fits), levels=levels)


def placing_steps(image: Image, known: Recognised) -> list[Step]:
    """Every other way of putting the image on the network's size."""
    return [
        Step(
            key=f"{image.name}:{_key(other)}",
            words=other_words(other, known.placing),
            stage=PLACING,
            apply=_applying(image, other, known.fit),
            leaves=_LEAVES,
        )
        for other in _others(known.placing)
    ]


def other_words(other: Placing, placing: Placing) -> str:
    """What `other` does that `placing` does not, to complete "the deployment ..."."""
    if replace(other, kernel=placing.kernel, whole=placing.whole) == placing and other.kernel != placing.kernel:
        return f"resizes by {kernel_words(other.kernel)} instead of {kernel_words(placing.kernel)}"
    if replace(other, whole=placing.whole) == placing:
        return f"{'rounds' if other.whole else 'does not round'} resized pixels to bytes"
    return f"{placing_words(other)}, where the reference {placing_words(placing)}"


def _size(array: np.ndarray, axis: int) -> tuple[int, int]:
    shape = [side for place, side in enumerate(array.shape) if place not in {0, axis}]
    return shape[0], shape[1]


def _fittings(size: tuple[int, int]) -> list[Placing]:
    shorter = max(size)
    whole = Placing(size=size)
    found = [whole]
    found += [
        replace(whole, fit="letterbox", fill=(fill[0], fill[1], fill[2]), corner=corner)
        for fill in _FILLS
        for corner in (False, True)
    ]
    # 256 to 224 (torchvision), + 32 (TensorFlow's EfficientNet), and no margin.
    sides = dict.fromkeys((shorter, round(shorter * 256 / 224), shorter + 32))
    found += [replace(whole, fit="shorter", shorter=side) for side in sides]
    return [*found, *(replace(whole, fit="central", shorter=side) for side in sides)]


def _others(placing: Placing) -> Iterator[Placing]:
    yield from (replace(placing, kernel=kernel) for kernel in KERNELS if kernel != placing.kernel)
    yield replace(placing, whole=not placing.whole)
    for kernel in dict.fromkeys((placing.kernel, *_POPULAR)):
        for other in _fittings(placing.size):
            if replace(other, kernel=placing.kernel, whole=placing.whole) != placing:
                yield replace(other, kernel=kernel)


def _best(picture: np.ndarray, array: np.ndarray, axis: int, placings: Iterable[Placing]) -> Recognised:
    """The placing that leaves least; the first that leaves nothing but rounding."""
    found: Recognised | None = None
    for placing in dict.fromkeys(placings):
        fit = _fit(placing, picture, array, axis)
        if found is None or _left(fit) < found.left:
            found = Recognised(placing=placing, fit=fit, left=_left(fit), levels=_levels(fit, array))
        if fit.is_exact:
            break
    if found is None:
        raise ValueError("there is nothing to try")
    return found


def _left(fit: Fit) -> float:
    return 1.0 if np.isnan(fit.r2) else 1.0 - fit.r2


def _levels(fit: Fit, array: np.ndarray) -> float:
    """What the fit leaves of the array, in levels; the worst channel is taken for the one that varies least."""
    gain = min((abs(each) for each in fit.gain), default=0.0)
    channels = np.moveaxis(np.asarray(array, np.float64), fit.axis, 0)
    spread = min(float(channel.std()) for channel in channels)
    return float(np.sqrt(max(0.0, _left(fit))) * spread / gain) if gain else np.inf


def _fit(placing: Placing, picture: np.ndarray, array: np.ndarray, axis: int) -> Fit:
    return fit_channels(_as_input(placed(placing, picture), array, axis), array, axis=axis)


def _as_input(pixels: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """(height, width, 3) in the order of the prepared array's axes; one grey channel where that has one."""
    channels = array.shape[axis]
    chosen = (
        pixels if channels == pixels.shape[-1] else np.repeat(pixels.mean(axis=-1, keepdims=True), channels, axis=-1)
    )
    return np.moveaxis(chosen, -1, axis - 1)[None]


def _applying(image: Image, placing: Placing, fit: Fit) -> Change:
    def apply(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
        if ORIGINAL not in inputs:
            return None
        array = inputs[image.name]
        pixels = _as_input(placed(placing, inputs[ORIGINAL]), array, image.axis)
        shape = [-1 if place == image.axis else 1 for place in range(pixels.ndim)]
        made = np.take(pixels, fit.order, axis=image.axis) * np.reshape(fit.gain, shape) + np.reshape(fit.offset, shape)
        return {**inputs, image.name: np.ascontiguousarray(made.astype(array.dtype))}

    return apply


def _key(placing: Placing) -> str:
    parts = [placing.fit, placing.kernel, "" if placing.whole else "unrounded"]
    if placing.fit == "letterbox":
        parts += [f"{placing.fill[0]:g}", "corner" if placing.corner else ""]
    if placing.shorter:
        parts.append(str(placing.shorter))
    return "placing-" + "-".join(part for part in parts if part)
