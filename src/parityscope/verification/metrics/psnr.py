"""Peak signal-to-noise ratio of an image: 10 log10(range^2 / mean squared error), in dB; infinite for equal images.

The truth is the label (an image of the output's size) or, without labels, the reference's output. `range` is the largest
value that a pixel may have: 1 for floats and 255 for uint8 unless the option says otherwise. The pooled value is of the
mean squared error over all samples. A NaN or Inf that the truth does not have makes it minus infinity.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.verification.metrics._images import image_pair, range_of
from parityscope.verification.task_metrics import States, TaskAnswer, TaskMetric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    """Mean squared error over range^2 of each sample."""
    return np.array([_relative_error(answer, options) for answer in answers])


def _relative_error(answer: TaskAnswer, options: Mapping[str, str]) -> float:
    truth, image, dtype = image_pair(answer, options)
    peak = range_of(options, dtype)
    if not np.isfinite(image[np.isfinite(truth)]).all():
        return math.inf
    error = np.where(truth == image, 0.0, image - truth)
    return float((error**2).mean()) / peak**2 if np.isfinite(error).all() else math.inf


def _errors_to_decibels(errors: States) -> float:
    mean = float(np.mean(errors))
    return math.inf if mean == 0.0 else -math.inf if math.isinf(mean) else -10.0 * math.log10(mean)


TASK_METRIC = TaskMetric(
    name="psnr",
    title="Peak signal-to-noise ratio (dB)",
    better="higher",
    score=_score,
    combine=_errors_to_decibels,
    options={"range": "the largest value of a pixel (1 for floats, 255 for uint8)"},
)
