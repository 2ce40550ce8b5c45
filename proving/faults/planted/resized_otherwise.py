"""The picture is resized by another library's kernel: nearest, bicubic, or bilinear without antialiasing. Images are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.pictures import prepared
from proving.faults.records import Fault
from proving.faults.trained import coloured_page, photograph

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant

_SIZES = {"small-conv": (24, 24), "ocr-det": (160, 96), "ocr-cls": (192, 48), "lite0": (112, 112)}
_WAYS = ("nearest", "bicubic", "lanczos", "bilinear without antialiasing")


def _plant(bed: Bed) -> Plant:
    from PIL import Image

    size = _SIZES[bed.subject.name]
    (name,) = bed.samples[0]
    images = bed.folder / "images"
    images.mkdir()
    way = _WAYS[int(bed.draw.integers(len(_WAYS)))]
    samples, given = [], []
    for number in range(2):
        picture = coloured_page(bed.draw) if bed.subject.name == "ocr-det" else photograph(bed.draw)
        Image.fromarray(picture).save(images / f"{number:06d}.png")
        samples.append({name: prepared(bed, _resized(picture, size, "bilinear"))})
        given.append({name: prepared(bed, _resized(picture, size, way))})
    plant = fed(replace(bed, samples=samples), given, f"resized with {way} in place of Pillow's bilinear")
    return replace(plant, samples=samples, images=images)


def _resized(picture: np.ndarray, size: tuple[int, int], way: str) -> np.ndarray:
    """Pixels in [0, 1], float64 (1, 3, height, width); `size` is (width, height)."""
    from PIL import Image

    if way.startswith("bilinear without"):
        values = _interpolated(picture.astype(np.float64), size)
    else:
        values = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling[way.upper()]), np.float64)
    return np.asarray(values.transpose(2, 0, 1)[None] / 255)


def _interpolated(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear with half-pixel centres and two taps, as OpenCV's INTER_LINEAR: (H, W, 3) to (height, width, 3), rounded."""
    for axis, wanted in ((0, size[1]), (1, size[0])):
        count = picture.shape[axis]
        place = np.clip((np.arange(wanted) + 0.5) * count / wanted - 0.5, 0, count - 1)
        low = np.minimum(np.floor(place).astype(int), count - 2)
        part = (place - low).reshape([-1 if each == axis else 1 for each in range(3)])
        picture = np.take(picture, low, axis) * (1 - part) + np.take(picture, low + 1, axis) * part
    return np.asarray(np.rint(picture))


FAULT = Fault(
    title="Another way of resizing",
    family="preprocessing",
    expected="PRE001",
    subjects=tuple(_SIZES),
    plant=_plant,
)
