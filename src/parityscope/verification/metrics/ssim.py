"""Structural similarity of an image: 1 for equal images.

    SSIM = (2 m_r m_c + C1)(2 s_rc + C2) / ((m_r^2 + m_c^2 + C1)(s_r^2 + s_c^2 + C2)),  C1 = (0.01 L)^2, C2 = (0.03 L)^2

with means, variances and covariance under a circular Gaussian window of 11 x 11 and sigma 1.5, averaged over every place
where the window lies inside the image, and over channels. Source: Wang, Bovik, Sheikh and Simoncelli, "Image quality
assessment: from error visibility to structural similarity", IEEE Trans. Image Processing 13 (2004), equations 13 to 16.

Images are the last two axes (`layout=nhwc`: the two before the last). L is `range`, as for `psnr`. The truth is the label
or, without labels, the reference's output. A NaN or Inf that the truth does not have makes it -1, the worst value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.metrics._images import image_pair, range_of
from parityscope.verification.task_metrics import TaskAnswer, TaskMetric, mean_of_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SIZE, _SIGMA = 11, 1.5
_K1, _K2 = 0.01, 0.03


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    return np.array([_similarity_of_sample(answer, options) for answer in answers])


def _similarity_of_sample(answer: TaskAnswer, options: Mapping[str, str]) -> float:
    truth, image, dtype = image_pair(answer, options)
    layout = options.get("layout", "nchw")
    if layout not in {"nchw", "nhwc"}:
        raise ParityError(f"layout={layout!r} is not known", fix="use layout=nchw|nhwc")
    if layout == "nhwc" and truth.ndim > 2:
        truth, image = np.moveaxis(truth, -1, -3), np.moveaxis(image, -1, -3)
    if truth.ndim < 2 or min(truth.shape[-2:]) < _SIZE:
        raise ParityError(
            f"images of shape {list(truth.shape)} are smaller than the window of {_SIZE} x {_SIZE}",
            where=answer.name,
            fix="use --metric psnr, or ?layout=nhwc if channels come last",
        )
    if not (np.isfinite(truth).all() and np.isfinite(image).all()):
        return -1.0
    return _mean_similarity(truth, image, range_of(options, dtype))


def _mean_similarity(truth: np.ndarray, image: np.ndarray, peak: float) -> float:
    """SSIM of float64 (..., height, width)."""
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    mean_r, mean_c = _smooth_images(truth), _smooth_images(image)
    var_r = _smooth_images(truth * truth) - mean_r**2
    var_c = _smooth_images(image * image) - mean_c**2
    covariance = _smooth_images(truth * image) - mean_r * mean_c
    top = (2 * mean_r * mean_c + c1) * (2 * covariance + c2)
    bottom = (mean_r**2 + mean_c**2 + c1) * (var_r + var_c + c2)
    return float((top / bottom).mean())


def _smooth_images(images: np.ndarray) -> np.ndarray:
    """Weighted means under the window, where it lies inside: (..., h, w) -> (..., h - 10, w - 10)."""
    distance = np.arange(_SIZE) - _SIZE // 2
    weights = np.exp(-(distance**2) / (2 * _SIGMA**2))
    weights /= weights.sum()
    rows = np.lib.stride_tricks.sliding_window_view(images, _SIZE, axis=-2) @ weights
    return np.asarray(np.lib.stride_tricks.sliding_window_view(rows, _SIZE, axis=-1) @ weights)


TASK_METRIC = TaskMetric(
    name="ssim",
    title="Structural similarity",
    better="higher",
    score=_score,
    combine=mean_of_numbers,
    options={"range": "the largest value of a pixel (1 for floats, 255 for uint8)", "layout": "nchw (default) or nhwc"},
)
