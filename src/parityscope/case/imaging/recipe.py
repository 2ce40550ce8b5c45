"""A recipe: what is done to an image before a network reads it, and the doing.

The image is put on the network's size in one of four ways:

* stretch:   resized to it, whatever its aspect ratio;
* letterbox: resized to fit into it, the rest filled with `fill`, in the middle or (`corner`) from the upper left;
* shorter:   its shorter side resized to `shorter`, and the middle cut out (torchvision's Resize and CenterCrop);
* central:   the middle square of `shorter` / size of its shorter side cut out first, then resized (TensorFlow's EfficientNet).

Then: channels in order, (x / scale - mean) / deviation, layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from parityscope.case.imaging.kernels import kernel_words, resampled

__all__ = ["Fitting", "Placing", "Recipe", "placed", "placing_words", "prepared"]

Fitting = Literal["stretch", "letterbox", "shorter", "central"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """How an image is put on `size` (height, width); the module says what `fit` and the others mean.

    `whole` says that the resized pixels are rounded to bytes, as libraries do that take and give uint8.
    """

    size: tuple[int, int]
    fit: Fitting = "stretch"
    kernel: str = "bilinear-antialias"
    whole: bool = True
    fill: tuple[float, float, float] = (114.0, 114.0, 114.0)
    corner: bool = False
    shorter: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A placing and what comes after it: ((x[channels] / scale) - mean) / deviation, in `layout` and float32."""

    input: str
    placing: Placing
    channels: tuple[int, ...] = (0, 1, 2)
    scale: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    layout: Literal["NCHW", "NHWC"] = "NCHW"


def prepared(recipe: Recipe, image: np.ndarray) -> np.ndarray:
    """What the network reads: float32, a batch of one, from uint8 (height, width, 3) RGB."""
    pixels = placed(recipe.placing, image)[..., list(recipe.channels)]
    found = (pixels / recipe.scale - np.array(recipe.mean)) / np.array(recipe.deviation)
    found = found.transpose(2, 0, 1) if recipe.layout == "NCHW" else found
    return np.ascontiguousarray(found[None].astype(np.float32))


def placed(placing: Placing, image: np.ndarray) -> np.ndarray:
    """The image on the network's size: (height, width, 3), float64, 0 to 255."""
    match placing.fit:
        case "stretch":
            return resampled(image, placing.kernel, placing.size, whole=placing.whole)
        case "letterbox":
            return _letterboxed(placing, image)
        case "shorter":
            return _middle(_shorter(placing, image), placing.size)
    share = min(placing.size) / max(1, placing.shorter or min(placing.size))
    side = max(1, round(share * min(image.shape[:2])))
    return resampled(_middle(image, (side, side)), placing.kernel, placing.size, whole=placing.whole)


def placing_words(placing: Placing) -> str:
    """The placing in words that complete "the deployment ..."."""
    how = f"({kernel_words(placing.kernel)}{'' if placing.whole else ', not rounded to bytes'})"
    height, width = placing.size
    match placing.fit:
        case "stretch":
            return f"stretches the image to {height} x {width} {how}"
        case "letterbox":
            colour = ", ".join(f"{value:g}" for value in dict.fromkeys(placing.fill))
            where = "on the right and below" if placing.corner else "on both sides"
            return f"letterboxes the image into {height} x {width}, filled with {colour} {where} {how}"
        case "shorter":
            shorter = placing.shorter or min(placing.size)
            return f"resizes the shorter side to {shorter} and cuts out the middle {height} x {width} {how}"
    share = min(placing.size) / max(1, placing.shorter or min(placing.size))
    return f"cuts out the middle square, {share:.3g} of the shorter side, and resizes it to {height} x {width} {how}"


def _letterboxed(placing: Placing, image: np.ndarray) -> np.ndarray:
    height, width = placing.size
    ratio = min(height / image.shape[0], width / image.shape[1])
    inner = (min(height, max(1, round(image.shape[0] * ratio))), min(width, max(1, round(image.shape[1] * ratio))))
    small = resampled(image, placing.kernel, inner, whole=placing.whole)
    found = np.broadcast_to(np.array(placing.fill, np.float64), (height, width, 3)).copy()
    top, left = (0, 0) if placing.corner else ((height - inner[0]) // 2, (width - inner[1]) // 2)
    found[top : top + inner[0], left : left + inner[1]] = small
    return found


def _shorter(placing: Placing, image: np.ndarray) -> np.ndarray:
    """Resized as torchvision does: the longer side is truncated to a whole number."""
    wanted = max(placing.shorter, *placing.size) if placing.shorter else max(placing.size)
    ratio = wanted / min(image.shape[:2])
    size = tuple(wanted if side == min(image.shape[:2]) else int(side * ratio) for side in image.shape[:2])
    return resampled(image, placing.kernel, (size[0], size[1]), whole=placing.whole)


def _middle(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    top, left = ((have - want) // 2 for have, want in zip(image.shape[:2], size, strict=True))
    return image[top : top + size[0], left : left + size[1]].astype(np.float64)
