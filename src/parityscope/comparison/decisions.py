"""What an output decides for whoever uses it, as far as its shape and values show that, and how many decisions changed.

- classes: rows (rank 1 or 2) of probabilities or their logarithms, or as many scores as a published set has classes. Counted are
  rows whose best class is another.
- positions: rank 3, not square, the last axis holds such rows (letters of a text, queries of a detector). Counted likewise.
- segments: rank 4, probabilities along axis 1. Counted are pixels whose best class is another.
- mask: rank 4 with one channel of values in [0, 1], nearly all near 0 or 1. Counted are pixels over 0.5, and those on one side.
- boxes: rank 3 with a long axis of places and a short one: four numbers in pixels, then scores in [0, 1]. Counted are places
  that score over 0.25 in the reference, and on one side alone.
- embedding: rank 2, rows of length one with at least 16 numbers. Told is the smallest cosine.

The reference alone says which kind it is, and its name where that says "logits". What fits none is told in numbers: rows of a
regression, of hidden states or of a detector that are called classes would tell a change that nobody sees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parityscope.comparison._layout import kind_of
from parityscope.comparison._scores import SCORE_AXIS, sum_tolerance

__all__ = ["NOTICED", "Decided", "measure_decisions", "merge_decisions"]

DecisionKind = Literal["classes", "positions", "segments", "mask", "boxes", "embedding"]
# Classes of ImageNet-1k without and with a background class (TensorFlow's models), and of ImageNet-21k in its two
# editions: widths that no embedding and no regression has.
_PUBLISHED = frozenset({1000, 1001, 21_841, 21_843})
_LOGITS = "logits"
_ROWS, _SEQUENCE, _MAP = 2, 3, 4  # ranks
_LEAST_EMBEDDING = 16  # numbers; chosen: a rotation as a quaternion has length one too
_LENGTH = 1e-2  # of one by which the length of an embedding's row may be off: FP16 and BF16 references; chosen
_NEAR, _DECIDED = 0.1, 0.9  # a mask: this share of its values is this near to 0 or 1; chosen
_INSIDE = 0.5
_BOX = 4  # numbers
_LEAST_PLACES = 100  # of a raw detector; chosen: the smallest published have hundreds
_BLOCK = 1 << 18  # elements that are converted at once; chosen
NOTICED = 0.01  # of the decisions: a share of changed ones that nobody may overlook; chosen
_SCORING = 0.25  # the confidence above which detectors' own tools show boxes by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """`count` decisions of a kind, of which `changed` are others in the candidate.

    Of boxes `changed` are lost and `new` appear in the candidate alone; of a mask `count` are the pixels inside on either
    side. `least` is the smallest cosine of an embedding, 1 for other kinds.
    """

    kind: DecisionKind
    count: int
    changed: int
    new: int = 0
    least: float = 1.0

    @property
    def others(self) -> int:
        """How many are others in the candidate, lost and new ones together."""
        return self.changed + self.new


def measure_decisions(reference: np.ndarray, candidate: np.ndarray, name: str = "") -> Decided | None:
    """The decisions of two tensors of one shape and any dtype; None where nothing shows what they decide."""
    rank = reference.ndim
    if not reference.size or kind_of(reference.dtype) != "float" or not np.isfinite(reference).all():
        return None
    told = _LOGITS in re.split(r"[^a-z]+", name.lower())
    if rank == _MAP:
        return _measure_map(reference, candidate, told=told)
    if rank == _SEQUENCE and (found := _measure_boxes(reference, candidate)) is not None:
        return found
    if not 1 <= rank <= _SEQUENCE or not SCORE_AXIS[0] <= reference.shape[-1] <= SCORE_AXIS[1]:
        return None
    if rank == _ROWS and _are_directions(reference):
        return _measure_cosines(reference, candidate)
    square = rank == _SEQUENCE and reference.shape[1] == reference.shape[2]  # as attention's weights are
    known = told or (rank <= _ROWS and reference.shape[-1] in _PUBLISHED)
    if not known and (square or not _are_distributions(reference, -1)):
        return None
    return _count_changes("positions" if rank == _SEQUENCE else "classes", reference, candidate, -1)


def merge_decisions(first: Decided | None, second: Decided | None) -> Decided | None:
    """Of both; None where one has none or they are of two kinds: then the kind was not sure."""
    if first is None or second is None or first.kind != second.kind:
        return None
    return replace(
        first,
        count=first.count + second.count,
        changed=first.changed + second.changed,
        new=first.new + second.new,
        least=min(first.least, second.least),
    )


def _count_changes(kind: DecisionKind, reference: np.ndarray, candidate: np.ndarray, axis: int) -> Decided:
    """Best classes along `axis` that are others; one among NaN is another."""
    lost = np.isnan(candidate).any(axis=axis)
    changed = lost | (reference.argmax(axis=axis) != candidate.argmax(axis=axis))
    return Decided(kind=kind, count=changed.size, changed=int(changed.sum()))


def _measure_map(reference: np.ndarray, candidate: np.ndarray, *, told: bool) -> Decided | None:
    """A segments (batch, classes, height, width), or a mask with its one channel first or last."""
    channels = reference.shape[1]
    if 1 in {channels, reference.shape[3]}:
        if not _is_mask(reference):
            return None
        ours, theirs = reference > _INSIDE, candidate > _INSIDE
        return Decided(kind="mask", count=int((ours | theirs).sum()), changed=int((ours ^ theirs).sum()))
    return _count_changes("segments", reference, candidate, 1) if told or _are_distributions(reference, 1) else None


def _is_mask(values: np.ndarray) -> bool:
    if values.min() < 0 or values.max() > 1:
        return False
    inside = values > _INSIDE
    decided = np.abs(values - inside) <= _NEAR
    return bool(inside.any() and not inside.all() and decided.mean() >= _DECIDED)


def _measure_boxes(reference: np.ndarray, candidate: np.ndarray) -> Decided | None:
    """A raw detector's (batch, numbers, places), or (batch, places, numbers) whose fifth says whether there is anything."""
    last = reference.shape[2] < reference.shape[1]
    ours, theirs = (np.swapaxes(each, 1, 2) if last else each for each in (reference, candidate))
    numbers, places = ours.shape[1:]
    if not _BOX + (2 if last else 1) <= numbers <= places or places < _LEAST_PLACES:
        return None
    boxes, scores = ours[:, :_BOX], ours[:, _BOX:]
    if not (boxes.max(axis=(0, 2)) > 1).all() or scores.min() < 0 or scores.max() > 1:
        return None
    held, found = (_score_places(each[:, _BOX:], last=last) > _SCORING for each in (ours, theirs))
    return Decided(
        kind="boxes", count=int(held.sum()), changed=int((held & ~found).sum()), new=int((found & ~held).sum())
    )


def _score_places(scores: np.ndarray, *, last: bool) -> np.ndarray:
    """Scores (batch, places): of the best class, times whether there is anything in the form that has `last` the numbers."""
    best: np.ndarray = scores[:, 0] * scores[:, 1:].max(axis=1) if last else scores.max(axis=1)
    return best


def _are_distributions(values: np.ndarray, axis: int) -> bool:
    """Whether all of `axis` are probabilities that sum to one, or their logarithms; not all of them the same."""
    lowest, highest = float(values.min()), float(values.max())
    if highest > 1 or (lowest < 0 < highest) or lowest == highest:
        return False
    by_class = np.moveaxis(values, axis, 0)
    step = max(1, _BLOCK * len(by_class) // values.size)
    sums = np.zeros(by_class.shape[1:])
    for start in range(0, len(by_class), step):  # some classes at a time: no copy of all is made
        wide = by_class[start : start + step].astype(np.float64)
        sums += (wide if lowest >= 0 else np.exp(wide)).sum(axis=0)
    return bool((np.abs(sums - 1) <= sum_tolerance(values.dtype, values.shape[axis])).all())


def _are_directions(rows: np.ndarray) -> bool:
    if rows.shape[1] < _LEAST_EMBEDDING or rows.min() >= 0:  # what has no sign may be anything
        return False
    return bool((np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1) <= _LENGTH).all())


def _measure_cosines(reference: np.ndarray, candidate: np.ndarray) -> Decided:
    ours, theirs = reference.astype(np.float64), candidate.astype(np.float64)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = (ours * theirs).sum(axis=1) / lengths
    least = float(np.where(np.isfinite(cosines), cosines, 0.0).min())  # what has no direction has none in common
    return Decided(kind="embedding", count=len(ours), changed=0, least=min(1.0, least))
