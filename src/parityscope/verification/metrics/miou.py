"""Mean intersection over union of a segmentation.

IoU of a class = pixels that both give it / pixels that either gives it, pooled over samples; the mean is over classes
that either side has. Source: Everingham et al., "The PASCAL Visual Object Classes Challenge" (2015), section 4.2.

The output is scores with classes on axis 1 (batch, classes, ...), or class numbers as integers. One channel is a
probability of foreground, cut at `threshold` (0.5). Labels are class numbers of the same pixels; those equal to `ignore`
(255) are left out. Without labels the reference's classes are right. A pixel whose scores hold a NaN has no class and is
counted as wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.task_metrics import States, TaskAnswer, TaskMetric, label_of, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_IGNORED = 255
_MOST_CLASSES = 4096  # a table of counts of 4096 x 3 numbers a sample; more classes are no segmentation


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    """Per sample: shared pixels, those of the truth, those of the candidate, by class; float64 (n, 3, classes)."""
    threshold = number_option(options, "threshold", 0.5)
    ignored = int(number_option(options, "ignore", _IGNORED))
    counted = [_count_pixels(answer, options, threshold, ignored) for answer in answers]
    classes = max(table.shape[1] for table in counted)
    return np.stack([np.pad(table, ((0, 0), (0, classes - table.shape[1]))) for table in counted])


def _count_pixels(answer: TaskAnswer, options: Mapping[str, str], threshold: float, ignored: int) -> np.ndarray:
    name = output_name(answer, options)
    label = label_of(answer, options, name)
    expected = _class_numbers(answer.reference[name], threshold)
    found = _class_numbers(answer.outputs[name], threshold)
    kept = np.ones(expected.size, bool)
    if label is not None:
        if label.dtype.kind not in "iub" or label.size != expected.size:
            raise ParityError(
                f"the labels are {label.dtype} of shape {list(label.shape)}; {name!r} has {expected.size} pixels",
                where=answer.name,
                fix="give the class number of every pixel as an integer",
            )
        expected = label.astype(np.int64)
        kept = expected.ravel() != ignored
    reference, candidate = expected.ravel()[kept], found.ravel()[kept]
    if reference.size and max(reference.max(), candidate.max()) >= _MOST_CLASSES:
        raise ParityError(
            f"{name!r} holds class {max(reference.max(), candidate.max())}", fix="give class numbers below 4096"
        )
    size = int(max(reference.max(initial=0), candidate.max(initial=0))) + 1
    return np.stack([_tally_classes(part, size) for part in (reference[reference == candidate], reference, candidate)])


def _class_numbers(array: np.ndarray, threshold: float) -> np.ndarray:
    """Class numbers: int64; -1 where there is none."""
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    scores = array.astype(np.float64)
    if scores.ndim < 3 or scores.shape[1] == 1:
        return np.where(np.isnan(scores), -1, scores > threshold).astype(np.int64)
    return np.where(np.isnan(scores).any(axis=1), -1, scores.argmax(axis=1))


def _tally_classes(classes: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(classes[classes >= 0], minlength=size).astype(np.float64)


def _mean_iou(tables: States) -> float:
    shared, reference, candidate = np.asarray(tables).sum(axis=0)
    union = reference + candidate - shared
    present = union > 0
    return float((shared[present] / union[present]).mean()) if present.any() else 1.0


TASK_METRIC = TaskMetric(
    name="miou",
    title="Mean intersection over union",
    better="higher",
    score=_score,
    combine=_mean_iou,
    options={"threshold": "of a single channel (0.5)", "ignore": "class number that is left out (255)"},
)
