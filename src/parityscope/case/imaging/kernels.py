"""One axis of an image resampled as the common libraries do it: a matrix of weights (new size, old size), float64.

* `bilinear-antialias`, `bicubic-antialias` (a = -0.5): Pillow's BILINEAR and BICUBIC, PyTorch's `interpolate(antialias=True)`;
* `lanczos`, `hamming`, `box`: Pillow's;
* `bilinear`, `bicubic` (a = -0.75): OpenCV's INTER_LINEAR and INTER_CUBIC, PyTorch's `interpolate`: half-pixel centres, no
  antialiasing; `lanczos4`: OpenCV's INTER_LANCZOS4, eight taps;
* `bilinear-corners`: `align_corners=True`;
* `bilinear-asymmetric`: no half pixel: TensorFlow 1's default, ONNX's `asymmetric`;
* `nearest`: Pillow's NEAREST, OpenCV's INTER_NEAREST_EXACT: the pixel at the centre;
* `nearest-floor`: OpenCV's INTER_NEAREST, PyTorch's `nearest`: the pixel at the upper left;
* `area`: OpenCV's INTER_AREA when it shrinks: the mean over the pixel's area.

With antialiasing the kernel is as wide as the shrinking, cut at the border and normalized (Pillow, `Resample.c`); without it, it
is as wide as it is named, and the border is repeated (OpenCV, `resize.cpp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PIXELS = 1 << 24  # of what an image is resized to, on the way too; chosen: 400 MB as it is computed
_FEW_TAPS = 8  # up to which taps are added one by one; chosen
_MOST_WEIGHTS = 1 << 25  # old pixels times new ones of a side; chosen: 256 MB

_LANCZOS = 3.0  # lobes, as in Pillow
_LANCZOS4 = 4.0  # and in OpenCV


def _triangle_kernel(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(x)))


def _cubic_kernel(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Keys 1981, with the free parameter a."""

    def kernel(x: np.ndarray) -> np.ndarray:
        x = np.abs(x)
        near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
        return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))

    return kernel


def _lanczos3_kernel(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < _LANCZOS, np.sinc(x) * np.sinc(x / _LANCZOS), 0.0)


def _lanczos4_kernel(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < _LANCZOS4, np.sinc(x) * np.sinc(x / _LANCZOS4), 0.0)


def _hamming_kernel(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 1.0, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


def _box_kernel(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


# Those that are widened when they shrink.
_WIDENED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bilinear-antialias": _triangle_kernel,
    "bicubic-antialias": _cubic_kernel(-0.5),
    "lanczos": _lanczos3_kernel,
    "hamming": _hamming_kernel,
    "box": _box_kernel,
}
# Those that are not, with half their width in pixels.
_FIXED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "bilinear": (_triangle_kernel, 1),
    "bilinear-corners": (_triangle_kernel, 1),
    "bilinear-asymmetric": (_triangle_kernel, 1),
    "bicubic": (_cubic_kernel(-0.75), 2),
    "lanczos4": (_lanczos4_kernel, 4),
}
KERNELS = (*_WIDENED, *_FIXED, "nearest", "nearest-floor", "area")

_WORDS = {
    "bilinear-antialias": "bilinear with antialiasing",
    "bicubic-antialias": "bicubic with antialiasing",
    "lanczos": "Lanczos",
    "hamming": "Hamming",
    "box": "box",
    "bilinear": "bilinear without antialiasing",
    "bilinear-corners": "bilinear with aligned corners",
    "bilinear-asymmetric": "bilinear without half-pixel centres",
    "bicubic": "bicubic without antialiasing",
    "lanczos4": "Lanczos of eight taps without antialiasing",
    "nearest": "nearest neighbour",
    "nearest-floor": "nearest neighbour at the upper left",
    "area": "area averaging",
}


def kernel_words(kernel: str) -> str:
    """A kernel in words."""
    return _WORDS[kernel]


def kernel_weights(kernel: str, old: int, new: int) -> np.ndarray:
    """The matrix (new, old) of `kernel`; rows sum to 1."""
    scale = old / new
    centres = (np.arange(new) + 0.5) * scale  # in pixels, whose centres lie at a half
    match kernel:
        case "nearest":
            return _take_nearest(np.floor(centres), old)
        case "nearest-floor":
            return _take_nearest(np.floor(np.arange(new) * scale), old)
        case "area":
            return _area_weights(old, new)
        case "bilinear-corners":
            centres = np.arange(new) * ((old - 1) / max(1, new - 1)) + 0.5
        case "bilinear-asymmetric":
            centres = np.arange(new) * scale + 0.5
    if kernel in _WIDENED:
        found = _WIDENED[kernel]((np.arange(old)[None, :] + 0.5 - centres[:, None]) / max(1.0, scale))
        return np.asarray(found / found.sum(axis=1, keepdims=True))
    return _repeat_border(*_FIXED[kernel], centres, old)


def resample_image(image: np.ndarray, kernel: str, size: tuple[int, int], *, whole: bool) -> np.ndarray:
    """`image` (height, width, channels) at `size` (height, width), float64.

    `whole` rounds to bytes: after each pass, across first, for kernels of Pillow's; at the end for the others, as OpenCV does.

    Raises:
        ParityError: it would take too much memory.
    """
    if max(image.shape[0] * size[1], size[0] * size[1]) > MOST_PIXELS or any(
        new * old > _MOST_WEIGHTS for new, old in zip(size, image.shape, strict=False)
    ):
        raise ParityError(
            f"an image of {image.shape[0]} x {image.shape[1]} cannot be resized to {size[0]} x {size[1]}: that is too large",
            fix="check size and shorter of the recipe",
        )
    found = image.astype(np.float64)
    for axis in (1, 0):
        if found.shape[axis] != size[axis]:
            found = np.moveaxis(
                _sum_weighted(kernel_weights(kernel, found.shape[axis], size[axis]), np.moveaxis(found, axis, 0)),
                0,
                axis,
            )
            found = _round_to_bytes(found) if whole and kernel in _WIDENED else found
    return _round_to_bytes(found) if whole else found


def _sum_weighted(held: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """The weighted sums (new, ...) of lines (old, ...): tap by tap where a kernel has few, which saves most of the work."""
    first = (held != 0).argmax(axis=1)
    last = held.shape[1] - (held[:, ::-1] != 0).argmax(axis=1)
    count = int((last - first).max())
    if count > _FEW_TAPS:
        return np.asarray(np.tensordot(held, lines, (1, 0)))
    rows = np.arange(len(held))
    found = np.zeros((len(held), *lines.shape[1:]))
    for tap in range(count):
        place = np.minimum(first + tap, held.shape[1] - 1)
        share = np.where(first + tap < held.shape[1], held[rows, place], 0.0)
        found += share.reshape(-1, *[1] * (lines.ndim - 1)) * lines[place]
    return found


def _round_to_bytes(pixels: np.ndarray) -> np.ndarray:
    return np.clip(np.floor(pixels + 0.5), 0.0, 255.0)


def _take_nearest(places: np.ndarray, old: int) -> np.ndarray:
    found = np.zeros((len(places), old))
    found[np.arange(len(places)), np.clip(places.astype(np.int64), 0, old - 1)] = 1.0
    return found


def _area_weights(old: int, new: int) -> np.ndarray:
    """The share of each old pixel in each new one's area."""
    edges = np.arange(new + 1) * (old / new)
    low, high = edges[:-1, None], edges[1:, None]
    pixels = np.arange(old)[None, :]
    shared = np.clip(np.minimum(high, pixels + 1) - np.maximum(low, pixels), 0.0, None)
    return np.asarray(shared / shared.sum(axis=1, keepdims=True))


def _repeat_border(shape: Callable[[np.ndarray], np.ndarray], half: int, centres: np.ndarray, old: int) -> np.ndarray:
    """Taps at whole pixels around each centre; those beyond the border are the border's own."""
    found = np.zeros((len(centres), old))
    first = np.floor(centres - 0.5).astype(np.int64)
    for tap in range(1 - half, half + 1):
        place = first + tap
        np.add.at(found, (np.arange(len(centres)), np.clip(place, 0, old - 1)), shape(place + 0.5 - centres))
    return np.asarray(found / found.sum(axis=1, keepdims=True))
