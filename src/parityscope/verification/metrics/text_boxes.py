"""Text boxes of a probability map: F1 between the boxes that are right and those of the candidate.

For detectors whose output is a map of the probability of text, (batch, 1, height, width), as of DB ("Real-time scene
text detection with differentiable binarization", Liao et al. 2020; PaddleOCR's detectors). The map is cut at `threshold`
(0.3, PaddleOCR's `det_db_thresh`), and the bounding box of every 8-connected part of at least `least` pixels on its
shorter side (3, PaddleOCR's `min_size`) is a box. Two boxes agree with an intersection over union of at least `iou` (0.5,
as the ICDAR competitions count); pairs are one to one, the largest overlap first.

    F1 = 2 pairs / (right boxes + candidate's boxes), pooled over samples; 1 where there are none on either side

Labels are boxes, (n, 4) as x1, y1, x2, y2 in pixels of the map; without labels the reference's boxes are right. A NaN is
no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.boxes import component_boxes, count_pairs, overlap_matrix
from parityscope.verification.task_metrics import States, TaskAnswer, TaskMetric, label_of, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    """(pairs, right boxes, candidate's boxes) of each sample: float64 (n, 3)."""
    return np.array([_count_boxes(answer, options) for answer in answers], np.float64)


def _count_boxes(answer: TaskAnswer, options: Mapping[str, str]) -> tuple[int, int, int]:
    name = output_name(answer, options)
    label = label_of(answer, options, name)
    least = number_option(options, "iou", 0.5)
    found = _boxes_of_maps(answer.outputs[name], options, answer.name)
    if label is not None:
        if label.ndim != 2 or label.shape[1] != 4:
            raise ParityError(
                f"the labels have shape {list(label.shape)}, not (boxes, 4)",
                where=answer.name,
                fix="give x1, y1, x2, y2 of every box, one .npz a sample",
            )
        right = [label.astype(np.float64)]
    else:
        right = _boxes_of_maps(answer.reference[name], options, answer.name)
    if len(right) != len(found):
        raise ParityError(
            "boxes can be given for one map a sample, and this sample holds several",
            where=answer.name,
            fix="give samples of a batch of 1",
        )
    pairs = sum(count_pairs(overlap_matrix(mine, its), least) for mine, its in zip(right, found, strict=True))
    return pairs, sum(map(len, right)), sum(map(len, found))


def _boxes_of_maps(array: np.ndarray, options: Mapping[str, str], where: str) -> list[np.ndarray]:
    """The boxes of every map of a sample."""
    if array.ndim < 2 or array.dtype.kind not in "fV":
        raise ParityError(
            f"an output of {array.dtype} of shape {list(array.shape)} is no map of probabilities",
            where=where,
            fix="choose another with ?output=NAME",
        )
    threshold = number_option(options, "threshold", 0.3)
    least = int(number_option(options, "least", 3, least=1))
    maps = array.reshape(-1, *array.shape[-2:]).astype(np.float32)
    return [component_boxes(one > threshold, least) for one in maps]


def _f1_score(counts: States) -> float:
    pairs, right, found = np.asarray(counts).sum(axis=0)
    return float(2.0 * pairs / (right + found)) if right + found else 1.0


TASK_METRIC = TaskMetric(
    name="text_boxes",
    title="Agreement of text boxes (F1)",
    better="higher",
    score=_score,
    combine=_f1_score,
    options={
        "threshold": "of the probability (0.3)",
        "iou": "overlap at which boxes agree (0.5)",
        "least": "pixels of the shorter side (3)",
    },
)
