"""Mean average precision of an object detector, as COCO computes it.

For every class and every overlap 0.50, 0.55, ..., 0.95: detections of an image, at most 100, best score first, each take
the free truth that they overlap most, if by at least that much. Over all images, sorted by score (stable), precision is
made monotone from the right and read at the 101 recalls 0, 0.01, ..., 1; beyond the reached recall it is 0. AP is the
mean over recalls, overlaps and classes that have truths. Truths marked as crowd are ignored: they may be taken many times,
by overlap over the detection's own area, and such detections count neither way.

Source: the COCO evaluation (cocoapi, `pycocotools/cocoeval.py`: `evaluateImg`, `accumulate`), all areas. It is written
here again and tested on cases computed by hand: pycocotools reads whole data sets and cannot draw samples again, which
the bootstrap needs, and the same number must come out whether or not it is installed.

The outputs are boxes (n, 4) as x1, y1, x2, y2, scores (n,) and classes (n,), a leading batch axis of 1 allowed; options
say which is which. Labels are `boxes`, `classes` and, if there are any, `crowd`. Without labels the reference's detections
of a score of at least `threshold` (0.5) are right. A detection with a NaN is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.verification.boxes import overlap_matrix
from parityscope.verification.task_metrics import States, TaskAnswer, TaskMetric, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MOST = 100  # detections of an image


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """One class of one image: scores (n,), and for each overlap whether a detection hits and whether it is ignored."""

    scores: np.ndarray
    hits: np.ndarray
    ignored: np.ndarray
    truths: int


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> list[Any]:
    return [_match_image(answer, options) for answer in answers]


def _match_image(answer: TaskAnswer, options: Mapping[str, str]) -> dict[int, _Class]:
    boxes, scores, classes = _read_detections(answer, answer.outputs, options)
    right, kinds, crowd = _read_truths(answer, options)
    return {
        int(kind): _match_class(
            boxes[classes == kind], scores[classes == kind], right[kinds == kind], crowd[kinds == kind]
        )
        for kind in np.union1d(classes, kinds)
    }


def _match_class(boxes: np.ndarray, scores: np.ndarray, right: np.ndarray, crowd: np.ndarray) -> _Class:
    """One class of one image: detections take truths, best score first; crowds come last."""
    order = np.argsort(-scores, kind="stable")[:_MOST]
    last = np.argsort(crowd, kind="stable")
    boxes, scores, right, crowd = boxes[order], scores[order], right[last], crowd[last]
    shares = overlap_matrix(boxes, right, crowd)
    hits = np.zeros((len(_OVERLAPS), len(boxes)), bool)
    ignored = np.zeros_like(hits)
    for level, least in enumerate(_OVERLAPS):
        free = np.ones(len(right), bool)
        for detection in range(len(boxes)):
            at = _choose_truth(shares[detection], free, crowd, least)
            if at >= 0:
                hits[level, detection] = True
                ignored[level, detection] = crowd[at]
                free[at] = False
    return _Class(scores=scores, hits=hits, ignored=ignored, truths=int((~crowd).sum()))


def _choose_truth(shares: np.ndarray, free: np.ndarray, crowd: np.ndarray, least: float) -> int:
    """The truth that a detection takes: of equal overlaps the last; a crowd only if no other is there. -1 for none."""
    for allowed in (free & ~crowd, crowd):
        best = np.where(allowed, shares, -1.0)
        if len(best) and best.max() >= min(least, 1 - 1e-10):
            return len(best) - 1 - int(np.argmax(best[::-1]))
    return -1


def _mean_average_precision(images: States) -> float:
    kinds = sorted({kind for image in images for kind in image})
    found = [_average_precision([image[kind] for image in images if kind in image]) for kind in kinds]
    counted = [value for value in found if value is not None]
    return float(np.mean(counted)) if counted else 1.0


def _average_precision(parts: Sequence[_Class]) -> float | None:
    """The mean over overlaps and recalls of one class; None without truths."""
    truths = sum(part.truths for part in parts)
    if truths == 0:
        return None
    order = np.argsort(-np.concatenate([part.scores for part in parts]), kind="stable")
    hits = np.concatenate([part.hits for part in parts], axis=1)[:, order]
    ignored = np.concatenate([part.ignored for part in parts], axis=1)[:, order]
    true = np.cumsum(hits & ~ignored, axis=1, dtype=np.float64)
    false = np.cumsum(~hits & ~ignored, axis=1, dtype=np.float64)
    total = 0.0
    for level in range(len(_OVERLAPS)):
        recall = true[level] / truths
        counted = true[level] + false[level]
        # Where all so far are ignored there is no precision yet, and 0 stands for it, as in cocoeval.
        precision = np.divide(true[level], counted, out=np.zeros_like(counted), where=counted > 0)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        places = np.searchsorted(recall, _RECALLS, side="left")
        total += float(np.append(envelope, 0.0)[np.minimum(places, len(envelope))].mean())
    return total / len(_OVERLAPS)


def _read_detections(
    answer: TaskAnswer, outputs: Mapping[str, np.ndarray], options: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (n, 4) and scores (n,) in float64, classes int64 (n,); those with a NaN left out."""
    names = {key: _chosen_output(answer, options, key) for key in ("boxes", "scores", "classes")}
    boxes = outputs[names["boxes"]].astype(np.float64)
    if boxes.shape[-1:] != (4,) or boxes.size // 4 != outputs[names["scores"]].size:
        raise ParityError(
            f"boxes of shape {list(boxes.shape)} do not belong to scores of shape {list(outputs[names['scores']].shape)}",
            where=answer.name,
            fix="choose the outputs with ?boxes=NAME&scores=NAME&classes=NAME: (n, 4), (n,) and (n,)",
        )
    boxes = boxes.reshape(-1, 4)
    scores = outputs[names["scores"]].astype(np.float64).ravel()
    classes = outputs[names["classes"]].astype(np.float64).ravel()
    if classes.size != scores.size:
        raise ParityError(
            f"{classes.size} classes do not belong to {scores.size} scores",
            where=answer.name,
            fix="choose them with ?classes=NAME",
        )
    whole = np.isfinite(boxes).all(axis=1) & np.isfinite(scores) & np.isfinite(classes)
    return boxes[whole], scores[whole], classes[whole].astype(np.int64)


def _read_truths(answer: TaskAnswer, options: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (m, 4), classes (m,) and whether each is a crowd."""
    if answer.labels is None:
        boxes, scores, classes = _read_detections(answer, answer.reference, options)
        sure = scores >= number_option(options, "threshold", 0.5)
        return boxes[sure], classes[sure], np.zeros(int(sure.sum()), bool)
    if not {"boxes", "classes"} <= answer.labels.keys():
        raise ParityError(
            f"the labels hold {', '.join(answer.labels)}",
            where=answer.name,
            fix="give `boxes` (m, 4) and `classes` (m,), one .npz a sample",
        )
    boxes = answer.labels["boxes"].astype(np.float64).reshape(-1, 4)
    classes = answer.labels["classes"].astype(np.int64).ravel()
    crowd = answer.labels["crowd"].astype(bool).ravel() if "crowd" in answer.labels else np.zeros(len(boxes), bool)
    if not len(boxes) == len(classes) == len(crowd):
        raise ParityError(
            f"{len(boxes)} boxes, {len(classes)} classes and {len(crowd)} crowd marks",
            where=answer.name,
            fix="give one class, and one crowd mark if any, for every box",
        )
    return boxes, classes, crowd


def _chosen_output(answer: TaskAnswer, options: Mapping[str, str], key: str) -> str:
    return output_name(answer, {key: options.get(key, key)}, key)


TASK_METRIC = TaskMetric(
    name="map",
    title="Mean average precision (COCO)",
    better="higher",
    score=_score,
    combine=_mean_average_precision,
    options={
        "boxes": "the output of boxes (boxes)",
        "scores": "the output of scores (scores)",
        "classes": "the output of classes (classes)",
        "threshold": "of the reference's scores, without labels (0.5)",
    },
    resamples=400,  # each draw sorts all detections again
)
