"""COCO's average precision, for tests: what pycocotools computes with its defaults, all areas, 100 detections an image.

T.-Y. Lin et al., Microsoft COCO, ECCV 2014; the rules are those of pycocotools' `cocoeval.py`: detections of a class are taken
over all images by falling score; each takes the free box of its image with the largest overlap of at least the threshold; of the
precisions, made non-increasing from behind, those at 101 recalls are averaged, then classes, then the thresholds 0.50 to 0.95.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """Of one image: classes (n,), scores (n,), boxes (n, 4) as x, y, width, height in pixels."""

    classes: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray


def mean_average_precision(found: list[Detections], truth: list[Detections]) -> float:
    """mAP over the thresholds 0.50 to 0.95; scores of `truth` are not looked at."""
    classes = sorted({int(each) for image in truth for each in image.classes})
    return float(np.mean([_class_precisions(found, truth, each) for each in classes]))


def _class_precisions(found: list[Detections], truth: list[Detections], which: int) -> np.ndarray:
    """Average precision of one class at each threshold."""
    scores, hits, boxes = [], [], 0
    for mine, its in zip(found, truth, strict=True):
        real = its.boxes[its.classes == which]
        boxes += len(real)
        order = np.argsort(-mine.scores[mine.classes == which], kind="stable")
        scores.append(mine.scores[mine.classes == which][order])
        hits.append(_hits(mine.boxes[mine.classes == which][order], real))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right = np.concatenate(hits)[order].T  # (threshold, detection)
    true = right.cumsum(axis=1)
    precision = true / np.arange(1, right.shape[1] + 1)
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    averages = []
    for at, recall in zip(precision, true / boxes, strict=True):
        places = np.searchsorted(recall, RECALLS, side="left")
        averages.append(np.mean([at[place] if place < len(at) else 0.0 for place in places]))
    return np.array(averages)


def _hits(mine: np.ndarray, real: np.ndarray) -> np.ndarray:
    """(detection, threshold): whether the detection takes a box."""
    found = np.zeros((len(mine), len(THRESHOLDS)), bool)
    overlap = _overlaps(mine, real)
    for place, threshold in enumerate(THRESHOLDS):
        free = np.ones(len(real), bool)
        for index in range(len(mine)):
            candidates = np.where(free, overlap[index], -1.0)
            if len(real) and candidates.max() >= threshold - 1e-10:
                free[int(candidates.argmax())] = False
                found[index, place] = True
    return found


def _overlaps(mine: np.ndarray, real: np.ndarray) -> np.ndarray:
    low = np.maximum(mine[:, None, :2], real[None, :, :2])
    high = np.minimum((mine[:, :2] + mine[:, 2:])[:, None], (real[:, :2] + real[:, 2:])[None])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    areas = mine[:, 2:].prod(axis=1)[:, None] + real[:, 2:].prod(axis=1)[None]
    return np.asarray(shared / (areas - shared))
