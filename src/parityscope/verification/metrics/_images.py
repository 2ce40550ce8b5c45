"""The two images that PSNR and SSIM look at, in float64, and the range of their pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.task_metrics import label_of, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.verification.task_metrics import TaskAnswer


def image_pair(answer: TaskAnswer, options: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray, np.dtype[Any]]:
    """(truth, candidate), float64 in the output's shape, and the output's own dtype.

    Raises:
        ParityError: the labels are no image of that size.
    """
    name = output_name(answer, options)
    label = label_of(answer, options, name)
    image = answer.outputs[name]
    truth = answer.reference[name] if label is None else label
    if truth.size != image.size or truth.dtype.kind not in "fiub":
        raise ParityError(
            f"the labels are {truth.dtype} of shape {list(truth.shape)}, {name!r} is an image of {list(image.shape)}",
            where=answer.name,
            fix="give images of the output's size, or choose the array with ?label=NAME",
        )
    return truth.reshape(image.shape).astype(np.float64), image.astype(np.float64), answer.reference[name].dtype


def range_of(options: Mapping[str, str], dtype: np.dtype[Any]) -> float:
    """The largest value of a pixel: the option, else 255 for integers and 1 for floats."""
    return number_option(options, "range", 255.0 if dtype.kind in "iu" else 1.0, least=1e-30)
