"""What an output decides for whoever uses it, how many decisions changed, and how clear each changed one was in the reference.

The graph says it, or the user (`DecisionRule`, read in `case/deciding.py`); else shape and values of the reference may show it:

- classes: rows (rank 1 or 2) of probabilities or their logarithms, or as many scores as a published set has classes. Counted are
  rows whose best class is another, and those whose best five stand in another order.
- positions: rank 3, not square, the last axis holds such rows (letters of a text, queries of a detector). Counted likewise, and
  the sequences of which any is another. Where the first or the last class is the best of a third of all positions it is taken for
  the blank of CTC: then a sequence is another if what it spells is.
- segments: rank 4, probabilities along axis 1. Counted are pixels whose best class is another.
- mask: rank 4 with one channel of values in [0, 1], nearly all near 0 or 1. Counted are pixels over 0.5, and those on one side.
- sides: numbers that are above a threshold on one side alone.
- order: places of the largest, as TopK gives them. Counted are those that are others.
- boxes: rank 3 with a long axis of places and a short one: four numbers in pixels, then scores in [0, 1]. Counted are places
  that score over 0.25 in the reference, and on one side alone.
- rows: as many as values say. Counted are those of the reference, and those that one side has more.
- embedding: rank 2, rows of length one with at least 16 numbers. Told is the smallest cosine.

What fits none is told in numbers: rows of a regression, of hidden states or of a detector that are called classes would tell a
change that nobody sees.

Each changed decision is a flip: where, what it was and became, and by how much the reference was for what it was (`gap`). What
arithmetic explains of it is judged elsewhere (`study/changed_decisions.py`), by how far other runs lean there (`lean_of`).
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from parityscope.comparison._layout import kind_of
from parityscope.comparison._scores import SCORE_AXIS, sum_tolerance
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import DecisionRule

DecisionKind = Literal["classes", "positions", "segments", "mask", "sides", "order", "boxes", "embedding", "rows"]
# Columns of flips: the sample, the flat place among the decisions, the rank that is decided (0: the best), what it was and became
# (classes; 1 and 0 on which side of a threshold), by how much the reference was for that, and the L2 norm of that sample.
SAMPLE, PLACE, RANK, WAS, BECAME, GAP, NORM = range(7)
_NO_FLIPS = np.zeros((0, 7))
_BY_VALUES = DecisionRule()
_FLIPS = 64  # of an output that are kept, those that were clearest; chosen
_CHOICES = 1 << 16  # the same where the output holds choices alone: all are asked about, and not more; chosen
_TOP = 5  # places whose order counts, as of a page of results; chosen
_BLANK = 1 / 3  # of all positions: more often than any letter is the best; chosen
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

    Of boxes and rows `changed` are lost and `new` appear in the candidate alone; of a mask `count` are the pixels inside on
    either side. `least` is the smallest cosine of an embedding, 1 for other kinds. Of rows of classes `reordered` have the same
    best class and others behind it; of positions `sequences_changed` of all `sequences` are others. `flips` are float64 (changed
    ones that are kept, columns as above), `axis` and `at` the class axis and the threshold that they are of.
    """

    kind: DecisionKind
    count: int
    changed: int
    new: int = 0
    least: float = 1.0
    reordered: int = 0
    sequences: int = 0
    sequences_changed: int = 0
    flips: np.ndarray = field(default_factory=lambda: _NO_FLIPS, compare=False, repr=False)
    axis: int = field(default=-1, compare=False)
    at: float = field(default=0.5, compare=False)

    @property
    def others(self) -> int:
        """How many are others in the candidate, lost and new ones together."""
        return self.changed + self.new


def measure_decisions(
    reference: np.ndarray, candidate: np.ndarray, name: str = "", rule: DecisionRule = _BY_VALUES, sample: int = 0
) -> Decided | None:
    """The decisions of two tensors of one shape and any dtype; None where nothing shows what they decide."""
    if not reference.size or rule.kind == "none":
        return None
    if rule.scores:
        return _compare_choices(reference, candidate, rule, sample)
    if kind_of(reference.dtype) != "float" or not np.isfinite(reference).all():
        return None
    found = _by_rule(reference, candidate, rule) if rule.kind else _by_values(reference, candidate, name)
    if found is None or not len(found.flips):
        return found
    flips = found.flips.copy()
    flips[:, SAMPLE], flips[:, NORM] = sample, np.linalg.norm(reference.astype(np.float64).ravel())
    return replace(found, flips=flips)


def count_rows(reference: int, candidate: int) -> Decided:
    """What outputs with so many rows decide: which ones there are."""
    return Decided(
        kind="rows", count=reference, changed=max(0, reference - candidate), new=max(0, candidate - reference)
    )


def lean_of(kind: DecisionKind, axis: int, at: float, flips: np.ndarray, array: np.ndarray) -> np.ndarray:
    """How far a tensor of scores leans to what each of its flips was: negative where it decides as that became."""
    places, was, became = (flips[:, column].astype(np.intp) for column in (PLACE, WAS, BECAME))
    if kind in {"mask", "sides"}:
        values = array.reshape(-1)[places].astype(np.float64)
        return np.asarray((values - at) * (2.0 * was - 1.0))
    if kind == "boxes":
        last = array.shape[2] < array.shape[1]
        rows = np.swapaxes(array, 1, 2) if last else array
        return np.asarray((_score_places(rows[:, _BOX:], last=last).ravel()[places] - at) * (2.0 * was - 1.0))
    return _lead(array, axis, places, was, became)


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
        reordered=first.reordered + second.reordered,
        sequences=first.sequences + second.sequences,
        sequences_changed=first.sequences_changed + second.sequences_changed,
        flips=_clearest(np.concatenate([first.flips, second.flips])),
    )


def _clearest(flips: np.ndarray) -> np.ndarray:
    """As many as are kept, the clearest ones, in their order; where no gap is known yet, the first."""
    return np.asarray(flips[_choose_clearest(flips[:, GAP])])


def _choose_clearest(gaps: np.ndarray) -> np.ndarray:
    most = _CHOICES if np.isnan(gaps).any() else _FLIPS
    return np.arange(len(gaps)) if len(gaps) <= most else np.sort(np.argsort(-gaps, kind="stable")[:most])


def _flips_at(
    places: np.ndarray, was: np.ndarray, became: np.ndarray, gaps: np.ndarray, ranks: np.ndarray | None = None
) -> np.ndarray:
    """The clearest of flips at these places."""
    kept = _choose_clearest(gaps)
    flips = np.zeros((len(kept), 7))
    held = (
        (PLACE, places),
        (WAS, was),
        (BECAME, became),
        (GAP, gaps),
        (RANK, np.zeros(len(gaps)) if ranks is None else ranks),
    )
    for column, values in held:
        flips[:, column] = values[kept]
    return flips


def _lead(array: np.ndarray, axis: int, places: np.ndarray, was: np.ndarray, became: np.ndarray) -> np.ndarray:
    """By how much one class along `axis` scores more than another, at places among the rows; float64.

    A class that is not there (choices that are counted from one) scores as the least one of its row.
    """
    by_row = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])  # one axis alone is one row
    gone = (became < 0) | (became >= by_row.shape[-1])
    scores = by_row[places, np.where(gone, 0, became)].astype(np.float64)
    scores[gone] = by_row[places[gone]].min(-1, initial=np.inf)
    return np.asarray(by_row[places, was].astype(np.float64) - scores)


def _by_rule(reference: np.ndarray, candidate: np.ndarray, rule: DecisionRule) -> Decided | None:
    rank = reference.ndim
    if rule.kind == "threshold":
        return _count_sides(reference, candidate, rule.at)
    if not rank or not -rank <= rule.axis < rank or reference.shape[rule.axis] < 2:
        return None
    kind: DecisionKind = "classes" if rank <= _ROWS else "positions" if rank == _SEQUENCE else "segments"
    return _count_changes(kind, reference, candidate, rule.axis, top=rule.top, blank=rule.blank)


def _by_values(reference: np.ndarray, candidate: np.ndarray, name: str) -> Decided | None:
    rank = reference.ndim
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


def _count_changes(
    kind: DecisionKind,
    reference: np.ndarray,
    candidate: np.ndarray,
    axis: int,
    *,
    top: int = _TOP,
    blank: int | None = None,
) -> Decided:
    """Best classes along `axis` that are others; one among NaN is another."""
    lost = np.isnan(candidate).any(axis=axis)
    best, others = reference.argmax(axis=axis), candidate.argmax(axis=axis)
    changed = lost | (best != others)
    found = Decided(kind=kind, count=changed.size, changed=int(changed.sum()), axis=axis)
    if kind == "positions":
        was, became = best.reshape(len(best), -1), np.where(lost, -1, others).reshape(len(best), -1)
        texts = [_spell(one, _blank_of(was, reference.shape[axis], blank)) for one in (was, became)]
        found = replace(found, sequences=len(was), sequences_changed=sum(a != b for a, b in zip(*texts, strict=True)))
    places = np.flatnonzero(changed & ~lost)
    was, became = (np.asarray(one).reshape(-1)[places] for one in (best, others))
    flips = _flips_at(places, was, became, _lead(reference, axis, places, was, became))
    if kind != "classes":
        return replace(found, flips=flips)
    moved = _find_reordered(reference, candidate, axis, top)
    behind = set(moved[:, PLACE].tolist()) - set(np.flatnonzero(changed).tolist())
    return replace(found, reordered=len(behind), flips=_clearest(np.concatenate([flips, moved])))


def _find_reordered(reference: np.ndarray, candidate: np.ndarray, axis: int, top: int) -> np.ndarray:
    """Of each row, the places behind the best among the `top` that another class of less score has taken."""
    ours, theirs = (np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in (reference, candidate))
    ranks = range(1, min(top, ours.shape[1]))
    first, second = (np.argsort(-one, axis=1, kind="stable")[:, 1 : len(ranks) + 1] for one in (ours, theirs))
    rows, at = np.nonzero((first != second) & ~np.isnan(theirs).any(axis=1)[:, None])
    was, became = first[rows, at], second[rows, at]
    gaps = ours[rows, was].astype(np.float64) - ours[rows, became]
    less = gaps > 0
    return _flips_at(rows[less], was[less], became[less], gaps[less], at[less] + 1)


def _blank_of(best: np.ndarray, classes: int, stated: int | None) -> int | None:
    """The class that stands for nothing in a text; None where there is none."""
    usual = next((one for one in (0, classes - 1) if (best == one).mean() >= _BLANK), None)
    return usual if stated is None else stated


def _spell(best: np.ndarray, blank: int | None) -> list[list[int]]:
    """The classes of each sequence (sequences, steps); with a blank without it and without repeats, as CTC reads them."""
    if blank is None:
        return [row.tolist() for row in best]
    return [
        [one for at, one in enumerate(row) if one != blank and (not at or row[at - 1] != one)] for row in best.tolist()
    ]


def choices_that_passed(
    scores: np.ndarray, places: np.ndarray, chosen: np.ndarray, order: np.ndarray, sample: int
) -> np.ndarray:
    """Flips of a sort along the last axis of `scores`: each two of its rows that stand the other way round in the candidate.

    Args:
        scores: What was sorted, any shape.
        places: Of each row its flat place among the other axes: int64, (rows,).
        chosen: Of each row its index along the last axis.
        order: Where the candidate has each row.
        sample: The sample.
    """
    by_place = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
    first, second = np.triu_indices(len(order), 1)
    passed = (order[first] > order[second]) & (places[first] == places[second])
    first, second = first[passed], second[passed]
    gaps = by_place[places[first], chosen[first]] - by_place[places[second], chosen[second]]
    flips = _flips_at(places[first], chosen[first], chosen[second], gaps, first)
    flips[:, SAMPLE] = sample
    return flips


def _compare_choices(reference: np.ndarray, candidate: np.ndarray, rule: DecisionRule, sample: int) -> Decided | None:
    """Choices that the output holds itself; by how much the scores were for them is not known here."""
    if kind_of(reference.dtype) != "exact":
        return None
    changed = reference != candidate
    kind: DecisionKind = "order" if rule.kind == "order" else "classes"
    ours, theirs = reference, candidate
    if kind == "order" and reference.ndim:
        ours, theirs, changed = (np.moveaxis(one, rule.axis, -1) for one in (reference, candidate, changed))
    places = np.flatnonzero(changed)
    width = ours.shape[-1] if kind == "order" and ours.ndim else 1
    flips = _flips_at(
        places // width, ours.ravel()[places], theirs.ravel()[places], np.full(len(places), np.nan), places % width
    )
    flips[:, SAMPLE] = sample
    return Decided(kind=kind, count=reference.size, changed=int(changed.sum()), flips=flips, axis=rule.axis)


def _count_sides(
    reference: np.ndarray, candidate: np.ndarray, at: float, kind: DecisionKind = "sides"
) -> Decided | None:
    """Numbers above `at` on one side alone; of a mask the count is of those inside on either side."""
    if kind == "sides" and reference.ndim == _MAP and 1 in {reference.shape[1], reference.shape[3]}:
        kind = "mask"
    ours, theirs = reference > at, candidate > at
    changed = (ours != theirs) | np.isnan(candidate)
    places = np.flatnonzero(changed & ~np.isnan(candidate))
    gaps = np.abs(reference.reshape(-1)[places].astype(np.float64) - at)
    flips = _flips_at(places, ours.ravel()[places], theirs.ravel()[places], gaps)
    count = int((ours | theirs).sum()) if kind == "mask" else changed.size
    return Decided(kind=kind, count=count, changed=int(changed.sum()), flips=flips, at=at)


def _measure_map(reference: np.ndarray, candidate: np.ndarray, *, told: bool) -> Decided | None:
    """A segments (batch, classes, height, width), or a mask with its one channel first or last."""
    channels = reference.shape[1]
    if 1 in {channels, reference.shape[3]}:
        return _count_sides(reference, candidate, _INSIDE, "mask") if _is_mask(reference) else None
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
    scored = _score_places(scores, last=last).astype(np.float64)
    held, found = scored > _SCORING, _score_places(theirs[:, _BOX:], last=last) > _SCORING
    places = np.flatnonzero(held != found)
    flips = _flips_at(places, held.ravel()[places], found.ravel()[places], np.abs(scored.ravel()[places] - _SCORING))
    return Decided(
        kind="boxes",
        count=int(held.sum()),
        changed=int((held & ~found).sum()),
        new=int((found & ~held).sum()),
        flips=flips,
        at=_SCORING,
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
