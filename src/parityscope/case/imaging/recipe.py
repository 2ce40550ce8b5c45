"""A recipe: what is done to an image before a network reads it, and the doing.

The image is put on the network's size in one of four ways:

* stretch:   resized to it, whatever its aspect ratio;
* letterbox: resized to fit into it, the rest filled with `fill`; the image lies in the middle, first (upper left) or last;
* shorter:   its shorter side resized to `shorter`, and the middle cut out (torchvision's Resize and CenterCrop);
* central:   the middle square of `shorter` / size of its shorter side cut out first, then resized (TensorFlow's EfficientNet).

Then: channels in order, (x / scale - mean) / deviation, layout.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from parityscope.case.imaging.kernels import kernel_words, resample_image
from parityscope.light_dataclasses import dataclass

Fitting = Literal["stretch", "letterbox", "shorter", "central"]
Side = Literal["middle", "first", "last"]


# Where the filling of a letterbox is, by where the image lies.
_FILLED: dict[Side, str] = {
    "middle": "on both sides",
    "first": "on the right and below",
    "last": "on the left and above",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """How an image is put on `size` (height, width); the module says what `fit` and the others mean.

    `fill` is None where the pixels are filled with 0 behind the normalization, and not by this. `whole` says that the resized
    pixels are rounded to bytes, as libraries do that take and give uint8.
    """

    size: tuple[int, int]
    fit: Fitting = "stretch"
    kernel: str = "bilinear-antialias"
    whole: bool = True
    fill: tuple[float, float, float] | None = (114.0, 114.0, 114.0)
    side: Side = "middle"
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


def prepare_image(recipe: Recipe, image: np.ndarray) -> np.ndarray:
    """What the network reads: float32, a batch of one, from uint8 (height, width, 3) RGB."""
    pixels = place_image(recipe.placing, image)[..., list(recipe.channels)]
    found = (pixels / recipe.scale - np.array(recipe.mean)) / np.array(recipe.deviation)
    found = found.transpose(2, 0, 1) if recipe.layout == "NCHW" else found
    return np.ascontiguousarray(found[None].astype(np.float32))


def place_image(placing: Placing, image: np.ndarray) -> np.ndarray:
    """The image on the network's size: (height, width, 3), float64, 0 to 255."""
    match placing.fit:
        case "stretch":
            return resample_image(image, placing.kernel, placing.size, whole=placing.whole)
        case "letterbox":
            return _letterbox_image(placing, image)
        case "shorter":
            return _crop_middle(_resize_shorter_side(placing, image), placing.size)
    share = min(placing.size) / max(1, placing.shorter or min(placing.size))
    side = max(1, round(share * min(image.shape[:2])))
    return resample_image(_crop_middle(image, (side, side)), placing.kernel, placing.size, whole=placing.whole)


def placing_words(placing: Placing) -> str:
    """The placing in words that complete "the deployment ..."."""
    how = f"({kernel_words(placing.kernel)}{'' if placing.whole else ', not rounded to bytes'})"
    height, width = placing.size
    match placing.fit:
        case "stretch":
            return f"stretches the image to {height} x {width} {how}"
        case "letterbox":
            colour = "0 behind the normalization"
            if placing.fill is not None:
                colour = ", ".join(f"{value:g}" for value in dict.fromkeys(placing.fill))
            where = _FILLED[placing.side]
            return f"letterboxes the image into {height} x {width}, filled with {colour} {where} {how}"
        case "shorter":
            shorter = placing.shorter or min(placing.size)
            return f"resizes the shorter side to {shorter} and cuts out the middle {height} x {width} {how}"
    share = min(placing.size) / max(1, placing.shorter or min(placing.size))
    return f"cuts out the middle square, {share:.3g} of the shorter side, and resizes it to {height} x {width} {how}"


def filled_pixels(placing: Placing, shape: tuple[int, ...]) -> np.ndarray:
    """Which pixels of the result a letterbox of an image (height, width, ...) fills: bool (height, width)."""
    found = np.ones(placing.size, bool)
    if placing.fit == "letterbox":
        rows, columns = _rectangle_inside(placing, shape)
        found[rows, columns] = False
    else:
        found[:] = False
    return found


def _rectangle_inside(placing: Placing, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Rows and columns of a letterbox that the image takes."""
    ratio = min(size / side for size, side in zip(placing.size, shape, strict=False))
    found = []
    for size, side in zip(placing.size, shape, strict=False):
        inner = min(size, max(1, round(side * ratio)))
        start = {"middle": (size - inner) // 2, "first": 0, "last": size - inner}[placing.side]
        found.append(slice(start, start + inner))
    return found[0], found[1]


def _letterbox_image(placing: Placing, image: np.ndarray) -> np.ndarray:
    rows, columns = _rectangle_inside(placing, image.shape)
    inner = (rows.stop - rows.start, columns.stop - columns.start)
    found = np.broadcast_to(np.array(placing.fill or (0.0,) * 3), (*placing.size, 3)).copy()
    found[rows, columns] = resample_image(image, placing.kernel, inner, whole=placing.whole)
    return found


def _resize_shorter_side(placing: Placing, image: np.ndarray) -> np.ndarray:
    """Resized as torchvision does: the longer side is truncated to a whole number."""
    wanted = max(placing.shorter, *placing.size) if placing.shorter else max(placing.size)
    ratio = wanted / min(image.shape[:2])
    size = tuple(wanted if side == min(image.shape[:2]) else int(side * ratio) for side in image.shape[:2])
    return resample_image(image, placing.kernel, (size[0], size[1]), whole=placing.whole)


def _crop_middle(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    top, left = ((have - want) // 2 for have, want in zip(image.shape[:2], size, strict=True))
    return image[top : top + size[0], left : left + size[1]].astype(np.float64)
