"""Axis-aligned boxes (x1, y1, x2, y2): overlaps, pairs, and the boxes round the connected parts of a mask."""

from __future__ import annotations

import numpy as np


def overlap_matrix(first: np.ndarray, second: np.ndarray, crowd: np.ndarray | None = None) -> np.ndarray:
    """Intersection over union of every pair: float64 (n, 4) and (m, 4) -> (n, m); 0 where both are empty.

    Where `crowd`, bool (m,), is true the union is the first box alone, as COCO does for crowds.
    """
    top_left = np.maximum(first[:, None, :2], second[None, :, :2])
    bottom_right = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(bottom_right - top_left, 0.0, None).prod(axis=2)
    union = _box_areas(first)[:, None] + _box_areas(second)[None, :] - shared
    if crowd is not None:
        union = np.where(crowd[None, :], _box_areas(first)[:, None], union)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def count_pairs(shares: np.ndarray, least: float) -> int:
    """How many one-to-one pairs there are with an overlap of at least `least`, taken greedily, the largest first."""
    rows, columns = np.nonzero(shares >= least)
    order = np.argsort(-shares[rows, columns], kind="stable")
    used_rows: set[int] = set()
    used_columns: set[int] = set()
    for at in order:
        row, column = int(rows[at]), int(columns[at])
        if row not in used_rows and column not in used_columns:
            used_rows.add(row)
            used_columns.add(column)
    return len(used_rows)


def component_boxes(mask: np.ndarray, least: int) -> np.ndarray:
    """The bounding boxes of the 8-connected parts of a mask: bool (h, w) -> float64 (n, 4), in order of first rows.

    Upper ends lie one beyond the last pixel. Parts whose shorter side has fewer than `least` pixels are left out.
    """
    from scipy.ndimage import find_objects, label

    parts, count = label(mask, np.ones((3, 3)))
    boxes = [[x.start, y.start, x.stop, y.stop] for y, x in find_objects(parts, count)] if count else []
    kept = [box for box in boxes if min(box[2] - box[0], box[3] - box[1]) >= least]
    return np.array(sorted(kept, key=lambda box: (box[1], box[0])), np.float64).reshape(-1, 4)


def _box_areas(boxes: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=1))
